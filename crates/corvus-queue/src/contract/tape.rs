//! The contract on a real server: [`Taped`] answers from the room and the model, keeps a tape of
//! what was asked and answered, and plays it to the server when the trace is over, all at once.
//! Every answer, and after each command the whole state, must be the same: a law that holds for the
//! one holds for the other.

mod server;

use std::{cell::RefCell, fmt::Write as _, marker::PhantomData, rc::Rc, sync::Arc};

use corvus_config::snapshot::QueueSettings;
use corvus_core::{Id, token::Sid};
use corvus_testkit::store::{Resp, StoreClient};

use super::{DRAW_KEY, Pair, Peek, Store, worth_a_look};
use crate::{
    op::{Caller, Op, Reply},
    room::Draw,
    valkey::{
        Level,
        script::{self, Call},
    },
};

pub(crate) use self::server::{Cluster, Kind, Redis, Valkey};

/// Which state on the server: 0 is the trace's own, the others are copies of it.
type Copy = usize;

enum Entry {
    Call { on: Copy, now: u64, args: Vec<Vec<u8>>, ops: Vec<Op>, expected: Reply },
    State { on: Copy, now: u64, expected: Peek },
    Wipe { on: Copy },
    Copy { from: Copy, to: Copy },
}

struct Tape<K: Kind> {
    entries: Vec<Entry>,
    copies: usize,
    kind: PhantomData<K>,
}

/// Room and model, with a tape for the server.
pub(crate) struct Taped<K: Kind> {
    pair: Pair,
    settings: Arc<QueueSettings>,
    draw: Draw,
    on: Copy,
    tape: Rc<RefCell<Tape<K>>>,
}

impl<K: Kind> Taped<K> {
    fn record(&self, entry: Entry) {
        self.tape.borrow_mut().entries.push(entry);
    }
}

impl<K: Kind> Store for Taped<K> {
    fn open(settings: &QueueSettings) -> Self {
        let mut draw = Draw::new(DRAW_KEY);
        draw.follow(&settings.schedule);
        let tape = Tape { entries: vec![Entry::Wipe { on: 0 }], copies: 1, kind: PhantomData };
        Self {
            pair: Pair::open(settings),
            settings: Arc::new(settings.clone()),
            draw,
            on: 0,
            tape: Rc::new(RefCell::new(tape)),
        }
    }

    fn call(&mut self, now: u64, caller: Caller, ops: &[Op]) -> Reply {
        let expected = self.pair.call(now, caller, ops);
        let level = Level::of(&self.settings, expected.cfg);
        let (settings, draw) = (&self.settings, &self.draw);
        let args = Call { now: Some(now), caller, level: &level, settings, draw, ops }.args();
        let (on, ops) = (self.on, ops.to_vec());
        let any = !ops.is_empty() && worth_a_look(&expected);
        self.record(Entry::Call { on, now, args, ops, expected: expected.clone() });
        if any {
            let expected = self.pair.peek(now);
            self.record(Entry::State { on, now, expected });
        }
        expected
    }

    fn configure(&mut self, now: u64, settings: QueueSettings) {
        self.draw.follow(&settings.schedule);
        self.settings = Arc::new(settings.clone());
        self.pair.configure(now, settings);
    }

    fn wipe(&mut self) {
        self.pair.wipe();
        self.record(Entry::Wipe { on: self.on });
    }

    fn copy(&self) -> Self {
        let mut tape = self.tape.borrow_mut();
        let to = tape.copies;
        tape.copies += 1;
        tape.entries.push(Entry::Copy { from: self.on, to });
        Self {
            pair: self.pair.copy(),
            settings: Arc::clone(&self.settings),
            draw: self.draw.clone(),
            on: to,
            tape: Rc::clone(&self.tape),
        }
    }

    fn peek(&mut self, now: u64) -> Peek {
        self.pair.peek(now)
    }
}

impl<K: Kind> Drop for Tape<K> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            K::with(|client| self.play(client));
        }
    }
}

/// The keys of a copy; in the same slot of a Cluster as the true ones.
fn keys(on: Copy) -> Vec<String> {
    let id = Id::new("drop").unwrap();
    let keys = script::names(&id);
    keys.map(|key| if on == 0 { key } else { format!("{key}:{on}") }).to_vec()
}

impl<K: Kind> Tape<K> {
    fn play(&self, client: &mut StoreClient) {
        let source = format!("#!lua\n{}", script::WAITROOM);
        let Resp::Bulk(sha) = client.call(&["SCRIPT", "LOAD", &source]).unwrap() else {
            panic!("the server does not take the script");
        };
        let commands: Vec<_> = self.entries.iter().flat_map(|entry| entry.commands(&sha)).collect();
        let mut replies = client.pipeline(&commands).unwrap().into_iter();
        for (i, entry) in self.entries.iter().enumerate() {
            let count = entry.commands(&sha).len();
            let got: Vec<Resp> = replies.by_ref().take(count).collect();
            if let Err(difference) = entry.check(&got) {
                panic!("{difference}\nat the end of:\n{}", self.story(i));
            }
        }
        for copy in 0..self.copies {
            client.call(&delete(copy)).unwrap();
        }
    }

    /// The last entries up to `end`, for a failure.
    fn story(&self, end: usize) -> String {
        let mut text = String::new();
        for entry in &self.entries[end.saturating_sub(12)..=end] {
            let _ = match entry {
                Entry::Call { on, now, ops, expected, .. } => {
                    writeln!(text, "{on} at {now}: {ops:?}\n    -> {expected:?}")
                }
                Entry::State { on, expected, .. } => writeln!(text, "{on}: {expected:?}"),
                Entry::Wipe { on } => writeln!(text, "{on}: wiped"),
                Entry::Copy { from, to } => writeln!(text, "{from} copied to {to}"),
            };
        }
        text
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<Vec<u8>> {
    words.map(|word| word.as_bytes().to_vec()).to_vec()
}

fn delete(on: Copy) -> Vec<Vec<u8>> {
    let mut del = words(["DEL"]);
    del.extend(keys(on).into_iter().map(String::into_bytes));
    del
}

impl Entry {
    fn commands(&self, sha: &[u8]) -> Vec<Vec<Vec<u8>>> {
        match self {
            Self::Call { on, args, .. } => {
                let mut command = vec![b"EVALSHA".to_vec(), sha.to_vec(), b"6".to_vec()];
                command.extend(keys(*on).into_iter().map(String::into_bytes));
                command.extend(args.iter().cloned());
                vec![command]
            }
            Self::State { on, .. } => {
                let [active, queue, seen, _, rate, spent] = &keys(*on)[..] else { unreachable!() };
                let all = |key: &str| words(["ZRANGE", key, "0", "-1", "WITHSCORES"]);
                let fields =
                    ["owed", "owed_until", "resumed_at", "admitted", "abandoned", "granted"];
                let mut vars = words(["HMGET", rate]);
                vars.extend(words(fields));
                vec![all(active), all(queue), all(seen), all(spent), vars]
            }
            Self::Wipe { on } => vec![delete(*on)],
            Self::Copy { from, to } => {
                let pairs = keys(*from).into_iter().zip(keys(*to));
                let copies = pairs.map(|(from, to)| words(["COPY", &from, &to]));
                std::iter::once(delete(*to)).chain(copies).collect()
            }
        }
    }

    fn check(&self, got: &[Resp]) -> Result<(), String> {
        match self {
            Self::Call { ops, expected, .. } => {
                let Resp::Bulk(bytes) = &got[0] else { return Err(format!("{:?}", got[0])) };
                let (reply, _) = script::decode(bytes, ops.len()).map_err(|e| e.to_string())?;
                same(&reply, expected)
            }
            Self::State { now, expected, .. } => same(&state(*now, got, expected.free), expected),
            Self::Wipe { .. } | Self::Copy { .. } => match &got[0] {
                Resp::Int(_) => Ok(()),
                other => Err(format!("{other:?}")),
            },
        }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(got: &T, expected: &T) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("server: {got:?}\n room: {expected:?}")) }
}

/// The state in the replies to [`Entry::State`]. `free` is derived, not kept, so it is not compared.
fn state(now: u64, got: &[Resp], free: u64) -> Peek {
    let mut peek = Peek { free, ..Peek::default() };
    let scores = |resp: &Resp| -> Vec<(String, u64)> {
        let Resp::Array(items) = resp else { panic!("{resp:?}") };
        let text = |resp: &Resp| match resp {
            Resp::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("{other:?}"),
        };
        let pair = |pair: &[Resp]| (text(&pair[0]), text(&pair[1]).parse::<f64>().unwrap() as u64);
        items.chunks(2).map(pair).collect()
    };
    let sid = |text: &str| Sid::parse(text).unwrap_or_else(|| panic!("{text}"));
    for (set, resp) in [&mut peek.active, &mut peek.queue, &mut peek.seen].into_iter().zip(got) {
        *set = scores(resp).into_iter().map(|(text, score)| (sid(&text), score)).collect();
    }
    for (text, at) in scores(&got[3]) {
        match text.split_once(':') {
            Some(("u", text)) => peek.used.insert(sid(text), at),
            Some(("l", text)) => peek.left.insert(sid(text), at),
            _ => panic!("{text}"),
        };
    }
    let Resp::Array(vars) = &got[4] else { panic!("{:?}", got[4]) };
    let var = |i: usize| match &vars[i] {
        Resp::Bulk(bytes) => std::str::from_utf8(bytes).unwrap().parse::<f64>().unwrap() as u64,
        Resp::Nil => 0,
        other => panic!("{other:?}"),
    };
    peek.owed = if now < var(1) { var(0) } else { 0 };
    (peek.resumed_at, peek.admitted, peek.abandoned) = (var(2), var(3), var(4));
    let granted = peek.active.keys().filter(|sid| peek.seen.contains_key(*sid)).count();
    assert_eq!(var(5), granted as u64, "the count of grants");
    peek
}
