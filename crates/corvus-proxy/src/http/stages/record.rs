//! Stage 17: every request leaves one event, whatever became of it.

use crate::http::exchange::Exchange;

pub(crate) fn record(x: &Exchange) {
    x.worker.monitor.record(&x.event());
}
