//! L0: the words every other crate speaks. Ids, addresses, time, verdicts and the events made of
//! them, signed tokens, and what gateways share.
//!
//! Pure: no sockets, no files, no clock but [`clock::Clock`], no randomness but an injected source.

pub mod addr;
pub mod clock;
pub mod event;
pub mod id;
pub mod shared;
pub mod token;
pub mod verdict;

pub use addr::{ClientIp, PeerAddr};
pub use clock::{Clock, FakeClock, SystemClock};
pub use event::Event;
pub use id::{Id, IdError};
pub use shared::{LocalShared, SharedError, SharedStore};
pub use verdict::{Reason, Stage, Verdict};
