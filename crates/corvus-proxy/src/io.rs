//! Byte streams and the buffer in front of them.

pub(crate) mod buffer;
pub(crate) mod stream;
pub(crate) mod watch;

pub(crate) use buffer::Buffer;
pub(crate) use stream::{Io, Stream};
pub(crate) use watch::{Watch, Watches};
