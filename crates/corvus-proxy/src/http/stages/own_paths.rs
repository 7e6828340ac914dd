//! Stage 10: `/__corvus/`, the paths that are ours on every site.

use corvus_core::Stage;
use corvus_queue::{Check, Decision};

use crate::{
    http::{
        exchange::Exchange,
        pipeline::Stop,
        rescue::Failure,
        stages::queue::{answer, cookies, take_cookies},
    },
    worker::SiteQueue,
};

const PREFIX: &[u8] = b"/__corvus/";

pub(crate) async fn answer(x: &mut Exchange) -> Result<(), Stop> {
    if !x.raw_path().starts_with(PREFIX) {
        return Ok(());
    }
    let site = x.site.clone();
    let Some(queue) = site.as_ref().and_then(|site| site.queue.as_ref()) else {
        return Err(unknown().into());
    };
    let path = x.raw_path();
    if path == queue.status_path.as_bytes() {
        return Err(status(x, queue).await);
    }
    if path == queue.leave_path.as_bytes() {
        return Err(leave(x, queue).await);
    }
    Err(unknown().into())
}

const fn unknown() -> Failure {
    Failure::denied(404, Stage::OwnPaths, "unknown_path")
}

const fn wrong_method() -> Failure {
    Failure::denied(405, Stage::OwnPaths, "method_not_allowed")
}

/// The waiting page asks how it stands.
async fn status(x: &mut Exchange, queue: &SiteQueue) -> Stop {
    if !matches!(x.head.method(), b"GET" | b"HEAD") {
        return wrong_method().into();
    }
    let service = std::sync::Arc::clone(&x.worker.shared.queues);
    let decision = match service.check(&queue.queue, cookies(x, queue), x.client) {
        Check::Admitted(_) => Decision::Ready,
        Check::Ask(visitor) => {
            let outcome = service.poll(&queue.queue, &visitor).await;
            take_cookies(x, queue, outcome)
        }
    };
    let status = if matches!(decision, Decision::TooManyPolls { .. }) { 429 } else { 200 };
    answer::json(x, queue, &decision, status).into()
}

/// The leave button.
async fn leave(x: &mut Exchange, queue: &SiteQueue) -> Stop {
    if x.head.method() != b"POST" {
        return wrong_method().into();
    }
    if is_cross_site(x) {
        return Failure::denied(403, Stage::OwnPaths, "cross_site").into();
    }
    let service = std::sync::Arc::clone(&x.worker.shared.queues);
    let visitor = match service.check(&queue.queue, cookies(x, queue), x.client) {
        Check::Admitted(admission) => {
            // Somebody inside who leaves frees the slot at once.
            x.session = Some(admission);
            crate::http::stages::queue::release(x).await;
            return answer::left(x, queue).into();
        }
        Check::Ask(visitor) => visitor,
    };
    let outcome = service.leave(&queue.queue, &visitor).await;
    take_cookies(x, queue, outcome);
    answer::left(x, queue).into()
}

/// Whether another site's page presses the button. `SameSite` keeps the cookies from it, unless the
/// queue is set to `same_site: none`.
fn is_cross_site(x: &Exchange) -> bool {
    let headers = &x.head.headers;
    if let Some(site) = headers.all_named("sec-fetch-site").next() {
        return !matches!(site, b"same-origin" | b"none");
    }
    // Older browsers. The scheme is left out: a proxy in front may end TLS without saying so.
    headers.all_named("origin").next().is_some_and(|origin| {
        let authority = memchr::memmem::find(origin, b"://").and_then(|at| origin.get(at + 3..));
        !authority.is_some_and(|authority| authority.eq_ignore_ascii_case(&x.authority))
    })
}
