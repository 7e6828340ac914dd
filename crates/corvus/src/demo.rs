//! `corvus demo`: a sample shop behind an access queue of three places, with simulated visitors so
//! that the line moves. Everything on 127.0.0.1, kept nowhere.

mod client;
mod shop;
mod visitor;

use std::{
    io::{IsTerminal as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use corvus_core::{Id, SystemClock};
use corvus_monitor::AccessLog;
use tokio::signal::unix::{SignalKind, signal};
use tracing::subscriber::NoSubscriber;

use crate::{App, Config, Source, cli::print_line};

const DOCUMENT: &str = include_str!("demo/document.yaml");
/// Waiting visitors that are drawn; more are only counted.
const DOTS: u64 = 40;
/// Name of the queue in the document.
const QUEUE: &str = "demo";

/// Runs the demo until it is interrupted.
pub fn run(http: SocketAddr, visitors: usize) -> anyhow::Result<()> {
    let folder = Folder::new()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shop = shop::start(([127, 0, 0, 1], 0).into()).await.context("the sample shop")?;
        let app = start_gateway(http, shop, &folder.0)?;
        let address = reachable(*app.http.first().context("no address to listen on")?);
        print_line(&format!(
            "A shop that three people may visit at once, at  http://{address}/\n\
             Open it in a browser (a second one, or a private window, is a second visitor);\n\
             {visitors} simulated visitors come and go. Ctrl-C ends the demo.\n"
        ));
        for number in 0..visitors {
            tokio::spawn(visitor::live(number, address));
        }
        show(&app).await?;
        tracing::subscriber::with_default(NoSubscriber::default(), || {
            app.drain(Duration::from_secs(1));
        });
        print_line("\nThe demo has ended; nothing is left behind.");
        anyhow::Ok(())
    })
}

/// Runs the sample shop alone until it is interrupted.
pub fn shop_alone(listen: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = shop::start(listen).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                anyhow::anyhow!("{listen} is in use by another program")
            }
            _ => anyhow::anyhow!("{listen} cannot be listened on: {error}"),
        })?;
        print_line(&format!("sample shop on http://{address}/"));
        stopped().await
    })
}

/// An address of this machine, for a listener on all of them.
fn reachable(listen: SocketAddr) -> SocketAddr {
    if listen.ip().is_unspecified() { ([127, 0, 0, 1], listen.port()).into() } else { listen }
}

/// Listens on the address; if somebody else has it, on any free one.
fn start_gateway(http: SocketAddr, shop: SocketAddr, data: &Path) -> anyhow::Result<App> {
    // Tried before anything is started: a gateway that starts again on the folder of another holds
    // places for those who were inside.
    let http = match corvus_proxy::bind_sockets(http, 1) {
        Ok(_) => http,
        Err(error) => {
            print_line(&format!("{error}; taking a free port instead"));
            SocketAddr::new(http.ip(), 0)
        }
    };
    let config = Config {
        data: data.to_owned(),
        source: Source::Text(DOCUMENT.replace("{{shop}}", &shop.to_string())),
        http: vec![http],
        https: Vec::new(),
        admin: None,
        valkey: None,
        workers: 1,
        access_log: AccessLog::Off,
    };
    // What a gateway says at its start is for operators; the demo has words of its own.
    tracing::subscriber::with_default(NoSubscriber::default(), || {
        App::start(config, Arc::new(SystemClock::new()))
    })
}

/// One line a second with the state of the queue, until interrupted.
async fn show(app: &App) -> anyhow::Result<()> {
    let queue = Id::new(QUEUE)?;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut stopped = std::pin::pin!(stopped());
    let terminal = std::io::stdout().is_terminal();
    let mut before = String::new();
    loop {
        tokio::select! {
            result = &mut stopped => return result,
            _ = second.tick() => {}
        }
        let Some(stats) = app.queue_stats(&queue) else { continue };
        let inside = stats.inside.min(stats.capacity) as usize;
        let free = (stats.capacity as usize).saturating_sub(inside);
        let line = format!(
            "inside {}{} {}/{}   let in so far {}   waiting {} {}",
            "●".repeat(inside),
            "○".repeat(free),
            stats.inside,
            stats.capacity,
            stats.admitted,
            stats.waiting,
            "·".repeat(stats.waiting.min(DOTS) as usize),
        );
        let mut out = std::io::stdout().lock();
        let written = if terminal {
            write!(out, "\r{line}\x1b[K").and_then(|()| out.flush())
        } else if line == before {
            Ok(())
        } else {
            writeln!(out, "{line}")
        };
        if written.is_err() {
            return Ok(()); // Nobody reads any more.
        }
        before = line;
    }
}

async fn stopped() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        result = tokio::signal::ctrl_c() => Ok(result?),
    }
}

/// A folder that is gone after the demo.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("corvus-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "the demo's folder is still there");
        }
    }
}
