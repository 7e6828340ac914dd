//! No source file is so long that nobody reads it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

const MAX_LINES: usize = 600;
/// Files that may be longer, each with the reason.
const LONGER: &[(&str, &str)] = &[];

const FOLDERS: [&str; 6] = ["crates", "xtask", "fuzz", "bench", "scripts", "console"];
const SOURCES: [&str; 9] = ["rs", "lua", "ts", "tsx", "js", "mjs", "css", "py", "sh"];
/// What tools make, not people.
const SKIPPED: [&str; 4] = ["target", "node_modules", "dist", "out"];

/// A sentence for each file that is too long, and each reason that is needed no more.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut paths)?;
    }
    paths.sort();
    let mut problems = Vec::new();
    for path in paths {
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines = String::from_utf8_lossy(&text).lines().count();
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        problems.extend(judge(&name, lines, LONGER));
    }
    Ok(problems)
}

fn judge(name: &str, lines: usize, longer: &[(&str, &str)]) -> Option<String> {
    let reason = longer.iter().find(|(path, _)| *path == name);
    match (lines > MAX_LINES, reason) {
        (true, None) => Some(format!("{name} has {lines} lines, {MAX_LINES} are the most.")),
        (false, Some(_)) => Some(format!("{name} is short again; take it off the list in xtask.")),
        (true, Some(_)) | (false, None) => None,
    }
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let cannot_list = || format!("cannot list {}", folder.display());
    for entry in fs::read_dir(folder).with_context(cannot_list)? {
        let entry = entry.with_context(cannot_list)?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if entry.file_type().with_context(cannot_list)?.is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                collect(&path, paths)?;
            }
        } else if path.extension().and_then(OsStr::to_str).is_some_and(|ext| SOURCES.contains(&ext))
            && !name.ends_with(".d.ts")
        {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_need_a_reason_and_reasons_a_long_file() {
        let longer = [("b.rs", "a table")];
        assert_eq!(judge("a.rs", MAX_LINES, &longer), None);
        let problem = judge("a.rs", MAX_LINES + 1, &longer).unwrap();
        assert_eq!(problem, "a.rs has 601 lines, 600 are the most.");
        assert_eq!(judge("b.rs", MAX_LINES + 1, &longer), None);
        assert!(judge("b.rs", MAX_LINES, &longer).is_some());
    }

    #[test]
    fn this_file_is_among_those_checked() {
        let mut paths = Vec::new();
        collect(Path::new(env!("CARGO_MANIFEST_DIR")), &mut paths).unwrap();
        assert!(paths.iter().any(|path| path.ends_with("src/files.rs")), "{paths:?}");
    }
}
