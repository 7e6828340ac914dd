mod outages;

use corvus_testkit::store::{Kind, StoreOptions, StoreServer};
use futures_util::future::join_all;

use super::*;

/// Time that a machine with much to do may take on top.
const SLACK: Duration = Duration::from_millis(300);

fn link(url: &str) -> Link {
    Link::new(url.parse().unwrap()).unwrap()
}

async fn ping(link: &Link) -> Result<Value, LinkError> {
    link.command(redis::cmd("PING")).await
}

/// Asks until there is an answer; how long that took.
async fn recovery(link: &Link) -> Duration {
    let begun = Instant::now();
    while let Err(error) = ping(link).await {
        assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

fn pong() -> Value {
    Value::SimpleString("PONG".to_owned())
}

#[tokio::test]
async fn requests_share_a_connection_and_get_their_own_answers() {
    for kind in Kind::ALL {
        let Some(store) = StoreServer::start(StoreOptions::new(kind)) else { return };
        let link = link(&store.url());
        let echo = Script::new("#!lua\nreturn ARGV[1] + #KEYS".to_owned());
        let echo = &echo;
        let all = (0..2_000).map(|i: i64| {
            let link = link.clone();
            async move { link.run(echo, &["a", "b"], &[i.to_string().into_bytes()]).await }
        });
        for (i, answer) in (0..).zip(join_all(all).await) {
            assert_eq!(answer, Ok(Value::Int(i + 2)));
        }
        assert_eq!(link.attempts(), 1);
    }
}

#[tokio::test]
async fn a_script_that_the_server_forgot_is_sent_again() {
    for kind in Kind::ALL {
        let Some(store) = StoreServer::start(StoreOptions::new(kind)) else { return };
        let link = link(&store.url());
        let script = Script::new("#!lua\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])".to_owned());
        let args = [b"2".to_vec()];
        assert_eq!(link.run(&script, &["n"], &args).await, Ok(Value::Int(2)));
        assert_eq!(link.run(&script, &["n"], &args).await, Ok(Value::Int(4)));
        store.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(link.run(&script, &["n"], &args).await, Ok(Value::Int(6)), "once, not twice");
        assert_eq!(link.run(&script, &["n"], &args).await, Ok(Value::Int(8)));
        // The first call and the one after the flush bring the source, the others its name.
        let stats = store.cli(&["INFO", "commandstats"]);
        assert!(stats.contains("cmdstat_eval:calls=2,"), "{stats}");
    }
}

#[tokio::test]
async fn a_full_store_is_told_apart() {
    for kind in Kind::ALL {
        let Some(store) = StoreServer::start(StoreOptions::new(kind)) else { return };
        let link = link(&store.url());
        let source = "return redis.call('SET', KEYS[1], ARGV[1])";
        let normal = Script::new(format!("#!lua\n{source}"));
        let spare = Script::new(format!("#!lua flags=allow-oom\n{source}"));
        let args = [b"x".to_vec()];
        store.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(link.run(&normal, &["k"], &args).await, Err(LinkError::Full));
        assert_eq!(link.run(&normal, &["k"], &args).await, Err(LinkError::Full), "by name too");
        assert_eq!(link.run(&spare, &["k"], &args).await, Ok(Value::Okay));
        let set = || redis::cmd("SET").arg("k").arg("v").clone();
        assert_eq!(link.command(set()).await, Err(LinkError::Full));
        assert_eq!(ping(&link).await, Ok(pong()));
        store.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(link.command(set()).await, Ok(Value::Okay));
        assert_eq!(link.attempts(), 1, "a full store is no bad connection");
    }
}

#[tokio::test]
async fn what_the_server_refuses_stays_refused_and_keeps_the_connection() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let link = link(&store.url());
    store.cli(&["SET", "text", "x"]);
    let boom = Script::new("#!lua\nerror('boom')".to_owned());
    let wrong = Script::new("#!lua\nreturn redis.call('LPUSH', KEYS[1], 'x')".to_owned());
    for (script, word) in [(boom, "boom"), (wrong, "WRONGTYPE")] {
        match link.run(&script, &["text"], &[]).await {
            Err(LinkError::Refused(text)) => assert!(text.contains(word), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ping(&link).await, Ok(pong()));
    assert_eq!(link.attempts(), 1);
}

#[tokio::test]
async fn passwords_are_given_and_never_shown() {
    let options = StoreOptions { password: Some("hunter2".into()), ..StoreOptions::default() };
    let Some(store) = StoreServer::start(options) else { return };
    assert_eq!(ping(&link(&store.url())).await, Ok(pong()));
    let addr = store.addr();
    assert_eq!(ping(&link(&format!("redis://default:hunter2@{addr}"))).await, Ok(pong()));
    for url in [
        format!("redis://:swordfish@{addr}"),
        format!("redis://nobody:swordfish@{addr}"),
        format!("redis://{addr}"),
    ] {
        let link = link(&url);
        match ping(&link).await {
            Err(LinkError::Refused(text)) => {
                assert!(!text.contains("swordfish") && !text.contains("hunter2"), "{text}");
            }
            other => panic!("{url}: {other:?}"),
        }
    }

    store.cli(&["ACL", "SETUSER", "corvus", "on", ">p@s/s", "~corvus:*", "+@all", "-info"]);
    let link = link(&format!("redis://corvus:p%40s%2Fs@{addr}/1"));
    let set = |key: &str| redis::cmd("SET").arg(key).arg("v").clone();
    assert_eq!(link.command(set("corvus:k")).await, Ok(Value::Okay));
    assert!(matches!(link.command(set("other")).await, Err(LinkError::Refused(_))));
    store.cli(&["SELECT", "1"]);
    assert_eq!(store.cli(&["EXISTS", "corvus:k"]), "0", "it lies in database 1");
}

#[tokio::test]
async fn many_waiting_requests_make_one_attempt() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let link = link(&store.url());
    let pings = || join_all((0..100).map(|_| ping(&link)));
    assert!(pings().await.into_iter().all(|answer| answer == Ok(pong())));
    assert_eq!(link.attempts(), 1);
    store.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(pings().await.iter().all(|a| matches!(a, Err(LinkError::Unreachable(_)))));
    assert_eq!(link.attempts(), 2, "a failure is shared too");
}

#[tokio::test]
async fn tls_trusts_the_named_authority_alone() {
    let options =
        StoreOptions { tls: true, password: Some("s".into()), ..StoreOptions::new(Kind::Redis) };
    let Some(store) = StoreServer::start(options) else { return };
    let ca = store.ca_file().unwrap();
    let trusting = link(&format!("{}?ca={}", store.url(), ca.display()));
    // Slower than others in a build without optimisation.
    recovery(&trusting).await;
    assert_eq!(ping(&trusting).await, Ok(pong()));

    let strange = link(&store.url());
    let begun = Instant::now();
    loop {
        match ping(&strange).await {
            Err(LinkError::Unreachable(text)) if text.contains("certificate") => break,
            Err(LinkError::Unreachable(text)) => {
                assert!(begun.elapsed() < Duration::from_secs(10), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }

    let missing = Link::new("rediss://h?ca=/nowhere.pem".parse().unwrap());
    assert!(matches!(missing, Err(LinkSetupError::Ca { .. })));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, "no certificate").unwrap();
    let empty = Link::new(format!("rediss://h?ca={}", path.display()).parse().unwrap());
    assert!(matches!(empty, Err(LinkSetupError::CaText { .. })));
}
