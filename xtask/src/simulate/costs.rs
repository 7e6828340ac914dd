//! What things cost: every constant that turns counts into machines, in one place.
//!
//! Three kinds: *measured* by `bench/` on one core of a cloud machine (`bench/README.md`), *derived*
//! from the program's own limits, and *assumed*. `docs/guide/sizing.md` repeats which is which, and a
//! benchmark that corrects one corrects it here. Each can be given on the command line.

use clap::Args;
use serde::Serialize;

#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "What things cost")]
pub(crate) struct Costs {
    /// Time of the store's core for each call, us (assumed)
    #[arg(long, value_name = "US", default_value_t = 5.0, value_parser = positive)]
    pub(crate) call_us: f64,
    /// Time of the store's core for each operation, and for each visitor that a pass lets in or
    /// gives up, us (assumed)
    #[arg(long, value_name = "US", default_value_t = 4.0, value_parser = positive)]
    pub(crate) op_us: f64,
    /// Memory of the store for each visitor waiting or inside, bytes (assumed)
    #[arg(long, value_name = "BYTES", default_value_t = 250.0, value_parser = positive)]
    pub(crate) waiter_bytes: f64,
    /// From a gateway to the store and back, without the store's own work, us (assumed: one data
    /// centre)
    #[arg(long, value_name = "US", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=400_000))]
    pub(crate) store_round_trip_us: u64,
    /// Time of a gateway's core for each request over TLS, us (measured: 20 to 43 HTTP/1.1, 28 to 61
    /// HTTP/2)
    #[arg(long, value_name = "US", default_value_t = 45.0, value_parser = positive)]
    pub(crate) request_us: f64,
    /// Time of a gateway's core for each TLS handshake, us (assumed)
    #[arg(long, value_name = "US", default_value_t = 500.0, value_parser = positive)]
    pub(crate) handshake_us: f64,
    /// Memory of a gateway and its kernel for each open connection, bytes (assumed)
    #[arg(long, value_name = "BYTES", default_value_t = 50_000.0, value_parser = positive)]
    pub(crate) connection_bytes: f64,
    /// The waiting page on the wire, bytes (derived: it is kept below 15 KB)
    #[arg(long, value_name = "BYTES", default_value_t = 15_000.0, value_parser = positive)]
    pub(crate) page_bytes: f64,
    /// A check-in or a redirect with its answer on the wire, bytes (assumed)
    #[arg(long, value_name = "BYTES", default_value_t = 1_500.0, value_parser = positive)]
    pub(crate) poll_bytes: f64,
    /// An operation with its answer between gateway and store, bytes (assumed)
    #[arg(long, value_name = "BYTES", default_value_t = 300.0, value_parser = positive)]
    pub(crate) op_bytes: f64,
    /// Cores of one gateway's machine
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) gateway_cores: u32,
    /// Memory of one gateway's machine, GB
    #[arg(long, value_name = "GB", default_value_t = 16.0, value_parser = positive)]
    pub(crate) gateway_gb: f64,
}

/// How much of a core, or of a machine's memory, may be in use at the peak: the rest is for what
/// the model does not know.
pub(super) const TARGET_BUSY: f64 = 0.5;

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 && number <= 1e12 => Ok(number),
        Ok(_) => Err("must be above 0 and at most 1e12".to_owned()),
        Err(_) => Err("not a number".to_owned()),
    }
}
