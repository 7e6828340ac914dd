//! `corvus serve`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use corvus_core::SystemClock;
use corvus_monitor::AccessLog;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use super::{ServeArgs, print_note};
use crate::{App, Config, Source};

/// File descriptors asked for: each proxied request may hold two.
const WANTED_FILES: u64 = 1_048_576;

pub(super) fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let Some(config) = args.config else {
        anyhow::bail!(
            "there is no configuration yet. Write one (README.md begins with a small one), check \
             it with `corvus check FILE`, and start with `corvus serve --config FILE`; `corvus \
             demo` shows a gateway without any configuration"
        );
    };
    raise_file_limit();
    let grace = Duration::from_secs(args.grace);
    // Not clap's to parse: its message would repeat the password.
    let valkey = args.valkey.map(|url| url.parse()).transpose().context("--valkey")?;
    let config = Config {
        data: args.data,
        source: Source::File(config),
        http: args.http,
        https: args.https,
        admin: Some(args.admin),
        valkey,
        workers: args.workers.map_or_else(processors, usize::from),
        access_log: match args.access_log.as_str() {
            "off" => AccessLog::Off,
            "stdout" => AccessLog::Stdout,
            path => AccessLog::File(path.into()),
        },
    };
    let app = App::start(config, Arc::new(SystemClock::new()))?;
    announce("http", &app.http);
    announce("https", &app.https);
    announce("console https", app.admin.as_slice());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(until_stopped(&app))?;
    tracing::info!("draining: no new connections");
    app.drain(grace);
    Ok(())
}

/// One line for each address, also when port 0 picked it. On standard error: standard output belongs
/// to the access log, which programs read.
fn announce(what: &str, addresses: &[SocketAddr]) {
    for address in addresses {
        let scheme = what.split(' ').next_back().unwrap_or(what);
        print_note(&format!("listening on {scheme}://{address}{}", suffix(what)));
    }
}

fn suffix(what: &str) -> &'static str {
    if what.starts_with("console") { " (console)" } else { "" }
}

async fn until_stopped(app: &App) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP")?;
    let mut reopen = signal(SignalKind::user_defined1()).context("SIGUSR1")?;
    let mut rotate = signal(SignalKind::user_defined2()).context("SIGUSR2")?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = reopen.recv() => app.reopen_log(),
            _ = rotate.recv() => {
                if let Err(error) = app.rotate_queue_keys().await {
                    tracing::error!("the keys of the queues were not rotated: {error:#}");
                }
            }
            _ = hangup.recv() => {
                if let Err(error) = app.reload() {
                    tracing::error!(
                        "the configuration was not changed, the one in force stays:\n{error:#}"
                    );
                }
            }
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// As many open files as the system lets us have.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED_FILES, |maximum| maximum.min(WANTED_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files could not be raised");
        }
    }
}
