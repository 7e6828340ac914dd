//! A master and two replicas under the watch of three Sentinels.

use std::net::SocketAddr;
use std::time::Duration;

use super::server::Role;
use super::{Data, StoreOptions, StoreServer, wait_for};

/// What the Sentinels call the master.
const NAME: &str = "corvus";

/// A failover takes about three seconds, and six more if no Sentinel wins the first vote.
const PATIENCE: Duration = Duration::from_secs(20);

/// Three stores and three Sentinels. A master that is gone for a second is failed over, if two
/// Sentinels say so.
#[derive(Debug)]
pub struct StoreSentinel {
    stores: Vec<StoreServer>,
    sentinels: Vec<StoreServer>,
}

impl StoreSentinel {
    /// Starts three stores with these options, and Sentinels without a password, and waits until
    /// each Sentinel knows all of them. `None` where the program is missing, see [`super::program`].
    pub fn start(options: &StoreOptions) -> Option<Self> {
        assert!(options.replica_of.is_none(), "the first store is the master");
        let master = StoreServer::start(options.clone())?;
        let following = StoreOptions { replica_of: Some(master.addr()), ..options.clone() };
        let mut stores = vec![master];
        for _ in 0..2 {
            stores.push(StoreServer::start(following.clone())?);
        }
        let configuration = configuration(options, stores.first()?.addr());
        let bare = StoreOptions { kind: options.kind, tls: options.tls, ..Default::default() };
        let spawn = |_| StoreServer::spawn(bare.clone(), Role::Sentinel(&configuration));
        let sentinels = (0..3).map(spawn).collect::<Option<Vec<_>>>()?;
        for sentinel in &sentinels {
            sentinel.wait_until_ready();
        }
        let set = Self { stores, sentinels };
        set.wait_until_watching();
        Some(set)
    }

    fn wait_until_watching(&self) {
        wait_for("each Sentinel knows the others", PATIENCE, || {
            self.sentinels.iter().try_for_each(|sentinel| {
                let text = sentinel.ask(&["SENTINEL", "MASTER", NAME])?;
                let known = field(&text, "flags") == Some("master")
                    && field(&text, "num-slaves") == Some("2")
                    && field(&text, "num-other-sentinels") == Some("2");
                known.then_some(()).ok_or_else(|| format!("{sentinel}: {text}"))
            })
        });
    }

    /// `redis+sentinel://` (with TLS `rediss+sentinel://`), the Sentinels and the master's name; the
    /// password is the stores'.
    pub fn url(&self) -> String {
        let store = &self.stores[0];
        let addrs: Vec<_> = self.sentinels.iter().map(|s| s.addr().to_string()).collect();
        format!("{}+sentinel://{}{}/{NAME}", store.scheme(), store.credentials(), addrs.join(","))
    }

    /// The store that the first running Sentinel calls the master.
    pub fn master(&self) -> &StoreServer {
        wait_for("a Sentinel that names a store", PATIENCE, || {
            let sentinel = self.sentinels.iter().find(|sentinel| sentinel.is_running());
            self.named_by(sentinel.ok_or("no Sentinel runs")?)
        })
    }

    fn named_by(&self, sentinel: &StoreServer) -> Result<&StoreServer, String> {
        let text = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
        let addr = text.replace('\n', ":");
        let named = self.stores.iter().find(|store| store.addr().to_string() == addr);
        named.ok_or_else(|| format!("{sentinel} names {text:?}"))
    }

    /// The first is the master at the start.
    pub fn stores(&self) -> &[StoreServer] {
        &self.stores
    }

    pub fn sentinels(&self) -> &[StoreServer] {
        &self.sentinels
    }

    /// Kills the master, and says which it was.
    pub fn kill_master(&self) -> SocketAddr {
        let master = self.master();
        master.stop();
        master.addr()
    }

    /// Waits until every running Sentinel names another master than `old`, and that one takes
    /// writes.
    pub fn wait_for_failover(&self, old: SocketAddr) -> &StoreServer {
        wait_for("a failover", PATIENCE, || {
            let mut master = None;
            for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_running()) {
                let named = self.named_by(sentinel)?;
                let first = *master.get_or_insert(named);
                if named.addr() == old || named.addr() != first.addr() {
                    return Err(format!("{sentinel} names {named}"));
                }
            }
            let master = master.ok_or("no Sentinel runs")?;
            let role = master.ask(&["ROLE"])?;
            if !role.starts_with("master") {
                return Err(format!("{master} is {role}"));
            }
            Ok(master)
        })
    }

    /// Starts the store on `addr` again. It comes back as what it was; the Sentinels make an old
    /// master a replica, some seconds later.
    pub fn restart(&mut self, addr: SocketAddr, data: Data) {
        let store = self.stores.iter_mut().find(|store| store.addr() == addr);
        store.expect("a store of this set").restart(data);
    }
}

fn configuration(options: &StoreOptions, master: SocketAddr) -> String {
    let (ip, port) = (master.ip(), master.port());
    let password = options.password.as_ref();
    let password =
        password.map_or_else(String::new, |p| format!("sentinel auth-pass {NAME} {p}\n"));
    format!(
        "sentinel monitor {NAME} {ip} {port} 2\n\
         sentinel down-after-milliseconds {NAME} 1000\n\
         sentinel failover-timeout {NAME} 3000\n\
         {password}"
    )
}

/// The value after `name`, of names and values one a line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().skip_while(|line| *line != name).nth(1)
}
