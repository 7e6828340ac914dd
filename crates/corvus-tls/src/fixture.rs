//! Test fixtures: authorities and certificates made on the spot, snapshots, and whole handshakes in
//! memory.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use corvus_config::{
    Snapshot,
    snapshot::{
        CertificateSource, CertificateSpec, HeaderPolicy, Host, HostIndex, HostTls, LoadBalancing,
        Settings, UpstreamTls,
    },
};
use corvus_core::Id;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, IsCa, KeyPair,
};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, NamedGroup, ProtocolVersion, ServerConfig,
    ServerConnection,
};
use rustls_pki_types::{CertificateDer, ServerName};

/// 2027-01-15 08:00 UTC.
pub(crate) const NOW_MS: u64 = 1_800_000_000_000;
pub(crate) const NOW_S: i64 = 1_800_000_000;

pub(crate) fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

/// A certificate and its key, as PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

pub(crate) fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

pub(crate) fn leaf_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, "leaf");
    params
}

/// Authority information access that names an issuer's address, as public authorities put it in:
/// SEQUENCE { SEQUENCE { id-ad-caIssuers, URI "http://a/" } }.
pub(crate) fn issuer_address() -> CustomExtension {
    let mut der = vec![0x30, 0x17, 0x30, 0x15, 0x06, 0x08];
    der.extend([0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x02, 0x86, 0x09]);
    der.extend(b"http://a/");
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], der)
}

impl Authority {
    pub(crate) fn root(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(ca_params(name), key).unwrap() }
    }

    pub(crate) fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::signed_by(ca_params(name), key, &self.issuer).unwrap() }
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn issue(&self, params: &CertificateParams) -> Pair {
        self.issue_for(params, &KeyPair::generate().unwrap())
    }

    pub(crate) fn issue_for(&self, params: &CertificateParams, key: &KeyPair) -> Pair {
        let certificate = params.signed_by(key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

pub(crate) fn upload(name: &str, pair: &Pair) -> CertificateSpec {
    CertificateSpec {
        id: id(name),
        source: CertificateSource::Upload {
            certificate: pair.certificate.clone(),
            key: pair.key.clone(),
        },
    }
}

pub(crate) fn self_signed_spec(name: &str, domains: &[&str]) -> CertificateSpec {
    let domains = domains.iter().map(ToString::to_string).collect();
    CertificateSpec { id: id(name), source: CertificateSource::SelfSigned { domains } }
}

pub(crate) fn host(name: &str, domains: &[&str], certificate: Option<&str>) -> Arc<Host> {
    Arc::new(Host {
        id: id(name),
        domains: domains.iter().map(ToString::to_string).collect(),
        upstreams: Vec::new(),
        load_balancing: LoadBalancing::default(),
        upstream_tls: UpstreamTls::default(),
        tls: HostTls { certificate: certificate.map(id), force_https: false },
        request_headers: HeaderPolicy::default(),
        response_headers: HeaderPolicy::default(),
        body_limit: None,
        connect_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_mins(1),
        upgrades: Vec::new(),
        queue: None,
    })
}

pub(crate) fn snapshot(hosts: Vec<Arc<Host>>, certificates: Vec<CertificateSpec>) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        version: 1,
        settings: Settings::default(),
        index: HostIndex::new(&hosts),
        hosts,
        queues: Vec::new(),
        certificates,
    })
}

/// What both ends agreed on.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) version: ProtocolVersion,
    pub(crate) alpn: Option<Vec<u8>>,
    /// None in a resumed TLS 1.2 session.
    pub(crate) group: Option<NamedGroup>,
    pub(crate) kind: HandshakeKind,
    pub(crate) leaf: CertificateDer<'static>,
}

/// A handshake over buffers, and what follows it (tickets).
pub(crate) fn handshake(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<Handshake, rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name)?;
    let mut server = ServerConnection::new(Arc::clone(server))?;
    while client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = bytes.as_slice();
        while !bytes.is_empty() {
            server.read_tls(&mut bytes).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = bytes.as_slice();
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok(Handshake {
        version: client.protocol_version().unwrap(),
        alpn: client.alpn_protocol().map(<[u8]>::to_vec),
        group: client.negotiated_key_exchange_group().map(rustls::crypto::SupportedKxGroup::name),
        kind: client.handshake_kind().unwrap(),
        leaf: client.peer_certificates().unwrap()[0].clone().into_owned(),
    })
}
