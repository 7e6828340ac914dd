//! Every page in every language: complete, small, safe against hostile input, and as recorded.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

const NONCE: &str = "bm9uY2U";

fn visit(language: Language) -> Visit<'static> {
    Visit { language, nonce: NONCE, request_id: "01JE3Y8K6QW2Z7", host: Some("shop.example.com") }
}

fn line(language: Language) -> Waiting<'static> {
    Waiting {
        visit: visit(language),
        queue: "drop",
        title: None,
        message: None,
        place: "p1",
        rank: Some(128),
        waiting: 4312,
        eta_s: Some(230),
        poll_s: 3,
        starts_in_ms: None,
        paused: false,
    }
}

const NOTICES: [Notice<'static>; 9] = [
    Notice::CookiesNeeded { again: "/tickets?a=1&b=2" },
    Notice::Full,
    Notice::Busy,
    Notice::TryAgain,
    Notice::Closed,
    Notice::NotOpen { opens_in_ms: Some(90_061_000) },
    Notice::NotOpen { opens_in_ms: None },
    Notice::Left { again: "/tickets" },
    Notice::TooMany,
];

const ERRORS: [(u16, &str); 20] = [
    (400, "bad_framing"),
    (401, "password"),
    (403, "sql_injection"),
    (404, "unknown_host"),
    (405, "method"),
    (408, "slow_request"),
    (413, "body_limit"),
    (414, "long_target"),
    (418, "odd"),
    (421, "misdirected"),
    (429, "rate"),
    (431, "header_bytes"),
    (500, "panic"),
    (502, UPSTREAM_NAME),
    (502, UPSTREAM_REFUSED),
    (502, UPSTREAM_TIMEOUT),
    (502, "upstream_protocol"),
    (503, "no_upstream"),
    (503, error::MAINTENANCE),
    (504, UPSTREAM_TIMEOUT),
];

/// The page without what our own files contribute: what is left comes from markup and input.
fn without_code(page: &str) -> String {
    let mut out = String::new();
    let mut rest = page;
    for (open, close) in
        [("<style", "</style>"), ("<script type", "</script>"), ("<script", "</script>")]
    {
        let Some((before, tail)) = rest.split_once(open) else { continue };
        out.push_str(before);
        rest = tail.split_once(close).expect("closed").1;
    }
    out + rest
}

fn data_block(page: &str) -> Value {
    let data = page.split_once("id=\"page\">").expect("data block").1;
    serde_json::from_str(data.split_once("</script>").expect("end of data").0).expect("valid JSON")
}

#[test]
fn pages_are_small_and_complete() {
    for language in Language::ALL {
        let line = line(language);
        let early = Waiting { rank: None, starts_in_ms: Some(754_000), ..line };
        let far = Waiting { rank: Some(u64::MAX), waiting: u64::MAX, paused: true, ..line };
        for page in [waiting(&line), waiting(&early), waiting(&far)] {
            assert!(page.len() < 15_000, "{language:?}: {}", page.len());
            check_complete(&page);
        }
        for kind in NOTICES {
            let page = notice(&visit(language), kind);
            assert!(page.len() < 8_000, "{language:?} {kind:?}: {}", page.len());
            check_complete(&page);
        }
        for (status, reason) in ERRORS {
            let page = error(&visit(language), status, reason);
            assert!(page.len() < 4_000, "{language:?} {status}: {}", page.len());
            assert!(page.contains("01JE3Y8K6QW2Z7"));
            check_complete(&page);
        }
    }
}

fn check_complete(page: &str) {
    let markup = without_code(page);
    assert!(!markup.contains(['{', '}']), "unfilled placeholder: {markup}");
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "asks for something outside: {outside}");
    }
    for inline in [" style=", " onclick", " onload", "javascript:"] {
        assert!(!markup.contains(inline), "the policy forbids {inline}");
    }
    for (open, close) in [
        ("<main>", "</main>"),
        ("<div", "</div>"),
        ("<p", "</p"),
        ("<dl", "</dl>"),
        ("<footer>", "</footer>"),
        ("<bdi>", "</bdi>"),
    ] {
        assert_eq!(markup.matches(open).count(), markup.matches(close).count(), "{open}");
    }
    assert_eq!(page.matches("<h1>").count(), 1);
}

#[test]
fn each_failure_has_words_of_its_own() {
    for language in Language::ALL {
        let titles: std::collections::HashSet<_> = ERRORS
            .iter()
            .filter(|(status, _)| ![418, 504].contains(status))
            .map(|(status, reason)| {
                let page = error(&visit(language), *status, reason);
                page.split_once("<h1>")
                    .expect("heading")
                    .1
                    .split_once("</h1>")
                    .expect("end")
                    .0
                    .to_owned()
            })
            .collect();
        assert_eq!(titles.len(), ERRORS.len() - 2, "{language:?}");
    }
}

#[test]
fn a_missing_site_looks_like_any_other() {
    let pages: Vec<_> = ["unknown_host", "dead_host", "disabled"]
        .into_iter()
        .map(|reason| (error(&visit(Language::En), 404, reason), error_json(404, reason, "r")))
        .collect();
    assert!(pages.iter().all(|page| *page == pages[0]));
}

#[test]
fn ranks_are_hidden_until_the_lottery_is_drawn() {
    let page = waiting(&Waiting { rank: None, starts_in_ms: Some(60_000), ..line(Language::En) });
    assert!(page.contains("<div id=\"line\" class=\"figure\" hidden>"));
    assert!(page.contains("<dl id=\"tiles\" hidden>"));
    assert!(page.contains(">1:00<"));
    assert_eq!(data_block(&page)["rank"], Value::Null);
    assert_eq!(data_block(&page)["starts_in"], 60_000);
}

#[test]
fn the_script_is_told_what_it_needs() {
    for language in Language::ALL {
        let page = waiting(&line(language));
        let data = data_block(&page);
        let script = page.rsplit_once("<script").expect("script").1;
        for (prefix, object) in [("page.", &data), ("text.", &data["text"])] {
            for used in script.split(prefix).skip(1) {
                let name: String =
                    used.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                assert!(object.get(&name).is_some(), "{prefix}{name} is not in the data");
            }
        }
        for id in script.split("byId('").skip(1).chain(script.split("set('").skip(1)) {
            let id = id.split_once('\'').expect("end of id").0;
            assert!(page.contains(&format!(" id=\"{id}\"")), "no element {id}");
        }
    }
}

#[test]
fn the_policy_allows_what_the_pages_use() {
    assert_eq!(
        csp(NONCE),
        "default-src 'none'; script-src 'nonce-bm9uY2U'; style-src 'nonce-bm9uY2U'; connect-src \
         'self'; img-src data:; form-action 'self'; base-uri 'none'"
    );
    assert!(!csp("").contains("script-src"));
    let page = waiting(&line(Language::En));
    assert_eq!(page.matches("nonce=\"bm9uY2U\"").count(), 2);
    let plain = error(&Visit { nonce: "", ..visit(Language::En) }, 403, "x");
    assert!(!plain.contains("nonce"));
}

#[test]
fn queue_answers_have_the_agreed_fields() {
    for state in QueueState::ALL {
        let body = queue_json(state, Some(1), Some(2), Some(3), None, "drop");
        let name = state.name();
        assert_eq!(
            body,
            format!(
                r#"{{"state":"{name}","rank":1,"waiting":2,"retry_after":3,"eta_s":null,"queue":"drop"}}"#
            )
        );
    }
    let body: Value = serde_json::from_str(&error_json(403, "sql_injection", "r1")).expect("JSON");
    let expected = serde_json::json!({
        "status": 403, "error": "sql_injection", "detail": "This request was blocked.", "request_id": "r1"
    });
    assert_eq!(body, expected);
}

#[test]
fn templates_are_filled_once() {
    let page = Waiting {
        title: Some("{{rank}} <b>"),
        message: Some("it's"),
        rank: Some(1234),
        ..line(Language::En)
    };
    for (template, filled) in [
        ("{{rank}} of {{ waiting }}", "1,234 of 4,312"),
        ("{{title}}|{{message}}", "{{rank}} &lt;b&gt;|it&#39;s"),
        ("{{eta}}, again in {{refresh_s}} s", "about 4 minutes, again in 3 s"),
        ("{{status_url}} {{leave_url}}", "/__corvus/wr/drop/status /__corvus/wr/drop/leave"),
        ("{{request_id}}{{queue}}", "01JE3Y8K6QW2Z7drop"),
        ("{{unknown}} {{}} {{ rank", "{{unknown}} {{}} {{ rank"),
        ("{{{rank}}}", "{1,234}"),
        ("{{a {{rank}}", "{{a 1,234"),
        ("é{{rank}}日本", "é1,234日本"),
        ("{", "{"),
        ("{{", "{{"),
        ("", ""),
    ] {
        assert_eq!(render_template(template, &page), filled, "{template}");
    }
    let hidden = Waiting { rank: None, title: None, message: None, ..line(Language::De) };
    let filled = render_template("{{rank}} {{title}}{{message}}", &hidden);
    assert_eq!(filled, "– Sie sind in der Warteschlange");
}

/// Text that tries to leave its place: random, and with the pieces that have worked elsewhere.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "</script>",
            "<!--",
            "-->",
            "<script>",
            "\"",
            "'",
            "`",
            "\\",
            "</title>",
            "</style>",
            "{{rank}}",
            "\u{2028}",
            "&lt;",
            "\" onload=alert(1) x=\"",
            "javascript:",
            "//",
            "\0",
            "\r\n",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the input, the skeleton of the page (its tags and attribute names) stays the same.
    #[test]
    fn input_never_becomes_markup(text in hostile()) {
        let visit = Visit { request_id: &text, host: Some(&text), nonce: &text, ..visit(Language::En) };
        let tame = Visit { request_id: "x", host: Some("x"), nonce: "x", ..visit };
        let page = |visit, text| waiting(&Waiting {
            visit, title: Some(text), message: Some(text), place: text, ..line(Language::En)
        });
        let hostile_page = page(visit, &text);
        prop_assert_eq!(skeleton(&hostile_page), skeleton(&page(tame, "x")));
        prop_assert_eq!(&data_block(&hostile_page)["place"], &Value::String(text.clone()));

        for (hostile, tame) in [
            (error(&visit, 403, &text), error(&tame, 403, "x")),
            (
                notice(&visit, Notice::CookiesNeeded { again: &text }),
                notice(&tame, Notice::CookiesNeeded { again: "x" }),
            ),
        ] {
            prop_assert_eq!(skeleton(&hostile), skeleton(&tame));
        }
        let json: Value = serde_json::from_str(&error_json(500, &text, &text)).expect("valid JSON");
        prop_assert_eq!(&json["request_id"], &Value::String(text.clone()));
    }

    #[test]
    fn templates_never_fail(template in "[{}a-z <é]{0,40}", text in hostile()) {
        let page = Waiting { title: Some(&text), ..line(Language::En) };
        let filled = render_template(&format!("{template}{{{{title}}}}"), &page);
        prop_assert!(filled.len() >= template.len().min(1));
        prop_assert!(!filled.contains("<script>"));
    }
}

/// Tags and attribute names, without texts and values.
fn skeleton(page: &str) -> Vec<String> {
    let mut out = Vec::new();
    for tag in without_code(page).split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let names: Vec<&str> = tag
            .split('"')
            .step_by(2)
            .flat_map(|outside| outside.split([' ', '=']))
            .filter(|name| !name.is_empty())
            .collect();
        out.push(names.join(" "));
    }
    out
}

/// The recorded pages in testdata/pages; the browser test drives one of them. Write them anew with
/// `UPDATE_PAGES=1`, and read the difference.
#[test]
fn pages_are_as_recorded() {
    let early = Waiting { rank: None, starts_in_ms: Some(754_000), ..line(Language::Ar) };
    let own = Waiting {
        title: Some("The Corvids: winter tour"),
        message: Some("Tickets for 12 March.\nFour for each person."),
        rank: Some(98_765),
        waiting: 100_000,
        eta_s: None,
        paused: true,
        ..line(Language::De)
    };
    for (name, page) in [
        ("waiting-en", waiting(&line(Language::En))),
        ("waiting-own-words-de", waiting(&own)),
        ("waiting-lottery-ar", waiting(&early)),
        ("cookies-fr", notice(&visit(Language::Fr), NOTICES[0])),
        ("not-open-ja", notice(&visit(Language::Ja), NOTICES[5])),
        ("error-403-en", error(&visit(Language::En), 403, "sql_injection")),
    ] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("testdata/pages/{name}.html"));
        if std::env::var_os("UPDATE_PAGES").is_some() {
            std::fs::write(&path, &page).expect("writable testdata");
        }
        let recorded = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(page, recorded, "{} differs from what is rendered", path.display());
    }
}
