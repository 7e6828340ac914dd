//! Checks of the project's own rules: `cargo run -p xtask -- layers`. `cargo test -p xtask` runs
//! them too, so that a broken rule fails the build. And a tool: `simulate` sizes an access queue.

mod files;
mod layers;
mod manifests;
mod request_path;
mod simulate;

use std::{
    env,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let task = env::args().nth(1);
    let problems = match task.as_deref() {
        Some("layers") => layers()?,
        Some("files") => files::check(&root())?,
        Some("request-path") => request_path::check(&root())?,
        Some("simulate") => return simulate::run(env::args().skip(2)),
        _ => bail!("usage: cargo run -p xtask -- layers | files | request-path | simulate"),
    };
    for problem in &problems {
        writeln!(io::stderr(), "{problem}")?;
    }
    match problems.len() {
        0 => Ok(()),
        1 => bail!("one rule is broken"),
        n => bail!("{n} rules are broken"),
    }
}

/// Who may import whom, and what each manifest must say.
fn layers() -> Result<Vec<String>> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        // Else cargo wants the sources of crates for systems we do not build for.
        .other_options(["--filter-platform".to_owned(), "x86_64-unknown-linux-gnu".to_owned()])
        .exec()
        .context("cargo metadata failed")?;
    let mut problems = layers::check(&layers::Graph::new(&metadata)?);
    for package in metadata.workspace_packages() {
        let path = &package.manifest_path;
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        problems.extend(manifests::check(&package.name, &text)?);
    }
    Ok(problems)
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn layers_hold() {
        assert_eq!(super::layers().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn files_are_short() {
        assert_eq!(super::files::check(&super::root()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn the_request_path_is_documented_as_it_is() {
        assert_eq!(super::request_path::check(&super::root()).unwrap(), Vec::<String>::new());
    }
}
