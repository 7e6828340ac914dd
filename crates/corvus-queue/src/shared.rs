//! Shared values in Valkey or Redis, and the connection that this crate's small parts need.
//!
//! ```text
//! corvus:shared:{<family>}:v:<key>   a value; the server ends it
//! corvus:shared:{<family>}:names     sorted set of the keys, for lists
//! corvus:shared:{<family>}:ends      sorted set of the same, by when they end
//! ```

use std::{sync::Arc, time::Duration};

use corvus_core::shared::{
    Answer, Cursor, MAX_ENTRIES, PAGE_BYTES, PAGE_ENTRIES, Page, SharedError, SharedStore,
    check_family, check_names, check_ttl, check_value,
};
use redis::{Cmd, Value};

use crate::valkey::{Link, LinkError, Remote, Script};

/// A connection to Valkey or Redis, as much of one as is needed here. It is bounded in time.
/// To one server it sends nothing twice of which it does not know that it was not done. To a Cluster
/// it may: when a connection to a node breaks, the client sends again what was under way there, and
/// has no setting to tell that from a slot that moved. What is sent must bear being done twice.
pub trait Commands: Send + Sync {
    fn command(&self, command: Cmd) -> impl Future<Output = Result<Value, LinkError>> + Send;

    /// Runs a script on the server that owns the first key's slot.
    fn run(
        &self,
        script: &Arc<Script>,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
    ) -> impl Future<Output = Result<Value, LinkError>> + Send;
}

impl Commands for Link {
    async fn command(&self, command: Cmd) -> Result<Value, LinkError> {
        Self::command(self, command).await
    }

    async fn run(
        &self,
        script: &Arc<Script>,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, LinkError> {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        Self::run(self, script, &keys, &args).await
    }
}

impl Commands for Remote {
    async fn command(&self, command: Cmd) -> Result<Value, LinkError> {
        Self::command(self, command).await
    }

    async fn run(
        &self,
        script: &Arc<Script>,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, LinkError> {
        self.run(script, keys, args).await
    }
}

impl<C: Commands> Commands for Arc<C> {
    async fn command(&self, command: Cmd) -> Result<Value, LinkError> {
        (**self).command(command).await
    }

    async fn run(
        &self,
        script: &Arc<Script>,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, LinkError> {
        (**self).run(script, keys, args).await
    }
}

fn failed(error: LinkError) -> SharedError {
    match error {
        LinkError::Unreachable(why) => SharedError::Unreachable(why),
        LinkError::Full => SharedError::Full,
        LinkError::Refused(why) => SharedError::Refused(why),
    }
}

/// [`SharedStore`] in Valkey or Redis. On a Cluster a call may be done twice, see [`Commands`]: then
/// [`SharedStore::put_new`] can answer false though the value there is ours, and
/// [`SharedStore::remove_if`] though it removed it.
pub struct ValkeyShared<C> {
    store: C,
    script: Arc<Script>,
    max_entries: usize,
}

impl<C: Commands> ValkeyShared<C> {
    pub fn new(store: C) -> Self {
        Self::with_room_for(MAX_ENTRIES, store)
    }

    /// With room for fewer values in each family.
    pub fn with_room_for(max_entries: usize, store: C) -> Self {
        let script = Arc::new(Script::new(include_str!("../script/shared.lua").to_owned()));
        Self { store, script, max_entries }
    }

    /// Runs the script. `key` is the value's, or where a list goes on; `more` is what follows it.
    async fn run(
        &self,
        what: &str,
        (family, key): (&str, &str),
        more: &[&[u8]],
    ) -> Result<Value, SharedError> {
        let of_family = |rest: &str| format!("corvus:shared:{{{family}}}:{rest}");
        let prefix = of_family("v:");
        let keys = vec![of_family("names"), of_family("ends"), format!("{prefix}{key}")];
        let args = [what.as_bytes(), prefix.as_bytes(), key.as_bytes()];
        let args = args.iter().chain(more).map(|arg| arg.to_vec()).collect();
        self.store.run(&self.script, keys, args).await.map_err(failed)
    }

    /// As [`Self::run`], for what answers with a number.
    async fn count(
        &self,
        what: &str,
        name: (&str, &str),
        more: &[&[u8]],
    ) -> Result<i64, SharedError> {
        match self.run(what, name, more).await? {
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
        let (ttl, most) = (ttl_ms.to_string(), self.max_entries.to_string());
        let more = [value, ttl.as_bytes(), most.as_bytes()];
        match self.count(what, (family, key), &more).await? {
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
            match self.store.command(command).await.map_err(failed)? {
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
            self.count("remove", (family, key), &[]).await.map(|_| ())
        })
    }

    fn remove_if<'a>(&'a self, family: &'a str, key: &'a str, value: &'a [u8]) -> Answer<'a, bool> {
        Box::pin(async move {
            check_names(family, key)?;
            Ok(self.count("removeif", (family, key), &[value]).await? == 1)
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
            let ttl = ttl_ms.to_string();
            Ok(self.count("extend", (family, key), &[value, ttl.as_bytes()]).await? == 1)
        })
    }

    fn list<'a>(&'a self, family: &'a str, after: Option<&'a Cursor>) -> Answer<'a, Page> {
        Box::pin(async move {
            check_family(family)?;
            let after = after.map_or("", Cursor::key);
            let (most, bytes) = (PAGE_ENTRIES.to_string(), PAGE_BYTES.to_string());
            let more = [most.as_bytes(), bytes.as_bytes()];
            let found = self.run("list", (family, after), &more).await?;
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
