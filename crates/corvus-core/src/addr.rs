//! Addresses as types: the peer at the other end of the socket is not always the client.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

/// The other end of a connection, as the kernel (or a PROXY header from an allowed sender) names it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PeerAddr(pub SocketAddr);

impl PeerAddr {
    /// The peer's address, an IPv4-mapped IPv6 address folded to IPv4.
    pub fn ip(self) -> IpAddr {
        self.0.ip().to_canonical()
    }
}

/// The address a request is counted, limited and logged under: the peer's, or what trusted proxies
/// say of it. Always canonical (never IPv4-mapped IPv6).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClientIp(IpAddr);

impl ClientIp {
    pub fn new(ip: IpAddr) -> Self {
        Self(ip.to_canonical())
    }

    pub fn ip(self) -> IpAddr {
        self.0
    }

    /// The unit limits count by: an IPv4 address, or the /64 of an IPv6 address. One subscriber
    /// holds a whole /64, so counting single addresses would give each of them 2^64 budgets.
    pub fn limit_key(self) -> IpAddr {
        match self.0 {
            IpAddr::V4(_) => self.0,
            IpAddr::V6(v6) => IpAddr::V6(mask_v6(v6, 64)),
        }
    }

    /// The network a token may be bound to (`bind_network`): /24 of IPv4, /48 of IPv6.
    pub fn token_network(self) -> IpAddr {
        match self.0 {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                IpAddr::from([a, b, c, 0])
            }
            IpAddr::V6(v6) => IpAddr::V6(mask_v6(v6, 48)),
        }
    }
}

impl fmt::Display for ClientIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn mask_v6(ip: Ipv6Addr, bits: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << (128 - bits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_are_folded() {
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(ClientIp::new(mapped).ip(), "192.0.2.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn limits_and_tokens_use_networks() {
        let ip = ClientIp::new("2001:db8:1:2:3:4:5:6".parse().unwrap());
        assert_eq!(ip.limit_key(), "2001:db8:1:2::".parse::<IpAddr>().unwrap());
        assert_eq!(ip.token_network(), "2001:db8:1::".parse::<IpAddr>().unwrap());
        let ip = ClientIp::new("192.0.2.77".parse().unwrap());
        assert_eq!(ip.limit_key(), "192.0.2.77".parse::<IpAddr>().unwrap());
        assert_eq!(ip.token_network(), "192.0.2.0".parse::<IpAddr>().unwrap());
    }
}
