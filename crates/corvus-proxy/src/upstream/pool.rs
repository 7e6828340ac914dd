//! Connections to one upstream, kept by one worker: no lock, no other thread.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use corvus_config::snapshot::{Upstream, UpstreamTls};

use crate::{
    io::{Buffer, Io, Watch, Watches},
    upstream::h2::H2Sender,
};

/// Idle connections kept for one upstream by one worker.
const MAX_IDLE: usize = 256;
/// How long an idle connection is kept.
const MAX_IDLE_MS: u64 = 60_000;
/// An idle connection older than this is not given to a request that must not be sent twice: some
/// servers close after 5 s, and a request written into that moment is lost without an answer.
const FRESH_MS: u64 = 4_000;
/// How long an upstream that could not be reached is passed over.
const DOWN_MS: u64 = 10_000;

/// What an upstream is, apart from which host uses it: hosts with the same one share connections.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct UpstreamKey {
    pub(crate) upstream: Upstream,
    pub(crate) tls: UpstreamTls,
}

/// What all workers know of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Monotonic milliseconds until which the upstream is passed over; 0: it is up.
    down_until_ms: AtomicU64,
    /// Requests under way, over all workers.
    in_flight: AtomicU32,
}

impl Health {
    pub(crate) fn is_up(&self, now_ms: u64) -> bool {
        self.down_until_ms.load(Ordering::Relaxed) <= now_ms
    }

    pub(crate) fn failed(&self, now_ms: u64) {
        self.down_until_ms.store(now_ms + DOWN_MS, Ordering::Relaxed);
    }

    /// Writes only when there is something to change: the line is shared by all workers.
    pub(crate) fn succeeded(&self) {
        if self.down_until_ms.load(Ordering::Relaxed) != 0 {
            self.down_until_ms.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// Counts one request while it is under way.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Health>);

impl InFlight {
    pub(crate) fn new(health: &Arc<Health>) -> Self {
        health.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(health))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One upstream as one worker knows it. Outlives configuration changes that keep the upstream.
pub(crate) struct UpstreamState {
    pub(crate) key: UpstreamKey,
    /// `address:port` or the path, for logs and metrics.
    pub(crate) label: String,
    pub(crate) health: Arc<Health>,
    pub(crate) tls_config: RefCell<Option<Arc<rustls::ClientConfig>>>,
    idle: RefCell<Vec<UpstreamConn>>,
    pub(crate) h2: RefCell<Option<H2Sender>>,
    /// Set when no configuration names the upstream any more: connections are not kept.
    pub(crate) retired: Cell<bool>,
}

impl fmt::Debug for UpstreamState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamState").field("key", &self.key).finish_non_exhaustive()
    }
}

/// An HTTP/1 connection to an upstream.
#[derive(Debug)]
pub(crate) struct UpstreamConn {
    pub(crate) io: Rc<Io>,
    pub(crate) buffer: Buffer,
    pub(crate) watch: Watch,
    pub(crate) state: Rc<UpstreamState>,
    /// Whether a request was answered on it before.
    pub(crate) reused: bool,
    /// Whether another request may follow: both messages whole, and nobody said close.
    pub(crate) reusable: bool,
    idle_since_ms: u64,
}

impl UpstreamConn {
    pub(crate) fn new(io: Io, watches: &Rc<Watches>, state: &Rc<UpstreamState>) -> Self {
        Self {
            io: Rc::new(io),
            buffer: Buffer::default(),
            watch: Watch::new(watches),
            state: Rc::clone(state),
            reused: false,
            reusable: true,
            idle_since_ms: 0,
        }
    }

    /// A second deadline on the same worker, for the direction that runs beside.
    pub(crate) fn sibling_watch(&self) -> Watch {
        self.watch.sibling()
    }

    /// Gives the connection back after a whole answer.
    pub(crate) fn keep(mut self, now_ms: u64) {
        let state = Rc::clone(&self.state);
        let mut idle = state.idle.borrow_mut();
        // Bytes behind an answer belong to nothing we asked for.
        if state.retired.get() || idle.len() >= MAX_IDLE || !self.buffer.is_empty() {
            return;
        }
        self.reused = true;
        self.idle_since_ms = now_ms;
        self.watch.disarm();
        self.buffer.shrink();
        idle.push(self);
    }
}

impl UpstreamState {
    pub(crate) fn new(key: UpstreamKey, health: Arc<Health>) -> Self {
        use corvus_config::snapshot::UpstreamAddress;
        let label = match &key.upstream.address {
            UpstreamAddress::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            UpstreamAddress::Tcp { host, port } => format!("{host}:{port}"),
            UpstreamAddress::Unix(path) => format!("unix:{path}"),
        };
        Self {
            key,
            label,
            health,
            tls_config: RefCell::default(),
            idle: RefCell::default(),
            h2: RefCell::default(),
            retired: Cell::new(false),
        }
    }

    /// An idle connection that still looks good, the one used last first.
    pub(crate) fn checkout(&self, now_ms: u64, may_repeat: bool) -> Option<UpstreamConn> {
        let mut idle = self.idle.borrow_mut();
        while let Some(conn) = idle.pop() {
            let age = now_ms.saturating_sub(conn.idle_since_ms);
            if !may_repeat && age > FRESH_MS {
                // The ones below are older still.
                idle.push(conn);
                return None;
            }
            if age < MAX_IDLE_MS && conn.io.is_quiet() {
                return Some(conn);
            }
        }
        None
    }

    /// Closes what has been idle for too long, and what the upstream has closed.
    pub(crate) fn prune(&self, now_ms: u64) {
        self.idle.borrow_mut().retain(|conn| {
            now_ms.saturating_sub(conn.idle_since_ms) < MAX_IDLE_MS && conn.io.is_quiet()
        });
    }

    /// No configuration names this upstream any more.
    pub(crate) fn retire(&self) {
        self.retired.set(true);
        self.idle.borrow_mut().clear();
        self.h2.borrow_mut().take();
    }
}
