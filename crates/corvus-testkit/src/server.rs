//! A server on a thread and a current-thread runtime of its own. Dropping it ends its tasks, closes
//! its connections and frees its port before `drop` returns.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct ServerThread {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    /// Runs `serve` on its own thread until this value is dropped.
    pub(crate) fn spawn<F>(addr: SocketAddr, serve: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()>,
    {
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime for a test server");
            runtime.block_on(async {
                tokio::select! {
                    () = serve() => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name(format!("peer-{}", addr.port()))
            .spawn(run)
            .expect("a thread for a test server");
        Self { addr, stop: Some(stop), thread: Some(thread) }
    }

    /// Binds `addr` (port 0: any) and serves its listener.
    pub(crate) fn listen<F>(
        addr: SocketAddr,
        serve: impl FnOnce(TcpListener) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()>,
    {
        let listener = StdListener::bind(addr).unwrap_or_else(|e| panic!("bind {addr}: {e}"));
        listener.set_nonblocking(true).expect("a non-blocking listener");
        let bound = listener.local_addr().expect("the address of a listener");
        Self::spawn(bound, move || async move {
            serve(TcpListener::from_std(listener).expect("a listener for tokio")).await;
        })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic of the server was printed by its thread; a second one here would abort.
            let _ = thread.join();
        }
    }
}

/// 127.0.0.1, any port.
pub(crate) fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}
