//! Where the Document comes from in file mode, and when it has changed.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::Context as _;
use corvus_config::{Document, Format, Snapshot, render_problems};

/// A Document outside the console's store.
#[derive(Clone, Debug)]
pub enum Source {
    /// A YAML or (by its name) JSON file, read again when it changes.
    File(PathBuf),
    /// A YAML text.
    Text(String),
}

impl Source {
    /// Reads, decodes and compiles; the error lists every problem with its place.
    pub fn load(&self) -> anyhow::Result<(Document, Snapshot)> {
        let (text, format, name) = match self {
            Self::File(path) => {
                let text = fs::read_to_string(path)
                    .with_context(|| format!("{} cannot be read", path.display()))?;
                (text, format_of(path), path.display().to_string())
            }
            Self::Text(text) => (text.clone(), Format::Yaml, "document".to_owned()),
        };
        let env = |name: &str| std::env::var(name).ok();
        corvus_config::load(&text, format, &env)
            .map_err(|problems| anyhow::anyhow!("{}", render_problems(&problems, &name).trim_end()))
    }

    /// What tells one state of the file from the next. Looking at it each second works on every
    /// file system and mount, where notifications do not.
    pub fn stamp(&self) -> Option<Stamp> {
        let Self::File(path) = self else { return None };
        let meta = fs::metadata(path).ok()?;
        Some(Stamp { modified: meta.modified().ok(), len: meta.len() })
    }
}

/// See [`Source::stamp`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    modified: Option<SystemTime>,
    len: u64,
}

fn format_of(path: &Path) -> Format {
    let json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if json { Format::Json } else { Format::Yaml }
}
