//! From a tree to the typed Document: every fault at once, never stopping at the first.
//!
//! `section!` writes a struct, its defaults, its decoder and its description for the reference
//! page from one list of keys, so that the four cannot drift apart.

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    problem::{Pointer, Problem, Problems, did_you_mean},
    tree::{Node, Value},
};

/// Something a Document holds.
pub trait Decode: Sized + Default {
    /// `None`: the value is wrong, and a problem was recorded.
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self>;

    /// For the reference page.
    fn shape() -> Shape;
}

/// What a key takes, for the reference page.
#[derive(Clone, Debug)]
pub enum Shape {
    Plain(&'static str),
    /// Name and words.
    Choice(&'static [&'static str]),
    Optional(Box<Self>),
    List(Box<Self>),
    Map(Box<Self>),
    Section(Section),
}

/// A mapping with known keys.
#[derive(Clone, Debug)]
pub struct Section {
    pub name: &'static str,
    pub doc: &'static str,
    pub keys: fn() -> Vec<Key>,
}

#[derive(Clone, Debug)]
pub struct Key {
    pub name: &'static str,
    pub doc: &'static str,
    pub shape: Shape,
    /// As JSON; `None`: required.
    pub default: Option<String>,
    pub range: Option<Range>,
}

/// Bounds of a number, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub min: f64,
    pub max: f64,
}

pub(crate) const fn range(min: f64, max: f64) -> Range {
    Range { min, max }
}

impl Range {
    pub(crate) fn check<T: Measured>(
        self,
        value: &T,
        node: &Node,
        at: &Pointer<'_>,
        problems: &mut Problems,
    ) -> bool {
        let Some(number) = value.number() else { return true };
        if (self.min..=self.max).contains(&number) {
            return true;
        }
        let Self { min, max } = self;
        report(node, at, problems, format!("{number} is out of range; from {min} to {max}"));
        false
    }
}

/// A number that a [`Range`] can bound.
pub(crate) trait Measured {
    fn number(&self) -> Option<f64>;
}

pub(crate) fn report(node: &Node, at: &Pointer<'_>, problems: &mut Problems, message: String) {
    problems.push(Problem { pointer: at.to_string(), message, line: node.line });
}

fn wrong<T>(node: &Node, at: &Pointer<'_>, problems: &mut Problems, expected: &str) -> Option<T> {
    let hint = match (expected, &node.value) {
        ("a text", Value::Int(_) | Value::Float(_) | Value::Bool(_)) => "; put it in quotes",
        ("a list", Value::Text(_)) => "; write it as [..]",
        _ => "",
    };
    let found = match node.value {
        Value::Float(value) => value.to_string(),
        _ => node.kind().to_owned(),
    };
    report(node, at, problems, format!("expected {expected}, not {found}{hint}"));
    None
}

impl Decode for bool {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Bool(value) => Some(*value),
            Value::Text(text) if node.substituted && text == "true" => Some(true),
            Value::Text(text) if node.substituted && text == "false" => Some(false),
            _ => wrong(node, at, problems, "true or false"),
        }
    }

    fn shape() -> Shape {
        Shape::Plain("true or false")
    }
}

macro_rules! whole_numbers {
    ($($ty:ty),*) => {$(
        impl Decode for $ty {
            fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
                let value = match &node.value {
                    Value::Int(value) => *value,
                    // 1e3 and 5.0 are whole.
                    Value::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => {
                        *value as i64
                    }
                    Value::Text(text) if node.substituted && text.parse::<i64>().is_ok() => {
                        text.parse().unwrap_or_default()
                    }
                    _ => return wrong(node, at, problems, "a whole number"),
                };
                let Ok(value) = Self::try_from(value) else {
                    let reason = if value < 0 { "may not be negative" } else { "is too large" };
                    report(node, at, problems, format!("{value} {reason}"));
                    return None;
                };
                Some(value)
            }

            fn shape() -> Shape {
                Shape::Plain("whole number")
            }
        }

        impl Measured for $ty {
            fn number(&self) -> Option<f64> {
                // Also for u64: bounds are far below 2^53.
                #[allow(clippy::cast_lossless, reason = "one text for three widths")]
                Some(*self as f64)
            }
        }
    )*};
}
whole_numbers!(u16, u32, u64);

/// A number that may have a fraction; printed without one where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decimal(pub f64);

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 && self.0.abs() < 9e15 {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl Decode for Decimal {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Int(value) => Some(Self(*value as f64)),
            Value::Float(value) if value.is_finite() => Some(Self(*value)),
            Value::Text(text) if node.substituted && text.parse().is_ok_and(f64::is_finite) => {
                text.parse().ok().map(Self)
            }
            _ => wrong(node, at, problems, "a number"),
        }
    }

    fn shape() -> Shape {
        Shape::Plain("number")
    }
}

impl Measured for Decimal {
    fn number(&self) -> Option<f64> {
        Some(self.0)
    }
}

impl<T: Measured> Measured for Option<T> {
    fn number(&self) -> Option<f64> {
        self.as_ref().and_then(T::number)
    }
}

impl Decode for String {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => wrong(node, at, problems, "a text"),
        }
    }

    fn shape() -> Shape {
        Shape::Plain("text")
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        match node.value {
            Value::Null => Some(None),
            _ => T::decode(node, at, problems).map(Some),
        }
    }

    fn shape() -> Shape {
        Shape::Optional(Box::new(T::shape()))
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        let items = match &node.value {
            Value::Null => return Some(Self::new()),
            Value::List(items) => items,
            _ => return wrong(node, at, problems, "a list"),
        };
        // A wrong item keeps its place, so that pointers of later checks stay right.
        let decode = |(i, item)| T::decode(item, &at.index(i), problems).unwrap_or_default();
        Some(items.iter().enumerate().map(decode).collect())
    }

    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }
}

/// A mapping with free keys, in the order written.
#[derive(Clone, Debug, PartialEq)]
pub struct Entries<T>(pub Vec<(String, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Serialize> Serialize for Entries<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<T: Decode> Decode for Entries<T> {
    fn decode(node: &Node, at: &Pointer<'_>, problems: &mut Problems) -> Option<Self> {
        let members = match &node.value {
            Value::Null => return Some(Self::default()),
            Value::Map(members) => members,
            _ => return wrong(node, at, problems, "a mapping"),
        };
        let decode = |(key, node): &(String, Node)| {
            (key.clone(), T::decode(node, &at.key(key), problems).unwrap_or_default())
        };
        Some(Self(members.iter().map(decode).collect()))
    }

    fn shape() -> Shape {
        Shape::Map(Box::new(T::shape()))
    }
}

/// The members of a section, by the key they were meant for.
pub(crate) struct Members<'n> {
    pub(crate) given: &'n [(String, Node)],
    /// Misspelt, but clear: read all the same, so that their faults show in the same run.
    meant: Vec<(&'static str, &'n (String, Node))>,
}

impl<'n> Members<'n> {
    /// Reports unknown and missing keys. `keys`: each name, and whether it is required. Nothing
    /// given at all is an empty section.
    pub(crate) fn open(
        node: &'n Node,
        at: &Pointer<'_>,
        problems: &mut Problems,
        keys: &[(&'static str, bool)],
    ) -> Option<Self> {
        let given: &[(String, Node)] = match &node.value {
            Value::Null => &[],
            Value::Map(members) => members,
            _ => return wrong(node, at, problems, "a mapping"),
        };
        let mut members = Self { given, meant: Vec::new() };
        // A slip can only mean a key that is not there.
        let absent =
            |(name, _): &(&'static str, bool)| members.get(name).is_none().then_some(*name);
        let mut free: Vec<&'static str> = keys.iter().filter_map(absent).collect();
        for member in given {
            let (key, value) = member;
            if keys.iter().any(|(name, _)| name == key) {
                continue;
            }
            let message = match did_you_mean(key, free.iter().copied()) {
                Some(name) => {
                    free.retain(|other| *other != name);
                    members.meant.push((name, member));
                    format!("unknown key `{key}`; did you mean `{name}`?")
                }
                None => format!("unknown key `{key}`"),
            };
            report(value, &at.key(key), problems, message);
        }
        for (name, required) in keys {
            if *required && members.get(name).is_none() {
                let message = format!("the key `{name}` is missing");
                report(node, &at.key(name), problems, message);
            }
        }
        Some(members)
    }

    /// A member as it was spelt, and its value.
    pub(crate) fn get(&self, name: &str) -> Option<(&'n str, &'n Node)> {
        let exact = self.given.iter().find(|(key, _)| key == name);
        let meant = || self.meant.iter().find(|(key, _)| *key == name).map(|(_, member)| *member);
        exact.or_else(meant).map(|(key, node)| (key.as_str(), node))
    }
}

/// One of several words.
pub(crate) fn word<T: Copy>(
    node: &Node,
    at: &Pointer<'_>,
    problems: &mut Problems,
    choices: &[(&'static str, T)],
) -> Option<T> {
    let text = match &node.value {
        Value::Text(text) => text.as_str(),
        // YAML 1.1 reads `on` and `off` as true and false, and so do the tools that write it.
        Value::Bool(true) => "on",
        Value::Bool(false) => "off",
        _ => return wrong(node, at, problems, "a text"),
    };
    if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
        return Some(*choice);
    }
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    let message = match did_you_mean(text, names.iter().copied()) {
        Some(name) => format!("`{text}` is not known; did you mean `{name}`?"),
        None => format!("`{text}` is not one of {}", names.join(", ")),
    };
    report(node, at, problems, message);
    None
}

/// A struct with its defaults, decoder and description. A key without `= default` is required;
/// `=> range(min, max)` bounds a number.
macro_rules! section {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $(
                $(#[doc = $key_doc:literal])*
                $key:ident : $ty:ty $(= $default:expr)? $(=> $range:expr)?
            ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        pub struct $name {
            $( $(#[doc = $key_doc])* pub $key: $ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: section!(@default $ty $(, $default)?), )* }
            }
        }

        impl $crate::decode::Decode for $name {
            fn decode(
                node: &$crate::tree::Node,
                at: &$crate::problem::Pointer<'_>,
                problems: &mut $crate::problem::Problems,
            ) -> Option<Self> {
                const KEYS: &[(&'static str, bool)] =
                    &[$( (section!(@name $key), section!(@required $($default)?)), )*];
                let members = $crate::decode::Members::open(node, at, problems, KEYS)?;
                let mut section = Self::default();
                $(
                    if let Some((key, node)) = members.get(section!(@name $key)) {
                        let at = at.key(key);
                        if let Some(value) =
                            <$ty as $crate::decode::Decode>::decode(node, &at, problems)
                        {
                            $( $range.check(&value, node, &at, problems); )?
                            section.$key = value;
                        }
                    }
                )*
                Some(section)
            }

            fn shape() -> $crate::decode::Shape {
                $crate::decode::Shape::Section($crate::decode::Section {
                    name: stringify!($name),
                    doc: concat!($($doc, "\n"),*),
                    keys: || {
                        let defaults = Self::default();
                        vec![$( $crate::decode::Key {
                            name: section!(@name $key),
                            doc: concat!($($key_doc, "\n"),*),
                            shape: <$ty as $crate::decode::Decode>::shape(),
                            default: (!section!(@required $($default)?))
                                .then(|| serde_json::to_string(&defaults.$key).unwrap_or_default()),
                            range: section!(@range $($range)?),
                        }, )*]
                    },
                })
            }
        }
    };
    (@default $ty:ty) => { <$ty as Default>::default() };
    (@default $ty:ty, $default:expr) => { $default };
    (@required) => { true };
    (@required $default:expr) => { false };
    (@range) => { None };
    (@range $range:expr) => { Some($range) };
    (@name r#match) => { "match" };
    (@name $key:ident) => { stringify!($key) };
}

/// An enum of words; the first is the default.
macro_rules! choice {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $(#[doc = $first_doc:literal])*
            $first:ident = $first_word:literal,
            $( $(#[doc = $rest_doc:literal])* $rest:ident = $rest_word:literal ),* $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub enum $name {
            $(#[doc = $first_doc])*
            #[default]
            $first,
            $( $(#[doc = $rest_doc])* $rest, )*
        }

        impl $name {
            const WORDS: &[(&'static str, Self)] =
                &[($first_word, Self::$first), $( ($rest_word, Self::$rest), )*];

            /// As written in a Document.
            pub fn as_str(self) -> &'static str {
                match self {
                    Self::$first => $first_word,
                    $( Self::$rest => $rest_word, )*
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl $crate::decode::Decode for $name {
            fn decode(
                node: &$crate::tree::Node,
                at: &$crate::problem::Pointer<'_>,
                problems: &mut $crate::problem::Problems,
            ) -> Option<Self> {
                $crate::decode::word(node, at, problems, Self::WORDS)
            }

            fn shape() -> $crate::decode::Shape {
                $crate::decode::Shape::Choice(&[$first_word, $( $rest_word ),*])
            }
        }
    };
}

pub(crate) use {choice, section};
