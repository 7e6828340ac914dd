//! Stores that go away, fall silent, or hand over to another.

use corvus_testkit::{
    ChaosProxy,
    store::{Data, StoreCluster, StoreSentinel},
};

use super::*;

async fn timed(link: &Link) -> (Result<Value, LinkError>, Duration) {
    let begun = Instant::now();
    (ping(link).await, begun.elapsed())
}

#[tokio::test]
async fn a_restarted_store_is_found_by_the_first_request() {
    for kind in Kind::ALL {
        let Some(mut store) = StoreServer::start(StoreOptions::new(kind)) else { return };
        let link = link(&store.url());
        assert_eq!(ping(&link).await, Ok(pong()));
        store.stop();
        assert!(matches!(ping(&link).await, Err(LinkError::Unreachable(_))));
        store.restart(Data::Wiped);
        assert_eq!(ping(&link).await, Ok(pong()));

        // While nobody asks for anything.
        store.restart(Data::Wiped);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(ping(&link).await, Ok(pong()), "the end of the old connection was noticed");
    }
}

#[tokio::test]
async fn a_stopped_store_costs_half_a_second_and_comes_back() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let link = link(&store.url());
    assert_eq!(ping(&link).await, Ok(pong()));
    store.pause();
    for _ in 0..3 {
        let (answer, took) = timed(&link).await;
        assert!(matches!(answer, Err(LinkError::Unreachable(_))));
        assert!(took < DEADLINE + SLACK, "{took:?}");
    }
    store.resume();
    assert!(recovery(&link).await < Duration::from_secs(1));
}

#[tokio::test]
async fn a_half_open_connection_is_dropped() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let proxy = ChaosProxy::start(store.addr());
    let link = link(&format!("redis://{}", proxy.addr()));
    assert_eq!(ping(&link).await, Ok(pong()));
    proxy.mute();
    let (answer, took) = timed(&link).await;
    assert!(matches!(answer, Err(LinkError::Unreachable(_))));
    assert!(took >= DEADLINE && took < DEADLINE + SLACK, "{took:?}");
    proxy.resume();
    recovery(&link).await;
    assert!(link.attempts() >= 2);
}

#[tokio::test]
async fn connecting_counts_against_the_deadline() {
    // The kernel accepts, nobody reads.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let link = link(&format!("redis://{}", silent.local_addr().unwrap()));
    let (answer, took) = timed(&link).await;
    assert!(matches!(answer, Err(LinkError::Unreachable(_))));
    assert!(took >= DEADLINE && took < DEADLINE + SLACK, "{took:?}");
    // The attempt goes on, and the next request joins it.
    assert!(ping(&link).await.is_err());
    assert_eq!(link.attempts(), 1);
}

#[tokio::test]
async fn a_slow_store_is_reached_by_a_later_request() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let proxy = ChaosProxy::start(store.addr());
    proxy.slow(Duration::from_millis(400));
    let link = link(&format!("redis://{}", proxy.addr()));
    assert!(ping(&link).await.is_err(), "a round takes 800 ms");
    proxy.resume();
    recovery(&link).await;
    assert_eq!(link.attempts(), 1, "the first attempt went on");
}

#[tokio::test]
async fn a_master_that_became_a_replica_is_left() {
    let Some(store) = StoreServer::start(StoreOptions::default()) else { return };
    let link = link(&store.url());
    let set = Script::new("#!lua\nreturn redis.call('SET', KEYS[1], 'v')".to_owned());
    assert_eq!(link.run(&set, &["k"], &[]).await, Ok(Value::Okay));
    store.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    for _ in 0..2 {
        match link.run(&set, &["k"], &[]).await {
            Err(LinkError::Unreachable(text)) => assert!(text.contains("ReadOnly"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(link.attempts(), 2, "each time the connection was given up");
    store.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(link.run(&set, &["k"], &[]).await, Ok(Value::Okay));
}

#[tokio::test]
async fn sentinels_are_asked_again_when_the_master_is_lost() {
    let Some(set) = StoreSentinel::start(&StoreOptions::default()) else { return };
    let link = link(&set.url());
    let whose = Script::new("#!lua\nreturn redis.call('SET', KEYS[1], 'v')".to_owned());
    assert_eq!(link.run(&whose, &["k"], &[]).await, Ok(Value::Okay));
    let old = set.kill_master();
    let begun = Instant::now();
    loop {
        let round = Instant::now();
        match link.run(&whose, &["k"], &[]).await {
            Ok(value) => break assert_eq!(value, Value::Okay),
            Err(LinkError::Unreachable(_)) => {}
            Err(other) => panic!("{other}"),
        }
        assert!(round.elapsed() < DEADLINE + SLACK);
        assert!(begun.elapsed() < Duration::from_secs(15), "no new master was found");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let master = set.wait_for_failover(old);
    assert_eq!(master.cli(&["GET", "k"]), "v");

    let unknown = super::link(&set.url().replace("/corvus", "/other"));
    assert!(matches!(ping(&unknown).await, Err(LinkError::Refused(_))));
}

#[tokio::test]
async fn a_cluster_is_followed_through_the_loss_of_a_master() {
    for kind in Kind::ALL {
        let Some(cluster) = StoreCluster::start(&StoreOptions::new(kind)) else { return };
        let link = link(&cluster.url());
        let count = Script::new("#!lua\nreturn redis.call('INCR', KEYS[1])".to_owned());
        let keys: Vec<String> = (0..30).map(|i| format!("{{room{i}}}:n")).collect();
        for key in &keys {
            assert_eq!(link.run(&count, &[key], &[]).await, Ok(Value::Int(1)), "{key}");
        }
        let owners: std::collections::BTreeSet<_> =
            keys.iter().map(|key| cluster.master_of(key)).collect();
        assert_eq!(owners.len(), 3, "every master was asked");

        let lost = cluster.master_of(&keys[0]);
        let (theirs, others): (Vec<_>, Vec<_>) =
            keys.iter().partition(|key| cluster.master_of(key) == lost);
        cluster.kill(lost);
        let begun = Instant::now();
        let mut others_failed = 0;
        loop {
            let round = Instant::now();
            match link.run(&count, &[theirs[0]], &[]).await {
                Ok(_) => break,
                Err(LinkError::Unreachable(_)) => {}
                Err(other) => panic!("{other}"),
            }
            assert!(round.elapsed() < DEADLINE + SLACK, "{:?}", round.elapsed());
            assert!(begun.elapsed() < Duration::from_secs(20), "the replica was not found");
            others_failed += usize::from(link.run(&count, &[others[0]], &[]).await.is_err());
        }
        println!("{kind:?}: {:?}, others failed {others_failed} times", begun.elapsed());
        for key in theirs.iter().chain(&others) {
            assert!(link.run(&count, &[key], &[]).await.is_ok(), "{key}");
        }
    }
}

#[tokio::test]
async fn a_silent_master_of_a_cluster_costs_the_others_nothing() {
    let Some(cluster) = StoreCluster::start(&StoreOptions::default()) else { return };
    let link = link(&cluster.url());
    let count = Script::new("#!lua\nreturn redis.call('INCR', KEYS[1])".to_owned());
    let keys: Vec<String> = (0..30).map(|i| format!("{{room{i}}}:n")).collect();
    for key in &keys {
        assert_eq!(link.run(&count, &[key], &[]).await, Ok(Value::Int(1)), "{key}");
    }
    let lost = cluster.master_of(&keys[0]);
    let (theirs, others): (Vec<_>, Vec<_>) =
        keys.iter().partition(|key| cluster.master_of(key) == lost);
    // Or the nodes themselves refuse everything until the replica has taken over.
    for i in 0..cluster.addrs().len() {
        cluster.node(i).cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    // A client that is young is given time to mend itself.
    tokio::time::sleep(replace::CLUSTER_AGE).await;
    // Its replica as well, for long enough that another client is tried and found no better.
    let replica = cluster.node(lost + 3);
    replica.pause();
    cluster.node(lost).pause();
    let mut nobody = true;

    let begun = Instant::now();
    let mend = async {
        while let Err(error) = link.run(&count, &[theirs[0]], &[]).await {
            assert!(matches!(error, LinkError::Unreachable(_)), "{error}");
            assert!(begun.elapsed() < Duration::from_secs(20), "the replica was not found");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::pin!(mend);
    let mut asked = 0;
    loop {
        let round = Instant::now();
        let answer = link.run(&count, &[others[0]], &[]).await;
        assert!(answer.is_ok(), "{answer:?} after {:?}", begun.elapsed());
        assert!(round.elapsed() < SLACK, "{:?} after {:?}", round.elapsed(), begun.elapsed());
        asked += 1;
        if nobody && begun.elapsed() > Duration::from_secs(5) {
            assert!(link.attempts() >= 2, "another client was tried");
            replica.resume();
            nobody = false;
        }
        tokio::select! {
            () = &mut mend => break,
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
    assert!(!nobody, "the replica took over");
    println!("{:?}, others asked {asked} times", begun.elapsed());
    for key in &keys {
        assert!(link.run(&count, &[key], &[]).await.is_ok(), "{key}");
    }
}
