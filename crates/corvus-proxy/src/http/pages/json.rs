//! JSON bodies, written by hand: the answer to a poll is the most frequent thing a busy queue makes.

/// An object under construction; keys are ours and need no escaping.
pub(super) struct Object(String);

impl Object {
    pub(super) fn new() -> Self {
        Self(String::with_capacity(128))
    }

    fn key(&mut self, key: &str) {
        self.0.push_str(if self.0.is_empty() { "{\"" } else { ",\"" });
        self.0.push_str(key);
        self.0.push_str("\":");
    }

    pub(super) fn string(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        string(&mut self.0, value);
        self
    }

    /// `None` becomes `null`.
    pub(super) fn number(mut self, key: &str, value: impl Into<Option<u64>>) -> Self {
        self.key(key);
        match value.into() {
            Some(n) => self.0.push_str(itoa::Buffer::new().format(n)),
            None => self.0.push_str("null"),
        }
        self
    }

    pub(super) fn strings(mut self, key: &str, values: &[&str]) -> Self {
        self.key(key);
        for (i, value) in values.iter().enumerate() {
            self.0.push(if i == 0 { '[' } else { ',' });
            string(&mut self.0, value);
        }
        self.0.push(']');
        self
    }

    pub(super) fn object(mut self, key: &str, value: Self) -> Self {
        self.key(key);
        self.0.push_str(&value.end());
        self
    }

    /// The finished object. Never called on one without members.
    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Appends `text` as a JSON string with its quotes (RFC 8259 section 7).
///
/// `<`, `>`, `&` and the line separators are escaped too, so the same bytes are safe inside a
/// `<script>` element, where `</script>` or `<!--` would end or derail it.
pub(super) fn string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' | '\u{7f}' => {
                out.push_str("\\u");
                for shift in [12, 8, 4, 0] {
                    out.push(char::from_digit((c as u32 >> shift) & 15, 16).unwrap_or('0'));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_read_back_as_they_were() {
        let all: String = (0..0x3000_u32).filter_map(char::from_u32).collect();
        for text in ["", "plain", "</script><!--", "\"\\\n\r\t\0\u{7f}\u{2028}\u{2029}😀", &all] {
            let mut out = String::new();
            string(&mut out, text);
            assert_eq!(serde_json::from_str::<String>(&out).expect("valid JSON"), text);
            assert!(!out.contains(['<', '>', '&', '\u{2028}', '\n']), "{out}");
        }
    }

    #[test]
    fn objects_read_back() {
        let body = Object::new()
            .string("a", "\"x\"")
            .number("b", 7)
            .number("c", None)
            .strings("d", &["x", "y"])
            .object("e", Object::new().number("f", u64::MAX))
            .end();
        let value: serde_json::Value = serde_json::from_str(&body).expect("valid JSON");
        let expected = serde_json::json!({
            "a": "\"x\"", "b": 7, "c": null, "d": ["x", "y"], "e": {"f": u64::MAX}
        });
        assert_eq!(value, expected);
    }
}
