//! Identifiers of Document objects: hosts, queues, certificates, rules.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The id of a Document object: `[a-z0-9][a-z0-9_-]{0,62}`.
///
/// Cheap to clone; ids outlive configuration swaps, so state beside the Snapshot is keyed by them.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Id(Arc<str>);

/// Why a text is not an [`Id`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IdError {
    #[error("an id may not be empty")]
    Empty,
    #[error("an id may have at most 63 characters, this one has {0}")]
    TooLong(usize),
    #[error("an id starts with a letter a-z or a digit, not with `{0}`")]
    BadStart(char),
    #[error("an id holds only a-z, 0-9, `-` and `_`, not `{0}`")]
    BadChar(char),
}

impl Id {
    pub fn new(text: &str) -> Result<Self, IdError> {
        let first = text.chars().next().ok_or(IdError::Empty)?;
        if !(first.is_ascii_lowercase() || first.is_ascii_digit()) {
            return Err(IdError::BadStart(first));
        }
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if let Some(bad) = text.chars().find(|c| !allowed(*c)) {
            return Err(IdError::BadChar(bad));
        }
        if text.len() > 63 {
            return Err(IdError::TooLong(text.len()));
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Id {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Id {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::new(text)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_pattern() {
        for good in ["a", "0", "shop", "shop-1_b", &"x".repeat(63)] {
            assert!(Id::new(good).is_ok(), "{good}");
        }
        assert_eq!(Id::new(""), Err(IdError::Empty));
        assert_eq!(Id::new("-a"), Err(IdError::BadStart('-')));
        assert_eq!(Id::new("Shop"), Err(IdError::BadStart('S')));
        assert_eq!(Id::new("a b"), Err(IdError::BadChar(' ')));
        assert_eq!(Id::new(&"x".repeat(64)), Err(IdError::TooLong(64)));
    }
}
