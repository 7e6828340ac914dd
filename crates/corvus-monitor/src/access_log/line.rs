//! Formats one line. Runs once for each request, on the request path: one pass, one buffer, no
//! allocation.

use std::io::Write;
use std::net::IpAddr;

use corvus_core::Event;
use jiff::Timestamp;

/// Bytes of one client text that are logged. A head may carry 64 KiB of path, and the log is not
/// where that should end up.
pub(super) const TEXT_BYTES: usize = 8192;

/// The date and time of the second that was written last: formatting it takes longer than the rest
/// of the line, and thousands of requests share it.
#[derive(Debug)]
pub(super) struct SecondText {
    second: u64,
    text: [u8; 19],
}

impl Default for SecondText {
    fn default() -> Self {
        Self { second: 0, text: *b"1970-01-01T00:00:00" }
    }
}

impl SecondText {
    fn at(&mut self, second: u64) -> &[u8] {
        if second != self.second
            && let Ok(timestamp) = Timestamp::from_second(second.cast_signed())
            && let Some(text) = timestamp.to_string().as_bytes().first_chunk()
        {
            *self = Self { second, text: *text };
        }
        &self.text
    }
}

/// Appends the line of `event`.
///
/// What we know ourselves comes first, and everything that a client wrote comes after it: whoever
/// reads a line from the left, or greps for an address, cannot be shown a forged one.
pub(super) fn push_line(out: &mut Vec<u8>, event: &Event<'_>, second: &mut SecondText) {
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(second.at(event.at_ms / 1000));
    push_milliseconds(out, event.at_ms % 1000);
    out.extend_from_slice(b"\",\"client\":\"");
    push_ip(out, event.client.ip());
    out.push(b'"');
    let mut cut = push_text(out, "request_id", event.request_id.as_bytes());
    push_number(out, "status", u64::from(event.status));
    push_text(out, "outcome", event.outcome.name().as_bytes());
    if let Some(site) = event.site {
        push_text(out, "site", site.as_str().as_bytes());
    }
    push_number(out, "version", event.version);
    push_text(out, "protocol", event.protocol.name().as_bytes());
    out.extend_from_slice(if event.tls { b",\"tls\":true" } else { b",\"tls\":false" });
    push_number(out, "sent", event.sent);
    push_number(out, "received", event.received);
    push_number(out, "duration_us", event.duration_us);
    if let Some(upstream) = event.upstream {
        push_text(out, "upstream", upstream.as_bytes());
    }
    if let Some(us) = event.upstream_us {
        push_number(out, "upstream_us", us);
    }
    if let Some(reason) = event.reason {
        push_text(out, "stage", reason.stage.name().as_bytes());
        push_text(out, "rule", reason.rule.as_bytes());
    }
    // From here on: client text.
    cut |= push_text(out, "method", event.method);
    cut |= push_text(out, "host", event.host);
    cut |= push_text(out, "target", event.target);
    if let Some(reason) = event.reason {
        cut |= push_text(out, "input", reason.input.as_deref().unwrap_or_default().as_bytes());
        cut |=
            push_text(out, "fragment", reason.fragment.as_deref().unwrap_or_default().as_bytes());
    }
    cut |= push_text(out, "referer", event.referer);
    cut |= push_text(out, "user_agent", event.user_agent);
    if cut {
        out.extend_from_slice(b",\"cut\":true");
    }
    out.extend_from_slice(b"}\n");
}

fn push_milliseconds(out: &mut Vec<u8>, ms: u64) {
    let digit = |n: u64| b'0' + (n % 10) as u8;
    out.extend_from_slice(&[b'.', digit(ms / 100), digit(ms / 10), digit(ms), b'Z']);
}

fn push_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => {
            for (index, octet) in v4.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        // Writing to a Vec does not fail.
        IpAddr::V6(v6) => drop(write!(out, "{v6}")),
    }
}

fn push_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn push_number(out: &mut Vec<u8>, name: &str, value: u64) {
    push_name(out, name);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A text field, left out when empty. Returns whether it had to be cut.
fn push_text(out: &mut Vec<u8>, name: &str, text: &[u8]) -> bool {
    if text.is_empty() {
        return false;
    }
    push_name(out, name);
    out.push(b'"');
    let kept = text.get(..TEXT_BYTES).unwrap_or(text);
    // Nearly all texts are plain. Asked without leaving early, this takes 16 bytes at a time.
    if kept.iter().fold(true, |all, byte| all & is_plain(*byte)) {
        out.extend_from_slice(kept);
    } else {
        for chunk in kept.utf8_chunks() {
            push_escaped(out, chunk.valid());
            for byte in chunk.invalid() {
                push_unit(out, u16::from(*byte));
            }
        }
    }
    out.push(b'"');
    kept.len() < text.len()
}

/// Printable ASCII as it is, everything else as `\uXXXX`. That keeps line ends and terminal
/// commands out (0x1b, and C1 controls, which UTF-8 hides well), and marks that turn the direction
/// of writing; any JSON parser gives the text back.
fn push_escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text;
    loop {
        let plain = rest.bytes().position(|byte| !is_plain(byte));
        let (run, tail) = rest.split_at(plain.unwrap_or(rest.len()));
        out.extend_from_slice(run.as_bytes());
        let mut chars = tail.chars();
        match chars.next() {
            None => return,
            Some('"') => out.extend_from_slice(b"\\\""),
            Some('\\') => out.extend_from_slice(b"\\\\"),
            Some(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    push_unit(out, *unit);
                }
            }
        }
        rest = chars.as_str();
    }
}

fn push_unit(out: &mut Vec<u8>, unit: u16) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |shift: u16| HEX[usize::from(unit >> shift & 0xf)];
    out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}

/// Whether a byte goes into a JSON string unchanged: printable ASCII but `"` and `\`.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~')
}
