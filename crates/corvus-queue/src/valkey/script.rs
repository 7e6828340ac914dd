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

/// 2^53: from here on doubles leave integers out.
const LIMIT: f64 = 9_007_199_254_740_992.0;

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
pub(crate) fn names(queue: &Id) -> [String; 6] {
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
    let [now, born, n, inside] = numbers(&mut bytes)?;
    let claimed = difference(&mut bytes)?;
    let [owed, waiting, more, cfg, capacity, count, per_s, paused, _] = numbers(&mut bytes)?;
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
            let [now, rank, issued] = numbers(bytes)?;
            let eta = optional(bytes)?;
            let [poll, ticket, joined, hidden] = numbers(bytes)?;
            let hidden = hidden != 0.0;
            Answer::Waiting(Waiting {
                rank: (!hidden).then_some(rank as u64),
                eta_ms: eta.map(|eta| eta as u64),
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
    let [inside] = numbers(bytes)?;
    let claimed = difference(bytes)?;
    let [waiting, capacity, paused, owed, admitted, abandoned] = numbers(bytes)?;
    let per_s = optional(bytes)?;
    let [waits, sum] = numbers(bytes)?;
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
        per_s,
        waits: waits as u64,
        wait_sum_ms: sum as u64,
        wait_buckets: buckets.map(|n| n as u64),
    })
}

/// None is negative, and each is below [`LIMIT`]: anything else would turn into another number, or
/// stay in a level for good.
fn numbers<const N: usize>(bytes: &mut &[u8]) -> Result<[f64; N], Malformed> {
    let mut numbers = [0.0; N];
    for number in &mut numbers {
        *number = sound(bytes)?;
        if *number < 0.0 {
            return Err(Malformed);
        }
    }
    Ok(numbers)
}

/// A number for which -1 says that there is none.
fn optional(bytes: &mut &[u8]) -> Result<Option<f64>, Malformed> {
    match sound(bytes)? {
        -1.0 => Ok(None),
        number if number >= 0.0 => Ok(Some(number)),
        _ => Err(Malformed),
    }
}

/// What one count is above another: below zero where a store lost the key of the one and not of
/// the other, and then as good as zero.
fn difference(bytes: &mut &[u8]) -> Result<f64, Malformed> {
    Ok(sound(bytes)?.max(0.0))
}

fn sound(bytes: &mut &[u8]) -> Result<f64, Malformed> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    let number = f64::from_le_bytes(*number);
    // Neither for infinities nor for what is no number.
    if number.abs() < LIMIT { Ok(number) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 14;
    const CLAIMED: usize = 4;

    fn packed(numbers: &[f64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// The header with `bad` in one place, then one answer.
    fn with_header(place: usize, bad: f64, answer: &[u8]) -> Result<(Reply, Level), Malformed> {
        let mut header = [1.0; HEADER];
        header[place] = bad;
        decode(&[&packed(&header), answer].concat(), 1)
    }

    #[test]
    fn numbers_that_the_script_never_says_are_refused() {
        let most = LIMIT - 1.0;
        for bad in [-1.0, -0.5, 1e300, LIMIT, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            for place in (0..HEADER).filter(|place| *place != CLAIMED) {
                assert!(with_header(place, most, b"d").is_ok());
                assert_eq!(with_header(place, bad, b"d"), Err(Malformed), "{bad} at {place}");
            }
            for (kind, len, eta) in [(b'a', 3, None), (b'w', 8, Some(3)), (b'o', 1, None)] {
                let means_none = |place| Some(place) == eta && (bad + 1.0).abs() < 0.1;
                for place in (0..len).filter(|place| !means_none(*place)) {
                    let mut numbers = vec![most / 2.0; len];
                    numbers[place] = bad;
                    let answer = [&[kind][..], &packed(&numbers)].concat();
                    assert_eq!(with_header(0, 1.0, &answer), Err(Malformed), "{bad} at {place}");
                }
            }
        }
    }

    #[test]
    fn a_difference_may_be_below_zero() {
        for (said, read) in [(-3.0, Ok(0)), (3.0, Ok(3)), (f64::NAN, Err(Malformed))] {
            let reply = with_header(CLAIMED, said, b"d");
            assert_eq!(reply.map(|(reply, _)| reply.claimed), read, "{said}");
        }
        assert_eq!(with_header(CLAIMED, -LIMIT, b"d"), Err(Malformed));
    }

    #[test]
    fn what_is_not_known_is_none() {
        let waiting = [5.0, 2.0, 5.0, -1.0, 1_000.0, 7.0, 1.0, 0.0];
        let (reply, _) = with_header(0, 1.0, &[b"w", &packed(&waiting)[..]].concat()).unwrap();
        assert!(matches!(reply.answers[..], [Answer::Waiting(w)] if w.eta_ms.is_none()));
        let mut stats = [0.0; 11 + WAIT_BUCKETS_S.len() + 1];
        stats[8] = -1.0;
        let (reply, _) = with_header(0, 1.0, &[b"s", &packed(&stats)[..]].concat()).unwrap();
        assert!(matches!(reply.answers[..], [Answer::Stats(s)] if s.per_s.is_none()));
    }
}
