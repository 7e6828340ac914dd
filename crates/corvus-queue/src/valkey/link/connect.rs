//! Opening connections: to one server, to a Cluster, or by way of sentinels.

use std::{io, path::PathBuf, sync::Arc};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisConnectionInfo, RedisError, TlsCertificates, Value,
    aio::MultiplexedConnection,
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
    io::tcp::TcpSettings,
};
use tokio::task::JoinSet;

use super::{CONNECT, DEADLINE, Fault, LinkError, scrub};
use crate::valkey::address::{Address, Layout, Node};

/// How often a Cluster's client sends a request again: it follows a slot that moved, connects again
/// or waits for a replica to take over, for as long as the deadline lets it.
const CLUSTER_RETRIES: u32 = 8;
/// Bounds of its pauses between two of them, ms.
const CLUSTER_PAUSE_MS: (u64, u64) = (10, 100);
/// Requests under way to one server before the next one waits its turn.
const PIPELINE: usize = 1_024;

/// Why a link cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LinkSetupError {
    #[error("cannot read the authorities in {path}: {source}")]
    Ca { path: PathBuf, source: io::Error },
    #[error("the authorities in {path} cannot be used: {text}")]
    CaText { path: PathBuf, text: String },
    #[error("cannot use the address {address}: {text}")]
    Address { address: String, text: String },
}

/// A connection that many requests share.
#[derive(Clone)]
pub(super) enum Conn {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Where connections lead to.
pub(super) struct Target {
    pub(super) address: Address,
    way: Way,
}

enum Way {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
    Sentinel(Arc<Sentinels>),
}

struct Sentinels {
    clients: Vec<(Node, Client)>,
    master: String,
    address: Address,
    login: Login,
}

/// What every connection to a server needs besides its place.
#[derive(Clone)]
struct Login {
    redis: RedisConnectionInfo,
    certificates: Option<TlsCertificates>,
}

impl Target {
    pub(super) fn new(address: Address) -> Result<Self, LinkSetupError> {
        let certificates = certificates(&address)?;
        let login = |user: Option<&str>, password: Option<&str>, db: u16| {
            // Of the two protocols this one tells at once that a connection was closed.
            let mut redis = RedisConnectionInfo::default()
                .set_protocol(ProtocolVersion::RESP3)
                .set_lib_name("corvus", env!("CARGO_PKG_VERSION"))
                .set_db(i64::from(db));
            if let Some(password) = password {
                redis = redis.set_password(password).set_username(user.unwrap_or("default"));
            }
            Login { redis, certificates: certificates.clone() }
        };
        let (user, password) = (address.user.as_deref(), address.password.as_deref());
        let way = match &address.layout {
            Layout::Single { node, db } => {
                login(user, password, *db).client(node).map(|client| Way::Single(Box::new(client)))
            }
            Layout::Cluster { nodes } => {
                login(user, password, 0).cluster(nodes).map(|client| Way::Cluster(Box::new(client)))
            }
            Layout::Sentinel { sentinels, password: own, master, db } => {
                let to_sentinels = login(None, own.as_deref(), 0);
                let clients: Result<Vec<_>, RedisError> = sentinels
                    .iter()
                    .map(|node| Ok((node.clone(), to_sentinels.client(node)?)))
                    .collect();
                clients.map(|clients| {
                    Way::Sentinel(Arc::new(Sentinels {
                        clients,
                        master: master.clone(),
                        address: address.clone(),
                        login: login(user, password, *db),
                    }))
                })
            }
        };
        match (way, &address.ca) {
            (Ok(way), _) => Ok(Self { address, way }),
            (Err(error), Some(path)) => {
                Err(LinkSetupError::CaText { path: path.clone(), text: error.to_string() })
            }
            (Err(error), None) => {
                let text = scrub(&error.to_string(), &address);
                Err(LinkSetupError::Address { address: address.to_string(), text })
            }
        }
    }

    /// `lost` is called when a connection that was made is closed.
    pub(super) async fn connect(
        &self,
        lost: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Result<Conn, LinkError> {
        let explain = |error: RedisError| match Fault::of(&error, &self.address) {
            Fault::Lost(text) => {
                LinkError::Unreachable(format!("cannot connect to {}: {text}", self.address))
            }
            fault => fault.into(),
        };
        match &self.way {
            Way::Single(client) => open(client, lost).await.map(Conn::One).map_err(explain),
            Way::Cluster(client) => {
                client.get_async_connection().await.map(Conn::Cluster).map_err(explain)
            }
            Way::Sentinel(sentinels) => Arc::clone(sentinels).connect(lost).await.map(Conn::One),
        }
    }
}

fn certificates(address: &Address) -> Result<Option<TlsCertificates>, LinkSetupError> {
    if !address.tls {
        return Ok(None);
    }
    let read = |path: &PathBuf| {
        std::fs::read(path)
            .map_err(|source| LinkSetupError::Ca { path: path.clone(), source })
            .and_then(|pem| {
                if pem.windows(10).any(|window| window == b"-----BEGIN") {
                    return Ok(pem);
                }
                let text = "it holds no PEM certificate".to_owned();
                Err(LinkSetupError::CaText { path: path.clone(), text })
            })
    };
    let root_cert = address.ca.as_ref().map(read).transpose()?;
    Ok(Some(TlsCertificates { client_tls: None, root_cert }))
}

impl Login {
    fn place(&self, node: &Node) -> ConnectionAddr {
        let (host, port) = (node.host.clone(), node.port);
        match self.certificates {
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            None => ConnectionAddr::Tcp(host, port),
        }
    }

    fn info(&self, node: &Node) -> Result<redis::ConnectionInfo, RedisError> {
        Ok(self
            .place(node)
            .into_connection_info()?
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            .set_redis_settings(self.redis.clone()))
    }

    fn client(&self, node: &Node) -> Result<Client, RedisError> {
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(self.info(node)?, certificates.clone()),
            None => Client::open(self.info(node)?),
        }
    }

    fn cluster(&self, nodes: &[Node]) -> Result<ClusterClient, RedisError> {
        let infos: Result<Vec<_>, _> = nodes.iter().map(|node| self.info(node)).collect();
        let mut builder = ClusterClientBuilder::new(infos?)
            .connection_timeout(DEADLINE)
            .response_timeout(DEADLINE)
            .overall_response_timeout(None)
            .retries(CLUSTER_RETRIES)
            .min_retry_wait(CLUSTER_PAUSE_MS.0)
            .max_retry_wait(CLUSTER_PAUSE_MS.1)
            .tcp_settings(TcpSettings::default().set_nodelay(true));
        if let Some(certificates) = &self.certificates {
            builder = builder.certs(certificates.clone());
        }
        builder.build()
    }
}

async fn open(
    client: &Client,
    lost: impl Fn() + Send + Sync + 'static,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT))
        // Each request has its own deadline.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(PIPELINE)
        .set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                lost();
            }
            Ok::<(), ()>(())
        });
    client.get_multiplexed_async_connection_with_config(&config).await
}

impl Sentinels {
    /// Asks all sentinels at once and takes the first master that really is one: a sentinel that is
    /// down or out of date must not cost the others their time.
    async fn connect(
        self: Arc<Self>,
        lost: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, LinkError> {
        let mut ways = JoinSet::new();
        for index in 0..self.clients.len() {
            ways.spawn(Arc::clone(&self).by(index, lost.clone()));
        }
        let mut failures = Vec::new();
        while let Some(outcome) = ways.join_next().await {
            match outcome {
                Ok(Ok(conn)) => return Ok(conn),
                Ok(Err(error)) => failures.push(error),
                Err(_) => failures.push(LinkError::Unreachable("an attempt broke off".to_owned())),
            }
        }
        let refused = failures.iter().find(|error| matches!(error, LinkError::Refused(_)));
        if let Some(refused) = refused {
            return Err(refused.clone());
        }
        let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
        Err(LinkError::Unreachable(format!("no master was found: {}", texts.join("; "))))
    }

    /// The master that sentinel number `index` names.
    async fn by(
        self: Arc<Self>,
        index: usize,
        lost: impl Fn() + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, LinkError> {
        let Some((sentinel, client)) = self.clients.get(index) else {
            return Err(LinkError::Unreachable("there is no such sentinel".to_owned()));
        };
        let explain = |who: String| {
            let address = self.address.clone();
            move |error: RedisError| match Fault::of(&error, &address) {
                Fault::Lost(text) => LinkError::Unreachable(format!("{who}: {text}")),
                Fault::Stranger(text) | Fault::Refused(text) => {
                    LinkError::Refused(format!("{who}: {text}"))
                }
                fault => fault.into(),
            }
        };
        let by_sentinel = explain(format!("sentinel {sentinel}"));
        let mut conn = open(client, || ()).await.map_err(&by_sentinel)?;
        let named: Option<(String, u16)> = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master)
            .query_async(&mut conn)
            .await
            .map_err(&by_sentinel)?;
        let Some((host, port)) = named else {
            let text = format!("sentinel {sentinel} knows no master `{}`", self.master);
            return Err(LinkError::Refused(text));
        };

        let node = Node { host, port };
        let by_master = explain(format!("master {node}"));
        let client = self.login.client(&node).map_err(&by_master)?;
        let mut conn = open(&client, lost).await.map_err(&by_master)?;
        let role = redis::cmd("ROLE").query_async::<Value>(&mut conn).await;
        match role {
            Ok(value) if is_master(&value) => Ok(conn),
            Ok(_) => Err(LinkError::Unreachable(format!("{node} is no master any more"))),
            // Not ours to ask: a replica will say READONLY.
            Err(error) if error.code() == Some("NOPERM") => Ok(conn),
            Err(error) => Err(by_master(error)),
        }
    }
}

fn is_master(role: &Value) -> bool {
    let Value::Array(items) = role else { return false };
    match items.first() {
        Some(Value::BulkString(bytes)) => bytes == b"master",
        Some(Value::SimpleString(text)) => text == "master",
        _ => false,
    }
}
