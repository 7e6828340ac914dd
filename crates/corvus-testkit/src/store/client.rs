//! A blocking client of a store.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;

use super::resp::{self, Resp};
use crate::PATIENCE;

/// Commands that a pipeline sends before it reads: enough to hide the way there and back, and few
/// enough that their replies fit into the sockets' buffers.
const BATCH: usize = 256;

/// One connection. Every step has a deadline of [`PATIENCE`] unless it is changed.
#[derive(Debug)]
pub struct StoreClient {
    stream: BufReader<Stream>,
    unsent: Vec<u8>,
}

impl StoreClient {
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        Ok(Self::new(Stream::Plain(connect(addr, PATIENCE)?)))
    }

    /// As [`StoreClient::connect`], with another deadline for the connect and each later step.
    pub fn connect_within(addr: SocketAddr, patience: Duration) -> io::Result<Self> {
        Ok(Self::new(Stream::Plain(connect(addr, patience)?)))
    }

    /// With TLS. The handshake is over when this returns.
    pub fn connect_tls(
        addr: SocketAddr,
        config: Arc<ClientConfig>,
        patience: Duration,
    ) -> io::Result<Self> {
        let name = ServerName::from(addr.ip());
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut tls = Box::new(StreamOwned::new(connection, connect(addr, patience)?));
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(Self::new(Stream::Tls(tls)))
    }

    fn new(stream: Stream) -> Self {
        Self { stream: BufReader::new(stream), unsent: Vec::new() }
    }

    /// How long each later step may take; `None` is for ever.
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        let socket = self.socket();
        socket.set_read_timeout(patience)?;
        socket.set_write_timeout(patience)
    }

    pub(super) fn socket(&self) -> &TcpStream {
        match self.stream.get_ref() {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &tls.sock,
        }
    }

    /// Sends one command and reads its reply. An error reply is a reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> io::Result<Resp> {
        self.send(command)?;
        self.read()
    }

    /// Sends many commands and reads their replies, in the same order.
    pub fn pipeline<C, A>(&mut self, commands: &[C]) -> io::Result<Vec<Resp>>
    where
        C: AsRef<[A]>,
        A: AsRef<[u8]>,
    {
        let mut replies = Vec::with_capacity(commands.len());
        for batch in commands.chunks(BATCH) {
            for command in batch {
                self.queue(command.as_ref())?;
            }
            self.flush()?;
            for _ in batch {
                replies.push(self.read()?);
            }
        }
        Ok(replies)
    }

    /// Sends one command, and leaves its reply to [`StoreClient::read`].
    pub fn send<A: AsRef<[u8]>>(&mut self, command: &[A]) -> io::Result<()> {
        self.queue(command)?;
        self.flush()
    }

    fn queue<A: AsRef<[u8]>>(&mut self, command: &[A]) -> io::Result<()> {
        resp::write(&mut self.unsent, command)
    }

    fn flush(&mut self) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        let stream = self.stream.get_mut();
        stream.write_all(&unsent)?;
        stream.flush()
    }

    /// The next reply.
    pub fn read(&mut self) -> io::Result<Resp> {
        resp::read(&mut self.stream)
    }
}

fn connect(addr: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&addr, patience)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    Ok(socket)
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(tls) => tls.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}
