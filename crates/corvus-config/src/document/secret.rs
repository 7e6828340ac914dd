//! Values that must not be shown.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    decode::{Decode, Members, Shape, report},
    problem::{Pointer, Problems},
    tree::{Node, Value},
};

/// A secret: in the clear, by reference, or by the name under which it is stored.
#[derive(Clone, Eq, PartialEq)]
pub enum Secret {
    /// The value itself, `file:PATH`, or `${ENV}`.
    Text(String),
    /// `{secret: name}`: kept encrypted beside the Document.
    Stored(String),
}

impl Default for Secret {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::Stored(name) => write!(f, "Stored({name:?})"),
        }
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Stored(name) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("secret", name)?;
                map.end()
            }
        }
    }
}

impl Decode for Secret {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(Self::Text(text.clone())),
            Value::Map(_) => {
                let members = Members::open(node, at, problems, &[("secret", true)])?;
                let (_, name) = members.get("secret")?;
                String::decode(name, &at.key("secret"), problems).map(Self::Stored)
            }
            _ => {
                let message = format!("expected a text or {{secret: name}}, not {}", node.kind());
                report(node, at, problems, message);
                None
            }
        }
    }

    fn shape() -> Shape {
        Shape::Plain("secret")
    }
}
