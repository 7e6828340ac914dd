//! What only the store in this process promises; the behaviour that every store has is tested in
//! `corvus-queue`, on both.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use proptest::prelude::*;

use super::*;
use crate::FakeClock;

const MINUTE: Duration = Duration::from_mins(1);

/// A store in this process never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("had to be waited for"),
    }
}

#[test]
fn all_values_together_are_bounded() {
    let clock = FakeClock::new(0);
    let store = LocalShared::new(Arc::new(clock.clone()));
    let big = vec![1; MAX_VALUE];
    for i in 0..64 {
        now(store.put("bans", &i.to_string(), &big, MINUTE)).unwrap();
    }
    assert_eq!(now(store.put("locks", "a", b"1", MINUTE)), Err(SharedError::Full));
    now(store.put("bans", "0", b"small", MINUTE)).unwrap();
    now(store.put("locks", "a", b"1", MINUTE)).unwrap();
    clock.advance(MINUTE);
    now(store.put("locks", "b", &big, MINUTE)).unwrap();
}

#[test]
fn families_are_bounded() {
    let store = LocalShared::new(Arc::new(FakeClock::new(0)));
    for i in 0..64 {
        now(store.put(&i.to_string(), "a", b"", MINUTE)).unwrap();
    }
    assert_eq!(now(store.put("one-more", "a", b"", MINUTE)), Err(SharedError::Full));
    now(store.remove("7", "a")).unwrap();
    now(store.put("one-more", "a", b"", MINUTE)).unwrap();
}

#[test]
fn a_step_of_the_wall_clock_changes_nothing() {
    let clock = FakeClock::new(1_000_000);
    let store = LocalShared::new(Arc::new(clock.clone()));
    now(store.put("bans", "a", b"1", MINUTE)).unwrap();
    clock.set_wall_ms(900_000_000);
    assert_eq!(now(store.get("bans", "a")), Ok(Some(b"1".to_vec())));
    clock.set_wall_ms(0);
    clock.advance(MINUTE);
    assert_eq!(now(store.get("bans", "a")), Ok(None));
}

proptest! {
    /// The bytes and ends that are counted are those that are there.
    #[test]
    fn the_books_balance(steps in prop::collection::vec((0u8..5, 0u8..6, 0usize..50, 1u64..40), 1..200)) {
        let clock = FakeClock::new(0);
        let store = LocalShared::with_room_for(4, Arc::new(clock.clone()));
        for (what, key, len, ms) in steps {
            let (key, value, ttl) = (key.to_string(), vec![0; len], Duration::from_millis(ms));
            match what {
                0 => drop(now(store.put("f", &key, &value, ttl))),
                1 => drop(now(store.put_new("f", &key, &value, ttl))),
                2 => drop(now(store.remove_if("f", &key, &value))),
                3 => drop(now(store.extend_if("f", &key, &value, ttl))),
                _ => clock.advance(Duration::from_millis(ms)),
            }
            let page = now(store.list("f", None)).unwrap();
            let bytes: usize = page.entries.iter().map(|(_, value)| value.len()).sum();
            prop_assert!(page.entries.len() <= 4);
            let inner = store.inner_sizes();
            prop_assert_eq!(inner, (page.entries.len(), page.entries.len(), bytes));
        }
    }
}
