//! The engine for several gateways: one script on a Valkey or Redis server that all of them call.
//!
//! - [`address`]: where the store is;
//! - [`link`]: the connection;
//! - `thread`: where it lives;
//! - `batch`: how operations become calls;
//! - `level`: whose capacity holds when gateways differ;
//! - `script`: what a call sends and brings back.

pub mod address;
mod batch;
pub(crate) mod level;
pub mod link;
pub(crate) mod script;
mod thread;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use corvus_config::snapshot::Queue;
use corvus_core::{Clock, Id};
use foldhash::HashMap;
use redis::Value;

use self::{
    batch::{Caterer, Room, Scripts},
    level::Book,
    thread::Thread,
};
use crate::{
    keys::{KeyStore, Rotation, ShareError, SharedKeys},
    op::{Op, Reply, Stats, StoreError},
};

pub use self::{
    address::{Address, AddressError},
    level::Level,
    link::{Link, LinkError, LinkSetupError, Script},
};

/// How long the rotation of keys may take: longer than [`SharedKeys`] lets it, which has the better
/// words for what went wrong.
const ROTATION: Duration = Duration::from_secs(4);

/// Queues on a store that several gateways share.
pub struct Valkey {
    store: Remote,
    scripts: Arc<Scripts>,
    /// Every queue that was ever configured: calls under way outlive a configuration.
    rooms: ArcSwap<HashMap<Id, Arc<Room>>>,
    keys: Arc<KeyStore>,
    shared_keys: Arc<SharedKeys<Link>>,
    book: Arc<Book>,
    /// This process, among the gateways.
    gateway: u64,
}

/// The store, for those who call from other threads.
#[derive(Clone)]
pub struct Remote {
    thread: Arc<Thread>,
    link: Link,
}

/// Why the engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Link(#[from] LinkSetupError),
    #[error("no thread for the queue store: {0}")]
    Thread(#[from] std::io::Error),
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

impl Valkey {
    /// Starts the thread; connects when something is asked. `dir` keeps what has to outlive this
    /// process; `keys` are from [`KeyStore::open_shared`] and are kept the same as the store's.
    pub fn start(
        address: Address,
        dir: Option<&Path>,
        keys: Arc<KeyStore>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let mut gateway = [0; 8];
        getrandom::fill(&mut gateway)?;
        let link = Link::new(address)?;
        let store = Remote { thread: Arc::new(Thread::start()?), link: link.clone() };
        let shared_keys = Arc::new(SharedKeys::new(Arc::clone(&keys), link, clock));
        let driver = Arc::clone(&shared_keys);
        store.thread.spawn(async move { driver.run().await });
        Ok(Self {
            store,
            scripts: Arc::new(Scripts::waitroom()),
            rooms: ArcSwap::default(),
            keys,
            shared_keys,
            book: Arc::new(Book::open(dir.map(|dir| -> PathBuf { dir.join("levels.json") }))),
            gateway: u64::from_le_bytes(gateway),
        })
    }

    /// Takes the settings of `queues`. A changed capacity, rate or pause goes to the store with the
    /// next call, under a version above all that were seen.
    pub fn configure(&self, queues: &[Arc<Queue>]) {
        let mut rooms = HashMap::clone(&self.rooms.load());
        for queue in queues {
            let settings = queue.settings.clone();
            if let Some(room) = rooms.get(&settings.id) {
                room.configure(settings);
                continue;
            }
            let id = settings.id.clone();
            let (room, requests) =
                batch::room(settings, Arc::clone(&self.keys), Arc::clone(&self.book));
            let caterer = Caterer {
                link: self.store.link.clone(),
                scripts: Arc::clone(&self.scripts),
                gateway: self.gateway,
                room: Arc::clone(&room),
            };
            self.store.thread.spawn(batch::serve(caterer, requests));
            rooms.insert(id, room);
        }
        self.rooms.store(Arc::new(rooms));
    }

    /// One call: a pass over `queue`, then `ops` in order.
    pub async fn call(&self, queue: &Id, ops: &[Op]) -> Result<Reply, StoreError> {
        let room = self.rooms.load().get(queue).cloned();
        room.ok_or_else(|| StoreError::UnknownQueue(queue.to_string()))?.call(ops).await
    }

    /// The latest numbers of `queue` that a reply had; `None`: none yet.
    pub fn stats(&self, queue: &Id) -> Option<Stats> {
        self.rooms.load().get(queue)?.stats()
    }

    /// What the store says of `queue`'s level; `None`: nothing yet.
    pub fn level(&self, queue: &Id) -> Option<Level> {
        self.rooms.load().get(queue)?.level()
    }

    /// Announces a new signing key to all gateways.
    pub async fn rotate_keys(&self) -> Result<Rotation, ShareError> {
        let keys = Arc::clone(&self.shared_keys);
        let task = async move { Ok(keys.rotate().await) };
        let outcome = self.store.thread.run_for(ROTATION, task).await;
        outcome?
    }

    /// Waits a few seconds for files that are not yet written; before a clean end. False: they could
    /// not be.
    pub fn save(&self) -> bool {
        let (keys, levels) = (self.keys.save(), self.book.save());
        keys && levels
    }

    /// For what else gateways keep in the store.
    pub const fn store(&self) -> &Remote {
        &self.store
    }
}

impl Remote {
    /// Sends one command.
    pub async fn command(&self, cmd: redis::Cmd) -> Result<Value, LinkError> {
        let link = self.link.clone();
        self.thread.run(async move { link.command(cmd).await }).await
    }

    /// Runs a script on the server that owns the first key's slot.
    pub async fn run(
        &self,
        script: &Arc<Script>,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, LinkError> {
        let (link, script) = (self.link.clone(), Arc::clone(script));
        let task = async move {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            link.run(&script, &keys, &args).await
        };
        self.thread.run(task).await
    }
}

#[cfg(test)]
mod tests;
