use std::{cell::Cell, net::Ipv4Addr};

use corvus_core::FakeClock;
use hickory_resolver::{
    config::{ConnectionConfig, NameServerConfig, ResolverConfig},
    net::runtime::TokioRuntimeProvider,
};
use tokio::net::UdpSocket;

use super::*;

/// A name server that knows one address, may be told another, and may fall silent.
struct NameServer {
    address: Rc<Cell<Option<Ipv4Addr>>>,
    asked: Rc<Cell<usize>>,
    resolver: Resolver,
}

impl NameServer {
    async fn start(address: [u8; 4], ttl_s: u32) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut connection = ConnectionConfig::udp();
        connection.port = socket.local_addr().unwrap().port();
        let server = NameServerConfig::new([127, 0, 0, 1].into(), true, vec![connection]);
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().cache_size = 0;
        builder.options_mut().case_randomization = false;
        let resolver = Resolver::new();
        assert!(resolver.client.set(builder.build().unwrap()).is_ok());
        let address = Rc::new(Cell::new(Some(address.into())));
        let asked = Rc::new(Cell::new(0));
        tokio::task::spawn_local(serve(socket, Rc::clone(&address), Rc::clone(&asked), ttl_s));
        Self { address, asked, resolver }
    }

    async fn resolve(&self, clock: &FakeClock) -> Result<String, io::ErrorKind> {
        let found = self.resolver.resolve("shop.test", 80, clock).await;
        found.map(|addresses| addresses[0].to_string()).map_err(|error| error.kind())
    }
}

/// Answers A questions with the address; anything else with no data (RFC 1035 section 4).
async fn serve(
    socket: UdpSocket,
    address: Rc<Cell<Option<Ipv4Addr>>>,
    asked: Rc<Cell<usize>>,
    ttl_s: u32,
) {
    let mut buffer = [0; 512];
    while let Ok((len, peer)) = socket.recv_from(&mut buffer).await {
        let Some(address) = address.get() else { continue };
        let query = &buffer[..len];
        // The question: labels up to a zero, then type and class.
        let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
        let is_a = query[end - 4..end - 2] == [0, 1];
        asked.set(asked.get() + usize::from(is_a));
        let mut answer = query[..2].to_vec();
        answer.extend([0x84, 0, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
        answer.extend(&query[12..end]);
        if is_a {
            answer.extend([0xc0, 12, 0, 1, 0, 1]);
            answer.extend(ttl_s.to_be_bytes());
            answer.extend([0, 4]);
            answer.extend(address.octets());
        }
        socket.send_to(&answer, peer).await.unwrap();
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// A container that comes back under another address (NPM issues 1021, 5602, 5603).
#[test]
fn a_name_is_asked_for_again_when_its_answer_is_stale() {
    run(async {
        let clock = FakeClock::new(0);
        let server = NameServer::start([10, 0, 0, 1], 600).await;
        assert_eq!(server.resolve(&clock).await.as_deref(), Ok("10.0.0.1:80"));
        server.address.set(Some([10, 0, 0, 2].into()));
        clock.advance(Duration::from_secs(9));
        assert_eq!(server.resolve(&clock).await.as_deref(), Ok("10.0.0.1:80"));
        assert_eq!(server.asked.get(), 1);
        // Ten seconds, whatever the name server says of ten minutes.
        clock.advance(Duration::from_secs(1));
        assert_eq!(server.resolve(&clock).await.as_deref(), Ok("10.0.0.2:80"));
    });
}

#[test]
fn a_short_life_and_a_failed_connection_count() {
    run(async {
        let clock = FakeClock::new(0);
        let server = NameServer::start([10, 0, 0, 1], 2).await;
        assert_eq!(server.resolve(&clock).await.as_deref(), Ok("10.0.0.1:80"));
        server.address.set(Some([10, 0, 0, 2].into()));
        clock.advance(Duration::from_secs(2));
        assert_eq!(server.resolve(&clock).await.as_deref(), Ok("10.0.0.2:80"));
        server.address.set(Some([10, 0, 0, 3].into()));
        server.resolver.forget("shop.test").await;
        assert_eq!(server.resolve(&clock).await.as_deref(), Ok("10.0.0.3:80"));
    });
}

/// A name server that is down must not take the sites with it.
#[test]
fn the_old_answer_is_used_while_there_is_no_new_one() {
    run(async {
        let clock = FakeClock::new(0);
        let server = NameServer::start([10, 0, 0, 1], 600).await;
        assert_eq!(server.resolve(&clock).await.as_deref(), Ok("10.0.0.1:80"));
        server.address.set(None);
        clock.advance(Duration::from_mins(1));
        assert_eq!(server.resolve(&clock).await.as_deref(), Ok("10.0.0.1:80"));
        server.address.set(Some([10, 0, 0, 2].into()));
        clock.advance(Duration::from_secs(10));
        assert_eq!(server.resolve(&clock).await.as_deref(), Ok("10.0.0.2:80"));
    });
}
