//! Which crate may depend on which: the layer table, and one owner for each outside thing.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, PackageId};

/// A crate imports strictly lower layers, so two crates of one layer never see each other.
const LAYERS: [&[&str]; 6] = [
    &["corvus-core"],
    &["corvus-rules", "corvus-waf"],
    &["corvus-config"],
    &[
        "corvus-guard",
        "corvus-queue",
        "corvus-tls",
        "corvus-monitor",
        "corvus-notify",
        "corvus-store",
    ],
    &["corvus-proxy", "corvus-admin"],
    &["corvus"],
];

/// Development only: may use any crate but the binary, and is used by tests alone.
const TESTKIT: &str = "corvus-testkit";
const XTASK: &str = "xtask";

/// Layers up to this one are pure: no runtime, no sockets, no files. That is what makes property
/// tests, fuzzing and instruction counts of them cheap.
const PURE: usize = 2;
const IMPURE: [&str; 14] = [
    "tokio",
    "async-std",
    "smol",
    "mio",
    "socket2",
    "hyper",
    "hyper-util",
    "reqwest",
    "quinn",
    "rustls",
    "tokio-rustls",
    "rusqlite",
    "redis",
    "axum",
];

/// Outside things, and the crates that may know them. The others get what they need as plain types.
const OWNERS: [(&[&str], &[&str]); 4] = [
    (&["rusqlite", "rusqlite_migration"], &["corvus-store", "corvus-monitor"]),
    (&["rustls", "tokio-rustls"], &["corvus-tls", "corvus-proxy", "corvus-admin", TESTKIT]),
    (&["redis"], &["corvus-queue"]),
    (&["hyper"], &["corvus-proxy", TESTKIT]),
];

/// The dependencies of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) crates: Vec<Crate>,
}

#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// As its manifest lists them. Build dependencies count as normal ones.
    pub(crate) normal: BTreeSet<String>,
    pub(crate) dev: BTreeSet<String>,
    /// All that ends up in it, through any number of steps; without what only tests use.
    pub(crate) reachable: BTreeSet<String>,
}

impl Graph {
    pub(crate) fn new(metadata: &Metadata) -> Result<Self> {
        let resolve = metadata.resolve.as_ref().context("cargo metadata has no resolved graph")?;
        let names: BTreeMap<&PackageId, &str> =
            metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
        let edges: BTreeMap<&PackageId, Vec<&PackageId>> = resolve
            .nodes
            .iter()
            .map(|node| {
                let shipped = node.deps.iter().filter(|dep| {
                    dep.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development)
                });
                (&node.id, shipped.map(|dep| &dep.pkg).collect())
            })
            .collect();

        let crates = metadata.workspace_packages().into_iter().map(|package| {
            let of_kind = |dev: bool| {
                let wanted = package
                    .dependencies
                    .iter()
                    .filter(|dep| (dep.kind == DependencyKind::Development) == dev);
                wanted.map(|dep| dep.name.clone()).collect()
            };
            let reachable = reachable(&edges, &package.id);
            Crate {
                name: package.name.to_string(),
                normal: of_kind(false),
                dev: of_kind(true),
                reachable: reachable
                    .iter()
                    .filter_map(|id| names.get(id).map(ToString::to_string))
                    .collect(),
            }
        });
        Ok(Self { crates: crates.collect() })
    }
}

fn reachable<'a>(
    edges: &BTreeMap<&'a PackageId, Vec<&'a PackageId>>,
    from: &PackageId,
) -> BTreeSet<&'a PackageId> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&PackageId> = edges.get(from).cloned().unwrap_or_default();
    while let Some(id) = open.pop() {
        if let Some((id, next)) = edges.get_key_value(id)
            && seen.insert(*id)
        {
            open.extend(next);
        }
    }
    seen
}

/// A sentence for each rule that is broken.
pub(crate) fn check(graph: &Graph) -> Vec<String> {
    graph.crates.iter().flat_map(check_crate).collect()
}

fn check_crate(krate: &Crate) -> Vec<String> {
    let name = &krate.name;
    let mut problems = Vec::new();

    if krate.normal.contains(TESTKIT) {
        problems.push(format!("{name} ships {TESTKIT}; it may only be a dev-dependency."));
    }
    let mut all = krate.normal.union(&krate.dev);
    if all.clone().any(|dep| dep == XTASK) {
        problems.push(format!("{name} depends on {XTASK}, which is a tool and not a library."));
    }
    match layer(name) {
        Some(own) => {
            let not_lower =
                all.filter_map(|dep| Some((dep, layer(dep)?))).filter(|(_, l)| *l >= own);
            problems.extend(not_lower.map(|(dep, other)| {
                format!(
                    "{name} (L{own}) imports {dep} (L{other}); a crate imports strictly lower layers."
                )
            }));
            if own <= PURE {
                let impure = IMPURE.into_iter().filter(|dep| krate.reachable.contains(*dep));
                problems.extend(impure.map(|dep| {
                    format!("{name} (L{own}) reaches {dep}; L0 to L{PURE} do no input or output.")
                }));
            }
        }
        None if name == TESTKIT => {
            if all.any(|dep| dep == "corvus") {
                problems.push(format!("{TESTKIT} imports corvus, whose tests use it."));
            }
        }
        None if name == XTASK => {}
        None => problems.push(format!("{name} has no place in the layer table of xtask.")),
    }
    for (things, owners) in OWNERS {
        if owners.contains(&name.as_str()) {
            continue;
        }
        let taken = things.iter().filter(|thing| krate.normal.contains(**thing));
        problems
            .extend(taken.map(|thing| {
                format!("{name} depends on {thing}; only {} may.", owners.join(", "))
            }));
    }
    problems
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|crates| crates.contains(&name))
}
