//! What the tests of this crate share.

use std::{path::Path, sync::Arc, time::Duration};

use corvus_core::FakeClock;
use tempfile::TempDir;

use crate::{
    AccountId, OpenError, Profile, Role, Store,
    open::{self, Tuning},
};

/// 2026-06-01T00:00:00Z.
pub(crate) const START_MS: u64 = 1_780_272_000_000;

/// A store in a folder of its own.
pub(crate) struct Sample {
    pub(crate) store: Store,
    pub(crate) clock: FakeClock,
    pub(crate) data: TempDir,
}

impl Sample {
    pub(crate) fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let clock = FakeClock::new(START_MS);
        let store = Store::open(data.path(), Arc::new(clock.clone()), None).unwrap();
        Self { store, clock, data }
    }

    /// Closes the store and opens it again.
    pub(crate) fn reopen(self) -> Self {
        let Self { store, clock, data } = self;
        drop(store);
        let store = Store::open(data.path(), Arc::new(clock.clone()), None).unwrap();
        Self { store, clock, data }
    }

    pub(crate) fn account(&self, email: &str, role: Role) -> AccountId {
        self.store.write(|w| w.create_account(&profile(email, role), None)).unwrap()
    }
}

/// Opens with little patience and, if wanted, a small disk.
pub(crate) fn open_with(data: &Path, max_pages: Option<u32>) -> Result<Store, OpenError> {
    let tuning = Tuning { busy: Duration::from_millis(20), max_pages };
    open::open(data, Arc::new(FakeClock::new(START_MS)), None, tuning)
}

pub(crate) fn profile(email: &str, role: Role) -> Profile {
    Profile { email: email.into(), name: email.into(), role, own_only: false, disabled: false }
}
