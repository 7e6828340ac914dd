//! A store of one value in the process, and gateways that share it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use corvus_core::{Clock, FakeClock};
use redis::{Cmd, Value};

use crate::{
    keys::{KeyStore, SharedKeys},
    shared::Commands,
    valkey::{LinkError, Script},
};

/// The store; its time is the wall time of its clock.
pub(crate) struct Memory {
    pub(crate) clock: FakeClock,
    pub(crate) value: Mutex<String>,
    pub(crate) calls: AtomicUsize,
}

/// A gateway's way to it.
pub(crate) struct Line {
    memory: Arc<Memory>,
    cut: Arc<AtomicBool>,
}

pub(crate) struct Gateway {
    pub(crate) keys: Arc<KeyStore>,
    pub(crate) shared: SharedKeys<Line>,
    pub(crate) cut: Arc<AtomicBool>,
}

impl Memory {
    pub(crate) fn new(clock: FakeClock) -> Arc<Self> {
        Arc::new(Self { clock, value: Mutex::default(), calls: AtomicUsize::new(0) })
    }

    /// On the machine of the store.
    pub(crate) fn gateway(self: &Arc<Self>, keys: KeyStore) -> Gateway {
        self.gateway_at(Arc::new(keys), &self.clock)
    }

    /// On a machine with another clock.
    pub(crate) fn gateway_at(self: &Arc<Self>, keys: Arc<KeyStore>, clock: &FakeClock) -> Gateway {
        let cut = Arc::new(AtomicBool::new(false));
        let line = Line { memory: Arc::clone(self), cut: Arc::clone(&cut) };
        let shared = SharedKeys::new(Arc::clone(&keys), line, Arc::new(clock.clone()));
        Gateway { keys, shared, cut }
    }

    pub(crate) fn text(&self) -> String {
        self.value.lock().unwrap().clone()
    }
}

impl Commands for Line {
    async fn command(&self, _: Cmd) -> Result<Value, LinkError> {
        Err(LinkError::Refused("this store runs the one script".into()))
    }

    /// What `exchange.lua` does.
    async fn run(
        &self,
        _: &Arc<Script>,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, LinkError> {
        self.memory.calls.fetch_add(1, SeqCst);
        // As over a network, others come in between.
        tokio::task::yield_now().await;
        if self.cut.load(SeqCst) {
            return Err(LinkError::Unreachable("test".into()));
        }
        assert_eq!(keys, ["corvus:keys"]);
        let args: Vec<&str> = args.iter().map(|arg| std::str::from_utf8(arg).unwrap()).collect();
        let mut value = self.memory.value.lock().unwrap();
        match args[..] {
            ["read"] => {}
            ["swap", expected, new] => {
                if *value == expected {
                    new.clone_into(&mut value);
                }
            }
            _ => panic!("{args:?}"),
        }
        let now = self.memory.clock.wall_ms();
        let (s, us) = (now / 1_000, now % 1_000 * 1_000);
        let bulk = |text: String| Value::BulkString(text.into_bytes());
        Ok(Value::Array(vec![bulk(value.clone()), bulk(s.to_string()), bulk(us.to_string())]))
    }
}
