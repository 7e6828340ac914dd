//! A real server on loopback, for one test.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use redis::{Cmd, Value, aio::MultiplexedConnection};

use crate::shared::{CommandError, Commands};

const PROGRAM: &str = "/usr/bin/redis-server";

/// Ends with the test.
pub(crate) struct Server {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Server {
    /// `None`, and a line that says so, if there is no server on this machine; a failure if
    /// `CORVUS_REQUIRE_STORES` is set.
    pub(crate) async fn start(options: &[&str]) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            assert!(std::env::var_os("CORVUS_REQUIRE_STORES").is_none(), "{PROGRAM} is missing");
            println!("skipped: {PROGRAM} is missing");
            return None;
        }
        // Somebody may take the port before the server does: then it ends, and another port is
        // tried.
        for _ in 0..3 {
            let port = {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                listener.local_addr().unwrap().port()
            };
            let dir = tempfile::tempdir().unwrap();
            let child = Command::new(PROGRAM)
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
                .args(["--appendonly", "no", "--dir"])
                .arg(dir.path())
                .args(options)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let mut server = Self { child, port, _dir: dir };
            for _ in 0..200 {
                if server.child.try_wait().unwrap().is_some() {
                    break;
                }
                if let Ok(client) = server.client().await
                    && client.command(redis::cmd("PING")).await.is_ok()
                {
                    return Some(server);
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        }
        panic!("{PROGRAM} does not start");
    }

    pub(crate) async fn client(&self) -> Result<TestClient, redis::RedisError> {
        let client = redis::Client::open((Ipv4Addr::LOCALHOST.to_string(), self.port))?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(TestClient { connection, fault: Mutex::new(None) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that can be made to fail.
pub(crate) struct TestClient {
    connection: MultiplexedConnection,
    pub(crate) fault: Mutex<Option<CommandError>>,
}

impl TestClient {
    /// An answer as a number.
    pub(crate) async fn number(&self, words: &[&str]) -> i64 {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        redis::from_redis_value(self.command(command).await.unwrap()).unwrap()
    }
}

impl TestClient {
    /// The server's time, whole seconds.
    pub(crate) async fn time_s(&self) -> u64 {
        let time = self.command(redis::cmd("TIME")).await.unwrap();
        redis::from_redis_value::<(u64, u64)>(time).unwrap().0
    }
}

impl Commands for TestClient {
    async fn command(&self, command: Cmd) -> Result<Value, CommandError> {
        if let Some(fault) = self.fault.lock().unwrap().clone() {
            return Err(fault);
        }
        Ok(command.query_async(&mut self.connection.clone()).await?)
    }
}

impl<C: Commands> Commands for std::sync::Arc<C> {
    async fn command(&self, command: Cmd) -> Result<Value, CommandError> {
        (**self).command(command).await
    }
}
