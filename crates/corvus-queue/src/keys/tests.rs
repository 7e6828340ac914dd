mod alone;
pub(crate) mod memory;
mod server;
mod shared;
mod steps;

use corvus_core::token::{Admission, Sid};

use super::*;

const ADMISSION: Admission =
    Admission { sid: Sid::from_bytes([1; 16]), issued_ms: 1, expires_ms: 2 };

fn token(keys: &KeyStore) -> String {
    keys.load().as_ref().unwrap().sign_admission("drop", &ADMISSION, None)
}

fn believes(keys: &KeyStore, token: &str) -> bool {
    keys.load().as_ref().is_some_and(|keys| keys.verify_admission("drop", token, None).is_ok())
}
