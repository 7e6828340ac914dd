//! An origin that keeps the exact bytes it was sent and answers from a script.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::patiently;
use crate::server::{ServerThread, anywhere};
use crate::wire::{Body, Framing, Wire, declared_framing, parse_head};

/// What a [`RawOrigin`] does next on a connection. After the last step it closes (FIN).
#[derive(Clone, Debug)]
pub enum Step {
    /// Read up to the empty line that ends a head.
    ReadHead,
    /// Read a head and the body its fields tell (content-length or chunked).
    ReadRequest,
    /// Read this many bytes.
    Read(usize),
    /// Read until the gateway closes its side.
    ReadToEnd,
    /// Send bytes.
    Write(Bytes),
    /// Wait.
    Pause(Duration),
    /// Neither read nor write nor close, for ever.
    Hang,
    /// End our side only; go on with the script.
    FinishSending,
    /// Close with RST instead of FIN.
    Reset,
    /// Begin the script again.
    Again,
}

impl Step {
    /// [`Step::Write`] of anything that is bytes.
    pub fn write(bytes: impl AsRef<[u8]>) -> Self {
        Self::Write(Bytes::copy_from_slice(bytes.as_ref()))
    }
}

/// A scripted TCP server. Connection `n` follows script `n`; later ones follow the last.
#[derive(Debug)]
pub struct RawOrigin {
    server: ServerThread,
    seen: watch::Receiver<Vec<Vec<u8>>>,
}

type Record = Arc<watch::Sender<Vec<Vec<u8>>>>;

impl RawOrigin {
    /// Starts with one script for each connection.
    pub fn start(scripts: Vec<Vec<Step>>) -> Self {
        Self::start_at(anywhere(), scripts)
    }

    /// Starts on an address, for instance that of one that was dropped.
    pub fn start_at(addr: SocketAddr, scripts: Vec<Vec<Step>>) -> Self {
        assert!(scripts.iter().all(|s| !s.is_empty()) && !scripts.is_empty(), "an empty script");
        let (record, seen) = watch::channel(Vec::new());
        let server =
            ServerThread::listen(addr, move |listener| serve(listener, scripts, Arc::new(record)));
        Self { server, seen }
    }

    /// Answers each request on each connection with the same bytes.
    pub fn answering(response: impl AsRef<[u8]>) -> Self {
        Self::start(vec![vec![Step::ReadRequest, Step::write(response), Step::Again]])
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// The bytes read so far, one entry for each connection in the order they came.
    pub fn received(&self) -> Vec<Vec<u8>> {
        self.seen.borrow().clone()
    }

    /// How many connections came.
    pub fn connections(&self) -> usize {
        self.seen.borrow().len()
    }

    /// Waits until what was received satisfies `done`, and returns it.
    pub async fn wait_for(
        &self,
        what: &str,
        mut done: impl FnMut(&[Vec<u8>]) -> bool,
    ) -> io::Result<Vec<Vec<u8>>> {
        let mut seen = self.seen.clone();
        patiently(what, async {
            let found = seen.wait_for(|all| done(all)).await;
            found.map(|all| all.clone()).map_err(|_| io::Error::other("the origin has stopped"))
        })
        .await
    }
}

async fn serve(listener: TcpListener, scripts: Vec<Vec<Step>>, record: Record) {
    let scripts: Vec<Arc<[Step]>> = scripts.into_iter().map(Into::into).collect();
    let mut count = 0;
    while let Ok((stream, _)) = listener.accept().await {
        record.send_modify(|all| all.push(Vec::new()));
        let script = scripts[count.min(scripts.len() - 1)].clone();
        let mut connection = Connection { stream, record: record.clone(), index: count, used: 0 };
        tokio::spawn(async move {
            // A broken connection is part of these tests; what came is in the record.
            let _ = connection.follow(&script).await;
        });
        count += 1;
    }
}

struct Connection {
    stream: TcpStream,
    record: Record,
    index: usize,
    /// How many of the recorded bytes the script has passed.
    used: usize,
}

impl Connection {
    async fn follow(&mut self, script: &[Step]) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let mut next = 0;
        while let Some(step) = script.get(next) {
            next += 1;
            match step {
                Step::ReadHead => drop(self.head().await?),
                Step::ReadRequest => self.request().await?,
                Step::Read(n) => self.need(*n).await?,
                Step::ReadToEnd => while self.fill().await.is_ok() {},
                Step::Write(bytes) => self.stream.write_all(bytes).await?,
                Step::Pause(time) => tokio::time::sleep(*time).await,
                Step::Hang => std::future::pending().await,
                Step::FinishSending => self.stream.shutdown().await?,
                Step::Reset => return self.stream.set_zero_linger(),
                Step::Again => next = 0,
            }
        }
        self.stream.shutdown().await
    }

    /// Reads once into the record.
    async fn fill(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 16 * 1024];
        let n = self.stream.read(&mut buffer).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.record.send_modify(|all| all[self.index].extend_from_slice(&buffer[..n]));
        Ok(())
    }

    fn unused(&self) -> Vec<u8> {
        self.record.borrow()[self.index][self.used..].to_vec()
    }

    async fn need(&mut self, n: usize) -> io::Result<()> {
        while self.record.borrow()[self.index].len() < self.used.saturating_add(n) {
            self.fill().await?;
        }
        self.used += n;
        Ok(())
    }

    async fn head(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let unused = self.unused();
            if let Some(at) = unused.windows(4).position(|w| w == b"\r\n\r\n") {
                self.used += at + 4;
                return Ok(unused[..at + 4].to_vec());
            }
            self.fill().await?;
        }
    }

    async fn request(&mut self) -> io::Result<()> {
        let head = self.head().await?;
        let (_, headers) = parse_head(&head)?;
        match declared_framing(&headers)? {
            Some(Framing::Length(n)) => self.need(usize::try_from(n).unwrap_or(usize::MAX)).await,
            Some(Framing::Chunked) => self.chunks().await,
            _ => Ok(()),
        }
    }

    async fn chunks(&mut self) -> io::Result<()> {
        loop {
            // Parsed again from the start each time: these bodies are short.
            let unused = self.unused();
            let length = unused.len();
            let mut wire =
                Wire::new(Box::new(tokio::io::join(io::Cursor::new(unused), tokio::io::sink())));
            let mut body = Body::new(Framing::Chunked);
            let ended = loop {
                match wire.read_body(&mut body).await {
                    Ok(Some(_)) => {}
                    Ok(None) => break true,
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => break false,
                    Err(e) => return Err(e),
                }
            };
            if ended {
                self.used += length - remaining(wire).await?;
                return Ok(());
            }
            self.fill().await?;
        }
    }
}

/// How many bytes a reader has not used: those in its buffer and those it has not read.
async fn remaining(mut wire: Wire) -> io::Result<usize> {
    while wire.fill().await? > 0 {}
    Ok(wire.buffer.len())
}
