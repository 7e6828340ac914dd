//! A TCP proxy in front of an origin or a store that breaks what passes, on command.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::server::{ServerThread, anywhere};

/// What a [`ChaosProxy`] does to connections, open ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forward.
    Pass,
    /// Reset what is open, refuse what comes: the peer's process has died.
    Cut,
    /// Hold each piece back for this long, in both directions.
    Slow(Duration),
    /// Accept, keep open, forward nothing: the peer's host has lost its cable. What was held back
    /// goes on with [`Mode::Pass`].
    HalfOpen,
    /// As [`Mode::HalfOpen`] for what is open, and refuse what comes: the peer came back elsewhere,
    /// and nobody told the connections.
    Abandoned,
    /// What clients say arrives, and no answer comes back until [`Mode::Pass`]. With [`Mode::Cut`]
    /// after it the answers are lost, and what was asked for has happened.
    Mute,
}

impl Mode {
    fn listens(self) -> bool {
        !matches!(self, Self::Cut | Self::Abandoned)
    }

    /// Whether bytes in this direction wait.
    fn holds(self, direction: Direction) -> bool {
        match self {
            // What was held back when the line is cut never arrives.
            Self::HalfOpen | Self::Abandoned | Self::Cut => true,
            Self::Mute => direction == Direction::Down,
            Self::Pass | Self::Slow(_) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From the client.
    Up,
    /// To the client.
    Down,
}

/// A TCP proxy on 127.0.0.1 with a [`Mode`].
#[derive(Debug)]
pub struct ChaosProxy {
    server: ServerThread,
    mode: watch::Sender<Mode>,
    applied: std::sync::mpsc::Receiver<Mode>,
    open: watch::Receiver<usize>,
    /// Bound and never listening: keeps the port ours while a cut proxy refuses connections.
    _port: Socket,
}

impl ChaosProxy {
    /// Starts in front of `target`, passing.
    pub fn start(target: SocketAddr) -> Self {
        let port = bind(anywhere()).expect("a port for the proxy");
        let addr = port.local_addr().ok().and_then(|a| a.as_socket()).expect("a bound address");
        let (mode, watching) = watch::channel(Mode::Pass);
        let (tell, applied) = std::sync::mpsc::sync_channel(1);
        let (count, open) = watch::channel(0);
        let server = ServerThread::spawn(addr, move || async move {
            let proxy = Proxy { addr, target, mode: watching, open: count };
            if let Err(error) = proxy.run(&tell).await {
                panic!("the proxy on {addr} failed: {error}");
            }
        });
        let proxy = Self { server, mode, applied, open, _port: port };
        proxy.await_applied(Mode::Pass);
        proxy
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Changes the mode. When this returns the listener has followed: after [`Mode::Cut`] and
    /// [`Mode::Abandoned`] connects are refused, after the others they are accepted. After a cut no
    /// connection is left.
    pub fn set(&self, mode: Mode) {
        if *self.mode.borrow() != mode {
            self.mode.send_replace(mode);
            self.await_applied(mode);
        }
    }

    pub fn cut(&self) {
        self.set(Mode::Cut);
    }

    pub fn slow(&self, delay: Duration) {
        self.set(Mode::Slow(delay));
    }

    pub fn half_open(&self) {
        self.set(Mode::HalfOpen);
    }

    pub fn abandon(&self) {
        self.set(Mode::Abandoned);
    }

    pub fn mute(&self) {
        self.set(Mode::Mute);
    }

    /// Back to [`Mode::Pass`].
    pub fn resume(&self) {
        self.set(Mode::Pass);
    }

    /// How many connections are open through the proxy.
    pub fn open_connections(&self) -> usize {
        *self.open.borrow()
    }

    fn await_applied(&self, mode: Mode) {
        let applied = self.applied.recv_timeout(crate::PATIENCE).expect("the proxy has stopped");
        assert_eq!(applied, mode, "one change at a time");
    }
}

/// A socket that shares its port with others of ours, so that listeners can come and go on it.
fn bind(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

struct Proxy {
    addr: SocketAddr,
    target: SocketAddr,
    mode: watch::Receiver<Mode>,
    open: watch::Sender<usize>,
}

impl Proxy {
    async fn run(mut self, applied: &std::sync::mpsc::SyncSender<Mode>) -> io::Result<()> {
        loop {
            let mode = *self.mode.borrow_and_update();
            let listener = if mode.listens() {
                let socket = bind(self.addr)?;
                socket.listen(1024)?;
                Some(TcpListener::from_std(socket.into())?)
            } else {
                None
            };
            if mode == Mode::Cut {
                // Or a quick change back would spare those that had not seen it.
                let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
            }
            if applied.send(mode).is_err() {
                return Ok(());
            }
            loop {
                let accept = async {
                    match &listener {
                        Some(listener) => listener.accept().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    accepted = accept => self.connect(accepted?.0),
                    changed = self.mode.changed() => {
                        if changed.is_err() {
                            return Ok(());
                        }
                        let listens = self.mode.borrow().listens();
                        if listener.is_none() || !listens {
                            break;
                        }
                        // The listener stays, so that no connection in its backlog is lost.
                        let mode = *self.mode.borrow_and_update();
                        if applied.send(mode).is_err() {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    fn connect(&self, client: TcpStream) {
        let (target, mode, open) = (self.target, self.mode.clone(), self.open.clone());
        let mut cut = mode.clone();
        open.send_modify(|n| *n += 1);
        // With zero linger, closing is a reset: whatever ends a connection before its time, one side
        // reaches the other as it was.
        let _ = client.set_zero_linger();
        tokio::spawn(async move {
            // The ends of connections are what these tests are about: an error is one of them.
            tokio::select! {
                biased;
                _ = cut.wait_for(|m| *m == Mode::Cut) => {}
                _ = forward(client, target, mode) => {}
            }
            open.send_modify(|n| *n -= 1);
        });
    }
}

async fn forward(
    mut client: TcpStream,
    target: SocketAddr,
    mut mode: watch::Receiver<Mode>,
) -> io::Result<()> {
    let _ = mode.wait_for(|m| !m.holds(Direction::Up)).await;
    let mut server = TcpStream::connect(target).await?;
    server.set_zero_linger()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    tokio::try_join!(
        copy(client_read, server_write, mode.clone(), Direction::Up),
        copy(server_read, client_write, mode, Direction::Down)
    )?;
    SockRef::from(&client).set_linger(None)?;
    SockRef::from(&server).set_linger(None)
}

async fn copy(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut mode: watch::Receiver<Mode>,
    direction: Direction,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await;
        let now = *mode.borrow();
        if let Mode::Slow(delay) = now {
            tokio::time::sleep(delay).await;
        }
        if mode.wait_for(|m| !m.holds(direction)).await.is_err() {
            return Ok(());
        }
        // Only now: a reset does not pass a cut cable either.
        let n = read?;
        if n == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..n]).await?;
    }
}
