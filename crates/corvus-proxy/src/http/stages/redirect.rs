//! Stage 6: answers that need nothing but the configuration.

use corvus_core::event::Outcome;

use crate::{
    http::{exchange::Exchange, name::Name, pipeline::Stop, response::Response},
    http1::framing::split_port,
};

/// Force HTTPS.
pub(crate) fn decide(x: &Exchange) -> Result<(), Stop> {
    let forced = x.site.as_ref().is_some_and(|site| site.host.tls.force_https);
    if !forced || x.https {
        return Ok(());
    }
    // 301 may turn POST into GET; 308 may not (RFC 9110 section 15.4.9).
    let status = if matches!(x.head.method(), b"GET" | b"HEAD") { 301 } else { 308 };
    let (host, port) = split_port(&x.authority);
    let mut location = b"https://".to_vec();
    location.extend_from_slice(host);
    // A client that came to our own port directly, without a mapping in between, finds HTTPS on our
    // own port as well.
    let direct = port.is_some_and(|port| port == x.conn.local_port.to_string().as_bytes());
    if let Some(https) = x.conn.https_port.filter(|port| direct && *port != 443) {
        location.extend_from_slice(format!(":{https}").as_bytes());
    }
    location.extend_from_slice(x.head.target());
    Err(Response::own(status, Outcome::Answered).with(Name::Location, &location).into())
}
