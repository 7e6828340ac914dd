//! `waitroom.lua`: what a call sends and what it brings back.
//!
//! Both ways numbers are packed as little-endian doubles, which hold every integer to 2^53 (tickets
//! are microseconds: good to the year 2255): one argument for each operation and one string as the
//! answer cost the server less than the words of the protocol would.

use corvus_config::snapshot::{Method, QueueSettings, Rate};
use corvus_core::{
    Id,
    token::{Admission, Place, Sid, Ticket},
};

use super::level::Level;
use crate::{
    op::{Answer, Caller, Op, Reply, Stats, WAIT_BUCKETS_S, Waiting},
    room::Draw,
};

/// The script, without its first line: `#!lua`, or `#!lua flags=allow-oom` to run without memory.
pub(crate) const WAITROOM: &str = include_str!("../../script/waitroom.lua");

/// One call of the script.
pub(crate) struct Call<'a> {
    /// Unix ms; `None`: the store's clock. Tests have their own.
    pub(crate) now: Option<u64>,
    pub(crate) caller: Caller,
    pub(crate) level: &'a Level,
    pub(crate) settings: &'a QueueSettings,
    pub(crate) draw: &'a Draw,
    pub(crate) ops: &'a [Op],
}

/// The store answered something that the script never says.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the queue script gave an answer that cannot be read")]
pub(crate) struct Malformed;

/// The keys of `queue`, in the order of the script's KEYS. One hash tag: one slot of a Cluster.
pub(crate) fn keys(queue: &Id) -> [String; 6] {
    ["active", "queue", "seen", "seq", "rate", "spent"]
        .map(|name| format!("corvus:wr:{{{queue}}}:{name}"))
}

impl Call<'_> {
    /// ARGV.
    pub(crate) fn args(&self) -> Vec<Vec<u8>> {
        let Self { settings: s, level, .. } = self;
        let optional = |ms: Option<u64>| ms.unwrap_or(0);
        let rate = level.rate.unwrap_or(Rate { count: 0.0, per_s: 0.0 });
        let method = match s.method {
            Method::Fifo => "f",
            Method::Random => "r",
            Method::Passthrough => "p",
            Method::Reject => "x",
        };
        let mut args: Vec<Vec<u8>> = Vec::with_capacity(18 + self.ops.len());
        args.push(self.now.map_or_else(String::new, |now| now.to_string()).into_bytes());
        args.push(format!("{:016x}", self.caller.gateway).into_bytes());
        match self.caller.report {
            Some(report) => args.extend(
                [report.born_ms, report.claimed, report.n].map(|n| n.to_string().into_bytes()),
            ),
            None => args.extend([Vec::new(), Vec::new(), Vec::new()]),
        }
        args.extend([level.version, level.capacity].map(|n| n.to_string().into_bytes()));
        args.extend([rate.count, rate.per_s].map(|n| n.to_string().into_bytes()));
        let schedule = &s.schedule;
        args.push(u8::from(level.paused).to_string().into_bytes());
        args.extend(
            [s.active_ttl_ms, s.grant_ttl_ms, s.queue_ttl_ms, s.max_waiting]
                .map(|n| n.to_string().into_bytes()),
        );
        args.push(method.into());
        args.extend(
            [schedule.opens_at_ms, schedule.starts_at_ms, schedule.ends_at_ms]
                .map(|ms| optional(ms).to_string().into_bytes()),
        );
        args.extend(self.ops.iter().map(|op| self.pack(op)));
        args
    }

    fn pack(&self, op: &Op) -> Vec<u8> {
        let mut record = Record { lots: None, ..Record::default() };
        let kind = match *op {
            Op::Enter { sid, place, join } => {
                record.place(self, sid, place).join(self, sid, join);
                b'e'
            }
            Op::Poll { sid, place, admission } => {
                record.place(self, sid, place).admission(admission);
                b'p'
            }
            Op::Heartbeat { admission, place, join } => {
                record.place(self, admission.sid, place).join(self, admission.sid, join);
                record.admission(Some(admission));
                b'h'
            }
            Op::Release { sid, admission } => {
                record.sid = Some(sid);
                record.admission(admission);
                b'r'
            }
            Op::Flush => b'F',
            Op::ReleaseAll => b'A',
            Op::Stats => b'S',
        };
        record.pack(kind)
    }
}

/// The fields of an operation; 0 where there is none.
#[derive(Default)]
struct Record {
    sid: Option<Sid>,
    join: bool,
    lots: Option<(u64, u64)>,
    issued: u64,
    ticket: u64,
    due: u64,
    admission: Option<Admission>,
}

impl Record {
    fn place(&mut self, call: &Call<'_>, sid: Sid, place: Option<Place>) -> &mut Self {
        self.sid = Some(sid);
        // Of another session: not this visitor's to use.
        if let Some(place) = place.filter(|place| place.sid == sid) {
            self.ticket = match place.ticket {
                Ticket::Unplaced => 0,
                Ticket::Number(number) => number.max(1),
                Ticket::Lottery => call.draw.lottery(&call.settings.id, &sid).unwrap_or(0),
            };
            (self.issued, self.due) = (place.issued_ms, place.due_ms);
        }
        self
    }

    fn join(&mut self, call: &Call<'_>, sid: Sid, join: bool) -> &mut Self {
        self.join = join;
        if join {
            let id = &call.settings.id;
            let lot = call.draw.lottery(id, &sid).unwrap_or(0);
            self.lots = Some((call.draw.random(id, &sid), lot));
        }
        self
    }

    fn admission(&mut self, admission: Option<Admission>) {
        self.admission = admission;
    }

    fn pack(&self, kind: u8) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + Sid::TEXT_LEN + 8 * 8);
        out.push(kind);
        match self.sid {
            Some(sid) => out.extend_from_slice(&sid.text()),
            None => out.extend_from_slice(&[b'-'; Sid::TEXT_LEN]),
        }
        let (random, lot) = self.lots.unwrap_or_default();
        let (a_issued, a_expires) =
            self.admission.map_or((0, 0), |a| (a.issued_ms, a.expires_ms.max(1)));
        let join = u64::from(self.join);
        for n in [join, random, lot, self.issued, self.ticket, self.due, a_issued, a_expires] {
            out.extend_from_slice(&(n as f64).to_le_bytes());
        }
        out
    }
}

/// Reads the answer to a call of `ops` operations.
pub(crate) fn decode(mut bytes: &[u8], ops: usize) -> Result<(Reply, Level), Malformed> {
    let [
        now,
        born,
        n,
        inside,
        claimed,
        owed,
        waiting,
        more,
        cfg,
        capacity,
        count,
        per_s,
        paused,
        _,
    ] = numbers(&mut bytes)?;
    let mut answers = Vec::with_capacity(ops);
    for _ in 0..ops {
        answers.push(answer(&mut bytes)?);
    }
    if !bytes.is_empty() {
        return Err(Malformed);
    }
    let reply = Reply {
        now_ms: now as u64,
        born_ms: born as u64,
        n: n as u64,
        inside: inside as u64,
        claimed: claimed as u64,
        owed: owed as u64,
        waiting: waiting as u64,
        cfg: cfg as u64,
        more: more != 0.0,
        answers,
    };
    let rate = (per_s > 0.0).then_some(Rate { count, per_s });
    let level =
        Level { version: cfg as u64, capacity: capacity as u64, rate, paused: paused != 0.0 };
    Ok((reply, level))
}

fn answer(bytes: &mut &[u8]) -> Result<Answer, Malformed> {
    let (kind, rest) = bytes.split_first().ok_or(Malformed)?;
    *bytes = rest;
    Ok(match kind {
        b'a' => {
            let [issued, expires, joined] = numbers(bytes)?;
            Answer::Admitted {
                issued_ms: issued as u64,
                expires_ms: expires as u64,
                joined: joined != 0.0,
            }
        }
        b'w' => {
            let [now, rank, issued, eta, poll, ticket, joined, hidden] = numbers(bytes)?;
            let hidden = hidden != 0.0;
            Answer::Waiting(Waiting {
                rank: (!hidden).then_some(rank as u64),
                eta_ms: (eta >= 0.0).then_some(eta as u64),
                poll_ms: poll as u64,
                issued_ms: issued as u64,
                ticket: if hidden { Ticket::Lottery } else { Ticket::Number(ticket as u64) },
                due_ms: (now + poll) as u64,
                joined: joined != 0.0,
            })
        }
        b'y' => Answer::Ready,
        b'f' => Answer::Full,
        b'c' => Answer::Closed,
        b'o' => {
            let [opens] = numbers(bytes)?;
            Answer::NotOpen { opens_at_ms: opens as u64 }
        }
        b'g' => Answer::Gone,
        b'd' => Answer::Done,
        b's' => Answer::Stats(stats(bytes)?),
        _ => return Err(Malformed),
    })
}

fn stats(bytes: &mut &[u8]) -> Result<Stats, Malformed> {
    let [inside, claimed, waiting, capacity, paused, owed, admitted, abandoned, per_s, waits, sum] =
        numbers(bytes)?;
    let buckets: [f64; WAIT_BUCKETS_S.len() + 1] = numbers(bytes)?;
    Ok(Stats {
        inside: inside as u64,
        claimed: claimed as u64,
        waiting: waiting as u64,
        capacity: capacity as u64,
        paused: paused != 0.0,
        owed: owed as u64,
        admitted: admitted as u64,
        abandoned: abandoned as u64,
        per_s: (per_s >= 0.0).then_some(per_s),
        waits: waits as u64,
        wait_sum_ms: sum as u64,
        wait_buckets: buckets.map(|n| n as u64),
    })
}

fn numbers<const N: usize>(bytes: &mut &[u8]) -> Result<[f64; N], Malformed> {
    let (head, rest) = bytes.split_at_checked(8 * N).ok_or(Malformed)?;
    *bytes = rest;
    let mut numbers = [0.0; N];
    for (number, chunk) in numbers.iter_mut().zip(head.chunks_exact(8)) {
        *number = f64::from_le_bytes(chunk.try_into().map_err(|_| Malformed)?);
    }
    Ok(numbers)
}
