//! One way for a configuration to take effect, whoever changed it: prepare, persist, swap, retire.
//!
//! Until the swap nothing has changed; after it every worker takes the new Snapshot with its next
//! request. What lives beside the Snapshot (queues, pools, counters) is keyed by id and stays.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use corvus_config::{Change, Document, Snapshot, diff};
use corvus_core::Clock;
use corvus_queue::QueueService;
use corvus_tls::{CertificateMap, SniResolver};

/// Numbers versions and keeps them. Called before the swap: what cannot be kept does not take
/// effect.
pub trait Versions: Send {
    fn append(&mut self, document: &Document) -> io::Result<u64>;
}

/// File mode: the file is the store, versions are counted while the process runs.
#[derive(Debug, Default)]
pub struct FileVersions {
    latest: u64,
}

impl Versions for FileVersions {
    fn append(&mut self, _document: &Document) -> io::Result<u64> {
        self.latest += 1;
        Ok(self.latest)
    }
}

/// Why a configuration did not take effect. The one in force is untouched.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("the version could not be kept: {0}")]
    Persist(#[source] io::Error),
}

/// What applying did.
#[derive(Debug)]
pub struct Applied {
    pub version: u64,
    /// Empty for the first configuration of a process.
    pub changes: Vec<Change>,
    /// What took effect only in part, each a sentence: a certificate that cannot be loaded, a
    /// queue setting that has to wait.
    pub warnings: Vec<String>,
}

/// Applies configurations, one at a time.
pub struct Applier {
    snapshot: Arc<ArcSwap<Snapshot>>,
    resolver: Arc<SniResolver>,
    queues: Arc<QueueService>,
    clock: Arc<dyn Clock>,
    data: PathBuf,
    state: Mutex<State>,
}

struct State {
    versions: Box<dyn Versions>,
    /// The Document in force; `None` before the first.
    document: Option<Document>,
}

impl Applier {
    pub fn new(
        snapshot: Arc<ArcSwap<Snapshot>>,
        resolver: Arc<SniResolver>,
        queues: Arc<QueueService>,
        clock: Arc<dyn Clock>,
        data: PathBuf,
        versions: Box<dyn Versions>,
    ) -> Self {
        let state = Mutex::new(State { versions, document: None });
        Self { snapshot, resolver, queues, clock, data, state }
    }

    /// Makes `snapshot`, compiled from `document`, the configuration in force. Reads certificate
    /// files, so it may block.
    pub fn apply(&self, document: Document, mut snapshot: Snapshot) -> Result<Applied, ApplyError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.document.as_ref() == Some(&document) {
            // Nothing to change, so no version; the files that it names may have changed.
            let current = self.snapshot.load_full();
            let certificates = corvus_tls::load(&current, &self.data, &*self.clock);
            let warnings = publish_certificates(&self.resolver, &current, certificates);
            return Ok(Applied { version: current.version, changes: Vec::new(), warnings });
        }
        // Prepare.
        let certificates = corvus_tls::load(&snapshot, &self.data, &*self.clock);
        // Persist.
        snapshot.version = state.versions.append(&document).map_err(ApplyError::Persist)?;
        let version = snapshot.version;
        let snapshot = Arc::new(snapshot);
        // Swap: queues and certificates first, so that no request meets a host without them.
        let mut warnings: Vec<String> =
            self.queues.configure(&snapshot.queues).iter().map(queue_notice).collect();
        warnings.extend(publish_certificates(&self.resolver, &snapshot, certificates));
        self.snapshot.store(snapshot);
        // What the old Snapshot alone used goes when its last request ends.
        let changes = state.document.as_ref().map(|old| diff(old, &document)).unwrap_or_default();
        state.document = Some(document);
        Ok(Applied { version, changes, warnings })
    }

    /// Loads certificates again: self-signed ones are renewed, replaced files picked up.
    pub fn reload_certificates(&self) -> Vec<String> {
        let _one_at_a_time = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.snapshot.load_full();
        let certificates = corvus_tls::load(&snapshot, &self.data, &*self.clock);
        publish_certificates(&self.resolver, &snapshot, certificates)
    }

    /// The Document in force.
    pub fn document(&self) -> Option<Document> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).document.clone()
    }
}

fn queue_notice(notice: &corvus_queue::embedded::Notice) -> String {
    format!("access queue {}: {}", notice.queue, notice.what)
}

fn publish_certificates(
    resolver: &SniResolver,
    snapshot: &Arc<Snapshot>,
    loaded: corvus_tls::Loaded,
) -> Vec<String> {
    resolver.publish(CertificateMap::new(Arc::clone(snapshot), &loaded.store));
    let failures = loaded.failures.into_iter().map(|failure| failure.sentence);
    failures.chain(loaded.warnings.into_iter().map(|warning| warning.sentence)).collect()
}
