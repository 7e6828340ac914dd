//! The Prometheus text format, version 0.0.4.
//!
//! Our own, because it is a page of code: metrics-exporter-prometheus and prometheus-client want to
//! own the registry, and theirs are shared between threads (a locked instruction or a map behind
//! locks for each label), where ours are single-writer counters of each worker.

#[cfg(test)]
mod tests;

use std::fmt::{self, Display, Write};

use crate::counters::{BOUNDS, HistogramTotals};

/// Appends metric families to a page.
pub(crate) struct Page<'a> {
    out: &'a mut String,
    /// The family that samples belong to.
    name: &'static str,
}

/// Label names are ours; values may hold anything.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];

impl<'a> Page<'a> {
    pub(crate) fn new(out: &'a mut String) -> Self {
        Self { out, name: "" }
    }

    pub(crate) fn counter(&mut self, name: &'static str, help: &str) {
        self.family(name, "counter", help);
    }

    pub(crate) fn gauge(&mut self, name: &'static str, help: &str) {
        self.family(name, "gauge", help);
    }

    pub(crate) fn histogram(&mut self, name: &'static str, help: &str) {
        self.family(name, "histogram", help);
    }

    pub(crate) fn summary(&mut self, name: &'static str, help: &str) {
        self.family(name, "summary", help);
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    pub(crate) fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.suffixed("", labels, value);
    }

    pub(crate) fn suffixed(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        let family = self.name;
        self.line(format_args!("{family}{suffix}"));
        for (index, (name, value)) in labels.iter().enumerate() {
            self.out.push_str(if index == 0 { "{" } else { "," });
            self.line(format_args!("{name}=\""));
            push_label_value(self.out, value);
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        self.line(format_args!(" {value}\n"));
    }

    /// Buckets, sum and count of one histogram.
    pub(crate) fn observations(&mut self, label: (&'static str, &str), totals: &HistogramTotals) {
        let mut count = 0;
        let bounds = BOUNDS.iter().map(|(_, text)| *text).chain(["+Inf"]);
        for (bound, bucket) in bounds.zip(totals.buckets) {
            count += bucket;
            self.suffixed("_bucket", &[label, ("le", bound)], count);
        }
        self.suffixed("_sum", &[label], Seconds { us: totals.sum_us });
        self.suffixed("_count", &[label], count);
    }

    fn line(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = self.out.write_fmt(text);
    }
}

/// Microseconds, written as seconds without loss.
pub(crate) struct Seconds {
    pub(crate) us: u64,
}

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.us / 1_000_000, self.us % 1_000_000)
    }
}

fn push_label_value(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}
