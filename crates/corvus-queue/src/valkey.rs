//! The engine for several gateways: one script on a Valkey or Redis server that all of them call.

pub(crate) mod script;

pub use script::Level;
