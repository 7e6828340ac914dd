//! An embedded engine that fails when told to, and counts its calls.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use corvus_core::Id;

use crate::{
    embedded::Embedded,
    op::{Op, Reply, StoreError},
};

pub struct Faulty {
    pub inner: Embedded,
    pub fault: Mutex<Option<StoreError>>,
    pub calls: AtomicU64,
}

impl Faulty {
    pub fn new(inner: Embedded) -> Self {
        Self { inner, fault: Mutex::new(None), calls: AtomicU64::new(0) }
    }

    pub fn call(&self, q: &Id, ops: &[Op]) -> Result<Reply, StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match &*self.fault.lock().unwrap() {
            Some(fault) => Err(fault.clone()),
            None => self.inner.call(q, ops),
        }
    }
}
