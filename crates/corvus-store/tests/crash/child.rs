//! A process of its own for the tests in `crash.rs`: they kill it, or run it as another user.

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use corvus_core::SystemClock;
use corvus_store::{NewVersion, Store, audit::NewEntry};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [command, data] = arguments.as_slice() else {
        return ExitCode::FAILURE;
    };
    let done = match command.as_str() {
        "append" => append(Path::new(data)),
        "open" => open(Path::new(data)).map(drop),
        _ => Err("no such command".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The test reads the sentence.
            let _ = writeln!(io::stdout(), "{error}");
            ExitCode::FAILURE
        }
    }
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn open(data: &Path) -> Result<Store> {
    Ok(Store::open(data, Arc::new(SystemClock::new()), None)?)
}

/// Appends versions for ever and prints the number of each that was answered with success.
fn append(data: &Path) -> Result<()> {
    let store = open(data)?;
    let mut out = io::stdout();
    writeln!(out, "open")?;
    let mut base = store.read(|r| r.current_version())?;
    loop {
        let next = (base + 1).to_string();
        // Of different lengths, so that some spread over pages.
        let document = next.repeat(1 + usize::try_from(base * 37 % 3000)?);
        base = store.write(|w| {
            let new = NewVersion { base, author: "child", comment: &next, document: &document };
            let version = w.append_version(&new)?;
            w.put_secret("newest", next.as_bytes())?;
            w.audit(&NewEntry { kind: "config.saved", subject: &next, ..NewEntry::default() })?;
            Ok(version)
        })?;
        writeln!(out, "{base}")?;
        out.flush()?;
    }
}
