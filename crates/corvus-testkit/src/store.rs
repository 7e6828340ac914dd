//! Real queue stores for tests: one server, a cluster, a set under Sentinel, and a client that speaks
//! their protocol without the help of the library under test.
//!
//! Everything here blocks its thread; from a test on a current-thread runtime nothing else of that
//! runtime runs meanwhile. Launchers give `None` where the program is not installed, after a line
//! that says so; with `CORVUS_REQUIRE_STORES` set they fail instead. A test begins with
//! `let Some(store) = StoreServer::start(options) else { return };`.

mod client;
mod cluster;
mod monitor;
mod resp;
mod sentinel;
mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

pub use client::StoreClient;
pub use cluster::{SLOTS, StoreCluster, slot};
pub use monitor::{Monitor, Told};
pub use resp::Resp;
pub use sentinel::StoreSentinel;
pub use server::{Data, StoreOptions, StoreServer};

/// Which program serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// `valkey-server`. The build that tests use has no TLS.
    #[default]
    Valkey,
    /// `redis-server`.
    Redis,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Valkey, Self::Redis];

    fn command(self) -> &'static str {
        match self {
            Self::Valkey => "valkey-server",
            Self::Redis => "redis-server",
        }
    }

    /// The environment variable that names the program.
    fn variable(self) -> &'static str {
        match self {
            Self::Valkey => "CORVUS_VALKEY_SERVER",
            Self::Redis => "CORVUS_REDIS_SERVER",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Valkey => {
                "run `make test`, which fetches it into target/tools/valkey, or set \
                 CORVUS_VALKEY_SERVER to a valkey-server 8"
            }
            Self::Redis => {
                "install the Debian package redis-server, or set CORVUS_REDIS_SERVER to a \
                 redis-server 7"
            }
        }
    }
}

/// Where the program of `kind` is: the one that `CORVUS_VALKEY_SERVER` or `CORVUS_REDIS_SERVER` names,
/// else `tools/valkey/valkey-server` in the target directory, else the first on `PATH`.
///
/// Without one the answer is `None` and a printed line, or a panic if `CORVUS_REQUIRE_STORES` is set.
#[expect(clippy::print_stderr, reason = "whoever runs the tests should know what did not run")]
pub fn program(kind: Kind) -> Option<PathBuf> {
    let found = find(kind);
    if found.is_none() {
        let missing = format!("{} is not there: {}", kind.command(), kind.advice());
        assert!(std::env::var_os("CORVUS_REQUIRE_STORES").is_none(), "{missing}");
        eprintln!("skipped: {missing}");
    }
    found
}

fn find(kind: Kind) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(kind.variable()) {
        // A wrong name must not become another program's tests, or none.
        let named = PathBuf::from(named);
        assert!(named.is_file(), "{} names no file: {}", kind.variable(), named.display());
        return Some(named);
    }
    // The test's own program lies in the target directory.
    let tests = std::env::current_exe().unwrap_or_default();
    let tools = tests.ancestors().map(|dir| dir.join("tools/valkey"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    tools
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join(kind.command()))
        .find(|file| file.is_file())
}

/// Asks until there is an answer. Panics with the newest reason why not once `patience` is over.
#[expect(clippy::disallowed_methods, reason = "other processes live in real time")]
fn wait_for<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let start = std::time::Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(why) if start.elapsed() > patience => {
                panic!("{what}: not within {patience:?}: {why}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
