//! A WebSocket client, and the echo behind the origin's `/ws`.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::WebSocketStream;
pub use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::headers::Headers;
use crate::patiently;
use crate::raw_client::{RawClient, RawResponse, ResponseHead};
use crate::wire::{IoStream, Wire, bad};

/// An open WebSocket.
pub struct WebSocket {
    stream: WebSocketStream<IoStream>,
    handshake: ResponseHead,
}

impl WebSocket {
    /// Connects without TLS. An answer other than 101 is an error that names the status.
    pub async fn connect(
        addr: SocketAddr,
        host: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> io::Result<Self> {
        let client = RawClient::connect(addr).await?;
        match Self::upgrade(client, host, path, fields).await? {
            Ok(socket) => Ok(socket),
            Err(refused) => Err(io::Error::other(format!(
                "no upgrade but {} {}: {}",
                refused.status,
                refused.reason,
                refused.text()
            ))),
        }
    }

    /// Upgrades a connection (plain or TLS); an answer other than 101 is the inner `Err`.
    pub async fn upgrade(
        mut client: RawClient,
        host: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> io::Result<Result<Self, RawResponse>> {
        let key = generate_key();
        let mut all = vec![
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", key.as_str()),
        ];
        all.extend_from_slice(fields);
        let response = client.get(host, path, &all).await?;
        if response.status != 101 {
            return Ok(Err(response));
        }
        let accept = response.headers.get("sec-websocket-accept");
        if accept != Some(derive_accept_key(key.as_bytes()).as_str()) {
            return Err(bad(format!("a wrong Sec-WebSocket-Accept: {accept:?}")));
        }
        let (stream, rest) = client.into_parts();
        let stream =
            WebSocketStream::from_partially_read(stream, rest.to_vec(), Role::Client, None).await;
        Ok(Ok(Self { stream, handshake: response.head }))
    }

    /// The 101 response.
    pub fn handshake(&self) -> &ResponseHead {
        &self.handshake
    }

    pub async fn send(&mut self, message: Message) -> io::Result<()> {
        patiently("send a message", async {
            self.stream.send(message).await.map_err(io::Error::other)
        })
        .await
    }

    /// The next message; `None` once the peer has closed properly.
    pub async fn receive(&mut self) -> io::Result<Option<Message>> {
        patiently("a message", async {
            self.stream.next().await.transpose().map_err(io::Error::other)
        })
        .await
    }

    /// Sends a text and returns the text that comes back.
    pub async fn echo(&mut self, text: &str) -> io::Result<String> {
        self.send(Message::text(text)).await?;
        match self.receive().await? {
            Some(Message::Text(text)) => Ok(text.as_str().to_owned()),
            other => Err(bad(format!("not a text: {other:?}"))),
        }
    }

    /// Sends a close frame and waits for the peer's.
    pub async fn close(mut self) -> io::Result<()> {
        self.send(Message::Close(None)).await?;
        while self.receive().await?.is_some() {}
        Ok(())
    }
}

/// Takes the upgrade and echoes until the client closes.
pub(crate) async fn serve_echo(mut wire: Wire, headers: &Headers) -> io::Result<()> {
    let Some(key) = headers.get("sec-websocket-key") else {
        return wire.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    };
    let accept = derive_accept_key(key.as_bytes());
    let mut head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n"
    );
    if let Some(offered) = headers.get("sec-websocket-protocol") {
        let taken = offered.split(',').next().unwrap_or_default().trim();
        // Writing to a String cannot fail.
        let _ = write!(head, "Sec-WebSocket-Protocol: {taken}\r\n");
    }
    head.push_str("\r\n");
    wire.write(head.as_bytes()).await?;
    let (stream, rest) = (wire.stream, wire.buffer.to_vec());
    let mut socket = WebSocketStream::from_partially_read(stream, rest, Role::Server, None).await;
    while let Some(message) = socket.next().await {
        let message = message.map_err(io::Error::other)?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await.map_err(io::Error::other)?;
        }
    }
    Ok(())
}
