//! L0: the words every other crate speaks. Ids, addresses, time, verdicts and the events made of
//! them, and signed tokens.
//!
//! Pure: no sockets, no files, no clock but [`clock::Clock`], no randomness but an injected source.

pub mod addr;
pub mod clock;
pub mod event;
pub mod id;
pub mod token;
pub mod verdict;

pub use addr::{ClientIp, PeerAddr};
pub use clock::{Clock, FakeClock, SystemClock};
pub use event::Event;
pub use id::{Id, IdError};
pub use verdict::{Reason, Stage, Verdict};
