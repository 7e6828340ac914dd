//! L1: expressions over requests, path normalisation and matchers.

pub mod expr;

pub use expr::{Expr, ExprError, Fields};
