//! The data plane: worker threads, each with its own runtime and sockets.

use std::{io, net::SocketAddr, rc::Rc, sync::Arc, thread::JoinHandle, time::Duration};

use tokio::{net::TcpListener, sync::watch, task::LocalSet};

use crate::{
    io::watch::TICK_MS,
    listener::{self, Endpoint, bind},
    worker::{Shared, Worker},
};

/// How the data plane listens.
#[derive(Clone, Debug)]
pub struct Listen {
    pub http: Vec<SocketAddr>,
    pub https: Vec<SocketAddr>,
    /// Worker threads, at least 1.
    pub workers: usize,
}

/// Why the data plane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Bind(#[from] bind::BindError),
    #[error("a worker thread could not be started: {0}")]
    Thread(#[source] io::Error),
    #[error("no random numbers from the operating system: {0}")]
    Random(getrandom::Error),
}

/// Sockets that are open, with nobody behind them yet.
#[derive(Debug)]
pub struct Bound {
    /// For each worker: its sockets.
    sockets: Vec<Vec<(std::net::TcpListener, bool)>>,
    pub http: Vec<SocketAddr>,
    pub https: Vec<SocketAddr>,
}

/// Opens all sockets, or none.
pub fn bind(listen: &Listen) -> Result<Bound, StartError> {
    let workers = listen.workers.max(1);
    let mut bound = Bound {
        sockets: (0..workers).map(|_| Vec::new()).collect(),
        http: Vec::new(),
        https: Vec::new(),
    };
    let all = listen.http.iter().map(|a| (a, false)).chain(listen.https.iter().map(|a| (a, true)));
    for (address, tls) in all {
        let sockets = bind::bind(*address, workers)?;
        if let Some(Ok(actual)) = sockets.first().map(std::net::TcpListener::local_addr) {
            if tls { bound.https.push(actual) } else { bound.http.push(actual) }
        }
        for (worker, socket) in bound.sockets.iter_mut().zip(sockets) {
            worker.push((socket, tls));
        }
    }
    Ok(bound)
}

/// The running data plane.
#[derive(Debug)]
pub struct Proxy {
    phase: watch::Sender<Phase>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Running,
    /// No new connections; requests under way go on for so long.
    Draining(Duration),
}

impl Proxy {
    pub fn start(bound: Bound, shared: &Arc<Shared>) -> Result<Self, StartError> {
        let (phase, observed) = watch::channel(Phase::Running);
        let https_port = bound.https.first().map(SocketAddr::port);
        let mut threads = Vec::new();
        for (index, sockets) in bound.sockets.into_iter().enumerate() {
            let mut seed = [0; 8];
            getrandom::fill(&mut seed).map_err(StartError::Random)?;
            let (shared, observed) = (Arc::clone(shared), observed.clone());
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(4)
                .build()
                .map_err(StartError::Thread)?;
            let thread = std::thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || {
                    let local = LocalSet::new();
                    let seed = u64::from_le_bytes(seed);
                    local.block_on(&runtime, run(shared, sockets, https_port, seed, observed));
                })
                .map_err(StartError::Thread)?;
            threads.push(thread);
        }
        Ok(Self { phase, threads })
    }

    /// Takes no new connections, lets requests under way finish for up to `grace`, and returns
    /// when all workers have ended. Blocks.
    pub fn drain(self, grace: Duration) {
        self.phase.send_replace(Phase::Draining(grace));
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker thread had panicked");
            }
        }
    }
}

async fn run(
    shared: Arc<Shared>,
    sockets: Vec<(std::net::TcpListener, bool)>,
    https_port: Option<u16>,
    seed: u64,
    mut phase: watch::Receiver<Phase>,
) {
    let worker = Rc::new(Worker::new(&shared, seed));
    let mut accepting = Vec::new();
    for (socket, tls) in sockets {
        let port = socket.local_addr().map_or(0, |address| address.port());
        match TcpListener::from_std(socket) {
            Ok(listener) => {
                let tls = tls.then(|| Arc::clone(&shared.tls));
                let endpoint = Endpoint { tls, port, https_port };
                let accept = listener::accept(Rc::clone(&worker), listener, endpoint);
                accepting.push(tokio::task::spawn_local(accept));
            }
            Err(error) => tracing::error!(%error, port, "a socket could not be served"),
        }
    }
    let ticker = Rc::clone(&worker);
    tokio::task::spawn_local(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(TICK_MS));
        loop {
            interval.tick().await;
            ticker.tick();
        }
    });
    let Ok(grace) =
        phase.wait_for(|phase| *phase != Phase::Running).await.map(|phase| match *phase {
            Phase::Draining(grace) => grace,
            Phase::Running => Duration::ZERO,
        })
    else {
        return;
    };
    for task in accepting {
        task.abort();
    }
    worker.watches.drain();
    let idle = async {
        while worker.open_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(grace, idle).await.is_err() {
        tracing::warn!(open = worker.open_connections(), "connections cut at the end of the drain");
    }
}
