//! The `corvus` program.

use std::{io::IsTerminal as _, process::ExitCode};

use clap::Parser as _;
use corvus::cli::{self, Cli};
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("CORVUS_LOG").unwrap_or_else(|_| {
        // What the client of the store says of its inner life, the gateway says in its own words.
        EnvFilter::new("info,redis=off")
    });
    // Standard output belongs to the access log.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    cli::run(cli)
}
