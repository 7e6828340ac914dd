//! Keys of several gateways: one value in the store, compared with ours every two seconds.
//!
//! A key is announced ten seconds before it signs. By then every gateway that reaches the store
//! believes it, so that a visitor who goes from one gateway to another is known at both.

use std::{fmt, sync::Arc, time::Duration};

use corvus_core::Clock;
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use super::{
    KeyError, KeyStore,
    file::{KeyFile, random},
    reconcile::{Step, reconcile},
};
use crate::{
    shared::Commands,
    valkey::{LinkError, Script},
};

/// Where the store keeps them.
const KEY: &str = "corvus:keys";
/// How often the store is asked.
const REFRESH: Duration = Duration::from_secs(2);
/// From the announcement of a key to its first signature: more than three times [`REFRESH`].
const ANNOUNCE_MS: u64 = 10_000;
/// An empty store is left empty for so long by a gateway that has no keys: others, whose tokens
/// are out, come first.
const EMPTY_MS: u64 = 5_000;
/// Reading and mending takes no longer.
const TURN: Duration = Duration::from_secs(3);
/// Comparisons in one turn. Two gateways that put different keys at once need three.
const ROUNDS: usize = 8;

/// Keeps the keys of this gateway and of a store the same.
pub struct SharedKeys<C> {
    keys: Arc<KeyStore>,
    store: C,
    exchange: Arc<Script>,
    clock: Arc<dyn Clock>,
    /// One turn at a time.
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    /// Monotonic ms at which nobody was first seen to have keys.
    nobody_since: Option<u64>,
    failing: bool,
}

/// A rotation under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rotation {
    pub generation: u64,
    /// When the new key begins to sign; store time, Unix ms.
    pub activates_at_ms: u64,
    /// This call began it. Otherwise one was under way, or another operator was faster.
    pub begun: bool,
}

impl fmt::Display for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.begun {
            "a new signing key for queues is announced"
        } else {
            "no new signing key for queues: one was announced already"
        })
    }
}

/// Why keys are not shared.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("queue keys: {0}")]
    Store(#[from] LinkError),
    #[error("queue keys: the store did not answer in time")]
    Late,
    /// Also when a later version of this program wrote it.
    #[error(
        "`{KEY}` in the store does not hold queue keys that this version reads; with it removed, \
         gateways put theirs back"
    )]
    Malformed,
    #[error("neither this gateway nor the store has queue keys yet")]
    NoKeys,
    #[error("queue keys: other gateways change them again and again")]
    Restless,
    #[error(transparent)]
    Keys(#[from] KeyError),
}

/// What the store has.
struct Stored {
    text: String,
    file: Option<KeyFile>,
    now_ms: u64,
}

impl<C: Commands> SharedKeys<C> {
    /// `keys` are from [`KeyStore::open_shared`].
    pub fn new(keys: Arc<KeyStore>, store: C, clock: Arc<dyn Clock>) -> Self {
        let exchange = Arc::new(Script::new(include_str!("exchange.lua").to_owned()));
        Self { keys, store, exchange, clock, turn: Mutex::default() }
    }

    /// Compares every two seconds, and at once when a visitor shows a key that we do not know.
    pub async fn run(&self) {
        loop {
            // What went wrong is logged; the next turn may do better.
            let _ = self.refresh().await;
            let pause = sleep(REFRESH);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => break,
                    () = self.keys.wanted() => {
                        if !self.keys.was_read_lately(self.clock.mono_ms()) {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Compares once.
    pub async fn refresh(&self) -> Result<(), ShareError> {
        let mut turn = self.turn.lock().await;
        let result = timeout(TURN, self.settle(&mut turn)).await.unwrap_or(Err(ShareError::Late));
        self.keys.note_read(self.clock.mono_ms(), result.is_ok());
        match &result {
            Ok(_) if turn.failing => tracing::info!("queue keys: the store answers again"),
            Err(error) if !turn.failing => {
                let have_keys = self.keys.load().is_some();
                tracing::warn!(%error, have_keys, "queue keys cannot be compared with the store's");
            }
            _ => {}
        }
        turn.failing = result.is_err();
        result.map(|_| ())
    }

    /// Announces a new key. Rotate no more often than tokens live.
    pub async fn rotate(&self) -> Result<Rotation, ShareError> {
        let announce = async { self.announce(&mut *self.turn.lock().await).await };
        timeout(TURN, announce).await.unwrap_or(Err(ShareError::Late))
    }

    async fn announce(&self, turn: &mut Turn) -> Result<Rotation, ShareError> {
        let stored = self.settle(turn).await?;
        let file = stored.file.as_ref().ok_or(ShareError::NoKeys)?;
        let activates_at_ms = stored.now_ms.saturating_add(ANNOUNCE_MS);
        let announced = match file.next {
            // Further away than any announcement: the store's clock was set back since.
            Some(next) if next.activates_at_ms > activates_at_ms => {
                file.announcing(next.key, activates_at_ms)
            }
            Some(next) => {
                let (generation, activates_at_ms) = (file.generation, next.activates_at_ms);
                return Ok(Rotation { generation, activates_at_ms, begun: false });
            }
            None => file.announcing(random().map_err(KeyError::from)?, activates_at_ms),
        };
        let found = self.put(&stored, &announced).await?;
        let begun = found.file.as_ref() == Some(&announced);
        let settled = if begun { found } else { self.settle(turn).await? };
        let file = settled.file.ok_or(ShareError::NoKeys)?;
        let rotation = Rotation {
            generation: file.generation,
            activates_at_ms: file.next.map_or(settled.now_ms, |next| next.activates_at_ms),
            begun,
        };
        self.keys.adopt(file);
        Ok(rotation)
    }

    /// Until both have the same; answers what that is. Empty only while we wait for others to put
    /// theirs into an empty store.
    async fn settle(&self, turn: &mut Turn) -> Result<Stored, ShareError> {
        let mut stored = self.exchange(&["read"]).await?;
        for _ in 0..ROUNDS {
            let local = self.keys.file();
            let step = reconcile(local.as_ref(), stored.file.as_ref(), stored.now_ms);
            if step != Step::Make {
                turn.nobody_since = None;
            }
            stored = match step {
                Step::Done => {
                    self.keys.save_again();
                    return Ok(stored);
                }
                Step::Take(file) => {
                    tracing::info!(generation = file.generation, "queue keys taken from the store");
                    self.keys.adopt(file);
                    stored
                }
                Step::GiveUpOurs(file) => {
                    tracing::warn!(
                        generation = file.generation,
                        "the store has other queue keys than this gateway had: the store's hold \
                         from now on, and visitors with a cookie that this gateway signed alone \
                         start anew"
                    );
                    self.keys.adopt(file);
                    stored
                }
                Step::Put(file) => self.put(&stored, &file).await?,
                Step::Make => {
                    let mono = self.clock.mono_ms();
                    if turn.nobody_since.is_none() {
                        tracing::info!(
                            "neither this gateway nor the store has queue keys: waiting {} s for \
                             gateways that have some",
                            EMPTY_MS / 1_000
                        );
                    }
                    let since = *turn.nobody_since.get_or_insert(mono);
                    if mono.saturating_sub(since) < EMPTY_MS {
                        return Ok(stored);
                    }
                    tracing::info!("nobody has queue keys: making new ones");
                    let fresh = KeyFile::fresh().map_err(KeyError::from)?;
                    self.put(&stored, &fresh).await?
                }
            };
        }
        Err(ShareError::Restless)
    }

    /// `file` in place of what was `seen`; answers what is there then, which is another gateway's
    /// if that one was faster.
    async fn put(&self, seen: &Stored, file: &KeyFile) -> Result<Stored, ShareError> {
        let text = file.to_text().map_err(|_| ShareError::Malformed)?;
        self.exchange(&["swap", &seen.text, &text]).await
    }

    async fn exchange(&self, args: &[&str]) -> Result<Stored, ShareError> {
        let args = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        let value = self.store.run(&self.exchange, vec![KEY.to_owned()], args).await?;
        let (text, s, us): (String, u64, u64) =
            redis::from_redis_value(value).map_err(|_| ShareError::Malformed)?;
        let file = match text.as_str() {
            "" => None,
            text => Some(KeyFile::parse(text).ok_or(ShareError::Malformed)?),
        };
        Ok(Stored { text, file, now_ms: s.saturating_mul(1_000).saturating_add(us / 1_000) })
    }
}
