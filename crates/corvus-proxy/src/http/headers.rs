//! A header section as it was on the wire: order and spelling kept, one buffer for all of it.
//!
//! `http::HeaderMap` hashes each name, allocates for each value and forgets spelling and order
//! between names. A gateway mostly copies; it looks up a dozen names that it knows beforehand. So
//! names are classified once while parsing ([`Name`]), lookups compare one byte for each field, and
//! forwarding is a copy of slices.

use crate::http::name::Name;

/// A range of [`Headers::bytes`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, len: end.saturating_sub(start) as u32 }
    }

    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug)]
struct Field {
    known: Name,
    name: Span,
    value: Span,
}

/// Header fields in order, plus whatever else of the head its owner keeps in the same buffer (the
/// request line, the reason phrase).
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers {
    buf: Vec<u8>,
    fields: Vec<Field>,
}

impl Headers {
    pub(crate) fn clear(&mut self) {
        self.buf.clear();
        self.fields.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Takes over the bytes of a whole head; fields are then added with [`Self::push_span`].
    pub(crate) fn load(&mut self, head: &[u8]) {
        self.clear();
        self.buf.extend_from_slice(head);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf
    }

    pub(crate) fn push_span(&mut self, name: Span, value: Span) {
        let known = Name::of(name.of(&self.buf));
        self.fields.push(Field { known, name, value });
    }

    /// Appends text to the buffer without making it a field.
    pub(crate) fn store(&mut self, text: &[u8]) -> Span {
        let start = self.buf.len();
        self.buf.extend_from_slice(text);
        Span::new(start, self.buf.len())
    }

    pub(crate) fn push(&mut self, name: &[u8], value: &[u8]) {
        let name = self.store(name);
        let value = self.store(value);
        self.push_span(name, value);
    }

    /// Adds a field of a known name in its usual spelling.
    pub(crate) fn add(&mut self, name: Name, value: &[u8]) {
        let span = self.store(name.as_str().as_bytes());
        let value = self.store(value);
        self.fields.push(Field { known: name, name: span, value });
    }

    /// Replaces all fields of a known name by one.
    pub(crate) fn set(&mut self, name: Name, value: &[u8]) {
        self.remove(name);
        self.add(name, value);
    }

    pub(crate) fn remove(&mut self, name: Name) {
        self.fields.retain(|field| field.known != name);
    }

    /// Removes all fields of any name, compared without case.
    pub(crate) fn remove_named(&mut self, name: &[u8]) {
        let Self { buf, fields } = self;
        fields.retain(|field| !field.name.of(buf).eq_ignore_ascii_case(name));
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Name, &[u8], &[u8]) -> bool) {
        let Self { buf, fields } = self;
        fields.retain(|field| keep(field.known, field.name.of(buf), field.value.of(buf)));
    }

    /// Leaves what a trailer section may say (RFC 9110 section 6.5.1): nothing that frames, routes or
    /// authenticates a message, and nothing that tells who the client is. A recipient that merges
    /// trailers into the header section would believe it.
    pub(crate) fn keep_trailers(&mut self) {
        const NEVER: [&str; 6] = [
            "authorization",
            "proxy-authorization",
            "content-encoding",
            "content-range",
            "age",
            "set-cookie2",
        ];
        self.retain(|known, name, _| {
            known == Name::Other
                && !NEVER.iter().any(|never| name.eq_ignore_ascii_case(never.as_bytes()))
        });
    }

    /// The first value of a known name.
    pub(crate) fn get(&self, name: Name) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.known == name).map(|field| field.value.of(&self.buf))
    }

    /// The first value as text; `None` as well when it is not UTF-8.
    pub(crate) fn get_str(&self, name: Name) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    pub(crate) fn has(&self, name: Name) -> bool {
        self.fields.iter().any(|field| field.known == name)
    }

    pub(crate) fn all(&self, name: Name) -> impl Iterator<Item = &[u8]> {
        self.fields
            .iter()
            .filter(move |field| field.known == name)
            .map(|field| field.value.of(&self.buf))
    }

    /// Every value of a name that need not be known, compared without case.
    pub(crate) fn all_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(_, field, _)| field.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, _, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Name, &[u8], &[u8])> {
        self.fields
            .iter()
            .map(|field| (field.known, field.name.of(&self.buf), field.value.of(&self.buf)))
    }

    /// Writes the section, without the empty line that ends it.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        for field in &self.fields {
            out.extend_from_slice(field.name.of(&self.buf));
            out.extend_from_slice(b": ");
            out.extend_from_slice(field.value.of(&self.buf));
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// The members of a comma-separated list, trimmed, empty ones left out (RFC 9110 section 5.6.1).
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// The pairs of a `Cookie` field, trimmed.
pub(crate) fn cookie_pairs(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let value = rest?;
        let end = memchr::memchr(b';', value);
        rest = end.and_then(|end| value.get(end + 1..));
        Some(value.get(..end.unwrap_or(value.len())).unwrap_or_default().trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_spelling_survive_changes() {
        let mut headers = Headers::default();
        headers.push(b"HOST", b"a.example");
        headers.push(b"x-One", b"1");
        headers.push(b"X-Two", b"2");
        headers.push(b"x-one", b"3");
        headers.remove_named(b"X-ONE");
        headers.set(Name::Via, b"1.1 corvus");
        let mut out = Vec::new();
        headers.write_to(&mut out);
        assert_eq!(out, b"HOST: a.example\r\nX-Two: 2\r\nVia: 1.1 corvus\r\n");
        assert_eq!(headers.get(Name::Host), Some(&b"a.example"[..]));
    }

    #[test]
    fn cookies_come_in_pairs() {
        let pairs: Vec<_> = cookie_pairs(b"a=1; b=2 ;c").collect();
        assert_eq!(pairs, [&b"a=1"[..], b"b=2", b"c"]);
        assert_eq!(cookie_pairs(b"").collect::<Vec<_>>(), [b""]);
    }
}
