//! The console's address: HTTPS with a self-signed certificate. `/healthz` says that the gateway
//! lives, `/metrics` gives its numbers to Prometheus.

mod tls;

use std::{
    net::{IpAddr, TcpListener},
    sync::Arc,
};

use arc_swap::ArcSwap;
use axum::{
    Router,
    extract::{ConnectInfo, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use corvus_config::Snapshot;
use corvus_monitor::{Monitor, QueueNumbers, render_queues};
use corvus_queue::QueueService;

use corvus_tls::Certificate;
pub use rustls::ServerConfig;

use self::tls::{Peer, TlsListener};

/// What the console reads.
#[derive(Clone)]
pub struct Handles {
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub monitor: Arc<Monitor>,
    pub queues: Arc<QueueService>,
}

/// TLS with the console's certificate.
pub fn server_config(certificate: &Certificate) -> Result<Arc<ServerConfig>, rustls::Error> {
    let resolver = rustls::sign::SingleCertAndKey::from(certificate.certified_key());
    let mut config = Arc::unwrap_or_clone(corvus_tls::server_config(Arc::new(resolver))?);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Serves the console until the runtime ends.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    handles: Handles,
) -> std::io::Result<()> {
    let app = router(handles).into_make_service_with_connect_info::<Peer>();
    axum::serve(TlsListener::new(listener, tls)?, app).await
}

fn router(handles: Handles) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .with_state(handles)
}

/// 200 as long as the control plane runs.
async fn healthz() -> &'static str {
    "ok\n"
}

async fn metrics(
    State(handles): State<Handles>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
) -> Response {
    if !may_read_metrics(peer.ip()) {
        return (StatusCode::FORBIDDEN, "metrics are for loopback only\n").into_response();
    }
    let mut page = String::new();
    handles.monitor.render(&mut page);
    let snapshot = handles.snapshot.load_full();
    let numbers: Vec<_> = snapshot
        .queues
        .iter()
        .map(|queue| {
            let id = &queue.settings.id;
            // None yet from a store that was never reached.
            let stats = handles.queues.stats(id).unwrap_or_default();
            QueueNumbers {
                queue: id.as_str(),
                store_up: handles.queues.store_is_up(id),
                waiting: stats.waiting,
                inside: stats.inside,
                admitted: stats.admitted,
                abandoned: stats.abandoned,
                waited_ms: stats.wait_sum_ms,
            }
        })
        .collect();
    render_queues(&numbers, &mut page);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response()
}

/// Numbers tell what sites there are and how busy they are.
fn may_read_metrics(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_for_loopback() {
        for (peer, may) in
            [("127.0.0.1", true), ("::1", true), ("::ffff:127.0.0.1", true), ("192.0.2.1", false)]
        {
            assert_eq!(may_read_metrics(peer.parse().unwrap()), may, "{peer}");
        }
    }
}
