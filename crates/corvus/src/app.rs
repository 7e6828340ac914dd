//! A gateway: built from a [`Config`], running until it is drained.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use corvus_admin::{
    Applied, Applier,
    apply::FileVersions,
    console::{self, Handles},
};
use corvus_config::Snapshot;
use corvus_core::{Clock, Id};
use corvus_monitor::{AccessLog, Monitor};
use corvus_proxy::{Listen, Proxy, Shared};
use corvus_queue::{Engine, KeyStore, QueueService, valkey::Address};
use corvus_tls::{CertificateMap, CertificateStore, SniResolver, server_config};
use tokio::sync::oneshot;

use crate::source::{Source, Stamp};

/// What a gateway is built from.
#[derive(Debug)]
pub struct Config {
    /// Folder for everything that is kept.
    pub data: PathBuf,
    pub source: Source,
    pub http: Vec<SocketAddr>,
    pub https: Vec<SocketAddr>,
    /// The console's address; `None`: no console.
    pub admin: Option<SocketAddr>,
    /// The store that gateways share their queues in; `None`: queues of this process alone.
    pub valkey: Option<Address>,
    pub workers: usize,
    pub access_log: AccessLog,
}

/// A running gateway.
pub struct App {
    pub http: Vec<SocketAddr>,
    pub https: Vec<SocketAddr>,
    pub admin: Option<SocketAddr>,
    control: Arc<Control>,
    proxy: Proxy,
    /// Dropping it ends the control plane.
    stop: oneshot::Sender<()>,
    control_thread: JoinHandle<()>,
    /// Held as long as the gateway runs: no second one uses the same folder.
    _lock: fs::File,
}

/// What the control plane works with.
struct Control {
    source: Source,
    applier: Applier,
    queues: Arc<QueueService>,
    monitor: Arc<Monitor>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    /// The state of the source that was loaded last, well or not. Held while it is loaded and
    /// applied, so that of two reloads the older text never wins.
    loaded: Mutex<Option<Stamp>>,
}

impl App {
    /// Builds and starts a gateway. Everything that can fail for an operator's reason fails here,
    /// before the first connection is taken, with one sentence.
    pub fn start(config: Config, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        // Before it is read: an edit in between is then seen as one.
        let stamp = config.source.stamp();
        let (document, snapshot) = config.source.load()?;
        let listen = Listen { http: config.http, https: config.https, workers: config.workers };
        let bound = corvus_proxy::bind(&listen)?;
        let console = config.admin.map(bind_console).transpose()?;
        let lock = open_data(&config.data)?;
        let monitor = Arc::new(Monitor::new(&config.access_log).context("access log")?);
        let queue_dir = config.data.join("queue");
        let queues = Arc::new(open_queues(&queue_dir, config.valkey, &clock)?);
        let current = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
        let nothing = CertificateMap::new(current.load_full(), &CertificateStore::default());
        let resolver = Arc::new(SniResolver::new(nothing, &*clock)?);
        let control = Arc::new(Control {
            source: config.source,
            applier: Applier::new(
                Arc::clone(&current),
                Arc::clone(&resolver),
                Arc::clone(&queues),
                Arc::clone(&clock),
                config.data.clone(),
                Box::new(FileVersions::default()),
            ),
            queues: Arc::clone(&queues),
            monitor: Arc::clone(&monitor),
            snapshot: Arc::clone(&current),
            loaded: Mutex::new(stamp),
        });
        report(&control.applier.apply(document, snapshot)?);

        let admin = console.as_ref().and_then(|console| console.local_addr().ok());
        let (http, https) = (bound.http.clone(), bound.https.clone());
        let tls = server_config(resolver)?;
        let console_tls = console_tls(&config.data, &*clock)?;
        let shared = Arc::new(Shared::new(clock, current, queues, monitor, tls));
        let proxy = Proxy::start(bound, &shared)?;
        let (stop, stopped) = oneshot::channel();
        let plane = Arc::clone(&control);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(8)
            .build()
            .context("the control plane's runtime")?;
        let control_thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || runtime.block_on(run_control(plane, console, console_tls, stopped)))
            .context("the control plane's thread")?;
        Ok(Self { http, https, admin, control, proxy, stop, control_thread, _lock: lock })
    }

    /// Reads the Document again and applies it. On any problem the configuration in force stays.
    pub fn reload(&self) -> anyhow::Result<()> {
        self.control.reload()
    }

    /// Opens the access log again, after logrotate has moved it.
    pub fn reopen_log(&self) {
        self.control.monitor.reopen_log();
    }

    /// Signs the queues' cookies with a new key; those signed with the present one stay good.
    pub async fn rotate_queue_keys(&self) -> anyhow::Result<()> {
        Ok(self.control.queues.rotate_keys().await?)
    }

    /// Numbers of a queue.
    pub fn queue_stats(&self, queue: &Id) -> Option<corvus_queue::op::Stats> {
        self.control.queues.stats(queue)
    }

    /// The version of the configuration in force.
    pub fn version(&self) -> u64 {
        self.control.snapshot.load().version
    }

    /// Takes no new connections, lets requests under way finish for up to `grace`, saves the
    /// queues and ends.
    pub fn drain(self, grace: Duration) {
        self.proxy.drain(grace);
        drop(self.stop);
        if self.control_thread.join().is_err() {
            tracing::error!("the control plane had panicked");
        }
        if let Err(error) = self.control.queues.save() {
            tracing::error!(%error, "the queues could not be saved");
        }
        self.control.monitor.close_log();
        tracing::info!("stopped");
    }
}

impl Control {
    fn reload(&self) -> anyhow::Result<()> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        *loaded = self.source.stamp();
        let (document, snapshot) = self.source.load()?;
        report(&self.applier.apply(document, snapshot)?);
        Ok(())
    }

    fn reload_or_tell(&self) {
        if let Err(error) = self.reload() {
            tracing::error!(
                "the configuration was not changed, the one in force stays:\n{error:#}"
            );
        }
    }
}

/// The control plane: the console, the queues' passes, the file.
async fn run_control(
    control: Arc<Control>,
    console: Option<TcpListener>,
    console_tls: Arc<console::ServerConfig>,
    stopped: oneshot::Receiver<()>,
) {
    if let Some(listener) = console {
        let handles = Handles {
            snapshot: Arc::clone(&control.snapshot),
            monitor: Arc::clone(&control.monitor),
            queues: Arc::clone(&control.queues),
        };
        tokio::spawn(async move {
            if let Err(error) = console::serve(listener, console_tls, handles).await {
                tracing::error!(%error, "the console ended");
            }
        });
    }
    let queues = Arc::clone(&control.queues);
    tokio::spawn(async move {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            second.tick().await;
            queues.tick().await;
        }
    });
    tokio::spawn(watch_file(Arc::clone(&control)));
    tokio::spawn(renew_certificates(Arc::clone(&control)));
    // Ends when the sender is dropped.
    let _ = stopped.await;
}

/// Applies the file when it has changed and has then been left alone for a second, so that a
/// half-written one is not read.
async fn watch_file(control: Arc<Control>) {
    let mut seen = control.source.stamp();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        let now: Option<Stamp> = control.source.stamp();
        let settled = now == seen;
        seen = now;
        let loaded = *control.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if !settled || now == loaded || now.is_none() {
            continue;
        }
        let control = Arc::clone(&control);
        let done = tokio::task::spawn_blocking(move || control.reload_or_tell()).await;
        if done.is_err() {
            tracing::error!("reloading panicked; the configuration in force stays");
        }
    }
}

/// Self-signed certificates are renewed and replaced files picked up once a day.
async fn renew_certificates(control: Arc<Control>) {
    let mut day = tokio::time::interval(Duration::from_hours(24));
    day.tick().await; // Loaded just now.
    loop {
        day.tick().await;
        let control = Arc::clone(&control);
        let warnings =
            tokio::task::spawn_blocking(move || control.applier.reload_certificates()).await;
        for warning in warnings.unwrap_or_default() {
            tracing::warn!("{warning}");
        }
    }
}

fn open_queues(
    dir: &std::path::Path,
    valkey: Option<Address>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<QueueService> {
    let (engine, keys) = match valkey {
        None => {
            let keys = Arc::new(KeyStore::open(Some(dir))?);
            (Engine::embedded(Some(dir), Arc::clone(clock), &keys)?, keys)
        }
        Some(address) => {
            tracing::info!(store = %address, "queues are shared with other gateways");
            let keys = Arc::new(KeyStore::open_shared(Some(dir))?);
            (Engine::valkey(address, Some(dir), Arc::clone(clock), Arc::clone(&keys))?, keys)
        }
    };
    Ok(QueueService::new(engine, keys, Arc::clone(clock)))
}

fn report(applied: &Applied) {
    for warning in &applied.warnings {
        tracing::warn!("{warning}");
    }
    for change in &applied.changes {
        tracing::info!(version = applied.version, "{change}");
    }
    tracing::info!(version = applied.version, "configuration in force");
}

/// Makes the data folder, proves that it can be written, and takes it for this process.
fn open_data(data: &std::path::Path) -> anyhow::Result<fs::File> {
    let shown = data.display();
    anyhow::ensure!(!data.is_file(), "the data folder {shown} is a file, not a folder");
    fs::create_dir_all(data).with_context(|| format!("the data folder {shown} cannot be made"))?;
    let lock = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(data.join("lock"))
        .with_context(|| format!("the data folder {shown} cannot be written"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => {
            anyhow::bail!("the data folder {shown} is in use by another gateway")
        }
        Err(fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("the data folder {shown} cannot be locked"))
        }
    }
}

fn bind_console(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let mut sockets = corvus_proxy::bind_sockets(address, 1).context("console")?;
    sockets.pop().context("console: no socket")
}

/// The console's own certificate, self-signed and kept under DATA.
fn console_tls(
    data: &std::path::Path,
    clock: &dyn Clock,
) -> anyhow::Result<Arc<console::ServerConfig>> {
    let id = Id::new("console")?;
    let names = ["localhost".to_owned()];
    // In a folder of its own: a certificate of the Document may have the same id.
    let certificate = corvus_tls::self_signed(&data.join("console"), &id, &names, clock)
        .context("the console's certificate")?;
    console::server_config(&certificate).context("the console's certificate")
}
