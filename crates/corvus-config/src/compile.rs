//! Document to Snapshot: checks everything, reports every fault, resolves every reference.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use corvus_core::Id;
use ipnet::IpNet;

use crate::{
    document::Document,
    domain,
    problem::{Problem, Problems, did_you_mean, shown},
    snapshot::{HostIndex, Snapshot},
};

mod certificate;
mod headers;
mod host;
mod not_yet;
mod queue;
mod settings;
mod upstream;

pub use queue::PLACEHOLDERS;

/// Compiles a Document. References to files and stored secrets stay as they are: whoever applies
/// the Snapshot reads them. Its `version` is 0 until the caller sets it.
pub fn compile(document: &Document) -> Result<Snapshot, Vec<Problem>> {
    let mut cx = Context::new(document);
    let settings = settings::compile(&document.settings, &mut cx);
    let certificates = certificate::compile(&document.certificates, &mut cx);
    let queues = queue::compile(document, &mut cx);
    let hosts = host::compile(document, &queues, &mut cx);
    not_yet::check(document, &mut cx);
    if !cx.problems.is_empty() {
        return Err(cx.problems.into_vec());
    }
    Ok(Snapshot {
        version: 0,
        settings,
        index: HostIndex::new(&hosts),
        hosts,
        queues: queues.into_iter().flatten().collect(),
        certificates,
    })
}

/// What the parts share: the faults found, the ids that exist, and who owns which name.
struct Context<'d> {
    problems: Problems,
    certificates: BTreeSet<&'d str>,
    queues: BTreeSet<&'d str>,
    hosts: BTreeSet<&'d str>,
    access_lists: BTreeSet<&'d str>,
    /// Name to its owner, for people: "proxy host shop".
    owners: HashMap<String, String>,
}

impl<'d> Context<'d> {
    fn new(document: &'d Document) -> Self {
        let mut cx = Self {
            problems: Problems::default(),
            certificates: document.certificates.iter().map(|c| c.id.as_str()).collect(),
            queues: document.access_queues.iter().map(|q| q.id.as_str()).collect(),
            hosts: document.proxy_hosts.iter().map(|h| h.id.as_str()).collect(),
            access_lists: document.access_lists.iter().map(|l| l.id.as_str()).collect(),
            owners: HashMap::new(),
        };
        let d = document;
        cx.unique("proxy_hosts", d.proxy_hosts.iter().map(|x| &x.id));
        cx.unique("redirections", d.redirections.iter().map(|x| &x.id));
        cx.unique("dead_hosts", d.dead_hosts.iter().map(|x| &x.id));
        cx.unique("streams", d.streams.iter().map(|x| &x.id));
        cx.unique("certificates", d.certificates.iter().map(|x| &x.id));
        cx.unique("access_lists", d.access_lists.iter().map(|x| &x.id));
        cx.unique("access_queues", d.access_queues.iter().map(|x| &x.id));
        cx.unique("security_rules", d.security_rules.iter().map(|x| &x.id));
        cx.unique("alert_channels", d.alert_channels.iter().map(|x| &x.id));
        cx
    }

    fn add(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.problems.add(pointer, message);
    }

    /// Ids of one list are ids, each there once.
    fn unique<'a>(&mut self, list: &str, ids: impl Iterator<Item = &'a String>) {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (i, id) in ids.enumerate() {
            let pointer = format!("/{list}/{i}/id");
            if let Err(error) = Id::new(id) {
                self.add(pointer, error.to_string());
            } else if let Some(first) = seen.get(id.as_str()) {
                self.add(pointer, format!("the id `{id}` is taken by /{list}/{first}"));
            } else {
                seen.insert(id, i);
            }
        }
    }

    /// A reference by id, to one of `known`.
    fn reference(
        &mut self,
        pointer: String,
        id: &str,
        known: fn(&Self) -> &BTreeSet<&'d str>,
        what: &str,
    ) -> Option<Id> {
        let ids = known(self);
        if ids.contains(id) {
            return Id::new(id).ok();
        }
        // A hint costs a comparison with every id: not among thousands, and not for nobody.
        let hint = if self.problems.is_full() || ids.len() > 1_000 {
            None
        } else {
            did_you_mean(id, ids.iter().copied())
        };
        let hint = hint.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        self.add(pointer, format!("there is no {what} `{id}`{hint}"));
        None
    }

    fn certificate(&mut self, pointer: String, id: &str) -> Option<Id> {
        self.reference(pointer, id, |cx| &cx.certificates, "certificate")
    }

    /// Normal names of a host, each owned by it alone among all kinds of hosts.
    fn domains(&mut self, pointer: &str, domains: &[String], owner: &str) -> Vec<String> {
        if domains.is_empty() {
            self.add(pointer, "at least one domain is needed");
        }
        let mut names = Vec::with_capacity(domains.len());
        for (i, text) in domains.iter().enumerate() {
            let pointer = format!("{pointer}/{i}");
            match domain::normalise(text) {
                Err(message) => self.add(pointer, message),
                Ok(name) => {
                    if let Some(other) = self.owners.get(&name) {
                        let message = if other == owner {
                            format!("the domain `{name}` stands here twice")
                        } else {
                            format!("the domain `{name}` belongs to {other}")
                        };
                        self.add(pointer, message);
                    } else {
                        self.owners.insert(name.clone(), owner.to_owned());
                        names.push(name);
                    }
                }
            }
        }
        names
    }
}

/// A network, or a single address.
fn network(text: &str) -> Result<IpNet, String> {
    let net = match text.parse::<IpNet>() {
        Ok(net) => net,
        Err(_) => text
            .parse::<std::net::IpAddr>()
            .map(|ip| IpNet::from(ip.to_canonical()))
            .map_err(|_| format!("`{text}` is neither a network like 10.0.0.0/8 nor an address"))?,
    };
    if net.trunc() == net {
        Ok(net)
    } else {
        Err(format!("`{net}` has bits set behind its prefix; write `{}`", net.trunc()))
    }
}

/// `file:PATH` with an absolute path, `${ENV}`, or PEM text.
fn pem_reference(text: &str) -> Result<(), String> {
    if let Some(path) = text.strip_prefix("file:") {
        return match path {
            "" => Err("`file:` is followed by a path".to_owned()),
            path if path.contains('\0') => Err("a path holds no NUL".to_owned()),
            _ => Ok(()),
        };
    }
    if text.contains("-----BEGIN ") || (text.starts_with("${") && text.ends_with('}')) {
        return Ok(());
    }
    // The text itself may be half a key: it is not repeated.
    Err("this is neither `file:PATH` nor PEM text".to_owned())
}

/// An absolute http or https URL, for redirects.
fn absolute_url(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Err(format!("`{}` does not begin with https:// or http://", text.escape_default()));
    };
    if let Some(c) = text.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(format!("a URL holds no `{}`", shown(c)));
    }
    match rest.split(['/', '?', '#']).next() {
        None | Some("") => Err(format!("`{text}` names no host")),
        Some(host) if host.contains('@') => Err("a URL here holds no password".to_owned()),
        Some(_) => Ok(()),
    }
}

/// A list of parts that compiled; those that did not have left a problem.
type Parts<T> = Vec<Option<Arc<T>>>;

#[cfg(test)]
mod tests;
