//! JSON to a tree. Lines are known for syntax errors only: the library keeps none for values.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

use super::{MAX_DEPTH, Node, Value};
use crate::problem::Problem;

pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let node: Node = serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        // The place is said once, in `line`.
        let message = message.split(" at line ").next().unwrap_or_default();
        Problem {
            pointer: String::new(),
            message: format!("this is not JSON: {message}"),
            line: u32::try_from(error.line()).ok(),
        }
    })?;
    if too_deep(&node, MAX_DEPTH) {
        return Err(Problem::new("", format!("nested deeper than {MAX_DEPTH} levels")));
    }
    Ok(node)
}

/// The library stops at 128 levels, so this recursion is bounded.
fn too_deep(node: &Node, left: usize) -> bool {
    let below = |node: &Node| left == 0 || too_deep(node, left - 1);
    match &node.value {
        Value::List(items) => items.iter().any(below),
        Value::Map(members) => members.iter().any(|(_, node)| below(node)),
        _ => false,
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(|value| Self::new(value, None))
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Value::Map(members))
    }
}

impl From<&serde_json::Value> for Node {
    fn from(value: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let value = match value {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(value) => Value::Int(value),
                None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => Value::List(items.iter().map(Self::from).collect()),
            Json::Object(members) => {
                Value::Map(members.iter().map(|(k, v)| (k.clone(), Self::from(v))).collect())
            }
        };
        Self::new(value, None)
    }
}
