//! The request path: every stage, in the order of docs/request-path.md.

use crate::http::{
    exchange::Exchange,
    rescue::{self, Failure},
    response::Response,
    stages,
};

/// Why a request goes no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A stage has the answer.
    Answer(Box<Response>),
    /// There is none; `rescue` makes one.
    Fail(Failure),
}

impl From<Response> for Stop {
    fn from(response: Response) -> Self {
        Self::Answer(Box::new(response))
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Fail(failure)
    }
}

/// Takes a request through the stages and gives the response to send. The last stage, `record`,
/// runs when the [`Exchange`] is dropped, and so always.
pub(crate) async fn handle(x: &mut Exchange) -> Response {
    let mut response = match decide(x).await {
        Ok(response) => response,
        Err(Stop::Answer(response)) => *response,
        Err(Stop::Fail(failure)) => rescue::respond(x, failure),
    };
    stages::response::finish(x, &mut response).await;
    x.outcome = response.outcome;
    response
}

async fn decide(x: &mut Exchange) -> Result<Response, Stop> {
    // 1 parse: what is no request, or two, is refused.
    stages::parse::check(x)?;
    // 2 client: who asks, as far as it can be believed.
    stages::client::identify(x);
    // 4 host: which site is meant.
    stages::host::find(x)?;
    // 6 redirect: answers that need nothing but the configuration.
    stages::redirect::decide(x)?;
    // 10 own paths: status and leave of the access queue.
    stages::own_paths::answer(x).await?;
    // 13 queue: inside, or waiting.
    stages::queue::admit(x).await?;
    // 14 body: how much of it may come.
    stages::body::bound(x).await?;
    // 15 upstream: pick, connect, forward.
    stages::upstream::forward(x).await
}
