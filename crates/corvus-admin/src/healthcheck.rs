//! `corvus healthcheck`: asks the console of a running gateway how it is.

use std::{io, net::SocketAddr, time::Duration};

use corvus_tls::{Verify, client_config};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

const LIMIT: Duration = Duration::from_secs(5);

/// Why the gateway is not known to be well.
#[derive(Debug, thiserror::Error)]
pub enum Unhealthy {
    #[error("nobody answers on {0}")]
    Unreachable(SocketAddr, #[source] io::Error),
    #[error("{0} gave no answer within 5 seconds")]
    Silent(SocketAddr),
    #[error("{0} answered `{1}`")]
    Answered(SocketAddr, String),
    #[error(transparent)]
    Tls(#[from] corvus_tls::ClientConfigError),
}

/// Asks `/healthz`. The certificate is not checked: it is this machine asking itself.
pub async fn check(console: SocketAddr) -> Result<(), Unhealthy> {
    let config = client_config(Verify::None, &[b"http/1.1"])?;
    let answer = async {
        let tcp = TcpStream::connect(console).await?;
        let name = ServerName::IpAddress(console.ip().into());
        let mut tls = TlsConnector::from(config).connect(name, tcp).await?;
        tls.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .await?;
        let mut head = [0; 12];
        tls.read_exact(&mut head).await?;
        Ok::<_, io::Error>(head)
    };
    match tokio::time::timeout(LIMIT, answer).await {
        Err(_) => Err(Unhealthy::Silent(console)),
        Ok(Err(error)) => Err(Unhealthy::Unreachable(console, error)),
        Ok(Ok(head)) if head.ends_with(b" 200") => Ok(()),
        Ok(Ok(head)) => {
            Err(Unhealthy::Answered(console, String::from_utf8_lossy(&head).into_owned()))
        }
    }
}
