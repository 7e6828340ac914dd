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
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(host) = self.wildcard.get(parent) {
                return Some(host);
            }
            rest = parent;
        }
        None
    }
}
