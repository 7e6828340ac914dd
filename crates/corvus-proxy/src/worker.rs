//! What one worker thread owns. Nothing in here is shared with another thread except through
//! [`Shared`].

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use corvus_config::{
    Snapshot,
    snapshot::{Host, Queue, UpstreamAddress},
};
use corvus_core::Clock;
use corvus_monitor::{Monitor, WorkerMonitor};
use corvus_queue::QueueService;
use foldhash::fast::FixedState;

use crate::{
    http1::parse::ResponseHead,
    io::Watches,
    upstream::{
        balance::Balance,
        pool::{Health, UpstreamKey, UpstreamState},
        resolve::Resolver,
    },
};

/// What the workers share with each other and with the control plane.
pub struct Shared {
    pub clock: Arc<dyn Clock>,
    /// The configuration in force; the applier swaps it.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub queues: Arc<QueueService>,
    pub monitor: Arc<Monitor>,
    /// TLS for HTTPS listeners, with the SNI resolver inside.
    pub tls: Arc<rustls::ServerConfig>,
    /// Outlives configurations; locked only when a worker meets a new one.
    pub(crate) health: Mutex<HashMap<UpstreamKey, Arc<Health>>>,
}

impl Shared {
    pub fn new(
        clock: Arc<dyn Clock>,
        snapshot: Arc<ArcSwap<Snapshot>>,
        queues: Arc<QueueService>,
        monitor: Arc<Monitor>,
        tls: Arc<rustls::ServerConfig>,
    ) -> Self {
        Self { clock, snapshot, queues, monitor, tls, health: Mutex::default() }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// A proxied host with this worker's connections.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) host: Arc<Host>,
    pub(crate) upstreams: Vec<Rc<UpstreamState>>,
    pub(crate) balance: Balance,
    pub(crate) queue: Option<SiteQueue>,
    pub(crate) idle_ms: u64,
}

/// A queue with the names that requests carry.
#[derive(Debug)]
pub(crate) struct SiteQueue {
    pub(crate) queue: Arc<Queue>,
    pub(crate) admission_cookie: String,
    pub(crate) place_cookie: String,
    pub(crate) status_path: String,
    pub(crate) leave_path: String,
    /// Every path is behind the queue, so none needs to be looked at.
    pub(crate) whole_site: bool,
}

/// The configuration in force, as this worker uses it.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) snapshot: Arc<Snapshot>,
    /// Keyed by the address of the `Host` inside the Snapshot, which this struct keeps alive.
    sites: HashMap<usize, Rc<Site>, FixedState>,
}

impl Active {
    /// `name`: lower case, without port and trailing dot.
    pub(crate) fn find(&self, name: &str) -> Option<&Rc<Site>> {
        let host = self.snapshot.index.find(name)?;
        self.sites.get(&(Arc::as_ptr(host) as usize))
    }
}

/// One worker's world.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) watches: Rc<Watches>,
    pub(crate) resolver: Resolver,
    pub(crate) monitor: WorkerMonitor,
    active: RefCell<Rc<Active>>,
    upstreams: RefCell<HashMap<UpstreamKey, Rc<UpstreamState>>>,
    /// Response heads to use again; parsing into one that has its memory allocates nothing.
    spare_heads: RefCell<Vec<ResponseHead>>,
    /// Memory to write the next head to an upstream into.
    scratch: RefCell<Vec<Vec<u8>>>,
    next_id: Cell<u64>,
    id_seed: u64,
    /// Wall clock minus monotonic clock at the latest tick, ms.
    wall_offset_ms: Cell<u64>,
    /// The `Date` header of this second.
    date: RefCell<(u64, String)>,
    seed: u64,
    open: Rc<Cell<usize>>,
}

/// Counts a client's connection while it is open.
#[derive(Debug)]
pub(crate) struct OpenConnection(Rc<Cell<usize>>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>, seed: u64) -> Self {
        let worker = Self {
            shared: Arc::clone(shared),
            clock: Arc::clone(&shared.clock),
            watches: Rc::default(),
            resolver: Resolver::new(),
            monitor: shared.monitor.worker(),
            active: RefCell::new(Rc::new(Active {
                snapshot: Arc::new(Snapshot::default()),
                sites: HashMap::default(),
            })),
            upstreams: RefCell::default(),
            spare_heads: RefCell::default(),
            scratch: RefCell::default(),
            next_id: Cell::new(0),
            id_seed: seed,
            wall_offset_ms: Cell::new(0),
            date: RefCell::default(),
            seed,
            open: Rc::default(),
        };
        worker.tick();
        worker
    }

    pub(crate) fn open_connection(&self) -> OpenConnection {
        self.open.set(self.open.get() + 1);
        OpenConnection(Rc::clone(&self.open))
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.open.get()
    }

    /// Twice a second: time, deadlines, connections that have been idle for too long.
    pub(crate) fn tick(&self) {
        let mono_ms = self.clock.mono_ms();
        self.wall_offset_ms.set(self.clock.wall_ms().saturating_sub(mono_ms));
        self.watches.tick(mono_ms);
        for state in self.upstreams.borrow().values() {
            state.prune(mono_ms);
        }
        // Pick up a new configuration even if nobody asks for anything, so that connections to
        // upstreams that are gone do not linger.
        self.active();
    }

    /// Wall time of a monotonic moment, Unix ms.
    pub(crate) fn wall_ms(&self, mono_us: u64) -> u64 {
        self.wall_offset_ms.get() + mono_us / 1_000
    }

    /// A new request id: 16 hex digits, unique in this process and unlikely to meet another's.
    pub(crate) fn request_id(&self) -> [u8; 16] {
        let count = self.next_id.get();
        self.next_id.set(count + 1);
        // splitmix64, a bijection: no id comes twice.
        let mut z = self.id_seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        std::array::from_fn(|i| b"0123456789abcdef"[(z >> (60 - 4 * i)) as usize & 15])
    }

    /// The value of a `Date` header.
    pub(crate) fn write_date(&self, mono_us: u64, out: &mut Vec<u8>) {
        let second = self.wall_ms(mono_us) / 1_000;
        let mut date = self.date.borrow_mut();
        if date.0 != second || date.1.is_empty() {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            *date = (second, httpdate::fmt_http_date(time));
        }
        out.extend_from_slice(date.1.as_bytes());
    }

    pub(crate) fn spare_head(&self) -> ResponseHead {
        self.spare_heads.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn recycle(&self, mut head: ResponseHead) {
        let mut spare = self.spare_heads.borrow_mut();
        if spare.len() < 64 {
            head.headers.clear();
            spare.push(head);
        }
    }

    pub(crate) fn take_scratch(&self) -> Vec<u8> {
        self.scratch.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_scratch(&self, mut scratch: Vec<u8>) {
        let mut spare = self.scratch.borrow_mut();
        if spare.len() < 64 && scratch.capacity() <= 64 * 1024 {
            scratch.clear();
            spare.push(scratch);
        }
    }

    /// The configuration in force. A request takes it once.
    pub(crate) fn active(&self) -> Rc<Active> {
        let current = self.shared.snapshot.load();
        let active = self.active.borrow();
        if Arc::ptr_eq(&active.snapshot, &current) {
            return Rc::clone(&active);
        }
        drop(active);
        let next = Rc::new(self.activate(&current));
        self.active.replace(Rc::clone(&next));
        next
    }

    fn activate(&self, snapshot: &Arc<Snapshot>) -> Active {
        let mut upstreams = self.upstreams.borrow_mut();
        let mut kept = HashMap::new();
        let mut sites = HashMap::default();
        for host in &snapshot.hosts {
            let states: Vec<_> = host
                .upstreams
                .iter()
                .map(|upstream| {
                    let key =
                        UpstreamKey { upstream: upstream.clone(), tls: host.upstream_tls.clone() };
                    let state = upstreams.remove(&key).or_else(|| kept.get(&key).cloned());
                    let state = state.unwrap_or_else(|| {
                        Rc::new(UpstreamState::new(key.clone(), self.health_of(&key)))
                    });
                    kept.insert(key, Rc::clone(&state));
                    state
                })
                .collect();
            let site = Site {
                balance: Balance::new(host.load_balancing, states.len(), self.seed),
                upstreams: states,
                queue: host.queue.as_ref().map(site_queue),
                idle_ms: host.idle_timeout.as_millis() as u64,
                host: Arc::clone(host),
            };
            sites.insert(Arc::as_ptr(host) as usize, Rc::new(site));
        }
        upstreams.values().for_each(|state| state.retire());
        *upstreams = kept;
        self.resolver.retain(|name| {
            upstreams.keys().any(|key| {
                matches!(&key.upstream.address, UpstreamAddress::Tcp { host, .. } if host == name)
            })
        });
        Active { snapshot: Arc::clone(snapshot), sites }
    }

    fn health_of(&self, key: &UpstreamKey) -> Arc<Health> {
        let mut all = self.shared.health.lock().unwrap_or_else(PoisonError::into_inner);
        // Forget upstreams that no worker uses any more.
        all.retain(|_, health| Arc::strong_count(health) > 1);
        Arc::clone(all.entry(key.clone()).or_default())
    }
}

fn site_queue(queue: &Arc<Queue>) -> SiteQueue {
    let id = &queue.settings.id;
    SiteQueue {
        admission_cookie: format!("corvus_a_{id}"),
        place_cookie: format!("corvus_q_{id}"),
        status_path: format!("/__corvus/wr/{id}/status"),
        leave_path: format!("/__corvus/wr/{id}/leave"),
        whole_site: queue.gate.paths.iter().any(|path| path == "/"),
        queue: Arc::clone(queue),
    }
}
