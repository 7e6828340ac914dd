//! The command line.

mod address;
mod serve;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand};

pub use address::parse_address;
use corvus_config::{Snapshot, snapshot::CertificateSource};
use corvus_core::SystemClock;

use crate::Source;

/// A self-hosted gateway: reverse proxy, protection, access queues.
#[derive(Debug, Parser)]
#[command(name = "corvus", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    Serve(ServeArgs),
    /// Check a configuration file: every problem at once, each with its place.
    Check {
        /// YAML, or JSON if its name ends in `.json`.
        file: PathBuf,
    },
    /// Show an access queue at work: a sample shop for three visitors at once, with simulated
    /// visitors. Needs no configuration.
    Demo {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:8080", value_parser = parse_address)]
        http: SocketAddr,
        /// Simulated visitors at once.
        #[arg(long, default_value_t = 12)]
        visitors: usize,
    },
    /// Run only the sample shop, as something to put behind the gateway.
    SampleShop {
        #[arg(long, default_value = "127.0.0.1:9000", value_parser = parse_address)]
        listen: SocketAddr,
    },
    /// Ask a running gateway how it is; for container health checks.
    Healthcheck {
        /// The console's address.
        #[arg(long, env = "CORVUS_ADMIN", default_value = "127.0.0.1:9443", value_parser = parse_address)]
        admin: SocketAddr,
    },
    /// Print the version.
    Version,
}

/// Options of `corvus serve`.
#[derive(Args, Debug)]
struct ServeArgs {
    /// Folder for everything that is kept.
    #[arg(long, env = "CORVUS_DATA", default_value = "./data", value_name = "DIR")]
    data: PathBuf,
    /// The configuration file; it is read again when it changes, and on SIGHUP.
    #[arg(long, env = "CORVUS_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen for HTTP; may be given several times. Port 0 picks a free port.
    #[arg(long, env = "CORVUS_HTTP", value_name = "ADDR", value_delimiter = ',',
          default_value = "[::]:80", value_parser = parse_address)]
    http: Vec<SocketAddr>,
    /// Where to listen for HTTPS; may be given several times.
    #[arg(long, env = "CORVUS_HTTPS", value_name = "ADDR", value_delimiter = ',',
          default_value = "[::]:443", value_parser = parse_address)]
    https: Vec<SocketAddr>,
    /// The console's address (HTTPS).
    #[arg(long, env = "CORVUS_ADMIN", value_name = "ADDR", default_value = "[::]:9443",
          value_parser = parse_address)]
    admin: SocketAddr,
    /// Share the access queues with other gateways through this Valkey or Redis:
    /// `redis[s]://[:PASSWORD@]HOST[:PORT]`, `redis+cluster://H:P,H:P`, or
    /// `redis+sentinel://H:P,H:P/MASTER`. Unset: queues of this process alone.
    #[arg(long, env = "CORVUS_VALKEY", value_name = "URL", hide_env_values = true)]
    valkey: Option<String>,
    /// Worker threads; as many as there are processors unless set.
    #[arg(long, env = "CORVUS_WORKERS", value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// One JSON line for each request: `stdout`, `off` or a file.
    #[arg(long, env = "CORVUS_ACCESS_LOG", value_name = "WHERE", default_value = "stdout")]
    access_log: String,
    /// Seconds that requests under way get to finish when the gateway is stopped.
    #[arg(long, env = "CORVUS_GRACE", value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
}

/// Runs the command; errors are one message on standard error and exit code 1.
pub fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Serve(args) => serve::serve(args),
        Command::Check { file } => check(file),
        Command::Demo { http, visitors } => crate::demo::run(http, visitors),
        Command::SampleShop { listen } => crate::demo::shop_alone(listen),
        Command::Healthcheck { admin } => healthcheck(admin),
        Command::Version => {
            print_line(concat!("corvus ", env!("CARGO_PKG_VERSION")));
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_note(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn check(file: PathBuf) -> anyhow::Result<()> {
    let shown = file.display().to_string();
    let (_, mut snapshot) = Source::File(file).load()?;
    for warning in uploaded_certificates(&mut snapshot) {
        print_note(&format!("warning: {warning}"));
    }
    let hosts = counted(snapshot.hosts.len(), "proxy host");
    let queues = counted(snapshot.queues.len(), "access queue");
    print_line(&format!("{shown} is valid: {hosts}, {queues}"));
    Ok(())
}

/// What `serve` would say of the certificates that the document brings along. It would serve the
/// other hosts all the same, so these are no errors.
fn uploaded_certificates(snapshot: &mut Snapshot) -> Vec<String> {
    // Self-signed ones are made when they are served, not by looking.
    snapshot
        .certificates
        .retain(|certificate| matches!(certificate.source, CertificateSource::Upload { .. }));
    let loaded = corvus_tls::load(snapshot, Path::new("."), &SystemClock::new());
    let failures = loaded.failures.into_iter().map(|failure| failure.sentence);
    failures.chain(loaded.warnings.into_iter().map(|warning| warning.sentence)).collect()
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn healthcheck(admin: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(corvus_admin::healthcheck::check(admin))?;
    print_line("healthy");
    Ok(())
}

/// Standard output is this program's interface; a reader that went away is no error of ours.
pub(crate) fn print_line(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// For people beside the output of the program.
fn print_note(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
