//! Ports and directories for programs that cannot be told "any".

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use tempfile::TempDir;

// Below Linux's ephemeral range (32768 and up), so that nobody who asks for port 0 is given one of
// these between our probe and the use.
const FIRST: u16 = 10_240;
const COUNT: u16 = 20_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port of 127.0.0.1 that is free for TCP and UDP now. Test processes start at places of their
/// own in the range, so that parallel ones seldom meet.
pub fn free_port() -> u16 {
    // A step that is prime to COUNT: processes with neighbouring ids start far from each other.
    let start = (u64::from(std::process::id()) * 7919 % u64::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + ((u32::from(start) + u32::from(step)) % u32::from(COUNT)) as u16;
        let addr = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(addr).is_ok() && UdpSocket::bind(addr).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}

/// An empty directory for a gateway's or a store's data; removed with its value.
pub fn data_dir() -> TempDir {
    tempfile::Builder::new().prefix("corvus-test-").tempdir().expect("a temporary directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_each_caller_another_port() {
        let ports: std::collections::HashSet<_> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|&p| (FIRST..FIRST + COUNT).contains(&p)));
    }
}
