//! Both notations give the same tree; hostile text is refused within bounds.

use proptest::prelude::*;

use super::*;

fn yaml(text: &str) -> Result<Node, Vec<Problem>> {
    parse(text, Format::Yaml)
}

/// Without lines.
fn bare(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::Text(text) => text.clone().into(),
        Value::List(items) => items.iter().map(bare).collect(),
        Value::Map(members) => members.iter().map(|(k, n)| (k.clone(), bare(n))).collect(),
    }
}

#[test]
fn scalars_follow_the_core_schema() {
    let text = "[~, null, true, off, yes, 12, -3, 0x1f, 1.5, 1e3, '12', \"x\", 1.2.3.4, 10.0.0.0/8,
                 2026-12-01T12:00:00Z, '', !!str 5, .5, 1-2, 99999999999999999999, +4, .]";
    let expected = serde_json::json!([
        null,
        null,
        true,
        "off",
        "yes",
        12,
        -3,
        31,
        1.5,
        1000.0,
        "12",
        "x",
        "1.2.3.4",
        "10.0.0.0/8",
        "2026-12-01T12:00:00Z",
        "",
        "5",
        0.5,
        "1-2",
        1e20,
        4,
        "."
    ]);
    assert_eq!(bare(&yaml(text).unwrap()), expected);
    assert_eq!(bare(&yaml("").unwrap()), serde_json::Value::Null);
}

#[test]
fn lines_are_those_of_keys_and_items() {
    let node = yaml("a:\n  b:\n    - x\n    - {y: 1}\nc:\n").unwrap();
    for (pointer, line) in [("/a", 1), ("/a/b/0", 3), ("/a/b/1/y", 4), ("/c", 5), ("/a/b/9/z", 2)] {
        assert_eq!(node.line_at(pointer), Some(line), "{pointer}");
    }
}

#[test]
fn what_readers_would_understand_differently_is_refused() {
    for (text, line, message) in [
        ("a: 1\nb: {c: 1, c: 2}\na: 3\n", Some(2), "the key `c` stands here twice"),
        ("a: [1\n", None, "this is not YAML"),
        ("a: 1\n---\nb: 2\n", Some(2), "a file holds one document"),
        ("a: !x 1\n", Some(1), "the tag `!x` means nothing here"),
        ("{a: 1}: 2\n", Some(1), "a key is a plain text, not a list or a mapping"),
        ("a: &a [*a]\n", Some(1), "an alias may not stand inside what it names"),
        ("a: *b\n", Some(1), "this is not YAML"),
        ("a:\n\tb: 1\n", Some(2), "this is not YAML"),
    ] {
        let problems = yaml(text).unwrap_err();
        assert!(problems[0].message.starts_with(message), "{text}: {problems:?}");
        if line.is_some() {
            assert_eq!(problems[0].line, line, "{text}");
        }
    }
    let problems = parse("{\"a\": 1,\n \"a\": 2}", Format::Json).unwrap_err();
    assert_eq!(problems[0].pointer, "/a");
    let problems = parse("{\"a\": 1,\n b}", Format::Json).unwrap_err();
    assert_eq!((problems[0].line, problems.len()), (Some(2), 1));
}

#[test]
fn growth_and_depth_are_bounded() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..20 {
        let copies = vec![format!("*a{}", i - 1); 9].join(", ");
        let line = format!("a{i}: &a{i} [{copies}]\n");
        bomb.push_str(&line);
    }
    assert!(yaml(&bomb).unwrap_err()[0].message.contains("expand to too much"));
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 100].join(","));
    assert!(yaml(&long).unwrap_err()[0].message.contains("expand to too much"));
    for deep in ["[".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(1_000)] {
        assert!(yaml(&deep).is_err());
    }
    assert!(parse(&"[".repeat(100_000), Format::Json).is_err());
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(parse(&nested(MAX_DEPTH), Format::Json).is_ok());
    assert!(parse(&nested(MAX_DEPTH + 2), Format::Json).is_err());
    let mut tower = "a0: &a0 []\n".to_owned();
    for i in 1..1_000 {
        let line = format!("a{i}: &a{i} [*a{}]\n", i - 1);
        tower.push_str(&line);
    }
    assert!(yaml(&tower).unwrap_err()[0].message.contains("nested deeper"));
    assert_eq!(bare(&yaml("a: &x {b: 1}\nc: *x\n").unwrap())["c"]["b"], 1);
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
        "[-0-9a-fox.~:#'\"{}\\[\\] \n]{0,6}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(
        text in prop_oneof![any::<String>(), "[-&*!|>%@a:# \n\t\\[{}\\],'\"?~]{0,40}"],
    ) {
        let _ = parse(&text, Format::Yaml);
        let _ = parse(&text, Format::Json);
    }

    #[test]
    fn json_and_its_printed_yaml_read_alike(value in json()) {
        let text = serde_json::to_string_pretty(&value).unwrap();
        prop_assert_eq!(&bare(&parse(&text, Format::Json).unwrap()), &value);
        let text = serde_saphyr::to_string(&value).unwrap();
        prop_assert_eq!(bare(&yaml(&text).unwrap()), value, "{}", text);
    }
}
