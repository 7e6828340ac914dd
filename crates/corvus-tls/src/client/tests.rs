use corvus_core::FakeClock;
use rcgen::{KeyPair, date_time_ymd};
use rustls::{ServerConfig, server::ResolvesServerCert, sign::SingleCertAndKey};

use super::*;
use crate::{
    Certificate,
    fixture::{Authority, NOW_MS, Pair, ca_params, handshake, leaf_params},
    self_signed, server_config,
};

fn server(certificate: &Certificate) -> Arc<ServerConfig> {
    let resolver: Arc<dyn ResolvesServerCert> =
        Arc::new(SingleCertAndKey::from(certificate.certified_key()));
    server_config(resolver).unwrap()
}

fn server_of(pair: &Pair) -> Arc<ServerConfig> {
    let (certificate, _) =
        Certificate::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
    server(&certificate)
}

fn trusting(ca: &str) -> Arc<ClientConfig> {
    client_config(Verify::Ca(ca), &[]).unwrap()
}

#[test]
fn an_authority_vouches_for_its_names_only() {
    let root = Authority::root("root");
    let server = server_of(&root.issue(&leaf_params(&["origin.internal"])));
    assert!(handshake(&server, &trusting(&root.pem()), "origin.internal").is_ok());
    assert!(handshake(&server, &trusting(&root.pem()), "other.internal").is_err());
    let stranger = Authority::root("root");
    assert!(handshake(&server, &trusting(&stranger.pem()), "origin.internal").is_err());
}

#[test]
fn an_authority_is_read_from_a_file() {
    let root = Authority::root("root");
    let server = server_of(&root.issue(&leaf_params(&["origin.internal"])));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, root.pem()).unwrap();
    let client = trusting(&format!("file:{}", path.display()));
    assert!(handshake(&server, &client, "origin.internal").is_ok());

    let error = client_config(Verify::Ca("file:/nonexistent/ca.pem"), &[]).unwrap_err();
    assert!(matches!(error, ClientConfigError::Ca(_)), "{error}");
}

/// What `openssl req -x509` makes: self-signed and marked as an authority.
fn openssl_style(not_after_year: i32) -> Pair {
    let mut params = ca_params("nas");
    params.subject_alt_names = leaf_params(&["nas.internal"]).subject_alt_names;
    params.not_after = date_time_ymd(not_after_year, 1, 1);
    let key = KeyPair::generate().unwrap();
    Pair { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

#[test]
fn a_self_signed_upstream_is_trusted_by_its_own_certificate() {
    let pair = openssl_style(2100);
    let server = server_of(&pair);
    assert!(handshake(&server, &trusting(&pair.certificate), "nas.internal").is_ok());
    let error = handshake(&server, &trusting(&pair.certificate), "other.internal").unwrap_err();
    assert!(error.to_string().contains("other.internal"), "{error}");
    // One that looks the same is not the same.
    let lookalike = openssl_style(2100);
    assert!(handshake(&server, &trusting(&lookalike.certificate), "nas.internal").is_err());

    let expired = openssl_style(2020);
    let server = server_of(&expired);
    let error = handshake(&server, &trusting(&expired.certificate), "nas.internal").unwrap_err();
    assert!(error.to_string().contains("Expired"), "{error}");
}

#[test]
fn without_verification_anything_goes() {
    let data = tempfile::tempdir().unwrap();
    let id = crate::fixture::id("x");
    let names = ["elsewhere.invalid".to_owned()];
    // Long expired by the machine's clock.
    let clock = FakeClock::new(NOW_MS - 20 * 365 * 86_400_000);
    let server = server(&self_signed(data.path(), &id, &names, &clock).unwrap());
    let client = client_config(Verify::None, &[b"h2"]).unwrap();
    let agreed = handshake(&server, &client, "origin.internal").unwrap();
    assert_eq!(agreed.alpn.as_deref(), Some(b"h2".as_slice()));
}

#[test]
fn the_system_does_not_vouch_for_strangers() {
    let root = Authority::root("root");
    let server = server_of(&root.issue(&leaf_params(&["origin.internal"])));
    match client_config(Verify::System, &[]) {
        Ok(client) => assert!(handshake(&server, &client, "origin.internal").is_err()),
        // A machine without `ca-certificates` says so instead.
        Err(error) => assert!(error.to_string().contains("ca-certificates"), "{error}"),
    }
}
