//! `access_lists`: passwords and client addresses.

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    decode::{Decode, Members, Shape, choice, report, section},
    problem::{Pointer, Problems},
    tree::Node,
};

section! {
    /// Who may see the hosts that name this list.
    pub struct AccessList {
        /// `[a-z0-9][a-z0-9_-]{0,62}`
        id: String,
        /// Whether password and address must both be right, or either.
        satisfy: Satisfy = Satisfy::All,
        /// Names and passwords.
        users: Vec<User> = Vec::new(),
        /// Client addresses in order, `{allow: NETWORK}` or `{deny: NETWORK}`, or `all`; the first
        /// match decides.
        clients: Vec<ClientRule> = Vec::new(),
        /// Whether the upstream sees the Authorization field.
        pass_auth: bool = false,
    }
}

choice! {
    /// Whether password and address must both be right.
    pub enum Satisfy {
        /// Both.
        All = "all",
        /// Either.
        Any = "any",
    }
}

section! {
    /// A name and its password.
    pub struct User {
        /// The name.
        name: String,
        /// The password's Argon2id hash, PHC text form.
        password_hash: String,
    }
}

/// `{allow: NETWORK}` or `{deny: NETWORK}`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClientRule {
    Allow(String),
    Deny(String),
}

impl Default for ClientRule {
    fn default() -> Self {
        Self::Deny("all".to_owned())
    }
}

impl ClientRule {
    pub fn network(&self) -> &str {
        match self {
            Self::Allow(network) | Self::Deny(network) => network,
        }
    }
}

impl Serialize for ClientRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (key, network) = match self {
            Self::Allow(network) => ("allow", network),
            Self::Deny(network) => ("deny", network),
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(key, network)?;
        map.end()
    }
}

impl Decode for ClientRule {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        let given = Members::open(node, at, problems, &[("allow", false), ("deny", false)])?.given;
        let [(key, value)] = given else {
            let message = "expected one of {allow: NETWORK} and {deny: NETWORK}".to_owned();
            report(node, at, problems, message);
            return None;
        };
        let network = String::decode(value, &at.key(key), problems)?;
        match key.as_str() {
            "allow" => Some(Self::Allow(network)),
            "deny" => Some(Self::Deny(network)),
            _ => None,
        }
    }

    fn shape() -> Shape {
        Shape::Plain("{allow: network} or {deny: network}")
    }
}
