//! L2: the Document people write, and the Snapshot the gateway runs on.
//!
//! `document` (serde, as written) -> `compile` (every problem at once) -> [`snapshot::Snapshot`].
//! Pure: reads no file; whoever loads a Document hands over its text.

pub mod host_index;
pub mod queue_settings;
pub mod snapshot;

pub use snapshot::Snapshot;
