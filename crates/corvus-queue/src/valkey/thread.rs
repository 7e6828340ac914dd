//! The thread that owns the connection to the store, with a runtime of its own: neither busy workers
//! nor a slow control plane delay its answers.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    sync::{Semaphore, oneshot},
    time::timeout,
};

use super::link::{DEADLINE, LinkError};

/// How long a caller waits before it takes the thread itself for stuck.
pub(super) const PATIENCE: Duration = DEADLINE.saturating_add(Duration::from_millis(100));
/// Tasks at once that [`Thread::run`] brings; more are refused. Batches have their own bounds.
const TASKS: usize = 1_024;

/// The thread. It ends, and what runs there with it, when this is dropped.
pub(super) struct Thread {
    runtime: Handle,
    tasks: Arc<Semaphore>,
    _end: oneshot::Sender<()>,
}

impl Thread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("corvus-queue-store-dns")
            .build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new().name("corvus-queue-store".to_owned()).spawn(move || {
            // An error is how the other side's end shows.
            let _ = runtime.block_on(ended);
            // A name may still be resolving, which nothing can stop.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, tasks: Arc::new(Semaphore::new(TASKS)), _end: end })
    }

    /// Runs `task` there and does not wait for it.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Runs `task` there, for as long as [`PATIENCE`].
    pub(super) async fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, LinkError>> + Send + 'static,
    ) -> Result<T, LinkError> {
        self.run_for(PATIENCE, task).await
    }

    /// Runs `task` there and waits for it as long as `patience`.
    pub(super) async fn run_for<T: Send + 'static>(
        &self,
        patience: Duration,
        task: impl Future<Output = Result<T, LinkError>> + Send + 'static,
    ) -> Result<T, LinkError> {
        let Ok(permit) = Arc::clone(&self.tasks).try_acquire_owned() else {
            return Err(LinkError::Unreachable("too many requests are under way".to_owned()));
        };
        let task = self.runtime.spawn(async move {
            let outcome = task.await;
            drop(permit);
            outcome
        });
        match timeout(patience, task).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(LinkError::Unreachable("the request broke off".to_owned())),
            Err(_) => Err(LinkError::Unreachable("the store's thread is stuck".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_runs_there_cannot_be_starved_and_ends_with_it() {
        let thread = Thread::start().unwrap();
        let name = thread.run(async { Ok(std::thread::current().name().map(str::to_owned)) });
        assert_eq!(name.await.unwrap().as_deref(), Some("corvus-queue-store"));

        let (held, released) = oneshot::channel::<()>();
        thread.spawn(async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(thread);
        assert!(released.await.is_err(), "dropped with the thread");
    }

    #[tokio::test]
    async fn a_stuck_thread_holds_nobody_for_a_second() {
        let thread = Thread::start().unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        thread.spawn(async move {
            let _ = released.recv_timeout(Duration::from_secs(5));
        });
        let begun = tokio::time::Instant::now();
        let outcome = thread.run(async { Ok(()) }).await;
        assert!(matches!(outcome, Err(LinkError::Unreachable(_))));
        assert!(begun.elapsed() < Duration::from_secs(1));
        drop(release);
    }

    #[tokio::test]
    async fn tasks_are_bounded() {
        let thread = Thread::start().unwrap();
        let waiting: Vec<_> = (0..TASKS)
            .map(|_| Box::pin(thread.run(std::future::pending::<Result<(), LinkError>>())))
            .collect();
        let all = futures_util::future::join_all(waiting);
        let refused = async {
            tokio::task::yield_now().await;
            thread.run(async { Ok(()) }).await
        };
        let (stuck, refused) = tokio::join!(all, refused);
        assert!(stuck.iter().all(Result::is_err));
        assert_eq!(
            refused,
            Err(LinkError::Unreachable("too many requests are under way".to_owned()))
        );
    }
}
