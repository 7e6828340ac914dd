//! Which keys hold.

use super::super::reconcile::{Step, reconcile};
use super::*;

#[test]
fn the_table_of_cases() {
    let ours = KeyFile::fresh().unwrap();
    let theirs = KeyFile::fresh().unwrap();
    let later = theirs.announcing([7; 32], 1_000);
    let active = later.activated(1_000).unwrap();
    assert_eq!(later.activated(999), None);
    assert_eq!((later.generation, active.generation), (2, 3));
    assert_eq!((active.current, active.previous), ([7; 32], Some(theirs.current)));
    assert_eq!(active.draw, theirs.draw);
    let is = |local: Option<&KeyFile>, stored: Option<&KeyFile>, now, step: Step| {
        assert_eq!(reconcile(local, stored, now), step);
    };
    is(None, None, 0, Step::Make);
    is(None, Some(&theirs), 0, Step::Take(theirs.clone()));
    is(Some(&ours), None, 0, Step::Put(ours.clone()));
    is(Some(&ours), Some(&ours), 0, Step::Done);
    is(Some(&ours), Some(&theirs), 0, Step::GiveUpOurs(theirs.clone()));
    // The higher generation wins, whoever has it.
    is(Some(&theirs), Some(&later), 999, Step::Take(later.clone()));
    is(Some(&later), Some(&theirs), 999, Step::Put(later.clone()));
    is(Some(&ours), Some(&later), 999, Step::Take(later.clone()));
    // The time of an announced key has come.
    is(Some(&later), Some(&later), 999, Step::Done);
    is(Some(&later), Some(&later), 1_000, Step::Put(active.clone()));
    is(None, Some(&later), 5_000, Step::Put(active.clone()));
    is(Some(&theirs), Some(&later), 5_000, Step::Put(active.clone()));
    is(Some(&active), Some(&later), 5_000, Step::Put(active.clone()));
    is(Some(&later), Some(&active), 5_000, Step::Take(active.clone()));
    // Our copy does not come into force by a clock of our own.
    is(Some(&later), None, 5_000, Step::Put(later.clone()));
}
