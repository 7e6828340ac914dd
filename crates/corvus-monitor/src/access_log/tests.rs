use corvus_core::{ClientIp, Event, Id, Reason, Stage, event::Outcome};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::fixture::event;

fn line(event: &Event<'_>) -> String {
    let mut out = Vec::new();
    push_line(&mut out, event, &mut SecondText::default());
    String::from_utf8(out).unwrap()
}

#[test]
fn a_proxied_request() {
    let site = Id::new("shop").unwrap();
    let event = Event {
        site: Some(&site),
        outcome: Outcome::Proxied,
        upstream: Some("http://127.0.0.1:9000"),
        upstream_us: Some(900),
        referer: b"https://example.org/",
        ..event()
    };
    assert_eq!(
        line(&event),
        concat!(
            r#"{"time":"2027-01-15T08:00:00.042Z","client":"192.0.2.10","request_id":"r-1","#,
            r#""status":200,"outcome":"proxied","site":"shop","version":7,"#,
            r#""protocol":"HTTP/1.1","tls":true,"sent":1000,"received":0,"duration_us":1500,"#,
            r#""upstream":"http://127.0.0.1:9000","upstream_us":900,"#,
            r#""method":"GET","host":"shop.example.com","target":"/a?b=c","#,
            r#""referer":"https://example.org/","user_agent":"curl/8"}"#,
            "\n"
        )
    );
}

#[test]
fn a_refusal_names_its_reason_and_forges_nothing() {
    let reason = Reason::new(Stage::Exploit, "traversal")
        .input("path")
        .fragment("\",\"client\":\"203.0.113.1");
    let event = Event {
        client: ClientIp::new("2001:db8::1".parse().unwrap()),
        status: 403,
        outcome: Outcome::Refused,
        reason: Some(&reason),
        host: b"",
        target:
            b"/\r\n{\"client\":\"203.0.113.1\"}\x1b[2J\x7f\xff\xc2\x9b\xe2\x80\xae\xf0\x9f\x98\x80",
        ..event()
    };
    let line = line(&event);
    let known = concat!(
        r#"{"time":"2027-01-15T08:00:00.042Z","client":"2001:db8::1","request_id":"r-1","#,
        r#""status":403,"outcome":"refused","version":7,"protocol":"HTTP/1.1","tls":true,"#,
        r#""sent":1000,"received":0,"duration_us":1500,"stage":"exploit","rule":"traversal","#,
        r#""method":"GET","target":"/\u000d\u000a{\"client\":\"203.0.113.1\"}"#,
        r#"\u001b[2J\u007f\u00ff\u009b\u202e\ud83d\ude00","input":"path","#,
        r#""fragment":"\",\"client\":\"203.0.113.1","user_agent":"curl/8"}"#,
        "\n"
    );
    assert_eq!(line, known);
}

#[test]
fn the_second_is_followed() {
    let mut second = SecondText::default();
    let mut time = |at_ms| {
        let mut out = Vec::new();
        push_line(&mut out, &Event { at_ms, ..event() }, &mut second);
        let parsed: Value = serde_json::from_slice(&out).unwrap();
        parsed["time"].as_str().unwrap().to_owned()
    };
    assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
    assert_eq!(time(951_782_399_999), "2000-02-28T23:59:59.999Z");
    assert_eq!(time(951_782_400_000), "2000-02-29T00:00:00.000Z");
    assert_eq!(time(951_782_399_001), "2000-02-28T23:59:59.001Z");
}

#[test]
fn long_texts_are_cut_and_say_so() {
    let long = vec![b'a'; line::TEXT_BYTES + 1];
    let parsed: Value = serde_json::from_str(&line(&Event { target: &long, ..event() })).unwrap();
    assert_eq!(parsed["target"].as_str().unwrap().len(), line::TEXT_BYTES);
    assert_eq!(parsed["cut"], Value::Bool(true));
    let fits = &long[1..];
    let parsed: Value = serde_json::from_str(&line(&Event { target: fits, ..event() })).unwrap();
    assert_eq!(parsed.get("cut"), None);
}

/// What a reader of the log gets back: valid UTF-8 as it was, other bytes as Latin-1.
fn expected(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| char::from(*byte)));
    }
    text
}

fn client_text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        any::<String>().prop_map(String::into_bytes),
        "[\"\\\\\n\r\u{7f}-\u{9f}\u{2028}{},:a]{0,40}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn any_bytes_make_one_valid_line(
        method in client_text(),
        host in client_text(),
        target in client_text(),
        user_agent in client_text(),
        referer in client_text(),
        fragment in any::<String>(),
        numbers in any::<[u64; 5]>(),
        status in any::<u16>(),
    ) {
        let reason = Reason::new(Stage::Body, "sql").fragment(fragment.clone());
        let event = Event {
            at_ms: numbers[0],
            version: numbers[1],
            sent: numbers[2],
            received: numbers[3],
            duration_us: numbers[4],
            status,
            method: &method,
            host: &host,
            target: &target,
            user_agent: &user_agent,
            referer: &referer,
            reason: Some(&reason),
            ..event()
        };
        let line = line(&event);
        let body = line.strip_suffix('\n').unwrap();
        prop_assert!(body.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{body}");
        let parsed: Value = serde_json::from_str(body).unwrap();
        let text = |name: &str| parsed.get(name).map_or("", |value| value.as_str().unwrap());
        prop_assert_eq!(text("method"), expected(&method));
        prop_assert_eq!(text("host"), expected(&host));
        prop_assert_eq!(text("target"), expected(&target));
        prop_assert_eq!(text("user_agent"), expected(&user_agent));
        prop_assert_eq!(text("referer"), expected(&referer));
        prop_assert_eq!(text("fragment"), fragment);
        prop_assert_eq!(text("client"), "192.0.2.10");
        prop_assert_eq!(parsed["duration_us"].as_u64(), Some(numbers[4]));
        prop_assert_eq!(parsed["status"].as_u64(), Some(u64::from(status)));
    }
}

fn handle_without_writer() -> LogHandle {
    LogHandle { buffers: Arc::default(), shared: Arc::default(), second: RefCell::default() }
}

#[test]
fn a_writer_that_swaps_delays_nobody() {
    let handle = handle_without_writer();
    let held = handle.buffers.slots[0].lock().unwrap();
    handle.push(&event());
    assert!(!handle.buffers.slots[1].lock().unwrap().bytes.is_empty());
    assert!(held.bytes.is_empty());
    assert_eq!(handle.buffers.dropped.get(), 0);
}

#[test]
fn full_buffers_drop_and_count() {
    let handle = handle_without_writer();
    let fits = FULL_BYTES / line(&event()).len() + 1;
    for _ in 0..fits + 25 {
        handle.push(&event());
    }
    assert_eq!(handle.buffers.dropped.get(), 25);
    let batch = handle.buffers.slots[0].lock().unwrap();
    assert_eq!(batch.lines, fits as u64);
    assert_eq!(str::from_utf8(&batch.bytes).unwrap().lines().count(), fits);
    assert!(batch.bytes.ends_with(b"}\n"), "only whole lines");
}

#[test]
fn lines_that_cannot_be_written_are_counted() {
    let writer = Writer::start(&AccessLog::File("/dev/full".into())).unwrap().unwrap();
    let handle = writer.handle();
    handle.push(&event());
    handle.push(&event());
    writer.close();
    assert_eq!(writer.lines(), (0, 2));
}

#[test]
fn a_log_that_cannot_be_opened_is_an_error() {
    let error = Writer::start(&AccessLog::File("/nonexistent/access.log".into())).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/access.log"), "{error}");
}
