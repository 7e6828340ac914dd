//! One store: a real server program on 127.0.0.1.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tempfile::TempDir;

use super::{Kind, Resp, StoreClient, program, wait_for};
use crate::{Authority, Child, PATIENCE, Signal, data_dir, free_port, tls};

/// For looks at servers that may be dead or stopped.
const GLANCE: Duration = Duration::from_millis(500);

/// How a store is to be started.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    pub kind: Kind,
    pub password: Option<String>,
    /// TLS in place of plain connections. Redis only.
    pub tls: bool,
    /// Bytes; a store that is full refuses writes and evicts nothing.
    pub maxmemory: Option<u64>,
    /// Keep each write in a file, so that [`Data::Kept`] means what it says. Without it only what
    /// was saved by the command SAVE outlives the process.
    pub appendonly: bool,
    /// The master, which must have the same password and TLS.
    pub replica_of: Option<SocketAddr>,
    /// Further settings of the program, by name.
    pub settings: Vec<(&'static str, String)>,
}

impl StoreOptions {
    pub fn new(kind: Kind) -> Self {
        Self { kind, ..Self::default() }
    }
}

/// What a restarted store finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    Kept,
    Wiped,
}

/// A running store. It is killed, and its directory removed, on drop.
#[derive(Debug)]
pub struct StoreServer {
    addr: SocketAddr,
    options: StoreOptions,
    program: PathBuf,
    arguments: Vec<OsString>,
    child: Child,
    tls: Option<Tls>,
    dir: TempDir,
}

#[derive(Debug)]
struct Tls {
    ca_file: PathBuf,
    trust: Arc<rustls::ClientConfig>,
}

impl StoreServer {
    /// Starts a store and waits until it answers; a replica, until it follows its master. `None`
    /// where the program is missing, see [`program`].
    pub fn start(options: StoreOptions) -> Option<Self> {
        let server = Self::spawn(options, Role::Store)?;
        server.wait_until_ready();
        if server.options.replica_of.is_some() {
            wait_for("a replica follows its master", PATIENCE, || server.follows());
        }
        Some(server)
    }

    /// Starts the program, and does not wait for it.
    pub(super) fn spawn(options: StoreOptions, role: Role<'_>) -> Option<Self> {
        let program = program(options.kind)?;
        assert!(
            !options.tls || options.kind == Kind::Redis,
            "the valkey-server that tests use has no TLS; take Kind::Redis"
        );
        let dir = data_dir();
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let tls = options.tls.then(|| Tls::make(dir.path()));
        std::fs::create_dir(dir.path().join("data")).expect("a directory for a store's data");
        let mut arguments = Vec::new();
        if let Role::Sentinel(text) = role {
            // Sentinel takes its masters from a file only, and writes what it learns into it.
            let file = dir.path().join("sentinel.conf");
            std::fs::write(&file, text).expect("a configuration for Sentinel");
            arguments.extend([file.into(), "--sentinel".into()]);
        }
        for (name, value) in settings(&options, addr.port(), dir.path(), role) {
            arguments.extend([format!("--{name}").into(), value]);
        }
        let child = run(&program, &arguments);
        Some(Self { addr, options, program, arguments, child, tls, dir })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `redis://` or, with TLS, `rediss://`, with the password if there is one.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.credentials(), self.addr)
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.options.tls { "rediss" } else { "redis" }
    }

    pub(super) fn credentials(&self) -> String {
        self.options.password.as_ref().map_or_else(String::new, |p| format!(":{p}@"))
    }

    /// The certificate, as PEM, of the authority that signed this server's. `None` without TLS.
    pub fn ca_file(&self) -> Option<&Path> {
        Some(&self.tls.as_ref()?.ca_file)
    }

    /// A client that has given the password, and trusts this server's authority and no other.
    pub fn client(&self) -> io::Result<StoreClient> {
        self.client_within(PATIENCE)
    }

    fn client_within(&self, patience: Duration) -> io::Result<StoreClient> {
        let mut client = match &self.tls {
            Some(tls) => StoreClient::connect_tls(self.addr, tls.trust.clone(), patience)?,
            None => StoreClient::connect_within(self.addr, patience)?,
        };
        if let Some(password) = &self.options.password {
            client.call(&["AUTH", password])?.ok()?;
        }
        Ok(client)
    }

    /// One command on a connection of its own: its reply as [`Resp::text`] gives it. An error reply
    /// is text too; a server that does not answer ends the test.
    pub fn cli(&self, command: &[&str]) -> String {
        let reply = self.client().and_then(|mut client| client.call(command));
        reply.unwrap_or_else(|e| panic!("{command:?} at {self}: {e}\n{}", self.log())).text()
    }

    /// As [`StoreServer::cli`], for a server that may not answer, with error replies as errors.
    pub(super) fn ask(&self, command: &[&str]) -> Result<String, String> {
        let client = self.client_within(GLANCE);
        let reply = client.and_then(|mut client| client.call(command)).and_then(Resp::ok);
        reply.map(|reply| reply.text()).map_err(|e| format!("{command:?} at {self}: {e}"))
    }

    /// The newest lines that the server printed.
    pub fn log(&self) -> String {
        let lines = self.child.lines();
        let tail = lines.len().saturating_sub(40);
        lines.get(tail..).unwrap_or_default().join("\n")
    }

    /// Kills it with SIGKILL: open connections end, new ones are refused.
    pub fn stop(&self) {
        self.child.kill().unwrap_or_else(|e| panic!("stop {self}: {e}"));
    }

    /// Stops its clock with SIGSTOP: connections are accepted by the kernel, and nothing answers.
    pub fn pause(&self) {
        self.child.signal(Signal::STOP).unwrap_or_else(|e| panic!("pause {self}: {e}"));
    }

    /// Ends [`StoreServer::pause`].
    pub fn resume(&self) {
        self.child.signal(Signal::CONT).unwrap_or_else(|e| panic!("resume {self}: {e}"));
    }

    pub fn is_running(&self) -> bool {
        self.child.wait(Duration::ZERO) == crate::ExitWait::StillRunning
    }

    /// Kills it, if it still runs, and starts it again on the same port. Waits until it answers.
    pub fn restart(&mut self, data: Data) {
        self.stop();
        if data == Data::Wiped {
            let data = self.dir.path().join("data");
            std::fs::remove_dir_all(&data).expect("remove a store's data");
            std::fs::create_dir(&data).expect("a directory for a store's data");
        }
        self.child = run(&self.program, &self.arguments);
        self.wait_until_ready();
    }

    pub(super) fn wait_until_ready(&self) {
        wait_for("a store answers", PATIENCE, || {
            assert!(self.is_running(), "{self} has ended:\n{}", self.log());
            self.ask(&["PING"]).map_err(|why| format!("{why}\n{}", self.log()))
        });
    }

    /// Whether it is a replica whose link is up and whose copy is complete.
    pub(super) fn follows(&self) -> Result<(), String> {
        let text = self.ask(&["INFO", "replication"])?;
        let up = text.contains("role:slave") && text.contains("master_link_status:up");
        up.then_some(()).ok_or_else(|| format!("{self}: {text}"))
    }
}

impl std::fmt::Display for StoreServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.options.kind.command(), self.addr)
    }
}

/// What the program is started as.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role<'a> {
    Store,
    /// With this configuration.
    Sentinel(&'a str),
}

fn run(program: &Path, arguments: &[OsString]) -> Child {
    let mut command = Command::new(program);
    command.args(arguments);
    Child::spawn(command).unwrap_or_else(|e| panic!("{e}"))
}

fn settings(
    options: &StoreOptions,
    port: u16,
    dir: &Path,
    role: Role<'_>,
) -> Vec<(&'static str, OsString)> {
    let (plain_port, tls_port) = if options.tls { (0, port) } else { (port, 0) };
    let mut all: Vec<(&str, OsString)> = vec![
        ("bind", "127.0.0.1".into()),
        ("port", plain_port.to_string().into()),
        ("dir", dir.join("data").into()),
        ("daemonize", "no".into()),
        ("logfile", "".into()),
    ];
    if options.tls {
        all.extend([
            ("tls-port", tls_port.to_string().into()),
            ("tls-cert-file", dir.join("server.pem").into()),
            ("tls-key-file", dir.join("server.key").into()),
            ("tls-ca-cert-file", dir.join("ca.pem").into()),
            ("tls-auth-clients", "no".into()),
            ("tls-replication", "yes".into()),
        ]);
    }
    if matches!(role, Role::Store) {
        let appendonly = if options.appendonly { "yes" } else { "no" };
        all.extend([
            ("save", "".into()),
            ("appendonly", appendonly.into()),
            // A first copy begins at once, not after five seconds in which more replicas may come.
            ("repl-diskless-sync-delay", "0".into()),
        ]);
        if let Some(bytes) = options.maxmemory {
            all.push(("maxmemory", bytes.to_string().into()));
            all.push(("maxmemory-policy", "noeviction".into()));
        }
        if let Some(password) = &options.password {
            all.push(("requirepass", password.into()));
            all.push(("masterauth", password.into()));
        }
        if let Some(master) = options.replica_of {
            all.push(("replicaof", format!("{} {}", master.ip(), master.port()).into()));
        }
    }
    all.extend(options.settings.iter().map(|(name, value)| (*name, value.into())));
    all
}

impl Tls {
    fn make(dir: &Path) -> Self {
        // One for all stores of a test, so that they trust each other.
        static AUTHORITY: LazyLock<Authority> =
            LazyLock::new(|| Authority::new("Corvus test stores"));
        let authority = &*AUTHORITY;
        let certificate = authority.issue(&["127.0.0.1", "localhost"]);
        let write = |name: &str, text: &str| {
            let file = dir.join(name);
            std::fs::write(&file, text).expect("a file for a store's certificate");
            file
        };
        write("server.pem", &certificate.certificate_pem);
        write("server.key", &certificate.key_pem);
        let ca_file = write("ca.pem", &authority.certificate_pem);
        let ca = CertificateDer::from_pem_file(&ca_file).expect("an authority's certificate");
        Self { ca_file, trust: tls::client_config_trusting(ca) }
    }
}
