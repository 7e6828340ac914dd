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
mod level;
pub mod link;
pub(crate) mod script;
mod thread;

use std::sync::Arc;

use arc_swap::ArcSwap;
use corvus_config::snapshot::Queue;
use corvus_core::Id;
use foldhash::HashMap;
use redis::Value;

use self::{
    batch::{Caterer, Room, Scripts, Setup},
    thread::Thread,
};
use crate::{
    op::{Op, Reply, StoreError},
    room::Draw,
};

pub use self::{
    address::{Address, AddressError},
    level::Level,
    link::{Link, LinkError, LinkSetupError, Script},
};

/// Queues on a store that several gateways share.
pub struct Valkey {
    thread: Thread,
    link: Link,
    scripts: Arc<Scripts>,
    /// Every queue that was ever configured: calls under way outlive a configuration.
    rooms: ArcSwap<HashMap<Id, Arc<Room>>>,
    draw_key: [u8; 16],
    /// This process, among the gateways.
    gateway: u64,
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
    /// Starts the thread; connects when something is asked. `draw_key` keys the hash that draws lots
    /// and is the same on all gateways.
    pub fn start(address: Address, draw_key: [u8; 16]) -> Result<Self, StartError> {
        Self::start_with(address, draw_key, Scripts::waitroom())
    }

    fn start_with(
        address: Address,
        draw_key: [u8; 16],
        scripts: Scripts,
    ) -> Result<Self, StartError> {
        let mut gateway = [0; 8];
        getrandom::fill(&mut gateway)?;
        Ok(Self {
            link: Link::new(address)?,
            thread: Thread::start()?,
            scripts: Arc::new(scripts),
            rooms: ArcSwap::default(),
            draw_key,
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
            let mut draw = Draw::new(self.draw_key);
            draw.follow(&settings.schedule);
            let id = settings.id.clone();
            let (room, requests) = batch::room(&id, Setup { settings, draw });
            let caterer = Caterer {
                link: self.link.clone(),
                scripts: Arc::clone(&self.scripts),
                gateway: self.gateway,
                room: Arc::clone(&room),
            };
            self.thread.spawn(batch::serve(caterer, requests));
            rooms.insert(id, room);
        }
        self.rooms.store(Arc::new(rooms));
    }

    /// One call: a pass over `queue`, then `ops` in order.
    pub async fn call(&self, queue: &Id, ops: &[Op]) -> Result<Reply, StoreError> {
        let room = self.rooms.load().get(queue).cloned();
        room.ok_or_else(|| StoreError::UnknownQueue(queue.to_string()))?.call(ops).await
    }

    /// What the store says of `queue`'s level; `None`: nothing yet.
    pub fn level(&self, queue: &Id) -> Option<Arc<Level>> {
        self.rooms.load().get(queue)?.level.load_full()
    }

    /// Sends one command, for what else lives in the store.
    pub async fn command(&self, cmd: redis::Cmd) -> Result<Value, LinkError> {
        let link = self.link.clone();
        self.thread.run(async move { link.command(cmd).await }).await
    }

    /// Runs a script of somebody else on the server that owns the first key's slot.
    pub async fn run_script(
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

impl Room {
    fn configure(&self, settings: corvus_config::snapshot::QueueSettings) {
        let old = self.setup.load_full();
        let mut draw = old.draw.clone();
        draw.follow(&settings.schedule);
        self.levels().configure(Level::of(&settings, 0));
        self.setup.store(Arc::new(Setup { settings, draw }));
    }
}

#[cfg(test)]
mod tests;
