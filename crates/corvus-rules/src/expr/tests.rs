//! Examples for people, then properties: no text makes the parser panic, printing parses back, and
//! evaluation agrees with a second, naive evaluator.

use std::{borrow::Cow, net::IpAddr};

use proptest::prelude::*;

use super::{
    ast::{Comparison, Fold, IpTest, Node, NumberTest, Pattern, TextField, TextTest, TextValue},
    *,
};
use crate::ip_set::{IpItem, IpSet};

#[derive(Clone, Debug)]
struct Request {
    host: String,
    method: String,
    path: String,
    query: String,
    ip: IpAddr,
    headers: Vec<(String, String)>,
    cookies: Vec<(String, String)>,
    tls: bool,
}

impl Request {
    fn values<'a>(list: &'a [(String, String)], name: &str) -> Vec<&'a str> {
        list.iter().filter(|(have, _)| have == name).map(|(_, value)| value.as_str()).collect()
    }
}

impl Fields for Request {
    fn host(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.host)
    }
    fn method(&self) -> &str {
        &self.method
    }
    fn path(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.path)
    }
    fn query(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.query)
    }
    fn client_ip(&self) -> IpAddr {
        self.ip
    }
    fn header(&self, name: &str, each: &mut dyn FnMut(&str)) {
        Self::values(&self.headers, name).into_iter().for_each(each);
    }
    fn cookie(&self, name: &str, each: &mut dyn FnMut(&str)) {
        Self::values(&self.cookies, name).into_iter().for_each(each);
    }
    fn tls(&self) -> bool {
        self.tls
    }
}

fn request() -> Request {
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    Request {
        host: "shop.example.com".to_owned(),
        method: "POST".to_owned(),
        path: "/admin/login".to_owned(),
        query: "next=/home".to_owned(),
        ip: "203.0.113.7".parse().unwrap(),
        headers: vec![
            pair("user-agent", "Mozilla/5.0 (X11)"),
            pair("x-tag", "one"),
            pair("x-tag", "two"),
        ],
        cookies: vec![pair("session", "abc")],
        tls: true,
    }
}

#[test]
fn expressions_mean_what_they_say() {
    let yes = [
        r#"http.host eq "shop.example.com""#,
        r#"http.host == "SHOP.example.com""#,
        r#"http.request.method != "GET""#,
        r#"http.request.uri.path starts_with "/admin" and not ip.src in {198.51.100.0/24}"#,
        r#"starts_with(http.request.uri.path, "/admin") && ends_with(http.host, ".com")"#,
        r#"contains(lower(http.user_agent), "mozilla")"#,
        r#"http.request.uri eq "/admin/login?next=/home""#,
        r#"http.request.uri.query contains "next=""#,
        r#"http.request.headers["X-Tag"] eq "two""#,
        r#"http.request.headers["x-none"] ne "secret""#,
        r#"http.cookie["session"] matches r"^[a-c]{3}$""#,
        r#"http.request.cookies["session"] ~ "^\\w+$""#,
        r"ip.src in {10.0.0.0/8, 203.0.113.1..203.0.113.9 ::1}",
        r"ip.src eq 203.0.113.7",
        r"ssl",
        r"not ssl eq false",
        r"ssl xor not ssl",
        r"len(http.request.uri.path) in {1..3 12}",
        r"len(http.request.uri.path) ge 12 and len(http.host) < 100",
        r#"http.request.method in {"POST" "PUT"}"#,
        r#"http.referer eq "x" or not http.referer contains """#,
        r#"upper(lower(http.request.method)) eq "POST""#,
        // `and` binds tighter than `xor`, `xor` tighter than `or`.
        r"ssl or ssl and not ssl xor ssl",
    ];
    for text in yes {
        let expr = Expr::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(expr.matches(&request()), "{text} is {expr}");
    }
    let no = [
        r#"http.request.headers["x-tag"] ne "two""#,
        r#"http.request.headers["x-none"] eq "" "#,
        r#"http.request.headers["x-none"] matches ".*""#,
        r#"http.request.method eq "post""#,
        r"ip.src in {203.0.113.8..203.0.113.9}",
        r"ip.src ne ::ffff:203.0.113.7",
        r"len(http.referer) ge 0",
        r"not (ssl or ssl)",
    ];
    for text in no {
        let expr = Expr::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(!expr.matches(&request()), "{text} is {expr}");
    }
}

#[test]
fn errors_name_the_place_and_the_remedy() {
    let cases = [
        ("", 0, "an expression may not be empty"),
        (r#"http.hots eq "a""#, 0, "unknown field `http.hots`; did you mean `http.host`?"),
        (r#"user_agent eq "a""#, 0, "unknown field `user_agent`; did you mean `http.user_agent`?"),
        (r#"lowr(http.host) eq "a""#, 0, "unknown function `lowr`; did you mean `lower`?"),
        (r#"http.host = "a""#, 10, "`=` means nothing here; write `eq` or `==`"),
        (r#"http.host contain "a""#, 10, "unknown operator `contain`; did you mean `contains`?"),
        (r"http.host eq 'a'", 13, "`'` means nothing here; a text stands in double quotes"),
        (r"http.host eq /a", 13, "put the text in quotes: \"/a\""),
        (r#"http.host eq "a"#, 13, "this text has no closing quote"),
        (r#"http.host lt "a""#, 10, "a text has no order; compare its length: len(..)"),
        (
            r#"http.host matches "\d""#,
            19,
            "unknown escape `\\d`; use `\\\\` for a backslash, or a raw text r\"..\"",
        ),
        (r#"http.host matches "(""#, 18, "this regular expression is wrong: unclosed group"),
        (r#"http.host matches "\\w{900}{900}""#, 18, "this regular expression is too large"),
        (r#"ip.src eq "1.2.3.4""#, 10, "an address stands without quotes"),
        ("ip.src eq 10.0.0.0/8", 10, "a network stands in braces: in {10.0.0.0/8}"),
        (
            "ip.src contains 10.0.0.1",
            7,
            "`contains` does not work on `ip.src`; use `eq`, `ne` or `in`",
        ),
        ("ip.src in {10.0.0.0/33}", 11, "`10.0.0.0/33` is not a network like 10.0.0.0/8"),
        ("ip.src in {10.0.0.9..10.0.0.1}", 11, "a range goes up, within one address family"),
        ("ssl and", 7, "expected a field like `http.host`, not the end"),
        ("ssl)", 3, "this `)` closes nothing"),
        ("(ssl", 4, "expected `)`, not the end"),
        (
            "ssl annd ssl",
            4,
            "expected `and`, `or`, `xor` or the end, not `annd`; did you mean `and`?",
        ),
        (
            "len(http.host) eq 99999999999999999999",
            18,
            "the number 99999999999999999999 is too large",
        ),
        (r#"len(http.host) eq "a""#, 18, "expected a number, not a text"),
        ("len(ip.src) eq 1", 0, "`len()` takes a text field"),
        (
            r#"lower(http.host) eq "A""#,
            20,
            "`lower()` never gives capital letters; write this text small",
        ),
        (r#"http.request.headers["a b"] eq "x""#, 20, "a header name holds no ` `"),
        (r#"http.host in {"a", "b""#, 22, "expected `}`, not the end"),
    ];
    for (text, at, message) in cases {
        let error = Expr::parse(text).unwrap_err();
        assert_eq!((error.at, error.message.as_str()), (at, message), "{text}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let deep = |n: usize| format!("{}ssl{}", "(".repeat(n), ")".repeat(n));
    assert!(Expr::parse(&deep(MAX_DEPTH - 1)).is_ok());
    assert!(Expr::parse(&deep(MAX_DEPTH)).is_err());
    assert!(Expr::parse(&"(".repeat(MAX_LEN)).is_err());
    assert!(Expr::parse(&"not ".repeat(10_000)).is_err());
    assert!(Expr::parse(&"lower(".repeat(10_000)).is_err());
    assert!(Expr::parse(&" ".repeat(MAX_LEN + 1)).is_err());
    let wide = format!("ssl{}", " or ssl".repeat(9_000));
    assert!(Expr::parse(&wide).unwrap().matches(&request()));
    let regexes = vec![r#"http.host ~ "a""#; MAX_REGEXES + 1].join(" or ");
    assert!(Expr::parse(&regexes).unwrap_err().message.contains("more than 32"));
}

fn text_field() -> impl Strategy<Value = TextField> {
    prop_oneof![
        Just(TextField::Host),
        Just(TextField::Method),
        Just(TextField::Uri),
        Just(TextField::Path),
        Just(TextField::Query),
        Just(TextField::UserAgent),
        Just(TextField::Referer),
        "[a-c]".prop_map(TextField::Header),
        "[a-c\"\\\\\n]{1,2}".prop_map(TextField::Cookie),
    ]
}

/// Short texts over few letters, so that tests hold as often as not; odd ones for printing.
fn literal(fold: Fold, field: &TextField) -> BoxedStrategy<String> {
    match (fold, field) {
        (Fold::Upper, _) => "[AB\"\\\\]{0,2}".boxed(),
        (Fold::Keep, TextField::Host) | (Fold::Lower, _) => "[ab\n\u{1}é]{0,2}".boxed(),
        _ => "[abA\"\\\\\t\u{7f}]{0,2}".boxed(),
    }
}

fn text_value() -> impl Strategy<Value = TextValue> {
    let fold = prop_oneof![Just(Fold::Keep), Just(Fold::Lower), Just(Fold::Upper)];
    (text_field(), fold).prop_map(|(field, fold)| TextValue { field, fold })
}

fn text_node() -> impl Strategy<Value = Node> {
    text_value().prop_flat_map(|value| {
        let text = || literal(value.fold, &value.field);
        let test = prop_oneof![
            text().prop_map(TextTest::Eq),
            text().prop_map(TextTest::Ne),
            text().prop_map(TextTest::Contains),
            text().prop_map(TextTest::StartsWith),
            text().prop_map(TextTest::EndsWith),
            // Literal patterns: the naive evaluator reads them as `contains`.
            "[abA]{0,2}".prop_map(|text| {
                let regex = regex::Regex::new(&text).unwrap();
                TextTest::Matches(Pattern { text, regex })
            }),
            prop::collection::vec(text(), 1..4).prop_map(|mut texts| {
                texts.sort_unstable();
                texts.dedup();
                TextTest::In(texts)
            }),
        ];
        (Just(value), test).prop_map(|(value, test)| Node::Text(value, test))
    })
}

fn leaf() -> impl Strategy<Value = Node> {
    use Comparison as C;
    let comparison = prop::sample::select(vec![C::Eq, C::Ne, C::Lt, C::Le, C::Gt, C::Ge]);
    let number = prop_oneof![
        (comparison, 0u64..5).prop_map(|(c, n)| NumberTest::Compare(c, n)),
        prop::collection::vec((0u64..5, 0u64..3), 1..3)
            .prop_map(|list| NumberTest::In(list.iter().map(|(a, n)| (*a, a + n)).collect())),
    ];
    let ip = prop_oneof![
        address().prop_map(IpTest::Eq),
        address().prop_map(IpTest::Ne),
        prop::collection::vec((address(), 0u8..3), 1..4).prop_map(|list| {
            let item = |(ip, kind): (IpAddr, u8)| match (kind, ip) {
                (0, ip) => IpItem::One(ip),
                (1, ip) => IpItem::Net(ipnet::IpNet::new(ip, 30).unwrap().trunc()),
                (_, ip @ IpAddr::V4(_)) => IpItem::Range(ip, "10.0.0.9".parse().unwrap()),
                (_, ip) => IpItem::Range(ip, "2001:db8::9".parse().unwrap()),
            };
            IpTest::In(IpSet::new(list.into_iter().map(item).collect()))
        }),
    ];
    prop_oneof![
        1 => Just(Node::Tls),
        6 => text_node(),
        2 => (text_value(), number).prop_map(|(value, test)| Node::Len(value, test)),
        2 => ip.prop_map(Node::Ip),
    ]
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0u8..9).prop_map(|n| IpAddr::from([10, 0, 0, n])),
        (0u16..9).prop_map(|n| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n])),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    leaf().prop_recursive(5, 40, 4, |inner| {
        let several = || prop::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            inner.clone().prop_map(|node| Node::Not(Box::new(node))),
            several().prop_map(Node::And),
            several().prop_map(Node::Or),
            several().prop_map(Node::Xor),
        ]
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    let pairs = || prop::collection::vec(("[a-c]", "[abA]{0,2}"), 0..4);
    (
        "[ab]{0,2}",
        "[abA]{0,2}",
        "[abA]{0,2}",
        "[abA]{0,2}",
        address(),
        pairs(),
        pairs(),
        any::<bool>(),
    )
        .prop_map(|(host, method, path, query, ip, headers, cookies, tls)| Request {
            host,
            method,
            path,
            query,
            ip,
            headers,
            cookies,
            tls,
        })
}

/// The same meaning, spelt out: values as a list, tests as quantifiers over it.
fn naive(node: &Node, request: &Request) -> bool {
    let values = |value: &TextValue| -> Vec<String> {
        let header = |name: &str| Request::values(&request.headers, name);
        let all = match &value.field {
            TextField::Host => vec![request.host.as_str()],
            TextField::Method => vec![request.method.as_str()],
            TextField::Path => vec![request.path.as_str()],
            TextField::Query => vec![request.query.as_str()],
            TextField::UserAgent => header("user-agent"),
            TextField::Referer => header("referer"),
            TextField::Header(name) => header(name),
            TextField::Cookie(name) => Request::values(&request.cookies, name),
            TextField::Uri if request.query.is_empty() => vec![request.path.as_str()],
            TextField::Uri => {
                return vec![change(value.fold, &[&request.path, "?", &request.query].concat())];
            }
        };
        all.into_iter().map(|text| change(value.fold, text)).collect()
    };
    match node {
        Node::Tls => request.tls,
        Node::Not(inner) => !naive(inner, request),
        Node::And(list) => !list.iter().any(|n| !naive(n, request)),
        Node::Or(list) => list.iter().filter(|n| naive(n, request)).count() > 0,
        Node::Xor(list) => list.iter().filter(|n| naive(n, request)).count() % 2 == 1,
        Node::Text(value, test) => {
            let within = |have: &str, text: &str| {
                text.is_empty() || have.as_bytes().windows(text.len()).any(|w| w == text.as_bytes())
            };
            let values = values(value);
            match test {
                TextTest::Eq(text) => values.contains(text),
                TextTest::Ne(text) => !values.contains(text),
                TextTest::Contains(text) => values.iter().any(|v| within(v, text)),
                TextTest::Matches(pattern) => values.iter().any(|v| within(v, &pattern.text)),
                TextTest::StartsWith(text) => values.iter().any(|v| v.find(text) == Some(0)),
                TextTest::EndsWith(text) => values.iter().any(|v| v.strip_suffix(text).is_some()),
                TextTest::In(texts) => values.iter().any(|v| texts.contains(v)),
            }
        }
        Node::Len(value, test) => {
            let lengths: Vec<u64> = values(value).iter().map(|v| v.len() as u64).collect();
            let any = |test: &dyn Fn(u64) -> bool| lengths.iter().any(|n| test(*n));
            match test {
                NumberTest::Compare(Comparison::Eq, n) => any(&|len| len == *n),
                NumberTest::Compare(Comparison::Ne, n) => !any(&|len| len == *n),
                NumberTest::Compare(Comparison::Lt, n) => any(&|len| len < *n),
                NumberTest::Compare(Comparison::Le, n) => any(&|len| len <= *n),
                NumberTest::Compare(Comparison::Gt, n) => any(&|len| len > *n),
                NumberTest::Compare(Comparison::Ge, n) => any(&|len| len >= *n),
                NumberTest::In(ranges) => {
                    any(&|len| ranges.iter().any(|r| r.0 <= len && len <= r.1))
                }
            }
        }
        Node::Ip(IpTest::Eq(ip)) => request.ip == *ip,
        Node::Ip(IpTest::Ne(ip)) => request.ip != *ip,
        Node::Ip(IpTest::In(set)) => set.items().iter().any(|item| match item {
            IpItem::One(ip) => request.ip == *ip,
            IpItem::Net(net) => net.contains(&request.ip),
            IpItem::Range(a, b) => {
                a.is_ipv4() == request.ip.is_ipv4() && *a <= request.ip && request.ip <= *b
            }
        }),
    }
}

fn change(fold: Fold, text: &str) -> String {
    match fold {
        Fold::Keep => text.to_owned(),
        Fold::Lower => text.chars().map(|c| c.to_ascii_lowercase()).collect(),
        Fold::Upper => text.chars().map(|c| c.to_ascii_uppercase()).collect(),
    }
}

/// Words of the language in any order, which get further into the parser than arbitrary text.
fn word_salad() -> impl Strategy<Value = String> {
    let words = vec![
        "http.host",
        "ip.src",
        "ssl",
        "len",
        "lower",
        "http.request.headers",
        "eq",
        "ne",
        "in",
        "and",
        "or",
        "not",
        "xor",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        "..",
        "\"a\"",
        "r\"b\"",
        "1",
        "10.0.0.0/8",
        "::1",
        "matches",
        "\"\\",
        "r#",
        "true",
        "é",
        "=",
        "~",
        "\u{0}",
    ];
    prop::collection::vec((prop::sample::select(words), any::<bool>()), 0..20).prop_map(|list| {
        list.iter().flat_map(|(word, space)| [*word, if *space { " " } else { "" }]).collect()
    })
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>(), salad in word_salad()) {
        for text in [text, salad] {
            match Expr::parse(&text) {
                Ok(expr) => prop_assert_eq!(&Expr::parse(&expr.to_string()).unwrap(), &expr),
                Err(error) => prop_assert!(error.at <= text.len() && !error.message.is_empty()),
            }
        }
    }

    #[test]
    fn printing_parses_back(node in node()) {
        let text = node.to_string();
        let parsed = Expr::parse(&text);
        prop_assert_eq!(parsed.map(|expr| expr.root), Ok(node), "{}", text);
    }

    #[test]
    fn evaluation_agrees_with_the_naive_one(node in node(), request in any_request()) {
        prop_assert_eq!(eval::eval(&node, &request), naive(&node, &request), "{}", node);
    }

    #[test]
    fn de_morgan_holds(a in node(), b in node(), request in any_request()) {
        let eval = |text: String| Expr::parse(&text).unwrap().matches(&request);
        prop_assert_eq!(
            eval(format!("not (({a}) and ({b}))")),
            eval(format!("not ({a}) or not ({b})"))
        );
        prop_assert_eq!(
            eval(format!("not (({a}) or ({b}))")),
            eval(format!("not ({a}) and not ({b})"))
        );
    }
}
