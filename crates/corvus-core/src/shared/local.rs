//! Shared values of a gateway that is alone.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    Answer, Cursor, MAX_ENTRIES, PAGE_BYTES, PAGE_ENTRIES, Page, SharedError, SharedStore,
    check_family, check_names, check_ttl, check_value,
};
use crate::Clock;

/// Families come from code, and there are few.
const MAX_FAMILIES: usize = 64;
/// Bytes of all values.
const MAX_BYTES: usize = 64 << 20;

/// Shared values in this process.
pub struct LocalShared {
    clock: Arc<dyn Clock>,
    max_entries: usize,
    /// Held for one operation, or one page.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    families: HashMap<String, Family>,
    bytes: usize,
}

#[derive(Default)]
struct Family {
    entries: BTreeMap<String, Entry>,
    /// When each ends, and its key.
    ends: BTreeSet<(u64, String)>,
}

struct Entry {
    value: Vec<u8>,
    /// Monotonic ms from which it is gone.
    end_ms: u64,
}

impl LocalShared {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_room_for(MAX_ENTRIES, clock)
    }

    /// With room for fewer values in each family.
    pub fn with_room_for(max_entries: usize, clock: Arc<dyn Clock>) -> Self {
        Self { clock, max_entries, inner: Mutex::default() }
    }

    /// Values, ends and bytes, for tests.
    #[cfg(test)]
    pub(super) fn inner_sizes(&self) -> (usize, usize, usize) {
        let inner = self.inner.lock().unwrap();
        let families = inner.families.values();
        let (entries, ends) = families
            .fold((0, 0), |(a, b), family| (a + family.entries.len(), b + family.ends.len()));
        (entries, ends, inner.bytes)
    }

    /// Does `work` on what has not run out, and is ready at once.
    fn work<T: Send + 'static>(
        &self,
        checked: Result<(), SharedError>,
        work: impl FnOnce(&mut Inner, u64) -> Result<T, SharedError>,
    ) -> Answer<'static, T> {
        let result = checked.and_then(|()| {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.mono_ms();
            inner.reap(now);
            work(&mut inner, now)
        });
        Box::pin(std::future::ready(result))
    }

    fn write(
        &self,
        (family, key): (&str, &str),
        value: &[u8],
        ttl: Duration,
        over: bool,
    ) -> Answer<'static, bool> {
        let checked = check_names(family, key).and_then(|()| check_value(value, ttl));
        let ttl_ms = *checked.as_ref().unwrap_or(&0);
        self.work(checked.map(|_| ()), |inner, now| {
            let old = inner.entry(family, key).map(|entry| entry.value.len());
            if old.is_some() && !over {
                return Ok(false);
            }
            let count = inner.families.get(family).map_or(0, |family| family.entries.len());
            let bytes = inner.bytes - old.unwrap_or(0) + value.len();
            let no_family = count == 0 && inner.families.len() >= MAX_FAMILIES;
            if (old.is_none() && (count >= self.max_entries || no_family)) || bytes > MAX_BYTES {
                return Err(SharedError::Full);
            }
            inner.remove(family, key);
            let entry = Entry { value: value.to_vec(), end_ms: now.saturating_add(ttl_ms) };
            inner.insert(family, key, entry);
            Ok(true)
        })
    }
}

impl Inner {
    fn entry(&self, family: &str, key: &str) -> Option<&Entry> {
        self.families.get(family)?.entries.get(key)
    }

    fn holds(&self, family: &str, key: &str, value: &[u8]) -> bool {
        self.entry(family, key).is_some_and(|entry| entry.value == value)
    }

    fn insert(&mut self, family: &str, key: &str, entry: Entry) {
        self.bytes += entry.value.len();
        let family = self.families.entry(family.to_owned()).or_default();
        family.ends.insert((entry.end_ms, key.to_owned()));
        family.entries.insert(key.to_owned(), entry);
    }

    fn remove(&mut self, name: &str, key: &str) -> Option<Entry> {
        let family = self.families.get_mut(name)?;
        let entry = family.entries.remove(key)?;
        family.ends.remove(&(entry.end_ms, key.to_owned()));
        if family.entries.is_empty() {
            self.families.remove(name);
        }
        self.bytes -= entry.value.len();
        Some(entry)
    }

    /// Drops what has run out. Each value is dropped once, so a call pays for one on average.
    fn reap(&mut self, now: u64) {
        for family in self.families.values_mut() {
            while family.ends.first().is_some_and(|(end_ms, _)| *end_ms <= now) {
                let Some((_, key)) = family.ends.pop_first() else { break };
                let entry = family.entries.remove(&key);
                self.bytes -= entry.map_or(0, |entry| entry.value.len());
            }
        }
        self.families.retain(|_, family| !family.entries.is_empty());
    }

    fn page(&self, family: &str, after: Option<&Cursor>) -> Page {
        let Some(family) = self.families.get(family) else { return Page::default() };
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.key()));
        let mut page = Page::default();
        let mut bytes = 0;
        for (key, entry) in family.entries.range::<str, _>((from, Bound::Unbounded)) {
            if page.entries.len() >= PAGE_ENTRIES || bytes >= PAGE_BYTES {
                page.next = page.entries.last().map(|(key, _)| Cursor::behind(key.clone()));
                break;
            }
            bytes += entry.value.len();
            page.entries.push((key.clone(), entry.value.clone()));
        }
        page
    }
}

impl SharedStore for LocalShared {
    fn get<'a>(&'a self, family: &'a str, key: &'a str) -> Answer<'a, Option<Vec<u8>>> {
        self.work(check_names(family, key), |inner, _| {
            Ok(inner.entry(family, key).map(|entry| entry.value.clone()))
        })
    }

    fn put<'a>(
        &'a self,
        family: &'a str,
        key: &'a str,
        value: &'a [u8],
        ttl: Duration,
    ) -> Answer<'a, ()> {
        let written = self.write((family, key), value, ttl, true);
        Box::pin(async move { written.await.map(|_| ()) })
    }

    fn put_new<'a>(
        &'a self,
        family: &'a str,
        key: &'a str,
        value: &'a [u8],
        ttl: Duration,
    ) -> Answer<'a, bool> {
        self.write((family, key), value, ttl, false)
    }

    fn remove<'a>(&'a self, family: &'a str, key: &'a str) -> Answer<'a, ()> {
        self.work(check_names(family, key), |inner, _| {
            inner.remove(family, key);
            Ok(())
        })
    }

    fn remove_if<'a>(&'a self, family: &'a str, key: &'a str, value: &'a [u8]) -> Answer<'a, bool> {
        self.work(check_names(family, key), |inner, _| {
            let ours = inner.holds(family, key, value);
            if ours {
                inner.remove(family, key);
            }
            Ok(ours)
        })
    }

    fn extend_if<'a>(
        &'a self,
        family: &'a str,
        key: &'a str,
        value: &'a [u8],
        ttl: Duration,
    ) -> Answer<'a, bool> {
        let checked = check_names(family, key).and_then(|()| check_ttl(ttl));
        let ttl_ms = *checked.as_ref().unwrap_or(&0);
        self.work(checked.map(|_| ()), |inner, now| {
            if !inner.holds(family, key, value) {
                return Ok(false);
            }
            if let Some(entry) = inner.remove(family, key) {
                let end_ms = now.saturating_add(ttl_ms);
                inner.insert(family, key, Entry { end_ms, ..entry });
            }
            Ok(true)
        })
    }

    fn list<'a>(&'a self, family: &'a str, after: Option<&'a Cursor>) -> Answer<'a, Page> {
        self.work(check_family(family), |inner, _| Ok(inner.page(family, after)))
    }
}
