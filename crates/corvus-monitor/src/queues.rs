//! The queues' numbers on the metrics page. They come as plain data, because queue engines and the
//! monitor do not know each other.

use crate::exposition::{Page, Seconds};

/// What one access queue reports.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct QueueNumbers<'a> {
    /// Id of the queue.
    pub queue: &'a str,
    /// Its store answers.
    pub store_up: bool,
    /// Visitors now waiting.
    pub waiting: u64,
    /// Visitors now inside, granted places included.
    pub inside: u64,
    /// Visitors let in since the start.
    pub admitted: u64,
    /// Visitors who left the line, or fell silent in it, since the start.
    pub abandoned: u64,
    /// The time those admitted have waited, all together, in milliseconds.
    pub waited_ms: u64,
}

/// Appends the numbers of `queues` to a page begun with [`crate::Monitor::render`].
pub fn render_queues(queues: &[QueueNumbers<'_>], out: &mut String) {
    if queues.is_empty() {
        return;
    }
    let mut page = Page::new(out);
    page.gauge("corvus_queue_store_up", "1 if the queue's store answers, else 0.");
    for numbers in queues {
        page.sample(&[("queue", numbers.queue)], u64::from(numbers.store_up));
    }
    page.gauge("corvus_queue_waiting", "Visitors now waiting.");
    for numbers in queues {
        page.sample(&[("queue", numbers.queue)], numbers.waiting);
    }
    page.gauge("corvus_queue_inside", "Visitors now inside, granted places included.");
    for numbers in queues {
        page.sample(&[("queue", numbers.queue)], numbers.inside);
    }
    page.counter("corvus_queue_admitted_total", "Visitors let in.");
    for numbers in queues {
        page.sample(&[("queue", numbers.queue)], numbers.admitted);
    }
    page.counter(
        "corvus_queue_abandoned_total",
        "Visitors who left the line or fell silent in it.",
    );
    for numbers in queues {
        page.sample(&[("queue", numbers.queue)], numbers.abandoned);
    }
    page.summary("corvus_queue_wait_seconds", "Time that admitted visitors have waited.");
    for numbers in queues {
        let labels = [("queue", numbers.queue)];
        let us = numbers.waited_ms.saturating_mul(1000);
        page.suffixed("_sum", &labels, Seconds { us });
        page.suffixed("_count", &labels, numbers.admitted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_every_queue_is_on_the_page() {
        let drop = QueueNumbers {
            queue: "drop",
            store_up: true,
            waiting: 5,
            inside: 3,
            admitted: 40,
            abandoned: 2,
            waited_ms: 61_500,
        };
        let sale = QueueNumbers { queue: "sale", ..QueueNumbers::default() };
        let mut out = String::new();
        render_queues(&[drop, sale], &mut out);
        for line in [
            "# TYPE corvus_queue_wait_seconds summary",
            "corvus_queue_store_up{queue=\"drop\"} 1",
            "corvus_queue_store_up{queue=\"sale\"} 0",
            "corvus_queue_waiting{queue=\"drop\"} 5",
            "corvus_queue_inside{queue=\"drop\"} 3",
            "corvus_queue_admitted_total{queue=\"drop\"} 40",
            "corvus_queue_abandoned_total{queue=\"drop\"} 2",
            "corvus_queue_wait_seconds_sum{queue=\"drop\"} 61.500000",
            "corvus_queue_wait_seconds_count{queue=\"drop\"} 40",
            "corvus_queue_waiting{queue=\"sale\"} 0",
        ] {
            assert!(out.lines().any(|found| found == line), "{line}\n{out}");
        }
        assert_eq!(out.matches("# TYPE").count(), 6, "one for each family");
    }
}
