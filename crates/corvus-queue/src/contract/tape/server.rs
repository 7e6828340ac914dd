//! The servers that tapes are played to: one for each test, ended with its thread.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Resp {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Resp>),
}

pub(crate) struct StoreClient {
    out: Vec<u8>,
    stream: TcpStream,
    input: BufReader<TcpStream>,
    queued: usize,
}
impl StoreClient {
    pub(crate) fn connect(addr: &str) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        Self {
            out: vec![],
            input: BufReader::with_capacity(1 << 16, stream.try_clone().unwrap()),
            stream,
            queued: 0,
        }
    }
    pub(crate) fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        write!(self.out, "*{}\r\n", args.len()).unwrap();
        for a in args {
            let a = a.as_ref();
            write!(self.out, "${}\r\n", a.len()).unwrap();
            self.out.extend_from_slice(a);
            self.out.extend_from_slice(b"\r\n");
        }
    }
    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Resp {
        self.send(args);
        self.read()
    }
    pub(crate) fn read(&mut self) -> Resp {
        if !self.out.is_empty() {
            let out = std::mem::take(&mut self.out);
            let mut s = self.stream.try_clone().unwrap();
            std::thread::spawn(move || s.write_all(&out).unwrap());
        }
        self.one()
    }
    fn one(&mut self) -> Resp {
        let mut line = String::new();
        self.input.read_line(&mut line).unwrap();
        let rest = line[1..].trim_end().to_string();
        match line.as_bytes()[0] {
            b'+' => Resp::Simple(rest),
            b'-' => Resp::Error(rest),
            b':' => Resp::Int(rest.parse().unwrap()),
            b'$' => {
                let n: i64 = rest.parse().unwrap();
                if n < 0 {
                    return Resp::Nil;
                }
                let mut b = vec![0; n as usize + 2];
                self.input.read_exact(&mut b).unwrap();
                b.truncate(n as usize);
                Resp::Bulk(b)
            }
            b'*' => {
                let n: i64 = rest.parse().unwrap();
                if n < 0 {
                    return Resp::Nil;
                }
                (0..n).map(|_| self.one()).collect::<Vec<_>>().into()
            }
            _ => panic!("{line}"),
        }
    }
}
impl From<Vec<Resp>> for Resp {
    fn from(v: Vec<Resp>) -> Self {
        Resp::Array(v)
    }
}
pub(crate) trait Kind {
    fn with(play: impl FnOnce(&mut StoreClient));
}
pub(crate) struct Valkey;
pub(crate) struct Redis;
impl Kind for Valkey {
    fn with(play: impl FnOnce(&mut StoreClient)) {
        play(&mut StoreClient::connect("127.0.0.1:7101"))
    }
}
impl Kind for Redis {
    fn with(play: impl FnOnce(&mut StoreClient)) {
        play(&mut StoreClient::connect("127.0.0.1:7102"))
    }
}
