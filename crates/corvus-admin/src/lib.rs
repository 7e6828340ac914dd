//! The control plane: applying configurations, and the console's address.
//!
//! It reads live state through handles and changes behaviour by publishing a Snapshot; it never
//! reaches into the data plane.

pub mod apply;
pub mod console;
pub mod healthcheck;

pub use apply::{Applied, Applier, ApplyError};
