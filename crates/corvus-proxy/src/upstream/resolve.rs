//! Names of upstreams become addresses when they are used, and again when the answer is stale.
//!
//! An answer is used for its TTL, at most ten seconds, so that a container that comes back under
//! another address is found without a reload. When asking again fails, the old answer is used: a
//! name server that is down must not take the sites with it.

use std::{
    cell::{OnceCell, RefCell},
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use corvus_core::Clock;
use hickory_resolver::TokioResolver;
use tokio::time::timeout;

/// Time for an answer, when there is none yet and when there is an old one.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
const REFRESH_LIMIT: Duration = Duration::from_secs(1);
/// Longest life of an answer.
const MAX_TTL_MS: u64 = 10_000;
/// Life of a failure, so that a missing name does not cost a question for each request.
const FAILURE_TTL_MS: u64 = 1_000;

#[derive(Debug, Default)]
struct Entry {
    addresses: Vec<IpAddr>,
    failure: Option<String>,
    fresh_until_ms: u64,
}

type Shared = Rc<tokio::sync::Mutex<Entry>>;

/// The answers one worker knows.
pub(crate) struct Resolver {
    names: RefCell<HashMap<String, Shared>>,
    /// Made when first needed; tried again while it cannot be made.
    client: OnceCell<TokioResolver>,
}

impl Resolver {
    pub(crate) fn new() -> Self {
        Self { names: RefCell::default(), client: OnceCell::new() }
    }

    /// Addresses of `name`, never empty.
    pub(crate) async fn resolve(
        &self,
        name: &str,
        port: u16,
        clock: &dyn Clock,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = name.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let shared = Rc::clone(self.names.borrow_mut().entry(name.to_owned()).or_default());
        // One question at a time for a name; the others wait for its answer.
        let mut entry = shared.lock().await;
        if clock.mono_ms() >= entry.fresh_until_ms {
            self.ask(name, &mut entry, clock).await;
        }
        match &entry.failure {
            Some(failure) if entry.addresses.is_empty() => {
                Err(io::Error::new(io::ErrorKind::NotFound, failure.clone()))
            }
            _ => Ok(entry.addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect()),
        }
    }

    /// The answer led nowhere: ask again at the next use.
    pub(crate) async fn forget(&self, name: &str) {
        let shared = self.names.borrow().get(name).cloned();
        if let Some(shared) = shared {
            shared.lock().await.fresh_until_ms = 0;
        }
    }

    /// Drops what no configuration names any more.
    pub(crate) fn retain(&self, used: impl Fn(&str) -> bool) {
        self.names.borrow_mut().retain(|name, _| used(name));
    }

    fn client(&self) -> Result<&TokioResolver, String> {
        if self.client.get().is_none() {
            // Nobody else can have set it meanwhile: there is no await in between.
            let _ = self.client.set(new_client()?);
        }
        self.client.get().ok_or_else(|| "no resolver".to_owned())
    }

    async fn ask(&self, name: &str, entry: &mut Entry, clock: &dyn Clock) {
        let known = !entry.addresses.is_empty();
        let limit = if known { REFRESH_LIMIT } else { ANSWER_LIMIT };
        let answer = match self.client() {
            // Whoever waits for the connection gives up at some time and with it drops this
            // question, so it has to end, and leave its trace, before that.
            Ok(client) => match timeout(limit, client.lookup_ip(name)).await {
                Ok(found) => found.map_err(|error| error.to_string()),
                Err(_) => Err("the name server did not answer in time".to_owned()),
            },
            Err(error) => Err(error),
        };
        let now = clock.mono_ms();
        match answer {
            Ok(found) => {
                let ttl = found.valid_until().saturating_duration_since(now_instant()).as_millis();
                entry.addresses = found.iter().map(|ip| ip.to_canonical()).collect();
                entry.failure = entry.addresses.is_empty().then(|| "no addresses".to_owned());
                entry.fresh_until_ms = now + (ttl as u64).clamp(FAILURE_TTL_MS, MAX_TTL_MS);
            }
            Err(failure) => {
                tracing::warn!(name, failure, kept = entry.addresses.len(), "name not resolved");
                entry.failure = Some(failure);
                // With an old answer at hand there is no hurry, and each question costs a request.
                entry.fresh_until_ms = now + if known { MAX_TTL_MS } else { FAILURE_TTL_MS };
            }
        }
    }
}

fn new_client() -> Result<TokioResolver, String> {
    let mut builder = TokioResolver::builder_tokio().map_err(|error| error.to_string())?;
    // Answers are cached above, for a shorter time.
    builder.options_mut().cache_size = 0;
    builder.build().map_err(|error| error.to_string())
}

#[expect(clippy::disallowed_methods, reason = "the resolver tells expiry as an Instant")]
fn now_instant() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(test)]
mod tests;
