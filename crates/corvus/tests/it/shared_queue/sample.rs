//! The state of the queue `drop`, read at the store and in one step.

use std::io;

use corvus_testkit::store::{Resp, StoreClient};

/// `owed` counts while it has not run out, as in the queue's own script.
const SCRIPT: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rate = redis.call('HMGET', KEYS[3], 'owed', 'owed_until', 'admitted')
local owed = now < (tonumber(rate[2]) or 0) and tonumber(rate[1]) or 0
return {redis.call('ZCOUNT', KEYS[1], '(' .. now, '+inf'), owed, tonumber(rate[3]) or 0,
  redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), redis.call('ZRANGE', KEYS[1], 0, -1)}";

/// A key of the queue.
pub(super) fn key(name: &str) -> String {
    format!("corvus:wr:{{drop}}:{name}")
}

/// What the store had at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Inside, not counting those whose time is over.
    pub(super) inside: i64,
    pub(super) owed: i64,
    /// Admissions so far.
    pub(super) admitted: i64,
    /// Who waits, with their tickets, the next one first.
    pub(super) queue: Vec<(String, u64)>,
    /// The sessions in `active`.
    pub(super) sessions: Vec<String>,
}

impl Sample {
    pub(super) fn take(client: &mut StoreClient) -> io::Result<Self> {
        let keys = ["active", "queue", "rate"].map(key);
        let mut command = vec!["EVAL_RO", SCRIPT, "3"];
        command.extend(keys.iter().map(String::as_str));
        let Resp::Array(parts) = client.call(&command)?.ok()? else {
            panic!("not an array");
        };
        let [inside, owed, admitted, queue, sessions] = &parts[..] else {
            panic!("{parts:?}");
        };
        let number = |resp: &Resp| match resp {
            Resp::Int(n) => *n,
            other => panic!("{other:?}"),
        };
        let queue = texts(queue);
        let queue = queue.chunks(2).map(|pair| (pair[0].clone(), ticket(&pair[1]))).collect();
        Ok(Self {
            inside: number(inside),
            owed: number(owed),
            admitted: number(admitted),
            queue,
            sessions: texts(sessions),
        })
    }
}

/// The parts of an array of strings.
pub(super) fn texts(array: &Resp) -> Vec<String> {
    match array {
        Resp::Array(items) => items.iter().map(Resp::text).collect(),
        other => panic!("{other:?}"),
    }
}

/// A score as a ticket. Scores come as the doubles that they are.
pub(super) fn ticket(score: &str) -> u64 {
    let score: f64 = score.parse().unwrap();
    score as u64
}
