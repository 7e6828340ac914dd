use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls_pki_types::pem::PemObject;

use super::*;
use crate::fixture::{Authority, issuer_address, leaf_params, pem};

fn load(certificate: &str, key: &str) -> Result<(Certificate, Vec<String>), CertificateError> {
    Certificate::from_pem(certificate.as_bytes(), key.as_bytes())
}

fn der(text: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(text.as_bytes()).map(Result::unwrap).collect()
}

#[test]
fn a_plain_pair_is_read() {
    let pair = Authority::root("root").issue(&leaf_params(&["Shop.example.com", "192.0.2.1"]));
    let (certificate, notes) = load(&pair.certificate, &pair.key).unwrap();
    assert_eq!(certificate.names, ["shop.example.com", "192.0.2.1"]);
    assert!(certificate.issuer.contains("root"), "{}", certificate.issuer);
    assert!(!certificate.self_signed);
    assert!(certificate.covers("shop.example.com"));
    assert!(certificate.not_before_s < certificate.not_after_s);
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn windows_line_ends_text_around_and_one_file_for_both_are_tolerated() {
    let pair = Authority::root("root").issue(&leaf_params(&["a.example.com"]));
    let both = format!("subject=CN = a\n{}Bag Attributes\n{}", pair.key, pair.certificate);
    let both = both.replace('\n', "\r\n");
    let (certificate, notes) = load(&both, &both).unwrap();
    assert_eq!(certificate.names, ["a.example.com"]);
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn all_three_key_forms_are_read() {
    let root = Authority::root("root");
    let params = leaf_params(&["a.example.com"]);

    // A P-256 key in PKCS#8 ends with its SEC1 form, an OCTET STRING of 0x6d bytes.
    let key = KeyPair::generate().unwrap();
    let pkcs8 = key.serialize_der();
    let start = pkcs8.windows(4).position(|bytes| bytes == [0x04, 0x6d, 0x30, 0x6b]).unwrap() + 2;
    let certificate = root.issue_for(&params, &key).certificate;
    load(&certificate, &pem("EC PRIVATE KEY", &pkcs8[start..])).unwrap();
    load(&certificate, &key.serialize_pem()).unwrap();

    // An RSA key in PKCS#8 ends with its PKCS#1 form, after 26 bytes of version, algorithm, length.
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let certificate = root.issue_for(&params, &key).certificate;
    load(&certificate, &pem("RSA PRIVATE KEY", &key.serialize_der()[26..])).unwrap();
    load(&certificate, &key.serialize_pem()).unwrap();
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let root = Authority::root("root");
    let one = root.issue(&leaf_params(&["a.example.com"]));
    let other = root.issue(&leaf_params(&["a.example.com"]));
    assert!(matches!(load(&one.certificate, &other.key), Err(CertificateError::KeyMismatch)));
}

#[test]
fn a_chain_in_any_order_is_mended() {
    let root = Authority::root("root");
    let upper = root.intermediate("upper");
    let lower = upper.intermediate("lower");
    let pair = lower.issue(&leaf_params(&["a.example.com"]));
    let right = pair.certificate.clone() + &lower.pem() + &upper.pem();

    let (certificate, notes) = load(&right, &pair.key).unwrap();
    assert_eq!(certificate.key.cert, der(&right));
    assert_eq!(notes, Vec::<String>::new());

    // Root first, an intermediate twice, the leaf last.
    let wrong =
        [root.pem(), upper.pem(), lower.pem(), upper.pem(), pair.certificate.clone()].concat();
    let (certificate, notes) = load(&wrong, &pair.key).unwrap();
    assert_eq!(certificate.key.cert, der(&right));
    assert_eq!(notes, ["its chain was not in order and has been put in order"]);

    // The root at the end is ordinary, and not sent.
    let (certificate, notes) = load(&(right.clone() + &root.pem()), &pair.key).unwrap();
    assert_eq!(certificate.key.cert, der(&right));
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn strangers_and_gaps_in_a_chain_are_reported() {
    let root = Authority::root("root");
    let intermediate = root.intermediate("middle");
    let mut params = leaf_params(&["a.example.com"]);
    params.custom_extensions.push(issuer_address());
    let pair = intermediate.issue(&params);

    let (_, notes) = load(&pair.certificate, &pair.key).unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("middle") && notes[0].contains("missing"), "{notes:?}");

    let stranger = Authority::root("other").intermediate("stranger");
    let chain = pair.certificate.clone() + &intermediate.pem() + &stranger.pem();
    let (certificate, notes) = load(&chain, &pair.key).unwrap();
    assert_eq!(certificate.key.cert.len(), 2);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("stranger"), "{notes:?}");
}

#[test]
fn what_cannot_be_read_is_explained() {
    let pair = Authority::root("root").issue(&leaf_params(&["a.example.com"]));
    let explain = |certificate: &[u8], key: &[u8]| {
        Certificate::from_pem(certificate, key).unwrap_err().to_string()
    };
    let (certificate, key) = (pair.certificate.as_bytes(), pair.key.as_bytes());

    assert!(explain(b"", key).contains("its certificate holds no PEM section"));
    assert!(explain(certificate, b"hello").contains("its key holds no PEM section"));
    let binary = der(&pair.certificate);
    assert!(explain(&binary[0], key).contains("its certificate is binary"));
    assert!(explain(certificate, b"\x30\x82\x01\x00").contains("its key is binary"));
    let damaged = pair.certificate.replace("-----END", "!\n-----END");
    assert!(explain(damaged.as_bytes(), key).contains("its certificate is damaged"));
    let nonsense = pem("CERTIFICATE", b"not DER");
    assert!(explain(nonsense.as_bytes(), key).contains("not a valid X.509 certificate"));
    let nonsense = pem("PRIVATE KEY", b"not DER");
    assert!(explain(certificate, nonsense.as_bytes()).contains("not supported"));
}

#[test]
fn encrypted_keys_are_named_as_such() {
    let pair = Authority::root("root").issue(&leaf_params(&["a.example.com"]));
    let modern = pem("ENCRYPTED PRIVATE KEY", b"secret");
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
               DEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    for key in [modern.as_str(), old] {
        let error = load(&pair.certificate, key).unwrap_err();
        assert!(matches!(error, CertificateError::EncryptedKey), "{error}");
    }
}

#[test]
fn a_certificate_without_names_is_reported() {
    let pair = Authority::root("root").issue(&leaf_params(&[]));
    let (_, notes) = load(&pair.certificate, &pair.key).unwrap();
    assert!(notes[0].contains("no subject alternative names"), "{notes:?}");
}
