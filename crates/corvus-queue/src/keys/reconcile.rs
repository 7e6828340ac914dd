//! Which keys hold, of those a gateway has and those the store has.

use super::file::KeyFile;

/// What to do next, so that gateway and store have the same keys.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// They have.
    Done,
    /// The store's are ours from now on.
    Take(KeyFile),
    /// The same, and what we signed is worth nothing any more: two gateways that ran alone before
    /// have one store now.
    GiveUpOurs(KeyFile),
    /// Put these in place of what the store was seen to have.
    Put(KeyFile),
    /// Nobody has any.
    Make,
}

/// `store_now_ms` is the time of the store, read together with `stored`.
pub(super) fn reconcile(
    local: Option<&KeyFile>,
    stored: Option<&KeyFile>,
    store_now_ms: u64,
) -> Step {
    let (local, stored) = match (local, stored) {
        (None, None) => return Step::Make,
        // The store is fresh, or lost everything.
        (Some(local), None) => return Step::Put(local.clone()),
        (local, Some(stored)) => (local, stored),
    };
    // The store lost the latest, as after a failover.
    if let Some(local) = local.filter(|local| local.generation > stored.generation) {
        return Step::Put(local.clone());
    }
    if let Some(activated) = stored.activated(store_now_ms) {
        return Step::Put(activated);
    }
    match local {
        Some(local) if local == stored => Step::Done,
        Some(local) if local.generation == stored.generation => Step::GiveUpOurs(stored.clone()),
        _ => Step::Take(stored.clone()),
    }
}
