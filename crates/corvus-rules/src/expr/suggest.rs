//! What an error message suggests.

/// The last line of the library's message says what is wrong; those above draw the pattern.
pub(super) fn regex_message(error: &regex::Error) -> String {
    let text = match error {
        regex::Error::CompiledTooBig(_) => {
            return "this regular expression is too large".to_owned();
        }
        other => other.to_string(),
    };
    let reason = text.lines().last().unwrap_or_default().trim();
    format!("this regular expression is wrong: {}", reason.trim_start_matches("error: "))
}

/// `; did you mean ..?`, when some known name is close.
pub(super) fn nearest(word: &str, names: &[&[&str]]) -> String {
    // The distance costs the product of both lengths; nobody slips in a word this long.
    let lower = if word.len() > 64 { String::new() } else { word.to_ascii_lowercase() };
    let best = names
        .iter()
        .flat_map(|list| list.iter())
        .map(|name| (strsim::damerau_levenshtein(&lower, name), *name))
        // Half a short word or a third of a long one still counts as a slip.
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(2).min(name.len() - 1))
        .min_by_key(|(distance, _)| *distance);
    // The last part of a dotted field is what people remember: `uri.path`, `user_agent`.
    let by_tail = || {
        names
            .iter()
            .flat_map(|list| list.iter())
            .filter(|name| lower.len() > 1 && name.ends_with(lower.as_str()))
            .min_by_key(|name| name.len())
            .copied()
    };
    match best.map(|(_, name)| name).or_else(by_tail) {
        Some(name) => format!("; did you mean `{name}`?"),
        None => format!("; known are {}", or_list(names.first().copied().unwrap_or_default())),
    }
}

pub(super) fn or_list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
