//! Puts a certificate chain in the order TLS wants: the leaf, then each issuer (RFC 8446 section
//! 4.4.2). Operators paste files in any order, twice, or with the root; some clients then refuse.

use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use x509_parser::{extensions::ParsedExtension, prelude::X509Certificate};

use super::{CertificateError, parse_x509};

/// The chain for the certificate that belongs to `public_key`, and a sentence for each change.
pub(super) fn mend(
    given: &[CertificateDer<'static>],
    public_key: &SubjectPublicKeyInfoDer<'_>,
) -> Result<(Vec<CertificateDer<'static>>, Vec<String>), CertificateError> {
    let parsed = given.iter().map(parse_x509).collect::<Result<Vec<_>, _>>()?;
    let leaf = parsed
        .iter()
        .position(|certificate| certificate.public_key().raw == public_key.as_ref())
        .ok_or(CertificateError::KeyMismatch)?;

    let order = follow_issuers(&parsed, leaf);
    let mut notes = Vec::new();
    if !order.is_sorted() || leaf != 0 {
        notes.push("its chain was not in order and has been put in order".to_owned());
    }
    let unused = parsed.iter().enumerate().filter(|(index, certificate)| {
        // A root or a second copy may be left out without a word: clients do not miss either.
        !order.contains(index)
            && !is_self_signed(certificate)
            && !order.iter().any(|used| given.get(*used) == given.get(*index))
    });
    for (_, certificate) in unused {
        notes.push(format!(
            "the certificate of `{}` in its file is not part of the chain and is not sent",
            certificate.subject()
        ));
    }
    if let Some(last) = order.last().and_then(|index| parsed.get(*index))
        && order.len() == 1
        && names_its_issuer(last)
        && !parsed.iter().any(|other| issued(other, last))
    {
        notes.push(format!(
            "the certificate of its issuer `{}` is missing from the file, so some clients will \
             refuse it; append the intermediate certificate",
            last.issuer()
        ));
    }
    let chain = order.iter().filter_map(|index| given.get(*index).cloned()).collect();
    Ok((chain, notes))
}

/// Indices from the leaf upwards, without the root: clients have that one or do not trust it.
fn follow_issuers(parsed: &[X509Certificate<'_>], leaf: usize) -> Vec<usize> {
    let mut order = vec![leaf];
    let mut current = leaf;
    while let Some(next) = (0..parsed.len()).find(|candidate| {
        !order.contains(candidate)
            && !is_self_signed(&parsed[*candidate])
            && issued(&parsed[*candidate], &parsed[current])
    }) {
        order.push(next);
        current = next;
    }
    order
}

fn issued(issuer: &X509Certificate<'_>, subject: &X509Certificate<'_>) -> bool {
    issuer.subject().as_raw() == subject.issuer().as_raw()
        && issuer.public_key().raw != subject.public_key().raw
}

fn is_self_signed(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

/// Public authorities say where the issuer's certificate is (authority information access);
/// home-made ones, whose root may well issue the leaf itself, do not.
fn names_its_issuer(certificate: &X509Certificate<'_>) -> bool {
    !is_self_signed(certificate)
        && certificate.extensions().iter().any(|extension| {
            matches!(extension.parsed_extension(), ParsedExtension::AuthorityInfoAccess(_))
        })
}
