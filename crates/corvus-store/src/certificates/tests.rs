use serde_json::json;

use super::*;
use crate::testing::{START_MS, Sample};

#[test]
fn certificates_are_kept_replaced_listed_and_removed() {
    let sample = Sample::new();
    let (shop, wiki) = (Id::new("shop").unwrap(), Id::new("wiki").unwrap());
    let put = |id, chain, private_key, not_after_ms| {
        let issuer = json!({"order": "17", "chain": chain});
        let new = NewCertificate { id, chain, private_key, issuer: &issuer, not_after_ms };
        sample.store.write(|w| w.put_certificate(&new)).unwrap();
    };
    put(&wiki, "W", "WK", 5);
    put(&shop, "S1", "SK1", 6);
    put(&shop, "S2", "SK2", 7);
    let sample = sample.reopen();
    sample
        .store
        .read(|r| {
            let found = r.certificate(&shop)?.unwrap();
            let expected = CertificateInfo {
                id: shop.clone(),
                chain: "S2".into(),
                issuer: json!({"order": "17", "chain": "S2"}),
                not_after_ms: 7,
                updated_ms: START_MS,
            };
            assert_eq!(found, expected);
            assert_eq!(&**r.certificate_key(&shop)?.unwrap(), b"SK2");
            assert_eq!(&**r.certificate_key(&wiki)?.unwrap(), b"WK");
            let ids: Vec<_> = r.certificates()?.into_iter().map(|c| c.id).collect();
            assert_eq!(ids, [shop.clone(), wiki.clone()]);
            Ok(())
        })
        .unwrap();
    sample.store.write(|w| w.remove_certificate(&shop)).unwrap();
    assert!(sample.store.read(|r| r.certificate(&shop)).unwrap().is_none());
    assert!(sample.store.read(|r| r.certificate_key(&shop)).unwrap().is_none());
    let gone = sample.store.write(|w| w.remove_certificate(&shop));
    assert!(matches!(gone, Err(StoreError::NotFound("certificate"))));
}

#[test]
fn a_key_under_another_certificate_does_not_open() {
    let sample = Sample::new();
    let (shop, wiki) = (Id::new("shop").unwrap(), Id::new("wiki").unwrap());
    sample
        .store
        .write(|w| {
            for id in [&shop, &wiki] {
                let issuer = json!(null);
                let new = NewCertificate {
                    id,
                    chain: "",
                    private_key: "K",
                    issuer: &issuer,
                    not_after_ms: 0,
                };
                w.put_certificate(&new)?;
            }
            let sql = "UPDATE certificates SET private_key =
                       (SELECT private_key FROM certificates WHERE id = 'shop')";
            w.connection.execute(sql, [])?;
            Ok(())
        })
        .unwrap();
    let failed = sample.store.read(|r| r.certificate_key(&wiki)).unwrap_err();
    assert_eq!(failed.to_string(), "the stored certificate wiki is damaged: it does not decrypt");
}
