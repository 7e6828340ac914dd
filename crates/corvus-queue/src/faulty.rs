//! An embedded engine that fails when told to, and counts its calls.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use corvus_core::Id;

use crate::{
    embedded::Embedded,
    op::{Answer, Op, Reply, StoreError},
};

pub struct Faulty {
    pub inner: Embedded,
    pub fault: Mutex<Option<StoreError>>,
    pub calls: AtomicU64,
    /// Callers have to wait for it, as over a network.
    pub remote: AtomicBool,
    /// It has no memory for newcomers.
    pub full: AtomicBool,
}

impl Faulty {
    pub fn new(inner: Embedded) -> Self {
        Self {
            inner,
            fault: Mutex::new(None),
            calls: AtomicU64::new(0),
            remote: AtomicBool::new(false),
            full: AtomicBool::new(false),
        }
    }

    /// The way to it.
    pub async fn travel(&self) {
        if self.remote.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    }

    pub fn call(&self, q: &Id, ops: &[Op]) -> Result<Reply, StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match &*self.fault.lock().unwrap() {
            Some(fault) => Err(fault.clone()),
            None if self.full.load(Ordering::SeqCst) => self.call_full(q, ops),
            None => self.inner.call(q, ops),
        }
    }

    fn call_full(&self, q: &Id, ops: &[Op]) -> Result<Reply, StoreError> {
        let mut ops = ops.to_vec();
        let barred: Vec<bool> = ops
            .iter_mut()
            .map(|op| match op {
                Op::Enter { join, .. } | Op::Heartbeat { join, .. } => std::mem::take(join),
                _ => false,
            })
            .collect();
        let reply = self.inner.call(q, &ops)?;
        let mut answers = barred.iter().zip(&reply.answers);
        let turned_away = answers.any(|(barred, answer)| *barred && *answer == Answer::Gone);
        if turned_away { Err(StoreError::TurnedAway) } else { Ok(reply) }
    }
}
