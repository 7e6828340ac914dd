use super::*;

#[test]
fn families_and_samples_follow_the_format() {
    let mut out = String::new();
    let mut page = Page::new(&mut out);
    page.counter("a_total", "Things.");
    page.sample(&[("x", "1"), ("y", "a\"b\\c\nd")], 7);
    page.gauge("b", "More.");
    page.sample(&[], 0);
    assert_eq!(
        out,
        "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 7\n\
         # HELP b More.\n# TYPE b gauge\nb 0\n"
    );
}

#[test]
fn buckets_are_cumulative() {
    let mut totals = HistogramTotals::default();
    totals.buckets[0] = 2;
    totals.buckets[1] = 1;
    totals.buckets[16] = 4;
    totals.sum_us = 1_500_007;
    let mut out = String::new();
    let mut page = Page::new(&mut out);
    page.histogram("d_seconds", "Time.");
    page.observations(("site", "shop"), &totals);
    let has = |line: &str| assert!(out.lines().any(|found| found == line), "{line}\n{out}");
    has("d_seconds_bucket{site=\"shop\",le=\"0.0005\"} 2");
    has("d_seconds_bucket{site=\"shop\",le=\"0.001\"} 3");
    has("d_seconds_bucket{site=\"shop\",le=\"60\"} 3");
    has("d_seconds_bucket{site=\"shop\",le=\"+Inf\"} 7");
    has("d_seconds_sum{site=\"shop\"} 1.500007");
    has("d_seconds_count{site=\"shop\"} 7");
}
