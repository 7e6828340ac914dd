//! The Document as people write it, section by section. `compile` turns it into a
//! [`crate::Snapshot`]; this module only knows types, defaults and ranges.

use serde::{Serialize, Serializer};

use crate::{
    decode::{Decode, Section, Shape, report, section},
    problem::{Pointer, Problem, Problems},
    tree::{Node, Value},
};

pub mod access_list;
pub mod access_queue;
pub mod certificate;
pub mod other_hosts;
pub mod protection;
pub mod proxy_host;
pub mod secret;
pub mod security;
pub mod settings;

pub use secret::Secret;

section! {
    /// The whole configuration.
    pub struct Document {
        /// Version of this format; always 1.
        version: Version,
        /// What concerns the gateway as a whole.
        settings: settings::Settings = settings::Settings::default(),
        /// Sites passed on to upstreams.
        proxy_hosts: Vec<proxy_host::ProxyHost> = Vec::new(),
        /// Names that redirect elsewhere. Not available in this version.
        redirections: Vec<other_hosts::Redirection> = Vec::new(),
        /// Names that answer 404. Not available in this version.
        dead_hosts: Vec<other_hosts::DeadHost> = Vec::new(),
        /// TCP and UDP ports passed on. Not available in this version.
        streams: Vec<other_hosts::TcpUdpStream> = Vec::new(),
        /// Certificates, referred to by id.
        certificates: Vec<certificate::Certificate> = Vec::new(),
        /// Passwords and client addresses. Not available in this version.
        access_lists: Vec<access_list::AccessList> = Vec::new(),
        /// Waiting rooms, referred to by id.
        access_queues: Vec<access_queue::AccessQueue> = Vec::new(),
        /// Rules in order; the first match ends, except in log mode. Not available in this version.
        security_rules: Vec<security::SecurityRule> = Vec::new(),
        /// Automatic bans. Not available in this version.
        bans: security::Bans = security::Bans::default(),
        /// When every visitor is challenged. Not available in this version.
        attack_mode: security::AttackMode = security::AttackMode::default(),
        /// Where alerts go. Not available in this version.
        alert_channels: Vec<security::AlertChannel> = Vec::new(),
    }
}

impl Document {
    /// For the reference page.
    pub fn section() -> Option<Section> {
        match Self::shape() {
            Shape::Section(section) => Some(section),
            _ => None,
        }
    }
}

/// The version of the Document's format: 1.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(1)
    }
}

impl Decode for Version {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        if node.value == Value::Int(1) {
            return Some(Self);
        }
        report(node, at, problems, "this gateway reads `version: 1`".to_owned());
        None
    }

    fn shape() -> Shape {
        Shape::Plain("1")
    }
}

/// Decodes a tree, with every fault of type, range and spelling. The Document is as good as it
/// could be read: wrong values are left at their defaults.
pub(crate) fn decode_lossy(node: &Node) -> (Document, Vec<Problem>) {
    let mut problems = Problems::default();
    let document = Document::decode(node, &Pointer::ROOT, &mut problems).unwrap_or_default();
    (document, problems.into_vec())
}

/// Decodes a tree: types, ranges and spelling, not yet what [`crate::compile()`] checks.
pub fn decode(node: &Node) -> Result<Document, Vec<Problem>> {
    let (document, problems) = decode_lossy(node);
    if problems.is_empty() { Ok(document) } else { Err(problems) }
}
