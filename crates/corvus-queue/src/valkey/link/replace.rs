//! A Cluster's client that fails for some keys is replaced by another, never dropped: one master that
//! is silent must not cost the others' queues the time it takes to reach all nodes again.
//!
//! A client mends itself when connections end or slots are moved. It does not when a master is
//! silent and its connection stays: the replica that took over is never found. So another client is
//! opened beside it, and takes its place once it serves a key that the old one did not. One that
//! does not would be worse: with no connection to the silent master, the library stops all requests
//! whenever it tries that master again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::{Arg, Cmd};
use tokio::time::{Instant, sleep_until, timeout};

use super::{CONNECT, DEADLINE, Fault, Open, Shared, State};

/// A client is given this time to mend itself, and attempts to replace it begin no more often.
pub(super) const CLUSTER_AGE: Duration = Duration::from_secs(2);

impl Shared {
    /// After `failed` found nobody to do it, or had no answer.
    pub(super) fn replace_if_old(self: &Arc<Self>, old: &Open, failed: &Cmd) {
        if old.since.elapsed() < CLUSTER_AGE {
            return;
        }
        let Ok(turn) = Arc::clone(&self.replacing).try_lock_owned() else { return };
        let (shared, old, probe) = (Arc::clone(self), old.id, probe(failed));
        tokio::spawn(async move {
            let begun = Instant::now();
            shared.replace(old, &probe).await;
            sleep_until(begun + CLUSTER_AGE).await;
            drop(turn);
        });
    }

    async fn replace(&self, old: u64, probe: &Cmd) {
        let id = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        let Ok(Ok(conn)) = timeout(CONNECT, self.target.connect(|| ())).await else { return };
        let answer = self.query(&conn, probe, Instant::now() + DEADLINE).await;
        if answer.as_ref().is_err_and(Fault::spoils) {
            return;
        }
        let mut state = self.lock();
        if matches!(&*state, State::Open(open) if open.id == old) {
            *state = State::Open(Open { id, since: Instant::now(), conn });
        }
    }
}

/// Changes nothing, and goes to the master of the first key of `cmd`. What has no key goes anywhere.
fn probe(cmd: &Cmd) -> Cmd {
    let mut args = cmd.args_iter().filter_map(|arg| match arg {
        Arg::Simple(bytes) => Some(bytes),
        _ => None,
    });
    let script = matches!(args.next(), Some(b"EVAL" | b"EVALSHA"));
    // Of a script: its text or name, and the number of its keys.
    match args.nth(if script { 2 } else { 0 }) {
        Some(key) => redis::cmd("EXISTS").arg(key).take(),
        None => redis::cmd("PING"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_asks_for_the_first_key() {
        let packed = |cmd: &mut Cmd| cmd.get_packed_command();
        let exists = packed(redis::cmd("EXISTS").arg("k"));
        let script = super::super::Script::new("return 1".to_owned());
        for by_sha in [true, false] {
            let cmd = script.evaluation(by_sha, &["k", "l"], &[b"x".to_vec()]);
            assert_eq!(packed(&mut probe(&cmd)), exists);
        }
        assert_eq!(packed(&mut probe(redis::cmd("SET").arg("k").arg("v"))), exists);
        let none = script.evaluation(true, &[], &[]);
        for cmd in [redis::cmd("PING"), none] {
            assert_eq!(packed(&mut probe(&cmd)), packed(&mut redis::cmd("PING")));
        }
    }
}
