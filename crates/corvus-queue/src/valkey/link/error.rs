//! What a failure means: whether the connection is spoilt by it, and what the caller is told.

use redis::{ErrorKind, RedisError};

use super::LinkError;
use crate::valkey::address::Address;

/// Longest text of a server that is passed on, in characters.
const TEXT_MAX: usize = 300;

/// Answers that say "not here" or "not now".
const NOT_NOW: [&str; 10] = [
    "READONLY",
    "LOADING",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "TRYAGAIN",
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "MOVED",
    "ASK",
];

/// Why a request failed, with what [`LinkError`] need not tell.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    NoScript,
    Full,
    /// The connection, or what it leads to, is no good.
    Lost(String),
    /// The server does not know us: passwords may have changed, so another connection may do.
    Stranger(String),
    Refused(String),
}

impl Fault {
    pub(super) fn of(error: &RedisError, address: &Address) -> Self {
        let text = scrub(&error.to_string(), address);
        let detail = error.detail().unwrap_or_default();
        match (error.code(), error.kind()) {
            (Some("NOSCRIPT"), _) => Self::NoScript,
            (Some("OOM"), _) => Self::Full,
            // Older servers wrap what stopped a script.
            (Some(_), _) if detail.contains("OOM command not allowed") => Self::Full,
            (Some(code), _) if NOT_NOW.contains(&code) => Self::Lost(text),
            (Some(_), _) if detail.contains("max number of clients") => Self::Lost(text),
            (Some("NOAUTH" | "WRONGPASS"), _) | (_, ErrorKind::AuthenticationFailed) => {
                Self::Stranger(text)
            }
            (Some(_), _) | (_, ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported) => {
                Self::Refused(text)
            }
            _ => Self::Lost(text),
        }
    }

    /// Whether the connection should be used no more.
    pub(super) fn spoils(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Stranger(_))
    }
}

impl From<Fault> for LinkError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Full => Self::Full,
            Fault::Lost(text) => Self::Unreachable(text),
            Fault::Stranger(text) | Fault::Refused(text) => Self::Refused(text),
            // To EVAL, no server answers this.
            Fault::NoScript => Self::Refused("the script is not known".to_owned()),
        }
    }
}

/// One line without secrets. Servers quote arguments in some errors.
pub(super) fn scrub(text: &str, address: &Address) -> String {
    let mut text = text.to_owned();
    for secret in address.secrets() {
        text = text.replace(secret, "***");
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(answer: &str) -> Fault {
        let address = "redis://:hunter2@h".parse().unwrap();
        let value = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
        Fault::of(&value.extract_error().unwrap_err(), &address)
    }

    #[test]
    fn answers_are_told_apart() {
        assert_eq!(fault("NOSCRIPT No matching script."), Fault::NoScript);
        for full in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "OOM allow-oom flag is not set on the script, can not run it when used memory > \
             'maxmemory'",
            "ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed",
        ] {
            assert_eq!(fault(full), Fault::Full, "{full}");
        }
        for lost in [
            "READONLY You can't write against a read only replica.",
            "LOADING Redis is loading the dataset in memory",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
            "BUSY Redis is busy running a script.",
            "ERR max number of clients reached",
        ] {
            assert!(matches!(fault(lost), Fault::Lost(_)), "{lost}");
            assert!(fault(lost).spoils());
        }
        for stranger in ["NOAUTH Authentication required.", "WRONGPASS invalid pair"] {
            assert!(matches!(fault(stranger), Fault::Stranger(_)), "{stranger}");
        }
        for refused in [
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "NOPERM this user has no permissions",
            "ERR user_script:1: boom",
            "CROSSSLOT Keys in request don't hash to the same slot",
        ] {
            assert!(matches!(fault(refused), Fault::Refused(_)), "{refused}");
            assert!(!fault(refused).spoils());
        }
    }

    #[test]
    fn texts_hold_no_secrets_and_stay_short() {
        let Fault::Refused(text) = fault(&format!("ERR 'hunter2' \u{1b}[31m{}", "x".repeat(999)))
        else {
            panic!()
        };
        assert!(text.contains("***") && !text.contains("hunter2") && !text.contains('\u{1b}'));
        assert_eq!(text.chars().count(), TEXT_MAX);
    }
}
