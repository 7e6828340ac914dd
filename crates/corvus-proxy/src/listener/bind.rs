//! Opening sockets, one for each worker on the same address.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{0} is in use by another program")]
    InUse(SocketAddr),
    #[error("{0} may only be listened on with more rights (ports below 1024)")]
    NotAllowed(SocketAddr),
    #[error("{0} cannot be listened on")]
    Other(SocketAddr, #[source] io::Error),
}

/// `count` sockets on `address`; port 0 picks a free one, the same for all.
///
/// `[::]` becomes `0.0.0.0` on a machine without IPv6.
pub fn bind(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, BindError> {
    let any_v6 = address.ip() == Ipv6Addr::UNSPECIFIED;
    match bind_exactly(address, count) {
        Err(BindError::Other(_, cause)) if any_v6 && lacks_ipv6(&cause) => {
            bind_exactly((Ipv4Addr::UNSPECIFIED, address.port()).into(), count)
        }
        bound => bound,
    }
}

fn lacks_ipv6(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::AddrNotAvailable
        || cause.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn bind_exactly(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, BindError> {
    let error = |cause: io::Error| match cause.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address),
        io::ErrorKind::PermissionDenied => BindError::NotAllowed(address),
        _ => BindError::Other(address, cause),
    };
    // With SO_REUSEPORT a second gateway would quietly share the port with the first. So the port
    // is tried without it; connections that linger in TIME_WAIT do not count.
    if address.port() != 0 {
        drop(open(address, false).map_err(error)?);
    }
    let mut address = address;
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = open(address, true).map_err(error)?;
        address = socket.local_addr().map_err(error)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

fn open(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` takes IPv4 as well, as people expect.
        socket.set_only_v6(false)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_told() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let first = bind(any, 2).unwrap();
        let address = first[0].local_addr().unwrap();
        assert_eq!(address, first[1].local_addr().unwrap());
        assert!(matches!(bind(address, 1), Err(BindError::InUse(a)) if a == address));
        drop(first);
        assert!(bind(address, 1).is_ok());
    }
}
