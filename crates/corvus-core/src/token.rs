//! Signed admission and place tokens of the access queue: what a visitor's cookie says.
//!
//! The store is a fast memory, the tokens are the truth: whatever a store forgets, the visitors'
//! tokens put back. So a token is believed only if one of our keys signed exactly this text (and,
//! with `bind_network`, for this network).
//!
//! ```text
//! v2.<key id>.a.<queue>.<sid>.<issued>.<expires>.<mac>          admission
//! v2.<key id>.q.<queue>.<sid>.<issued>.<ticket>.<due>.<mac>     place
//! ```
//!
//! Times are the store's, in milliseconds. The MAC is HMAC-SHA256 (RFC 2104) in base64url without
//! padding (RFC 4648, section 5), over the text before it. Verifying is on the path of every
//! admitted request: it allocates nothing, and the key's two blocks are hashed once, at start.

use std::{fmt, net::IpAddr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Longest text looked at. The longest true token is a place with a queue id of 63 characters:
/// below 220 bytes.
const MAX_LEN: usize = 256;
const VERSION: &str = "v2";
const ADMISSION: &str = "a";
const PLACE: &str = "q";
/// 32 bytes in base64url without padding.
const MAC_LEN: usize = 43;

/// A visitor's session: 128 random bits, one for each browser however many tabs; 22 characters of
/// base64url as text.
///
/// Ordered as their texts are: that is what a sorted set of a store does among equal scores.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Sid([u8; 16]);

impl Sid {
    /// Characters of the text form.
    pub const TEXT_LEN: usize = 22;

    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads the one canonical text form; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != Self::TEXT_LEN {
            return None;
        }
        let mut bytes = [0; 16];
        let n = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        (n == bytes.len()).then_some(Self(bytes))
    }

    /// The text form, which is ASCII.
    pub fn text(&self) -> [u8; Self::TEXT_LEN] {
        let mut text = [0; Self::TEXT_LEN];
        let encoded = URL_SAFE_NO_PAD.encode_slice(self.0, &mut text);
        debug_assert_eq!(encoded, Ok(Self::TEXT_LEN));
        text
    }
}

impl Ord for Sid {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let (a, b) = (u128::from_be_bytes(self.0), u128::from_be_bytes(other.0));
        // Six bits a character; the last one has the two that remain.
        let character = (a ^ b).leading_zeros() / 6;
        let letter = |sid: u128| {
            let bits = sid.checked_shl(6 * character).map_or(0, |rest| (rest >> 122) as u8);
            // The alphabet (RFC 4648, section 5) is not in the order of ASCII.
            match bits {
                62 => b'-',
                52..=61 => b'0' + (bits - 52),
                0..=25 => b'A' + bits,
                63 => b'_',
                _ => b'a' + (bits - 26),
            }
        };
        letter(a).cmp(&letter(b))
    }
}

impl PartialOrd for Sid {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sid({self})")
    }
}

/// Proof that a session was let in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Admission {
    pub sid: Sid,
    /// Store time of the reply that allowed it, ms.
    pub issued_ms: u64,
    /// The session's expiry in the store, ms.
    pub expires_ms: u64,
}

/// Proof of a place in the line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    pub sid: Sid,
    /// Store time of the reply that gave it, ms.
    pub issued_ms: u64,
    pub ticket: Ticket,
    /// Store time by which the visitor was told to check in again, ms.
    pub due_ms: u64,
}

/// Where in the line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ticket {
    /// Nowhere yet (`0`): the token only proves that the browser keeps cookies.
    Unplaced,
    /// Lower is earlier. Never 0.
    Number(u64),
    /// A place in a draw that is not yet held (`L`): the store recomputes it, because a readable
    /// number would tell the draw.
    Lottery,
}

/// Why a text is no token of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokenError {
    #[error("not of the form of a token")]
    Malformed,
    #[error("a token of another queue")]
    OtherQueue,
    #[error("signed with a key we do not hold")]
    UnknownKey,
    #[error("the signature does not match")]
    BadSignature,
}

/// One signing secret, ready for use.
#[derive(Clone)]
pub struct SigningKey {
    id: String,
    /// Both key blocks already hashed; cloned for each token.
    keyed: Hmac<Sha256>,
}

impl SigningKey {
    /// `secret`: 256 random bits. The id, which tokens carry in the clear, is 48 bits of a hash of
    /// the secret: two gateways with one secret agree on it without a word.
    pub fn new(secret: &[u8; 32]) -> Self {
        let digest = Sha256::new().chain_update(b"corvus queue key id\0").chain_update(secret);
        let id = URL_SAFE_NO_PAD.encode(&digest.finalize()[..6]);
        // A key of 32 bytes is shorter than a block, so it is used as it is (RFC 2104, section 2).
        let keyed = <Hmac<Sha256> as KeyInit>::new(&padded(secret).into());
        Self { id, keyed }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    fn mac(&self, signed: &str, network: Option<IpAddr>) -> [u8; 32] {
        let mut mac = self.keyed.clone();
        mac.update(signed.as_bytes());
        // NUL cannot occur in the text, so no text runs into a network.
        match network {
            None => {}
            Some(IpAddr::V4(ip)) => {
                mac.update(&[0]);
                mac.update(&ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                mac.update(&[0]);
                mac.update(&ip.octets());
            }
        }
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn padded(secret: &[u8; 32]) -> [u8; 64] {
    let mut block = [0; 64];
    block[..32].copy_from_slice(secret);
    block
}

/// The secrets of a gateway: new tokens are signed with `current`, tokens of any are believed.
#[derive(Clone, Debug)]
pub struct SigningKeys {
    /// Will sign soon, and signs already at a gateway that heard of it first: of several gateways
    /// nobody signs with a key that another one does not know.
    pub next: Option<SigningKey>,
    pub current: SigningKey,
    pub previous: Option<SigningKey>,
}

impl SigningKeys {
    /// The cookie text of `admission` to `queue`. `network`: as `ClientIp::token_network` has it,
    /// if the queue binds tokens to it.
    pub fn sign_admission(
        &self,
        queue: &str,
        admission: &Admission,
        network: Option<IpAddr>,
    ) -> String {
        let Admission { sid, issued_ms, expires_ms } = admission;
        let kid = &self.current.id;
        self.sign(
            format!("{VERSION}.{kid}.{ADMISSION}.{queue}.{sid}.{issued_ms}.{expires_ms}"),
            network,
        )
    }

    /// The cookie text of a place in `queue`. `network` as in [`Self::sign_admission`].
    pub fn sign_place(&self, queue: &str, place: &Place, network: Option<IpAddr>) -> String {
        let Place { sid, issued_ms, ticket, due_ms } = place;
        let kid = &self.current.id;
        let head = format!("{VERSION}.{kid}.{PLACE}.{queue}.{sid}.{issued_ms}.");
        let text = match ticket {
            Ticket::Unplaced => format!("{head}0.{due_ms}"),
            Ticket::Number(n) => format!("{head}{n}.{due_ms}"),
            Ticket::Lottery => format!("{head}L.{due_ms}"),
        };
        self.sign(text, network)
    }

    fn sign(&self, mut text: String, network: Option<IpAddr>) -> String {
        let mac = self.current.mac(&text, network);
        text.push('.');
        URL_SAFE_NO_PAD.encode_string(mac, &mut text);
        text
    }

    /// The admission that `text` proves. Whether it is still valid is a matter of the store's time.
    pub fn verify_admission(
        &self,
        queue: &str,
        text: &str,
        network: Option<IpAddr>,
    ) -> Result<Admission, TokenError> {
        let mut fields = self.verify(queue, ADMISSION, text, network)?;
        let sid = fields.next().and_then(Sid::parse);
        let issued = fields.next().and_then(number);
        let expires = fields.next().and_then(number);
        match (sid, issued, expires, fields.next()) {
            (Some(sid), Some(issued_ms), Some(expires_ms), None) => {
                Ok(Admission { sid, issued_ms, expires_ms })
            }
            _ => Err(TokenError::Malformed),
        }
    }

    /// The place that `text` proves. Whether it is fresh and not refused, the store says.
    pub fn verify_place(
        &self,
        queue: &str,
        text: &str,
        network: Option<IpAddr>,
    ) -> Result<Place, TokenError> {
        let mut fields = self.verify(queue, PLACE, text, network)?;
        let sid = fields.next().and_then(Sid::parse);
        let issued = fields.next().and_then(number);
        let ticket = fields.next().and_then(|field| match field {
            "L" => Some(Ticket::Lottery),
            _ => number(field).map(|n| if n == 0 { Ticket::Unplaced } else { Ticket::Number(n) }),
        });
        let due = fields.next().and_then(number);
        match (sid, issued, ticket, due, fields.next()) {
            (Some(sid), Some(issued_ms), Some(ticket), Some(due_ms), None) => {
                Ok(Place { sid, issued_ms, ticket, due_ms })
            }
            _ => Err(TokenError::Malformed),
        }
    }

    /// Checks frame and signature, and returns the fields after the queue.
    fn verify<'t>(
        &self,
        queue: &str,
        kind: &str,
        text: &'t str,
        network: Option<IpAddr>,
    ) -> Result<std::str::Split<'t, char>, TokenError> {
        if text.len() > MAX_LEN {
            return Err(TokenError::Malformed);
        }
        let (signed, mac_text) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let mut fields = signed.split('.');
        if fields.next() != Some(VERSION) {
            return Err(TokenError::Malformed);
        }
        let kid = fields.next().ok_or(TokenError::Malformed)?;
        if fields.next() != Some(kind) {
            return Err(TokenError::Malformed);
        }
        if fields.next() != Some(queue) {
            return Err(TokenError::OtherQueue);
        }
        let key = std::iter::once(&self.current)
            .chain(&self.previous)
            .chain(&self.next)
            .find(|key| key.id == kid)
            .ok_or(TokenError::UnknownKey)?;
        if mac_text.len() != MAC_LEN {
            return Err(TokenError::BadSignature);
        }
        // Strict decoding: no second text with the same bits.
        let mut given = [0; 32];
        let n = URL_SAFE_NO_PAD
            .decode_slice(mac_text, &mut given)
            .map_err(|_| TokenError::BadSignature)?;
        let wanted = key.mac(signed, network);
        // Constant time: the answer's delay must not tell how many bytes of a forgery are right.
        if n == given.len() && bool::from(wanted.ct_eq(&given)) {
            Ok(fields)
        } else {
            Err(TokenError::BadSignature)
        }
    }
}

/// A decimal number in its one canonical form.
fn number(field: &str) -> Option<u64> {
    let canonical = field == "0" || !(field.starts_with('0') || field.starts_with('+'));
    if canonical { field.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
