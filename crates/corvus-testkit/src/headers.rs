//! Header fields as they stood on the wire: order, spelling and repeats kept.

/// A list of fields. Values are Latin-1 read byte for char, so nothing is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, String)>);

impl Headers {
    /// The first value of a field, by a case-insensitive name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Each value of a field, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Whether a comma-separated field holds a token (`connection`, `transfer-encoding`).
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name).flat_map(|v| v.split(',')).any(|t| t.trim().eq_ignore_ascii_case(token))
    }

    pub(crate) fn from_map(map: &http::HeaderMap) -> Self {
        Self(map.iter().map(|(n, v)| (n.as_str().to_owned(), latin1(v.as_bytes()))).collect())
    }

    pub(crate) fn from_pairs(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
    }
}

pub(crate) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

/// The reverse of [`latin1`]; what is beyond Latin-1 becomes `?`.
pub(crate) fn to_latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}
