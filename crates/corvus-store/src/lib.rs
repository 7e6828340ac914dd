//! L3: everything that the control plane keeps, in one SQLite database.
//!
//! [`Store::open`] makes or opens `DATA/corvus.db`. [`Store::read`] runs queries on one state of the
//! database, [`Store::write`] runs changes as one transaction: when it returns, all of them are on
//! the disk, or none is. What can be asked is on [`Reader`], what can be changed on [`Writer`]:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use corvus_store::{NewVersion, Store, audit::NewEntry};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let clock = Arc::new(corvus_core::SystemClock::new());
//! let store = Store::open("/data".as_ref(), clock, None)?;
//! let version = store.write(|w| {
//!     let change = NewVersion { base: 0, author: "ana", comment: "first", document: "version: 1" };
//!     let version = w.append_version(&change)?;
//!     w.audit(&NewEntry { actor: "ana", kind: "config.saved", ..NewEntry::default() })?;
//!     Ok(version)
//! })?;
//! # Ok(()) }
//! ```
//!
//! Calls block on the disk; asynchronous callers make them on a thread that may block. A call of
//! [`Store::write`] inside another one waits for ever.

pub mod accounts;
pub mod audit;
pub mod backup;
pub mod certificates;
mod error;
mod files;
mod key;
mod open;
pub mod secrets;
pub mod sessions;
mod store;
pub mod tokens;
pub mod versions;

#[cfg(test)]
mod testing;

pub use accounts::{Account, AccountId, Profile, Role};
pub use error::{Result, StoreError};
pub use key::KeyError;
pub use open::{DATABASE, MARKER, OpenError, SECRET_KEY};
pub use store::{MAX_PAGE, Reader, Store, Writer};
pub use versions::{NewVersion, Version, VersionInfo};
pub use zeroize::Zeroizing;
