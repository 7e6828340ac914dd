//! What gateways behind one address tell each other: bans, locks, challenge tokens, encrypted
//! certificates, spent challenges. Small values under a name that run out by themselves.
//!
//! [`LocalShared`] serves a gateway that is alone; `corvus-queue` has the twin for Valkey and Redis.
//! One set of tests holds both to the same behaviour.

mod local;

use std::{pin::Pin, time::Duration};

pub use self::local::LocalShared;

/// Longest value, bytes.
pub const MAX_VALUE: usize = 1 << 20;
/// Longest name of a family, bytes.
pub const MAX_FAMILY: usize = 32;
/// Longest key, bytes.
pub const MAX_KEY: usize = 256;
/// Longest time to live.
pub const MAX_TTL: Duration = Duration::from_hours(400 * 24);
/// Values of one family.
pub const MAX_ENTRIES: usize = 100_000;
/// Values in one page of [`SharedStore::list`].
pub const PAGE_ENTRIES: usize = 100;
/// Bytes of values at which a page of [`SharedStore::list`] ends; the last value may go beyond.
pub const PAGE_BYTES: usize = 1 << 20;

/// An answer under way.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, SharedError>> + Send + 'a>>;

/// Values that every gateway sees.
///
/// A value has a family (`bans`; 1 to 32 of `a-z`, `0-9`, `-`, `_`) and a key in it (1 to 256 bytes
/// of printable ASCII without spaces). It lives for `ttl`, from a millisecond to 400 days, and is
/// gone to the millisecond: a lock that ran out is not held. Each call is atomic.
///
/// A store may lose everything at any time, and a lock is a means to save work, not one to rely
/// on: what must not happen twice needs a second guard at its goal.
pub trait SharedStore: Send + Sync {
    fn get<'a>(&'a self, family: &'a str, key: &'a str) -> Answer<'a, Option<Vec<u8>>>;

    /// Writes over what there is.
    fn put<'a>(
        &'a self,
        family: &'a str,
        key: &'a str,
        value: &'a [u8],
        ttl: Duration,
    ) -> Answer<'a, ()>;

    /// Writes only where nothing is: takes a lock, or uses what may be used once. False: something
    /// is there. That can be this very value, where a store was asked twice because a connection
    /// broke: whoever must know gives each call a value of its own and reads it back.
    fn put_new<'a>(
        &'a self,
        family: &'a str,
        key: &'a str,
        value: &'a [u8],
        ttl: Duration,
    ) -> Answer<'a, bool>;

    fn remove<'a>(&'a self, family: &'a str, key: &'a str) -> Answer<'a, ()>;

    /// Removes the value if it is still this one: gives a lock back that may be somebody else's by
    /// now. False: it is not, or a call that was done twice had removed it.
    fn remove_if<'a>(&'a self, family: &'a str, key: &'a str, value: &'a [u8]) -> Answer<'a, bool>;

    /// Lets the value live for `ttl` from now if it is still this one: holds a lock longer. False:
    /// it is not.
    fn extend_if<'a>(
        &'a self,
        family: &'a str,
        key: &'a str,
        value: &'a [u8],
        ttl: Duration,
    ) -> Answer<'a, bool>;

    /// The values of a family in the order of their keys, a page at a time: `after` is what the
    /// page before said, `None` for the first. What is there from the first page to the last is
    /// in exactly one of them; a page may be short, or empty, before the last.
    fn list<'a>(&'a self, family: &'a str, after: Option<&'a Cursor>) -> Answer<'a, Page>;
}

/// Where the next page begins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cursor(String);

impl Cursor {
    /// For stores: behind `key`.
    pub fn behind(key: String) -> Self {
        Self(key)
    }

    pub fn key(&self) -> &str {
        &self.0
    }
}

/// A part of a family.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Page {
    pub entries: Vec<(String, Vec<u8>)>,
    /// `None`: this is the last.
    pub next: Option<Cursor>,
}

/// Why nothing was done, or perhaps nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SharedError {
    /// It may have been done all the same.
    #[error("the shared store cannot be reached: {0}")]
    Unreachable(String),
    /// Old values can still be written over.
    #[error("the shared store has no room for more")]
    Full,
    /// The server does not do what is asked of it.
    #[error("the shared store refuses: {0}")]
    Refused(String),
    #[error("a value of {0} bytes cannot be shared, at most {MAX_VALUE} can")]
    TooBig(usize),
    #[error("`{0}` is not the name of a family of shared values")]
    BadFamily(String),
    #[error("`{0}` is not the key of a shared value")]
    BadKey(String),
    #[error("a shared value cannot live for {0:?}")]
    BadTtl(Duration),
}

/// For stores: whether the names are good.
pub fn check_names(family: &str, key: &str) -> Result<(), SharedError> {
    check_family(family)?;
    let good = (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
    if good { Ok(()) } else { Err(SharedError::BadKey(shown(key, MAX_KEY))) }
}

/// For stores: whether the name of a family is good.
pub fn check_family(family: &str) -> Result<(), SharedError> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    let good = (1..=MAX_FAMILY).contains(&family.len()) && family.bytes().all(allowed);
    if good { Ok(()) } else { Err(SharedError::BadFamily(shown(family, MAX_FAMILY))) }
}

/// For stores: whether the value may be written. Gives the time to live in milliseconds.
pub fn check_value(value: &[u8], ttl: Duration) -> Result<u64, SharedError> {
    if value.len() > MAX_VALUE {
        return Err(SharedError::TooBig(value.len()));
    }
    check_ttl(ttl)
}

/// For stores: whether a value may live so long. Gives milliseconds.
pub fn check_ttl(ttl: Duration) -> Result<u64, SharedError> {
    match u64::try_from(ttl.as_millis()) {
        Ok(ms) if ms > 0 && ttl <= MAX_TTL => Ok(ms),
        _ => Err(SharedError::BadTtl(ttl)),
    }
}

/// A name that may have come from anywhere, short enough for a log.
fn shown(name: &str, max: usize) -> String {
    name.chars().take(max).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests;
