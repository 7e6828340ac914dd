//! Echo servers for stream hosts.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::UdpSocket;

use crate::server::{ServerThread, anywhere};

/// Sends back each byte of a TCP connection.
#[derive(Debug)]
pub struct TcpEcho(ServerThread);

impl TcpEcho {
    pub fn start() -> Self {
        Self(ServerThread::listen(anywhere(), |listener| async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    if tokio::io::copy(&mut read, &mut write).await.is_ok() {
                        let _ = write.shutdown().await;
                    }
                });
            }
        }))
    }

    pub fn addr(&self) -> SocketAddr {
        self.0.addr()
    }
}

/// Sends back each UDP datagram.
#[derive(Debug)]
pub struct UdpEcho(ServerThread);

impl UdpEcho {
    pub fn start() -> Self {
        let socket = std::net::UdpSocket::bind(anywhere()).expect("a UDP port");
        socket.set_nonblocking(true).expect("a non-blocking socket");
        let addr = socket.local_addr().expect("the address of a socket");
        Self(ServerThread::spawn(addr, move || async move {
            let socket = UdpSocket::from_std(socket).expect("a socket for tokio");
            let mut buffer = vec![0; 65_536];
            while let Ok((n, peer)) = socket.recv_from(&mut buffer).await {
                // A peer that is gone is told by ICMP; the next datagram still counts.
                let _ = socket.send_to(&buffer[..n], peer).await;
            }
        }))
    }

    pub fn addr(&self) -> SocketAddr {
        self.0.addr()
    }
}
