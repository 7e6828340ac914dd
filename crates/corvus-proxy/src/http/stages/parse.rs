//! Stage 1: what is malformed or can be read in two ways goes no further.

use corvus_core::{Stage, event::Protocol};

use crate::{
    http::{exchange::Exchange, name::Name, pipeline::Stop, rescue::Failure},
    http1::{
        framing::{self, Target},
        parse::Malformed,
    },
};

pub(crate) fn check(x: &mut Exchange) -> Result<(), Stop> {
    if let Some(why) = x.malformed {
        return Err(Failure::Malformed(why).into());
    }
    x.authority = match x.protocol {
        Protocol::Http2 => authority_h2(x),
        Protocol::Http10 | Protocol::Http11 => authority_h1(x),
    }
    .map_err(Failure::Malformed)?;
    // CONNECT asks for a tunnel to anywhere, TRACE echoes cookies to scripts.
    if matches!(x.head.method(), b"CONNECT" | b"TRACE") {
        return Err(Failure::denied(405, Stage::Parse, "method_not_allowed").into());
    }
    Ok(())
}

/// The host a request is for, after bringing an absolute target into origin form.
fn authority_h1(x: &mut Exchange) -> Result<Vec<u8>, Malformed> {
    let host = framing::host(&x.head)?.unwrap_or_default().to_vec();
    if x.head.method() == b"CONNECT" {
        return Ok(host);
    }
    match framing::target(x.head.method(), x.head.target())? {
        Target::Origin | Target::Asterisk => Ok(host),
        // RFC 9112 section 3.2.2: the target's authority replaces the Host header.
        Target::Absolute { authority, rest } => {
            let authority = authority.to_vec();
            let rest = match rest {
                [b'/', ..] => rest.to_vec(),
                rest => [b"/", rest].concat(),
            };
            x.replace_target(&rest);
            Ok(authority)
        }
    }
}

/// RFC 9113 section 8.3.1: `:authority` stands for Host; two that differ are two readings.
fn authority_h2(x: &Exchange) -> Result<Vec<u8>, Malformed> {
    let mut hosts = x.head.headers.all(Name::Host);
    let authority = match (&x.authority[..], hosts.next()) {
        ([], None) => return Err(Malformed::Host),
        ([], Some(host)) => host,
        (authority, Some(host)) if !host.eq_ignore_ascii_case(authority) => {
            return Err(Malformed::Host);
        }
        (authority, _) => authority,
    };
    if hosts.next().is_some() || !framing::is_authority(authority) {
        return Err(Malformed::Host);
    }
    if x.head.method() != b"CONNECT" {
        framing::target(x.head.method(), x.head.target())?;
    }
    Ok(authority.to_vec())
}
