//! Addresses on the command line.

use std::net::{Ipv6Addr, SocketAddr};

/// `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `:8080` or `8080`; the last two mean every
/// address of this machine.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = |text: &str| text.parse::<u16>().ok();
    if let Some(port) = port(text.strip_prefix(':').unwrap_or(text)) {
        return Ok((Ipv6Addr::UNSPECIFIED, port).into());
    }
    match text.split_once(':').map(|(host, rest)| (host, port(rest))) {
        Some(("localhost", Some(port))) => Ok(([127, 0, 0, 1], port).into()),
        _ => Err("not an address like `127.0.0.1:8080`, `[::]:8080` or `8080`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, expected) in [
            ("127.0.0.1:80", Some("127.0.0.1:80")),
            ("[::1]:80", Some("[::1]:80")),
            (":80", Some("[::]:80")),
            ("80", Some("[::]:80")),
            ("localhost:80", Some("127.0.0.1:80")),
            ("80000", None),
            ("example.com:80", None),
            ("", None),
        ] {
            let address = parse_address(text).ok().map(|address| address.to_string());
            assert_eq!(address.as_deref(), expected, "{text}");
        }
    }
}
