//! docs/request-path.md lists the stages of a request in the order the code runs them.

use std::{fs, iter, path::Path};

use anyhow::{Context, Result};
use corvus_core::Stage;

/// A sentence for each row of the document that differs from the code.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let path = root.join("docs/request-path.md");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(compare(&text))
}

fn compare(document: &str) -> Vec<String> {
    let documented: Vec<(usize, String)> = document.lines().filter_map(row).collect();
    let stages = iter::successors(Some(Stage::Parse), |stage| following(*stage));
    let actual: Vec<(usize, String)> =
        (1..).zip(stages.map(|stage| stage.name().replace('_', " "))).collect();

    let length = documented.len().max(actual.len());
    let differing = (0..length).filter(|index| documented.get(*index) != actual.get(*index));
    let text = |row: Option<&(usize, String)>| {
        row.map_or_else(|| "nothing".to_owned(), |(number, name)| format!("{number} {name}"))
    };
    differing
        .map(|index| {
            let (documented, actual) = (text(documented.get(index)), text(actual.get(index)));
            format!("docs/request-path.md lists {documented} where the code has {actual}.")
        })
        .collect()
}

/// Number and name of a row like `| 1 | parse | ... |`; other lines are not stages.
fn row(line: &str) -> Option<(usize, String)> {
    let mut cells = line.trim().strip_prefix('|')?.split('|').map(str::trim);
    let number = cells.next()?.parse().ok()?;
    Some((number, cells.next()?.to_owned()))
}

/// The order of the stages. A new stage does not compile until it has its place here.
fn following(stage: Stage) -> Option<Stage> {
    Some(match stage {
        Stage::Parse => Stage::Client,
        Stage::Client => Stage::Acme,
        Stage::Acme => Stage::Host,
        Stage::Host => Stage::Ban,
        Stage::Ban => Stage::Redirect,
        Stage::Redirect => Stage::Rules,
        Stage::Rules => Stage::Exploit,
        Stage::Exploit => Stage::Limits,
        Stage::Limits => Stage::OwnPaths,
        Stage::OwnPaths => Stage::Challenge,
        Stage::Challenge => Stage::Access,
        Stage::Access => Stage::Queue,
        Stage::Queue => Stage::Body,
        Stage::Body => Stage::Upstream,
        Stage::Upstream => Stage::Response,
        Stage::Response => Stage::Record,
        Stage::Record => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> String {
        let rows = names.iter().enumerate().map(|(index, name)| {
            let number = index + 1;
            format!("| {number} | {name} | what it decides |\n")
        });
        format!(
            "| # | stage | decides |\n|---|---|---|\n| - | accept, tls | x |\n{}",
            rows.collect::<String>()
        )
    }

    const NAMES: [&str; 17] = [
        "parse",
        "client",
        "acme",
        "host",
        "ban",
        "redirect",
        "rules",
        "exploit",
        "limits",
        "own paths",
        "challenge",
        "access",
        "queue",
        "body",
        "upstream",
        "response",
        "record",
    ];

    #[test]
    fn the_right_table_passes() {
        assert_eq!(compare(&table(&NAMES)), Vec::<String>::new());
    }

    #[test]
    fn swapped_missing_and_additional_stages_are_named() {
        let mut swapped = NAMES;
        swapped.swap(3, 4);
        assert_eq!(
            compare(&table(&swapped)),
            [
                "docs/request-path.md lists 4 ban where the code has 4 host.",
                "docs/request-path.md lists 5 host where the code has 5 ban.",
            ]
        );
        assert_eq!(
            compare(&table(&NAMES[..16])),
            ["docs/request-path.md lists nothing where the code has 17 record."]
        );
        let more: Vec<&str> = NAMES.into_iter().chain(["more"]).collect();
        assert_eq!(
            compare(&table(&more)),
            ["docs/request-path.md lists 18 more where the code has nothing."]
        );
    }

    /// [`Stage`] is compared by its order in the code, so the two orders must be one.
    #[test]
    fn stages_compare_in_the_order_of_the_path() {
        let stages: Vec<Stage> =
            iter::successors(Some(Stage::Parse), |stage| following(*stage)).collect();
        assert!(stages.is_sorted());
    }
}
