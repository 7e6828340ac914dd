//! The store behind the gateway: one of the engines.

use std::{path::Path, sync::Arc};

use corvus_config::snapshot::Queue;
use corvus_core::{Clock, Id};

use crate::{
    embedded::{Embedded, JournalError, Notice},
    keys::{KeyError, KeyStore},
    op::{Op, Reply, Stats, StoreError},
    valkey::{Address, StartError, Valkey},
};

/// Where queues live.
pub enum Engine {
    /// In this process.
    Embedded(Embedded),
    /// On a server that several gateways share.
    Valkey(Valkey),
    /// An embedded one that can be made to fail.
    #[cfg(test)]
    Faulty(crate::faulty::Faulty),
}

/// Why queues cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("access queues: {0}")]
    Keys(#[from] KeyError),
    #[error("access queues: {0}")]
    State(#[from] JournalError),
    #[error("access queues: {0}")]
    Store(#[from] StartError),
}

impl Engine {
    /// The embedded engine with state in `dir` (`None`: in memory only).
    pub fn embedded(
        dir: Option<&Path>,
        clock: Arc<dyn Clock>,
        keys: &KeyStore,
    ) -> Result<Self, OpenError> {
        let draw_key = keys.draw_key().ok_or(KeyError::NoneYet)?;
        Ok(Self::Embedded(Embedded::open(dir, clock, draw_key, keys.are_new())?))
    }

    /// The store at `address`; `dir` keeps what has to outlive this process. `keys` are from
    /// [`KeyStore::open_shared`].
    pub fn valkey(
        address: Address,
        dir: Option<&Path>,
        clock: Arc<dyn Clock>,
        keys: Arc<KeyStore>,
    ) -> Result<Self, OpenError> {
        Ok(Self::Valkey(Valkey::start(address, dir, keys, clock)?))
    }

    /// Takes the settings of `queues`; returns what of them does not hold yet.
    pub fn configure(&self, queues: &[Arc<Queue>]) -> Vec<Notice> {
        match self {
            Self::Embedded(engine) => engine.configure(queues),
            Self::Valkey(engine) => {
                engine.configure(queues);
                Vec::new()
            }
            #[cfg(test)]
            Self::Faulty(engine) => engine.inner.configure(queues),
        }
    }

    /// One call: a pass over `queue`, then `ops` in order.
    pub async fn call(&self, queue: &Id, ops: &[Op]) -> Result<Reply, StoreError> {
        match self {
            Self::Embedded(engine) => engine.call(queue, ops),
            Self::Valkey(engine) => engine.call(queue, ops).await,
            #[cfg(test)]
            Self::Faulty(engine) => {
                engine.travel().await;
                engine.call(queue, ops)
            }
        }
    }

    /// Numbers of a queue as this process knows them.
    pub fn stats(&self, queue: &Id) -> Option<Stats> {
        match self {
            Self::Embedded(engine) => engine.stats(queue),
            Self::Valkey(engine) => engine.stats(queue),
            #[cfg(test)]
            Self::Faulty(engine) => engine.inner.stats(queue),
        }
    }

    /// Writes what is not yet saved; before a clean end.
    pub fn save(&self) -> Result<(), JournalError> {
        match self {
            Self::Embedded(engine) => engine.save(),
            // Its state is the store's; what could not be written of the rest was logged.
            Self::Valkey(engine) => {
                engine.save();
                Ok(())
            }
            #[cfg(test)]
            Self::Faulty(engine) => engine.inner.save(),
        }
    }
}
