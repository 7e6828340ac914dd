//! A cluster of six stores: three masters that share the slots, and a replica of each.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::server::Role;
use super::{Data, StoreClient, StoreOptions, StoreServer, wait_for};
use crate::free_port;

/// How many slots a cluster's keys fall into.
pub const SLOTS: u16 = 16_384;

const MASTERS: usize = 3;
const NODES: usize = 2 * MASTERS;

/// A new cluster is not ready before two seconds have passed (the servers wait that long before they
/// take writes), and a failover takes about three.
const PATIENCE: Duration = Duration::from_secs(20);

/// The slot of a key. Of a key with `{tag}` the tag alone counts:
/// <https://valkey.io/topics/cluster-spec/>.
pub fn slot(key: &[u8]) -> u16 {
    let position = |bytes: &[u8], wanted: u8| bytes.iter().position(|b| *b == wanted);
    let tag = position(key, b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        rest.get(..position(rest, b'}')?)
    });
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// Six stores in cluster mode. At first nodes 0, 1 and 2 are masters, each of a third of the slots,
/// and 3, 4 and 5 their replicas; a node that is gone for a second is failed over.
#[derive(Debug)]
pub struct StoreCluster {
    nodes: Vec<StoreServer>,
}

impl StoreCluster {
    /// Starts six stores with these options, and waits until they are one cluster with every
    /// replica in place. `None` where the program is missing, see [`super::program`].
    pub fn start(options: &StoreOptions) -> Option<Self> {
        let nodes = (0..NODES).map(|_| StoreServer::spawn(node_options(options), Role::Store));
        let cluster = Self { nodes: nodes.collect::<Option<_>>()? };
        for node in &cluster.nodes {
            node.wait_until_ready();
        }
        cluster.join();
        Some(cluster)
    }

    fn join(&self) {
        let share = SLOTS.div_ceil(MASTERS as u16);
        for (i, node) in self.nodes.iter().enumerate() {
            let number = i as u16;
            // Distinct from the start, or the nodes have to sort it out among themselves.
            expect_ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            if i < MASTERS {
                let first = number * share;
                let last = (first + share).min(SLOTS) - 1;
                let (first, last) = (first.to_string(), last.to_string());
                expect_ok(node, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
        let (first, others) = self.nodes.split_first().expect("six nodes");
        for node in others {
            let (ip, port) = (node.addr().ip().to_string(), node.addr().port().to_string());
            let bus = node.cli(&["CONFIG", "GET", "cluster-port"]);
            let bus = bus.lines().last().expect("the port of the cluster's bus").to_owned();
            expect_ok(first, &["CLUSTER", "MEET", &ip, &port, &bus]);
        }
        wait_for("the nodes know each other", PATIENCE, || {
            self.nodes.iter().try_for_each(|node| {
                let text = node.ask(&["CLUSTER", "NODES"])?;
                let known = text.lines().filter(|line| !line.contains("handshake")).count();
                (known == NODES).then_some(()).ok_or_else(|| format!("{node}: {text}"))
            })
        });
        for (master, replica) in self.nodes.iter().zip(self.nodes.iter().skip(MASTERS)) {
            expect_ok(replica, &["CLUSTER", "REPLICATE", &master.cli(&["CLUSTER", "MYID"])]);
        }
        self.wait_until_serving();
        wait_for("every replica follows its master", PATIENCE, || {
            self.nodes.iter().skip(MASTERS).try_for_each(StoreServer::follows)
        });
        wait_for("every node knows the replicas", PATIENCE, || {
            self.nodes.iter().try_for_each(|node| {
                let text = node.ask(&["CLUSTER", "NODES"])?;
                let replicas = lines(&text).filter(|line| line.is("slave")).count();
                (replicas == NODES - MASTERS).then_some(()).ok_or_else(|| format!("{node}: {text}"))
            })
        });
    }

    /// `redis+cluster://` (with TLS `rediss+cluster://`) and every node.
    pub fn url(&self) -> String {
        let first = self.node(0);
        let addrs: Vec<_> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        format!("{}+cluster://{}{}", first.scheme(), first.credentials(), addrs.join(","))
    }

    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(StoreServer::addr).collect()
    }

    /// One of the six. Stop, pause and resume work as they do for a store alone.
    pub fn node(&self, index: usize) -> &StoreServer {
        &self.nodes[index]
    }

    /// The node that serves the slot of `key` now. Waits for one while a failover runs.
    pub fn master_of(&self, key: &str) -> usize {
        let slot = slot(key.as_bytes());
        wait_for("a master of a slot", PATIENCE, || {
            self.owner(slot).ok_or_else(|| format!("nobody serves slot {slot}"))
        })
    }

    /// By what each node says of itself; of two, the one with the newer claim.
    fn owner(&self, slot: u16) -> Option<usize> {
        let claims = self.nodes.iter().enumerate().filter_map(|(i, node)| {
            let text = node.is_running().then(|| node.ask(&["CLUSTER", "NODES"]))?.ok()?;
            let own = lines(&text).find(|line| line.is("myself"))?;
            (own.is("master") && own.serves(slot)).then_some((own.epoch, i))
        });
        claims.max().map(|(_, i)| i)
    }

    /// A client of the node that serves `key` now.
    pub fn client(&self, key: &str) -> io::Result<StoreClient> {
        self.node(self.master_of(key)).client()
    }

    /// Kills a node.
    pub fn kill(&self, index: usize) {
        self.node(index).stop();
    }

    /// Starts a killed node again. With its data it knows its cluster; wiped it is a stranger.
    pub fn restart(&mut self, index: usize, data: Data) {
        self.nodes[index].restart(data);
    }

    /// Waits until every slot has a master that answers, and every node that answers says that the
    /// cluster is well.
    pub fn wait_until_serving(&self) {
        wait_for("the cluster serves every slot", PATIENCE, || {
            for node in self.nodes.iter().filter(|node| node.is_running()) {
                let Ok(text) = node.ask(&["CLUSTER", "INFO"]) else { continue };
                if !text.contains("cluster_state:ok") {
                    return Err(format!("{node}: {text}"));
                }
            }
            // The shares are moved whole.
            (0..SLOTS).step_by(usize::from(SLOTS) / MASTERS).try_for_each(|slot| {
                self.owner(slot).map(drop).ok_or_else(|| format!("nobody serves slot {slot}"))
            })
        });
    }
}

fn node_options(options: &StoreOptions) -> StoreOptions {
    let mut options = options.clone();
    assert!(options.replica_of.is_none(), "a cluster chooses its replicas itself");
    let yes = || "yes".to_owned();
    options.settings.extend([
        ("cluster-enabled", yes()),
        ("cluster-config-file", "nodes.conf".to_owned()),
        ("cluster-node-timeout", "1000".to_owned()),
        // The usual one, port + 10,000, may be taken.
        ("cluster-port", free_port().to_string()),
        // A replica that has not heard of its master for long may still follow it.
        ("cluster-replica-validity-factor", "0".to_owned()),
        ("cluster-allow-replica-migration", "no".to_owned()),
    ]);
    if options.tls {
        options.settings.push(("tls-cluster", yes()));
    }
    options
}

fn expect_ok(node: &StoreServer, command: &[&str]) {
    assert_eq!(node.cli(command), "OK", "{command:?} at {node}");
}

/// A line of CLUSTER NODES: id, address, flags, master, ping, pong, epoch, link, slots.
struct Line<'a> {
    flags: &'a str,
    epoch: u64,
    slots: Vec<&'a str>,
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let flags = fields.next()?;
        let epoch = fields.nth(3)?.parse().ok()?;
        Some(Line { flags, epoch, slots: fields.skip(1).collect() })
    })
}

impl Line<'_> {
    fn is(&self, flag: &str) -> bool {
        self.flags.split(',').any(|f| f == flag)
    }

    fn serves(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_keys_with_and_without_tags() {
        // The check value of CRC-16/XMODEM.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(b"123456789"), 0x31C3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"a{b}{c}"), slot(b"b"));
        assert_eq!(slot(b"a{{b}c"), slot(b"{b"));
        assert_ne!(slot(b"a{}b"), slot(b""));
        assert_ne!(slot(b"a{b"), slot(b"b"));
    }

    #[test]
    fn reads_what_a_node_says_of_itself() {
        let text = "1 127.0.0.1:1@2 myself,master - 0 0 7 connected 0-5 9 [3->-x]\n\
            2 127.0.0.1:3@4 slave 1 0 0 7 connected\n";
        let all: Vec<_> = lines(text).collect();
        assert_eq!((all.len(), all[0].epoch), (2, 7));
        assert!(all[0].is("master") && all[0].serves(0) && all[0].serves(5) && all[0].serves(9));
        assert!(!all[0].serves(6) && !all[0].serves(3 + 16) && !all[1].serves(0));
        assert!(all[1].is("slave") && !all[1].is("myself"));
    }
}
