//! Shared values in Valkey or Redis, and the connection that this crate's small parts need.
//!
//! ```text
//! corvus:shared:{<family>}:v:<key>   a value; the server ends it
//! corvus:shared:{<family>}:names     sorted set of the keys, for lists
//! corvus:shared:{<family>}:ends      sorted set of the same, by when they end
//! ```

use std::{sync::LazyLock, time::Duration};

use corvus_core::shared::{
    Answer, Cursor, MAX_ENTRIES, PAGE_BYTES, PAGE_ENTRIES, Page, SharedError, SharedStore,
    check_family, check_names, check_ttl, check_value,
};
use redis::{Cmd, ToRedisArgs, Value};

use crate::valkey::Script;

static SCRIPT: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../script/shared.lua").to_owned()));

/// A connection to Valkey or Redis, as much of one as is needed here. It is bounded in time, and
/// sends nothing twice of which it does not know that it was not done.
pub trait Commands: Send + Sync {
    fn command(&self, command: Cmd) -> impl Future<Output = Result<Value, CommandError>> + Send;
}

/// Why a command has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CommandError {
    /// A transport failure, or no answer in time. It may have been done.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    #[error("the store has no memory left")]
    Full,
    /// The script has to be sent once more, as text.
    #[error("the store does not know the script")]
    NoScript,
    #[error("the store refuses: {0}")]
    Refused(String),
}

impl From<redis::RedisError> for CommandError {
    fn from(error: redis::RedisError) -> Self {
        match error.code() {
            Some("OOM") => Self::Full,
            Some("NOSCRIPT") => Self::NoScript,
            // It will pass: a node that starts, or that just became a replica.
            Some("LOADING" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY") => {
                Self::Unreachable(error.to_string())
            }
            Some(_) => Self::Refused(error.to_string()),
            None => Self::Unreachable(error.to_string()),
        }
    }
}

impl From<CommandError> for SharedError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Unreachable(why) => Self::Unreachable(why),
            CommandError::Full => Self::Full,
            CommandError::NoScript => Self::Refused(error.to_string()),
            CommandError::Refused(why) => Self::Refused(why),
        }
    }
}

/// [`SharedStore`] in Valkey or Redis.
pub struct ValkeyShared<C> {
    store: C,
    max_entries: usize,
}

impl<C: Commands> ValkeyShared<C> {
    pub fn new(store: C) -> Self {
        Self::with_room_for(MAX_ENTRIES, store)
    }

    /// With room for fewer values in each family.
    pub fn with_room_for(max_entries: usize, store: C) -> Self {
        Self { store, max_entries }
    }

    /// Runs the script. `key` is the value's, or where a list goes on; `args` is what follows it.
    async fn run(
        &self,
        what: &str,
        family: &str,
        key: &str,
        args: impl ToRedisArgs + Send + Sync,
    ) -> Result<Value, SharedError> {
        let eval = |command: &str, script: &str| {
            let of_family = |rest: &str| format!("corvus:shared:{{{family}}}:{rest}");
            let prefix = of_family("v:");
            let mut command = redis::cmd(command);
            command.arg(script).arg(3).arg(of_family("names")).arg(of_family("ends"));
            command.arg(format!("{prefix}{key}")).arg(what).arg(&prefix).arg(key).arg(&args);
            command
        };
        match self.store.command(eval("EVALSHA", SCRIPT.sha())).await {
            Err(CommandError::NoScript) => {
                Ok(self.store.command(eval("EVAL", SCRIPT.source())).await?)
            }
            result => Ok(result?),
        }
    }

    /// As [`Self::run`], for what answers with a number.
    async fn count(
        &self,
        what: &str,
        family: &str,
        key: &str,
        args: impl ToRedisArgs + Send + Sync,
    ) -> Result<i64, SharedError> {
        match self.run(what, family, key, args).await? {
            Value::Int(n) => Ok(n),
            _ => Err(strange()),
        }
    }

    async fn write(
        &self,
        what: &str,
        (family, key): (&str, &str),
        value: &[u8],
        ttl: Duration,
    ) -> Result<bool, SharedError> {
        check_names(family, key)?;
        let ttl_ms = check_value(value, ttl)?;
        match self.count(what, family, key, (value, ttl_ms, self.max_entries)).await? {
            0 => Ok(false),
            1 => Ok(true),
            -1 => Err(SharedError::Full),
            _ => Err(strange()),
        }
    }
}

impl<C: Commands> SharedStore for ValkeyShared<C> {
    fn get<'a>(&'a self, family: &'a str, key: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            check_names(family, key)?;
            let mut command = redis::cmd("GET");
            command.arg(format!("corvus:shared:{{{family}}}:v:{key}"));
            match self.store.command(command).await? {
                Value::Nil => Ok(None),
                Value::BulkString(value) => Ok(Some(value)),
                _ => Err(strange()),
            }
        })
    }

    fn put<'a>(
        &'a self,
        family: &'a str,
        key: &'a str,
        value: &'a [u8],
        ttl: Duration,
    ) -> Answer<'a, ()> {
        Box::pin(async move { self.write("put", (family, key), value, ttl).await.map(|_| ()) })
    }

    fn put_new<'a>(
        &'a self,
        family: &'a str,
        key: &'a str,
        value: &'a [u8],
        ttl: Duration,
    ) -> Answer<'a, bool> {
        Box::pin(self.write("new", (family, key), value, ttl))
    }

    fn remove<'a>(&'a self, family: &'a str, key: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            check_names(family, key)?;
            self.count("remove", family, key, None::<&str>).await.map(|_| ())
        })
    }

    fn remove_if<'a>(&'a self, family: &'a str, key: &'a str, value: &'a [u8]) -> Answer<'a, bool> {
        Box::pin(async move {
            check_names(family, key)?;
            Ok(self.count("removeif", family, key, value).await? == 1)
        })
    }

    fn extend_if<'a>(
        &'a self,
        family: &'a str,
        key: &'a str,
        value: &'a [u8],
        ttl: Duration,
    ) -> Answer<'a, bool> {
        Box::pin(async move {
            check_names(family, key)?;
            let ttl_ms = check_ttl(ttl)?;
            Ok(self.count("extend", family, key, (value, ttl_ms)).await? == 1)
        })
    }

    fn list<'a>(&'a self, family: &'a str, after: Option<&'a Cursor>) -> Answer<'a, Page> {
        Box::pin(async move {
            check_family(family)?;
            let after = after.map_or("", Cursor::key);
            let found = self.run("list", family, after, (PAGE_ENTRIES, PAGE_BYTES)).await?;
            page(found).ok_or_else(strange)
        })
    }
}

/// The script's list: where the next page begins, then names and values in turn.
fn page(found: Value) -> Option<Page> {
    let Value::Array(found) = found else { return None };
    let mut fields = found.into_iter().map(|field| match field {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    });
    let next = String::from_utf8(fields.next()??).ok()?;
    let next = (!next.is_empty()).then(|| Cursor::behind(next));
    let mut entries = Vec::new();
    while let Some(name) = fields.next() {
        entries.push((String::from_utf8(name?).ok()?, fields.next()??));
    }
    Some(Page { entries, next })
}

fn strange() -> SharedError {
    SharedError::Refused("an answer of another form".into())
}

#[cfg(test)]
pub(crate) mod tests;
