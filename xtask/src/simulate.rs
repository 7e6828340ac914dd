//! `cargo run --release -p xtask -- simulate`: an access queue with many gateways and visitors on one
//! virtual clock, to size an installation before a sale. The store is the real room; gateways batch
//! as they do; visitors do what browsers do.

mod browse;
mod chance;
mod costs;
mod gateway;
mod options;
mod report;
mod sizing;
mod store;
mod tally;
mod text;
mod visitor;
mod wheel;
mod world;

use std::io::{self, Write};

use anyhow::Result;

use self::options::Options;

/// The clock starts this long before the opening: gateways are in contact by then, and the room's
/// first seconds, in which it lets nobody in, are over.
const OPENING_MS: u32 = 10_000;

/// Reads arguments, runs, prints.
pub(crate) fn run(args: impl Iterator<Item = String>) -> Result<()> {
    let options = Options::parse_from_args(args).unwrap_or_else(|error| error.exit());
    let report = report::of(&world::run(&options)?);
    let mut out = io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
