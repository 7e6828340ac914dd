//! L5: puts the parts together and runs them.
//!
//! [`app`] builds a gateway from a [`app::Config`] and runs it; [`cli`] reads the command line;
//! [`demo`] is a shop with a queue and simulated visitors.

pub mod app;
pub mod cli;
pub mod demo;
mod source;

pub use app::{App, Config};
pub use source::Source;
