//! Access queues on a store that gateways share: the whole gateway, and a real Valkey or Redis.

mod cut_off;
mod failover;
mod outages;
mod sample;
mod wiped;

use std::time::Duration;

use corvus_testkit::Visitor;
use tokio::time::{Instant, sleep};

use crate::queue::shop::ADMISSION;

/// Until somebody is inside for sure. Keys and slots of a new store are held back for five seconds
/// each.
const START: Duration = Duration::from_secs(20);

/// Opens the page again and again until it has an admission.
async fn admitted(mut visitor: Visitor) -> Visitor {
    let begun = Instant::now();
    while visitor.get("/", &[]).await.unwrap().status != 200 || visitor.cookie(ADMISSION).is_none()
    {
        assert!(begun.elapsed() < START, "not admitted");
        sleep(Duration::from_millis(250)).await;
    }
    visitor
}
