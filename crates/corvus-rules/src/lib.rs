//! L1: expressions over requests, path normalisation and matchers.
//!
//! Knows nothing of connections or configuration: a request is whatever implements
//! [`expr::Fields`].

pub mod expr;
pub mod ip_set;
pub mod path;

pub use expr::{Expr, ExprError, Fields};
pub use ip_set::IpSet;
