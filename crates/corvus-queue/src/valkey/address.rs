//! Where the store is: the text behind `--valkey`.
//!
//! ```text
//! redis[s]://[[user]:password@]host[:port][/db]
//! redis[s]+cluster://[[user]:password@]host[:port],host[:port]...
//! redis[s]+sentinel://[[user]:password@]host[:port],host[:port].../master[/db]
//! ```
//!
//! Parameters after `?`: `ca` (a PEM file with the authorities to trust instead of the system's) and
//! `sentinel_password`. What has a meaning in a URL is percent-encoded in user, password, master and
//! parameters.

use std::{fmt, net::Ipv6Addr, path::PathBuf, str::FromStr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;
/// Written as they are.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Where the store is, and how to be let in. Shown without passwords.
#[derive(Clone, Eq, PartialEq)]
pub struct Address {
    pub(super) tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// PEM file with the authorities to trust; `None`: those of the system.
    pub(super) ca: Option<PathBuf>,
    pub(super) layout: Layout,
}

/// What answers there.
#[derive(Clone, Eq, PartialEq)]
pub(super) enum Layout {
    Single { node: Node, db: u16 },
    Cluster { nodes: Vec<Node> },
    Sentinel { sentinels: Vec<Node>, password: Option<String>, master: String, db: u16 },
}

/// A host, without brackets, and its port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Node {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Why a text is not an [`Address`]. Quotes nothing of it: with the host forgotten, or a `&` not
/// escaped, any piece could be of a password.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AddressError {
    #[error(
        "a store's address begins with redis:// or rediss://, redis+cluster:// or \
         redis+sentinel:// (rediss for TLS)"
    )]
    Scheme,
    #[error(
        "a password contains `@`, `/`, `?` or `#`, or a parameter `@`: write them as %40, %2F, %3F \
         and %23"
    )]
    Unescaped,
    #[error("`#` has no meaning in a store's address")]
    Fragment,
    #[error("the {0} is not well percent-encoded; a `%` itself is written %25")]
    Encoding(&'static str),
    #[error("a user comes with a password: user:password@host")]
    NoPassword,
    #[error("the password before `@` is empty")]
    EmptyPassword,
    #[error("no host is named")]
    NoHost,
    #[error(
        "what stands for a host is none: letters, digits, `-`, `.` and `_`, or an IPv6 address in \
         brackets"
    )]
    Host,
    #[error("what follows `host:` is no port (1 to 65535); a password goes before `@host`")]
    Port,
    #[error("one server is one host:port; several are redis+cluster:// or redis+sentinel://")]
    Several,
    #[error("what follows the last `/` is no number of a database (0 to 65535)")]
    Db,
    #[error("a cluster has one database: nothing may follow its nodes")]
    ClusterPath,
    #[error("the name of the master is missing: redis+sentinel://host:port/master")]
    NoMaster,
    #[error("what follows the database has no meaning")]
    Path,
    #[error(
        "a parameter is neither ca nor sentinel_password; a `&` in one of these is written %26"
    )]
    Parameter,
    #[error("the parameter `{0}` is given twice, or is empty")]
    Value(&'static str),
    #[error("sentinel_password is for redis+sentinel://")]
    NotSentinel,
    #[error("ca is for rediss://, which speaks TLS")]
    CaWithoutTls,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme)?;
        let (transport, layout) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match transport {
            "redis" => false,
            "rediss" => true,
            _ => return Err(AddressError::Scheme),
        };
        // Told before anything else, or a piece of the password would be quoted as a host.
        if let Some(at) = rest.rfind('@')
            && rest.find(['/', '?', '#']).is_some_and(|end| end < at)
        {
            return Err(AddressError::Unescaped);
        }
        if rest.contains('#') {
            return Err(AddressError::Fragment);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, path),
            None => (rest, ""),
        };
        let (userinfo, hosts) = match authority.rsplit_once('@') {
            Some((userinfo, hosts)) => (Some(userinfo), hosts),
            None => (None, authority),
        };
        if userinfo.is_some_and(|info| info.contains('@')) {
            return Err(AddressError::Unescaped);
        }
        let (user, password) = userinfo.map_or(Ok((None, None)), credentials)?;
        let (ca, sentinel_password) = parameters(query)?;
        if ca.is_some() && !tls {
            return Err(AddressError::CaWithoutTls);
        }

        let layout = match layout {
            "" => {
                if hosts.contains(',') {
                    return Err(AddressError::Several);
                }
                Layout::Single { node: node(hosts, PORT)?, db: db(path)? }
            }
            "cluster" => {
                if !path.is_empty() {
                    return Err(AddressError::ClusterPath);
                }
                Layout::Cluster { nodes: nodes(hosts, PORT)? }
            }
            "sentinel" => {
                let (master, path) = path.split_once('/').unwrap_or((path, ""));
                if master.is_empty() {
                    return Err(AddressError::NoMaster);
                }
                Layout::Sentinel {
                    sentinels: nodes(hosts, SENTINEL_PORT)?,
                    password: sentinel_password.clone(),
                    master: decode(master, "name of the master")?,
                    db: db(path)?,
                }
            }
            _ => return Err(AddressError::Scheme),
        };
        if sentinel_password.is_some() && !matches!(layout, Layout::Sentinel { .. }) {
            return Err(AddressError::NotSentinel);
        }
        Ok(Self { tls, user, password, ca, layout })
    }
}

fn credentials(info: &str) -> Result<(Option<String>, Option<String>), AddressError> {
    let (user, password) = info.split_once(':').ok_or(AddressError::NoPassword)?;
    if password.is_empty() {
        return Err(AddressError::EmptyPassword);
    }
    let user = (!user.is_empty()).then(|| decode(user, "user")).transpose()?;
    Ok((user, Some(decode(password, "password")?)))
}

fn parameters(query: &str) -> Result<(Option<PathBuf>, Option<String>), AddressError> {
    let (mut ca, mut sentinel_password) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (slot, name) = match name {
            "ca" => (&mut ca, "ca"),
            "sentinel_password" => (&mut sentinel_password, "sentinel_password"),
            _ => return Err(AddressError::Parameter),
        };
        if value.is_empty() || slot.replace(decode(value, name)?).is_some() {
            return Err(AddressError::Value(name));
        }
    }
    Ok((ca.map(PathBuf::from), sentinel_password))
}

fn nodes(text: &str, port: u16) -> Result<Vec<Node>, AddressError> {
    text.split(',').map(|one| node(one, port)).collect()
}

fn node(text: &str, default_port: u16) -> Result<Node, AddressError> {
    if text.is_empty() {
        return Err(AddressError::NoHost);
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(AddressError::Host)?;
        host.parse::<Ipv6Addr>().map_err(|_| AddressError::Host)?;
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err(AddressError::Host),
        }
    } else {
        let (host, port) =
            text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        if host.is_empty() {
            return Err(AddressError::NoHost);
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if !host.chars().all(allowed) || port.is_some_and(|port| port.contains(':')) {
            return Err(AddressError::Host);
        }
        (host, port)
    };
    let port = match port {
        Some(text) => digits(text).filter(|port| *port != 0).ok_or(AddressError::Port)?,
        None => default_port,
    };
    Ok(Node { host: host.to_owned(), port })
}

fn db(path: &str) -> Result<u16, AddressError> {
    let (number, more) = path.split_once('/').unwrap_or((path, ""));
    if !more.is_empty() {
        return Err(AddressError::Path);
    }
    if number.is_empty() {
        return Ok(0);
    }
    digits(number).ok_or(AddressError::Db)
}

/// A number without a sign, which `parse` alone would take.
fn digits(text: &str) -> Option<u16> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn decode(text: &str, what: &'static str) -> Result<String, AddressError> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        let code = after.get(..2).filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
        if code.is_none() {
            return Err(AddressError::Encoding(what));
        }
        rest = after;
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| AddressError::Encoding(what))
}

impl Address {
    /// Everything that must never be seen in a log.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let sentinel = match &self.layout {
            Layout::Sentinel { password, .. } => password.as_deref(),
            _ => None,
        };
        self.password.as_deref().into_iter().chain(sentinel)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Without passwords: `***` stands for each.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escape = |text| utf8_percent_encode(text, ESCAPED);
        let (layout, nodes) = match &self.layout {
            Layout::Single { node, .. } => ("", std::slice::from_ref(node)),
            Layout::Cluster { nodes } => ("+cluster", nodes.as_slice()),
            Layout::Sentinel { sentinels, .. } => ("+sentinel", sentinels.as_slice()),
        };
        write!(f, "redis{}{layout}://", if self.tls { "s" } else { "" })?;
        if self.password.is_some() {
            write!(f, "{}:***@", escape(self.user.as_deref().unwrap_or("")))?;
        }
        for (i, node) in nodes.iter().enumerate() {
            write!(f, "{}{node}", if i == 0 { "" } else { "," })?;
        }
        match &self.layout {
            Layout::Single { db, .. } if *db != 0 => write!(f, "/{db}")?,
            Layout::Single { .. } | Layout::Cluster { .. } => {}
            Layout::Sentinel { master, db, .. } => {
                write!(f, "/{}", escape(master))?;
                if *db != 0 {
                    write!(f, "/{db}")?;
                }
            }
        }
        let mut separator = '?';
        if let Some(ca) = &self.ca {
            write!(f, "{separator}ca={}", escape(&ca.to_string_lossy()))?;
            separator = '&';
        }
        if let Layout::Sentinel { password: Some(_), .. } = &self.layout {
            write!(f, "{separator}sentinel_password=***")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests;
