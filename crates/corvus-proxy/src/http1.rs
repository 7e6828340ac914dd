//! Our own HTTP/1.0 and 1.1 codec, for both sides (docs/adr/0001-data-plane.md says why).

pub(crate) mod body;
pub(crate) mod chunked;
pub(crate) mod framing;
pub(crate) mod parse;
pub(crate) mod server;
pub(crate) mod write;
