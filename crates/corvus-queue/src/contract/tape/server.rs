//! The servers that tapes are played to: one for each test, ended with its thread.

use std::{cell::RefCell, thread::LocalKey};

use corvus_testkit::store::{self, StoreClient, StoreCluster, StoreOptions, StoreServer};

/// A kind of server.
pub(crate) trait Kind {
    /// Runs `play` on a connection to the server that holds the keys of queue `drop`. Whoever asks
    /// first starts it. Where the program is missing nothing is played, and a line says so.
    fn with(play: impl FnOnce(&mut StoreClient));
}

pub(crate) struct Valkey;
pub(crate) struct Redis;
/// Six servers; the tape is played to the master of the queue's slot.
pub(crate) struct Cluster;

/// A started server and a connection to it; `None`: its program is missing.
type Started<S> = RefCell<Option<Option<(S, StoreClient)>>>;

thread_local! {
    static VALKEY: Started<StoreServer> = const { RefCell::new(None) };
    static REDIS: Started<StoreServer> = const { RefCell::new(None) };
    static CLUSTER: Started<StoreCluster> = const { RefCell::new(None) };
}

fn on<S: 'static>(
    server: &'static LocalKey<Started<S>>,
    start: impl FnOnce() -> Option<(S, StoreClient)>,
    play: impl FnOnce(&mut StoreClient),
) {
    server.with_borrow_mut(|started| {
        if let Some((_, client)) = started.get_or_insert_with(start) {
            play(client);
        }
    });
}

fn one(kind: store::Kind) -> Option<(StoreServer, StoreClient)> {
    let server = StoreServer::start(StoreOptions::new(kind))?;
    let client = server.client().unwrap();
    Some((server, client))
}

impl Kind for Valkey {
    fn with(play: impl FnOnce(&mut StoreClient)) {
        on(&VALKEY, || one(store::Kind::Valkey), play);
    }
}

impl Kind for Redis {
    fn with(play: impl FnOnce(&mut StoreClient)) {
        on(&REDIS, || one(store::Kind::Redis), play);
    }
}

impl Kind for Cluster {
    fn with(play: impl FnOnce(&mut StoreClient)) {
        let start = || {
            let cluster = StoreCluster::start(&StoreOptions::new(store::Kind::Valkey))?;
            let client = cluster.client("corvus:wr:{drop}:rate").unwrap();
            Some((cluster, client))
        };
        on(&CLUSTER, start, play);
    }
}
