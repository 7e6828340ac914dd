//! What a new connection leads to: said once in the log, with what an operator should mend.

use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::connect::Conn;

const PATIENCE: Duration = Duration::from_secs(2);
/// The first version with the scripts we send.
const OLDEST: u32 = 7;

/// What a server says of itself.
#[derive(Debug, Default, Eq, PartialEq)]
struct Facts {
    /// Such as `Valkey 8.1.1`.
    server: String,
    /// Major version of the protocol's commands: Valkey names that of the Redis it agrees with.
    major: Option<u32>,
    eviction: Option<String>,
}

/// Asks and logs. Silent when the server does not want to be asked.
pub(super) async fn inspect(conn: Conn, address: String, first: bool) {
    let info = redis::cmd("INFO");
    let answer = match conn {
        Conn::One(mut conn) => timeout(PATIENCE, info.query_async(&mut conn)).await,
        // Of all masters.
        Conn::Cluster(mut conn) => timeout(PATIENCE, info.query_async(&mut conn)).await,
    };
    let Ok(Ok(value)) = answer else { return };
    let mut facts = Vec::new();
    gather(&value, &mut facts);

    let mut servers: Vec<&str> = facts.iter().map(|facts| facts.server.as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    let server = servers.join(", ");
    // Who cannot serve is connected to again and again; that it serves is said elsewhere.
    if first {
        tracing::info!(store = %address, %server, "connected to the queue store");
    } else {
        tracing::debug!(store = %address, %server, "connected to the queue store again");
    }
    if facts.iter().any(|facts| facts.major.is_some_and(|major| major < OLDEST)) {
        tracing::warn!(
            store = %address, %server,
            "the queue store is too old: access queues need Valkey or Redis 7.0"
        );
    }
    let policy = facts.iter().filter_map(|facts| facts.eviction.as_deref());
    if let Some(policy) = policy.into_iter().find(|policy| *policy != "noeviction") {
        tracing::warn!(
            store = %address, maxmemory_policy = policy,
            "the queue store may throw queues away when its memory is full: set maxmemory-policy \
             to noeviction"
        );
    }
}

/// One text for one server, or a map of them.
fn gather(value: &Value, facts: &mut Vec<Facts>) {
    match value {
        Value::BulkString(bytes) => facts.extend(read(&String::from_utf8_lossy(bytes))),
        Value::VerbatimString { text, .. } => facts.extend(read(text)),
        Value::Map(pairs) => pairs.iter().for_each(|(_, value)| gather(value, facts)),
        Value::Array(items) => items.iter().for_each(|value| gather(value, facts)),
        _ => {}
    }
}

fn read(info: &str) -> Option<Facts> {
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.trim_end().split_once(':'));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    let redis = field("redis_version")?;
    Some(Facts {
        server: match field("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {redis}"),
        },
        major: redis.split('.').next().and_then(|major| major.parse().ok()),
        eviction: field("maxmemory_policy"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_recognised() {
        let valkey = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\n\
                      valkey_version:8.1.1\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n";
        let redis = "# Server\r\nredis_version:6.2.7\r\nmaxmemory_policy:allkeys-lru\r\n";
        let mut facts = Vec::new();
        let node = |name: &str| Value::BulkString(name.into());
        gather(
            &Value::Map(vec![
                (node("10.0.0.1:1"), Value::BulkString(valkey.into())),
                (
                    node("10.0.0.2:1"),
                    Value::VerbatimString {
                        format: redis::VerbatimFormat::Text,
                        text: redis.to_owned(),
                    },
                ),
            ]),
            &mut facts,
        );
        assert_eq!(
            facts,
            [
                Facts {
                    server: "Valkey 8.1.1".into(),
                    major: Some(7),
                    eviction: Some("noeviction".into())
                },
                Facts {
                    server: "Redis 6.2.7".into(),
                    major: Some(6),
                    eviction: Some("allkeys-lru".into())
                },
            ]
        );
    }

    #[test]
    fn what_is_no_info_says_nothing() {
        let mut facts = Vec::new();
        gather(&Value::Nil, &mut facts);
        gather(&Value::BulkString(b"PONG".to_vec()), &mut facts);
        assert_eq!(facts, []);
    }
}
