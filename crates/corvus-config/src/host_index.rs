//! Which host answers for a name: exact, then the longest wildcard. Lookup time does not depend on
//! the number of names: one hash lookup for each label of the request's host.

use std::{collections::HashMap, sync::Arc};

use foldhash::fast::FixedState;

use crate::snapshot::Host;

/// Index over the domains of all enabled hosts.
#[derive(Debug, Default)]
pub struct HostIndex {
    exact: HashMap<String, Arc<Host>, FixedState>,
    /// Keyed by what follows `*.`.
    wildcard: HashMap<String, Arc<Host>, FixedState>,
}

/// The host that answers for a name.
pub type HostMatch<'a> = Option<&'a Arc<Host>>;

impl HostIndex {
    pub fn new(hosts: &[Arc<Host>]) -> Self {
        let mut index = Self::default();
        for host in hosts {
            for domain in &host.domains {
                match domain.strip_prefix("*.") {
                    Some(rest) => index.wildcard.insert(rest.to_owned(), Arc::clone(host)),
                    None => index.exact.insert(domain.clone(), Arc::clone(host)),
                };
            }
        }
        index
    }

    /// `name`: lower case, without port and trailing dot.
    pub fn find(&self, name: &str) -> HostMatch<'_> {
        if let Some(host) = self.exact.get(name) {
            return Some(host);
        }
        if self.wildcard.is_empty() {
            return None;
        }
        let mut rest = name;
        while let Some((label, parent)) = rest.split_once('.') {
            // `.example.com` is no name below `example.com`.
            if label.is_empty() {
                return None;
            }
            if let Some(host) = self.wildcard.get(parent) {
                return Some(host);
            }
            rest = parent;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(names: &[String]) -> HostIndex {
        let lines: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(i, name)| {
                format!("{{id: h{i}, domains: ['{name}'], upstreams: [{{url: 'http://a'}}]}}")
            })
            .collect();
        let text = format!("{{version: 1, proxy_hosts: [{}]}}", lines.join(","));
        crate::load(&text, crate::Format::Yaml, &|_| None).unwrap().1.index
    }

    #[test]
    fn exact_wins_then_the_longest_wildcard() {
        let names = ["a.com", "*.a.com", "*.b.a.com", "x.b.a.com"].map(str::to_owned);
        let index = index(&names);
        let find = |name| index.find(name).map(|host| host.domains[0].as_str());
        for (name, owner) in [
            ("a.com", Some("a.com")),
            ("b.a.com", Some("*.a.com")),
            ("c.b.a.com", Some("*.b.a.com")),
            ("d.c.b.a.com", Some("*.b.a.com")),
            ("x.b.a.com", Some("x.b.a.com")),
            ("y.x.b.a.com", Some("*.b.a.com")),
            (".a.com", None),
            ("x..a.com", None),
            ("com", None),
            ("", None),
            ("xa.com", None),
        ] {
            assert_eq!(find(name), owner, "{name}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_scan_over_all_names(
            names in prop::collection::btree_set("(\\*\\.)?[ab](\\.[ab]){0,2}", 1..8),
            probe in "[ab](\\.[ab]){0,4}",
        ) {
            let names: Vec<String> = names.into_iter().collect();
            let covers = |name: &&String| match name.strip_prefix('*') {
                Some(tail) => probe.ends_with(tail),
                None => **name == probe,
            };
            let best = names.iter().filter(covers).max_by_key(|n| (!n.starts_with('*'), n.len()));
            let index = index(&names);
            let found = index.find(&probe).map(|host| &host.domains[0]);
            prop_assert_eq!(found, best);
        }
    }
}
