//! The launchers, with each program.

use std::io::ErrorKind;
use std::time::Duration;

use super::*;
use crate::ChaosProxy;

fn start(kind: Kind) -> Option<StoreServer> {
    StoreServer::start(StoreOptions::new(kind))
}

/// PING, SET, GET and EVAL, by one client.
fn serves(client: &mut StoreClient, key: &str) {
    assert_eq!(client.call(&["PING"]).unwrap(), Resp::Simple("PONG".to_owned()));
    let value = b"\0\r\n\xff".to_vec();
    let set = [b"SET".to_vec(), key.as_bytes().to_vec(), value.clone()];
    assert_eq!(client.call(&set).unwrap(), Resp::Simple("OK".to_owned()));
    assert_eq!(client.call(&["GET", key]).unwrap(), Resp::Bulk(value));
    let script = "return {redis.call('STRLEN', KEYS[1]), ARGV[1]}";
    let reply = client.call(&["EVAL", script, "1", key, "a"]).unwrap();
    assert_eq!(reply, Resp::Array(vec![Resp::Int(4), Resp::Bulk(b"a".to_vec())]));
}

fn stands_alone(kind: Kind) {
    let Some(mut store) = start(kind) else { return };
    assert_eq!(store.url(), format!("redis://{}", store.addr()));
    let mut client = store.client().unwrap();
    serves(&mut client, "k");
    assert!(matches!(client.call(&["GET"]).unwrap(), Resp::Error(text) if text.starts_with("ERR")));
    assert_eq!(store.cli(&["CONFIG", "GET", "save"]), "save\n");

    // More than the sockets' buffers hold, both ways.
    let long = "x".repeat(10_000);
    let commands: Vec<_> = (0..2000).map(|i| ["ECHO".to_owned(), format!("{i}{long}")]).collect();
    let replies = client.pipeline(&commands).unwrap();
    let expected = |i: usize| Resp::Bulk(format!("{i}{long}").into_bytes());
    assert!(replies.len() == 2000 && (0..2000).all(|i| replies[i] == expected(i)));

    store.pause();
    client.set_patience(Some(Duration::from_millis(50))).unwrap();
    let silence = client.call(&["PING"]).unwrap_err().kind();
    assert!(matches!(silence, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    store.resume();
    assert_eq!(store.cli(&["PING"]), "PONG");

    store.stop();
    assert!(!store.is_running());
    assert_eq!(store.client().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    store.restart(Data::Kept);
    assert_eq!(store.cli(&["DBSIZE"]), "0", "nothing was saved");
    let addr = store.addr();
    drop(store);
    assert_eq!(StoreClient::connect(addr).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn valkey_stands_alone() {
    stands_alone(Kind::Valkey);
}

#[test]
fn redis_stands_alone() {
    stands_alone(Kind::Redis);
}

#[test]
fn a_store_keeps_its_data_if_asked() {
    for kind in Kind::ALL {
        let options = StoreOptions { appendonly: true, ..StoreOptions::new(kind) };
        let Some(mut store) = StoreServer::start(options) else { continue };
        assert_eq!(store.cli(&["SET", "k", "v"]), "OK");
        store.restart(Data::Kept);
        assert_eq!(store.cli(&["GET", "k"]), "v");
        store.restart(Data::Wiped);
        assert_eq!(store.cli(&["DBSIZE"]), "0");
    }
}

#[test]
fn a_full_store_refuses_writes() {
    for kind in Kind::ALL {
        let options = StoreOptions { maxmemory: Some(4 << 20), ..StoreOptions::new(kind) };
        let Some(store) = StoreServer::start(options) else { continue };
        let mut client = store.client().unwrap();
        let long = "x".repeat(100_000);
        let mut replies = (0..100).map(|i| client.call(&["SET", &i.to_string(), &long]).unwrap());
        assert!(replies.any(|r| matches!(r, Resp::Error(text) if text.starts_with("OOM"))));
    }
}

#[test]
fn a_password_is_asked_for_by_master_and_replica() {
    for kind in Kind::ALL {
        let password = Some("s3cret".to_owned());
        let options = StoreOptions { password, ..StoreOptions::new(kind) };
        let Some(master) = StoreServer::start(options.clone()) else { continue };
        assert_eq!(master.url(), format!("redis://:s3cret@{}", master.addr()));
        let mut stranger = StoreClient::connect(master.addr()).unwrap();
        let refused = stranger.call(&["PING"]).unwrap();
        assert!(matches!(refused, Resp::Error(text) if text.starts_with("NOAUTH")));
        let options = StoreOptions { replica_of: Some(master.addr()), ..options };
        let replica = StoreServer::start(options).unwrap();
        let mut client = master.client().unwrap();
        serves(&mut client, "k");
        assert_eq!(client.call(&["WAIT", "1", "5000"]).unwrap(), Resp::Int(1));
        assert_eq!(replica.cli(&["STRLEN", "k"]), "4");
        assert!(replica.cli(&["SET", "k", "v"]).starts_with("READONLY"));
    }
}

#[test]
fn tls_shows_a_certificate_of_its_authority() {
    let options = StoreOptions {
        tls: true,
        password: Some("s3cret".to_owned()),
        ..StoreOptions::new(Kind::Redis)
    };
    let Some(store) = StoreServer::start(options) else { return };
    assert_eq!(store.url(), format!("rediss://:s3cret@{}", store.addr()));
    serves(&mut store.client().unwrap(), "k");
    let pem = std::fs::read_to_string(store.ca_file().unwrap()).unwrap();
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"));
    // Another authority is not believed, and plain bytes get no answer.
    let other = crate::Certificate::self_signed(&["127.0.0.1"]);
    let trust = crate::client_config_trusting(other.der);
    let error = StoreClient::connect_tls(store.addr(), trust, crate::PATIENCE).unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    assert!(StoreClient::connect(store.addr()).unwrap().call(&["PING"]).is_err());
}

#[test]
fn a_monitor_counts_what_clients_and_scripts_ask() {
    for kind in Kind::ALL {
        let Some(store) = start(kind) else { continue };
        let mut client = store.client().unwrap();
        client.call(&["GET", "before"]).unwrap();
        let mut monitor = Monitor::start(&store).unwrap();
        for _ in 0..100 {
            client.call(&["get", "a\"] \"b"]).unwrap();
        }
        client.call(&["EVAL", "return redis.call('GET', 'a')", "0"]).unwrap();
        assert_eq!(monitor.count("GET"), 100);
        assert_eq!(monitor.count("EVAL"), 1);
        assert_eq!(monitor.count("SET"), 0);
        assert_eq!(monitor.scripted().into_iter().collect::<Vec<_>>(), [("GET".to_owned(), 1)]);
        let told = monitor.told();
        assert_eq!((told.len(), &*told[99].name), (101, "GET"));
        assert_eq!(told[99].arguments, [r#"a\"] \"b"#]);
        assert_eq!(told[100].arguments, ["return redis.call('GET', 'a')", "0"]);
        assert!(told[0].at > Duration::ZERO && told[0].at <= told[100].at);
        drop(monitor);
        wait_for("the monitor has left", crate::PATIENCE, || {
            let clients = store.cli(&["CLIENT", "LIST"]);
            if clients.contains("cmd=monitor") { Err(clients) } else { Ok(()) }
        });
    }
}

#[test]
fn chaos_before_a_store() {
    let Some(store) = start(Kind::Valkey) else { return };
    let chaos = ChaosProxy::start(store.addr());
    let glance = Duration::from_millis(100);
    let refused = || StoreClient::connect(chaos.addr()).unwrap_err().kind();
    let mut client = StoreClient::connect(chaos.addr()).unwrap();
    serves(&mut client, "k");

    chaos.abandon();
    client.set_patience(Some(glance)).unwrap();
    client.call(&["INCR", "n"]).unwrap_err();
    assert_eq!(refused(), ErrorKind::ConnectionRefused);
    assert_eq!(store.cli(&["GET", "n"]), "", "nothing arrived");
    chaos.resume();
    client.set_patience(Some(crate::PATIENCE)).unwrap();
    assert_eq!(client.read().unwrap(), Resp::Int(1));

    chaos.mute();
    client.set_patience(Some(glance)).unwrap();
    client.call(&["INCR", "n"]).unwrap_err();
    assert_eq!(store.cli(&["GET", "n"]), "2", "it arrived");
    chaos.cut();
    assert_eq!((refused(), chaos.open_connections()), (ErrorKind::ConnectionRefused, 0));
    chaos.resume();
    client.set_patience(Some(crate::PATIENCE)).unwrap();
    assert_eq!(client.read().unwrap_err().kind(), ErrorKind::ConnectionReset, "the answer is lost");

    // A store that dies behind a cut cable is silent too.
    let mut client = StoreClient::connect(chaos.addr()).unwrap();
    serves(&mut client, "k");
    chaos.half_open();
    store.stop();
    client.set_patience(Some(glance)).unwrap();
    let silence = client.call(&["PING"]).unwrap_err().kind();
    assert!(matches!(silence, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    assert_eq!(chaos.open_connections(), 1);
}

fn cluster_fails_over(options: &StoreOptions) {
    let Some(mut cluster) = StoreCluster::start(options) else { return };
    let scheme = if options.tls { "rediss+cluster://" } else { "redis+cluster://" };
    assert!(cluster.url().starts_with(scheme));
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), 6);
    for key in ["", "{", "{}", "{}a", "a{b}c", "{{a}}", "wr:{drop}:w", "\u{e4}"] {
        let said = cluster.node(0).cli(&["CLUSTER", "KEYSLOT", key]);
        assert_eq!(said, slot(key.as_bytes()).to_string(), "{key:?}");
    }
    let keys = ["a", "b", "c"];
    let mut masters: Vec<_> = keys.iter().map(|key| cluster.master_of(key)).collect();
    for key in keys {
        serves(&mut cluster.client(key).unwrap(), key);
    }
    let key = keys[0];
    let mut client = cluster.client(key).unwrap();
    assert_eq!(client.call(&["SET", key, "kept"]).unwrap(), Resp::Simple("OK".to_owned()));
    assert_eq!(client.call(&["WAIT", "1", "5000"]).unwrap(), Resp::Int(1));
    let old = masters[0];
    masters.sort_unstable();
    assert_eq!(masters, [0, 1, 2], "keys of different masters");

    cluster.kill(old);
    cluster.wait_until_serving();
    let new = cluster.master_of(key);
    assert_eq!(new, old + 3, "its replica");
    let read = cluster.client(key).unwrap().call(&["GET", key]).unwrap();
    assert_eq!(read, Resp::Bulk(b"kept".to_vec()));
    cluster.restart(old, Data::Kept);
    wait_for("the old master follows the new one", crate::PATIENCE, || cluster.node(old).follows());
    assert_eq!(cluster.master_of(key), new);
}

#[test]
fn a_valkey_cluster_fails_over() {
    cluster_fails_over(&StoreOptions::new(Kind::Valkey));
}

#[test]
fn a_redis_cluster_fails_over_with_tls_and_password() {
    let password = Some("s3cret".to_owned());
    cluster_fails_over(&StoreOptions { tls: true, password, ..StoreOptions::new(Kind::Redis) });
}

fn sentinels_fail_over(options: &StoreOptions) {
    let Some(mut set) = StoreSentinel::start(options) else { return };
    let sentinels: Vec<_> = set.sentinels().iter().map(|s| s.addr().to_string()).collect();
    let user = if options.password.is_some() { ":s3cret@" } else { "" };
    assert_eq!(set.url(), format!("redis+sentinel://{user}{}/corvus", sentinels.join(",")));
    assert_eq!(set.master().addr(), set.stores()[0].addr());
    let mut client = set.master().client().unwrap();
    serves(&mut client, "k");
    assert_eq!(client.call(&["WAIT", "2", "5000"]).unwrap(), Resp::Int(2));

    let old = set.kill_master();
    assert_eq!(old, set.stores()[0].addr());
    let new = set.wait_for_failover(old).addr();
    assert_eq!(set.master().addr(), new);
    assert_eq!(set.master().cli(&["STRLEN", "k"]), "4", "the replicas had it");
    serves(&mut set.master().client().unwrap(), "k");
    set.restart(old, Data::Wiped);
    assert_eq!(set.stores()[0].cli(&["DBSIZE"]), "0");
    assert_eq!(set.master().addr(), new);
}

#[test]
fn valkey_sentinels_fail_over_with_a_password() {
    let password = Some("s3cret".to_owned());
    sentinels_fail_over(&StoreOptions { password, ..StoreOptions::new(Kind::Valkey) });
}

#[test]
fn redis_sentinels_fail_over() {
    sentinels_fail_over(&StoreOptions::new(Kind::Redis));
}
