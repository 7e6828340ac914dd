//! A whole gateway for a test: in this process ([`TestGateway`]), or as a process of its own
//! ([`GatewayProcess`]) where the process is what matters.
#![allow(dead_code, reason = "every module uses another part of it")]

use std::{
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use corvus::{App, Config, Source};
use corvus_core::{Clock, SystemClock};
use corvus_monitor::AccessLog;
use corvus_testkit::{
    Child, ExitWait, H2Client, PATIENCE, RawClient, RawResponse, Signal, TempDir, Visitor,
    WebSocket, data_dir,
};
use serde_json::Value;

/// What open connections get when the gateway of a test ends.
const GRACE: Duration = Duration::from_millis(100);

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The test binary of `corvus`.
pub(crate) fn corvus() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corvus"));
    // What the machine sets is not what the test means.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CORVUS_") {
            command.env_remove(name);
        }
    }
    command
}

/// A Document with one proxy host `site` for `domain`, and further lines of it (each indented by
/// four).
pub(crate) fn one_host(domain: &str, upstream: &str, more: &str) -> String {
    let mut document = "version: 1\nproxy_hosts:\n".to_owned();
    document.push_str(&host("site", domain, upstream, more));
    document
}

/// An entry of `proxy_hosts`.
pub(crate) fn host(id: &str, domain: &str, upstream: &str, more: &str) -> String {
    let mut text = format!(
        "  - id: {id}\n    domains: [\"{domain}\"]\n    upstreams: [{{url: \"{upstream}\"}}]\n"
    );
    for line in more.lines() {
        let _ = writeln!(text, "    {line}");
    }
    text
}

/// How a [`TestGateway`] starts.
pub(crate) struct Builder {
    document: String,
    workers: usize,
    valkey: Option<String>,
    clock: Arc<dyn Clock>,
    file: bool,
    console: bool,
}

impl Builder {
    pub(crate) fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    pub(crate) fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Shares its queues through this store.
    pub(crate) fn valkey(mut self, url: impl Into<String>) -> Self {
        self.valkey = Some(url.into());
        self
    }

    /// Reads the Document from a file, which [`TestGateway::write_document`] changes.
    #[expect(clippy::wrong_self_convention, reason = "a builder method")]
    pub(crate) fn from_file(mut self) -> Self {
        self.file = true;
        self
    }

    /// Serves the console's address too.
    pub(crate) fn console(mut self) -> Self {
        self.console = true;
        self
    }

    pub(crate) fn start(self) -> TestGateway {
        TestGateway::run(self, data_dir())
    }
}

/// A gateway in this process: free ports, a data folder of its own, its access log in a file. It is
/// drained when dropped.
pub(crate) struct TestGateway {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    app: Option<App>,
    builder: Builder,
    dir: TempDir,
}

impl TestGateway {
    /// `document`: YAML.
    pub(crate) fn builder(document: impl Into<String>) -> Builder {
        Builder {
            document: document.into(),
            workers: 1,
            valkey: None,
            clock: Arc::new(SystemClock::new()),
            file: false,
            console: false,
        }
    }

    pub(crate) fn start(document: impl Into<String>) -> Self {
        Self::builder(document).start()
    }

    fn run(builder: Builder, dir: TempDir) -> Self {
        let file = dir.path().join("gateway.yaml");
        std::fs::write(&file, &builder.document).unwrap();
        let config = Config {
            data: dir.path().join("data"),
            source: if builder.file {
                Source::File(file)
            } else {
                Source::Text(builder.document.clone())
            },
            http: vec![LOCAL],
            https: vec![LOCAL],
            admin: builder.console.then_some(LOCAL),
            valkey: builder.valkey.as_ref().map(|url| url.parse().unwrap()),
            workers: builder.workers,
            access_log: AccessLog::File(dir.path().join("access.log")),
        };
        let app = App::start(config, Arc::clone(&builder.clock))
            .unwrap_or_else(|error| panic!("the gateway does not start: {error:#}"));
        let (http, https, admin) = (app.http[0], app.https[0], app.admin);
        Self { http, https, admin, app: Some(app), builder, dir }
    }

    /// Ends it (drained, saved) and starts it again on the same data folder, on other ports.
    pub(crate) fn restart(mut self) -> Self {
        self.stop();
        let builder = self.builder_again();
        let dir = std::mem::replace(&mut self.dir, data_dir());
        Self::run(builder, dir)
    }

    fn builder_again(&self) -> Builder {
        Builder {
            document: self.builder.document.clone(),
            valkey: self.builder.valkey.clone(),
            clock: Arc::clone(&self.builder.clock),
            ..self.builder
        }
    }

    fn stop(&mut self) {
        if let Some(app) = self.app.take() {
            app.drain(GRACE);
        }
    }

    pub(crate) fn app(&self) -> &App {
        self.app.as_ref().expect("a running gateway")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Replaces the Document's file at once, as a careful editor does.
    pub(crate) fn write_document(&self, document: &str) {
        let new = self.dir.path().join("gateway.yaml.new");
        std::fs::write(&new, document).unwrap();
        std::fs::rename(new, self.dir.path().join("gateway.yaml")).unwrap();
    }

    /// Writes the Document's file and applies it.
    pub(crate) fn reload(&self, document: &str) {
        assert!(self.builder.file, "a gateway from a file");
        self.write_document(document);
        self.app().reload().unwrap_or_else(|error| panic!("not applied: {error:#}"));
    }

    pub(crate) async fn client(&self) -> RawClient {
        RawClient::connect(self.http).await.unwrap()
    }

    pub(crate) async fn client_tls(&self, sni: &str) -> RawClient {
        RawClient::connect_tls(self.https, sni, &["http/1.1"]).await.unwrap()
    }

    /// HTTP/2 by prior knowledge.
    pub(crate) async fn h2(&self, host: &str) -> H2Client {
        H2Client::connect(self.http, host).await.unwrap()
    }

    pub(crate) async fn h2_tls(&self, host: &str) -> H2Client {
        H2Client::connect_tls(self.https, host).await.unwrap()
    }

    pub(crate) fn visitor(&self, host: &str) -> Visitor {
        Visitor::new(self.http, host)
    }

    pub(crate) async fn websocket(&self, host: &str, path: &str) -> WebSocket {
        WebSocket::connect(self.http, host, path, &[]).await.unwrap()
    }

    /// One request on a connection of its own.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> RawResponse {
        self.client().await.exchange(bytes).await.unwrap()
    }

    pub(crate) async fn get(
        &self,
        host: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> RawResponse {
        self.client().await.get(host, target, fields).await.unwrap()
    }

    /// Waits for a line of the access log.
    pub(crate) async fn logged(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let path = self.dir.path().join("access.log");
        eventually(what, || access_log(&path).into_iter().find(&wanted)).await
    }

    /// The line of the request with this id.
    pub(crate) async fn logged_id(&self, request_id: &str) -> Value {
        self.logged(request_id, |line| line["request_id"] == request_id).await
    }

    /// The lines written so far.
    pub(crate) fn log(&self) -> Vec<Value> {
        access_log(&self.dir.path().join("access.log"))
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.stop();
    }
}

fn access_log(path: &Path) -> Vec<Value> {
    let text = std::fs::read(path).unwrap_or_default();
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("a line of JSON")).collect()
}

/// Waits, by looking again and again, for something that cannot be awaited (a file, another
/// process).
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// `corvus serve` as a process: killed when dropped.
pub(crate) struct GatewayProcess {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) child: Child,
    dir: Arc<TempDir>,
}

impl GatewayProcess {
    /// Serves `document` (YAML) with a data folder of its own.
    pub(crate) fn start(document: &str, args: &[&str]) -> Self {
        Self::start_in(&Arc::new(data_dir()), document, args)
    }

    /// The same in a folder that outlives it, for a second start after a kill.
    pub(crate) fn start_in(dir: &Arc<TempDir>, document: &str, args: &[&str]) -> Self {
        std::fs::write(dir.path().join("gateway.yaml"), document).unwrap();
        let mut command = corvus();
        command.arg("serve").arg("--config").arg(dir.path().join("gateway.yaml"));
        command.arg("--data").arg(dir.path().join("data"));
        for option in ["--http", "--https", "--admin"] {
            command.args([option, "127.0.0.1:0"]);
        }
        command.arg("--access-log").arg(dir.path().join("access.log"));
        command.args(args);
        let child = Child::spawn(command).unwrap();
        let last = child.wait_for_line("(console)", PATIENCE).unwrap();
        let admin =
            last.split_once("://").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        let admin = admin.expect("the console's address");
        let lines = child.lines();
        let find = |scheme: &str| {
            let start = format!("listening on {scheme}://");
            let line = lines.iter().find(|l| l.starts_with(&start) && !l.ends_with(')'));
            line.and_then(|l| l.strip_prefix(&start)?.parse().ok()).expect("an address")
        };
        Self { http: find("http"), https: find("https"), admin, child, dir: Arc::clone(dir) }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Its folder, for a later start in it.
    pub(crate) fn dir(&self) -> Arc<TempDir> {
        Arc::clone(&self.dir)
    }

    /// What it printed, for messages.
    pub(crate) fn log(&self) -> String {
        self.child.lines().join("\n")
    }

    /// Ends it as an operator does, and waits for its end.
    pub(crate) fn terminate(&self) {
        self.child.signal(Signal::TERM).unwrap();
        let end = self.child.wait(PATIENCE);
        assert!(matches!(end, ExitWait::Exited(status) if status.success()), "{end:?}");
    }

    pub(crate) fn write_document(&self, document: &str) {
        let new = self.dir.path().join("gateway.yaml.new");
        std::fs::write(&new, document).unwrap();
        std::fs::rename(new, self.dir.path().join("gateway.yaml")).unwrap();
    }

    pub(crate) async fn client(&self) -> RawClient {
        RawClient::connect(self.http).await.unwrap()
    }

    /// Memory in use, KiB (`VmRSS`, or with `VmHWM` its highest).
    pub(crate) fn memory_kib(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).expect("a size")
    }
}
