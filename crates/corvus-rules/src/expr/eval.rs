//! Evaluation: no failure, no allocation except for `lower()`/`upper()` of text that changes.

use std::borrow::Cow;

use super::{
    Fields,
    ast::{Comparison, Fold, IpTest, Node, NumberTest, TextField, TextTest, TextValue},
};

pub(super) fn eval(node: &Node, fields: &dyn Fields) -> bool {
    match node {
        Node::Tls => fields.tls(),
        Node::Not(inner) => !eval(inner, fields),
        Node::And(all) => all.iter().all(|node| eval(node, fields)),
        Node::Or(any) => any.iter().any(|node| eval(node, fields)),
        Node::Xor(all) => all.iter().fold(false, |odd, node| odd ^ eval(node, fields)),
        // The opposite of `eq`, also for what is absent: `ne "secret"` must catch a missing header.
        Node::Text(value, TextTest::Ne(text)) => !any(value, fields, |have| have == text),
        Node::Text(value, test) => any(value, fields, |have| holds(test, have)),
        Node::Len(value, NumberTest::Compare(Comparison::Ne, number)) => {
            !any(value, fields, |have| have.len() as u64 == *number)
        }
        Node::Len(value, test) => any(value, fields, |have| compare(test, have.len() as u64)),
        Node::Ip(test) => {
            let ip = fields.client_ip().to_canonical();
            match test {
                IpTest::Eq(wanted) => ip == *wanted,
                IpTest::Ne(unwanted) => ip != *unwanted,
                IpTest::In(set) => set.contains(ip),
            }
        }
    }
}

/// Whether `test` holds for any of the field's values.
fn any(value: &TextValue, fields: &dyn Fields, mut test: impl FnMut(&str) -> bool) -> bool {
    let mut found = false;
    let mut each = |text: &str| found = found || test(&fold(value.fold, text));
    match &value.field {
        TextField::Host => each(&fields.host()),
        TextField::Method => each(fields.method()),
        TextField::Uri => each(&fields.uri()),
        TextField::Path => each(&fields.path()),
        TextField::Query => each(&fields.query()),
        TextField::UserAgent => fields.header("user-agent", &mut each),
        TextField::Referer => fields.header("referer", &mut each),
        TextField::Header(name) => fields.header(name, &mut each),
        TextField::Cookie(name) => fields.cookie(name, &mut each),
    }
    found
}

fn fold(fold: Fold, text: &str) -> Cow<'_, str> {
    match fold {
        Fold::Lower if text.bytes().any(|b| b.is_ascii_uppercase()) => {
            Cow::Owned(text.to_ascii_lowercase())
        }
        Fold::Upper if text.bytes().any(|b| b.is_ascii_lowercase()) => {
            Cow::Owned(text.to_ascii_uppercase())
        }
        _ => Cow::Borrowed(text),
    }
}

fn holds(test: &TextTest, have: &str) -> bool {
    match test {
        TextTest::Eq(text) => have == text,
        TextTest::Ne(text) => have != text,
        TextTest::Contains(text) => have.contains(text.as_str()),
        TextTest::StartsWith(text) => have.starts_with(text.as_str()),
        TextTest::EndsWith(text) => have.ends_with(text.as_str()),
        TextTest::Matches(pattern) => pattern.regex.is_match(have),
        TextTest::In(texts) => texts.binary_search_by(|text| text.as_str().cmp(have)).is_ok(),
    }
}

fn compare(test: &NumberTest, have: u64) -> bool {
    match test {
        NumberTest::Compare(Comparison::Eq, number) => have == *number,
        NumberTest::Compare(Comparison::Ne, number) => have != *number,
        NumberTest::Compare(Comparison::Lt, number) => have < *number,
        NumberTest::Compare(Comparison::Le, number) => have <= *number,
        NumberTest::Compare(Comparison::Gt, number) => have > *number,
        NumberTest::Compare(Comparison::Ge, number) => have >= *number,
        NumberTest::In(ranges) => ranges.iter().any(|(a, b)| (*a..=*b).contains(&have)),
    }
}
