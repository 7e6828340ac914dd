//! What each crate's manifest must say: the workspace's lints, and no version of its own. Two
//! versions of one library are two answers to one advisory.

use anyhow::{Context, Result};
use toml::{Table, Value};

/// A sentence for each rule that the manifest of `name` breaks.
pub(crate) fn check(name: &str, manifest: &str) -> Result<Vec<String>> {
    let manifest: Table =
        manifest.parse().with_context(|| format!("the manifest of {name} is not TOML"))?;
    let mut problems = Vec::new();
    if !manifest.get("lints").is_some_and(is_from_workspace) {
        problems.push(format!("{name} lacks `[lints] workspace = true`."));
    }
    let targets = manifest.get("target").and_then(Value::as_table);
    let per_target = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    for part in per_target.chain([&manifest]) {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let listed = part.get(section).and_then(Value::as_table);
            let own = listed.into_iter().flatten().filter(|(_, spec)| !is_from_workspace(spec));
            problems.extend(own.map(|(dep, _)| {
                format!("{name} sets its own version of {dep}; write `{dep}.workspace = true`.")
            }));
        }
    }
    Ok(problems)
}

fn is_from_workspace(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn the_usual_manifest_is_fine() {
        let manifest = "lints.workspace = true\n[dependencies]\na.workspace = true\n\
                        b = { workspace = true, features = [\"x\"] }\n";
        assert_eq!(check("x", manifest).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn own_versions_and_own_lints_are_named() {
        let manifest = "[dependencies]\na = \"1\"\n[dev-dependencies]\nb = { path = \"../b\" }\n\
                        [target.'cfg(unix)'.build-dependencies]\nc = { version = \"2\" }\n";
        assert_eq!(
            check("x", manifest).unwrap(),
            [
                "x lacks `[lints] workspace = true`.",
                "x sets its own version of c; write `c.workspace = true`.",
                "x sets its own version of a; write `a.workspace = true`.",
                "x sets its own version of b; write `b.workspace = true`.",
            ]
        );
    }
}
