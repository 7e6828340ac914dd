//! Languages of the pages: which one a visitor gets, and how it writes numbers and times.
//!
//! The texts are one table for each language in `lang/`; a table with a missing text does not
//! compile.

mod ar;
mod de;
mod en;
mod es;
mod fr;
mod it;
mod ja;
mod ko;
mod nl;
mod pl;
mod pt;
mod text;
mod zh;

pub(super) use text::{Errors, Forms, Text};

/// A language the pages speak.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Language {
    #[default]
    En,
    De,
    Fr,
    Es,
    It,
    Pt,
    Nl,
    Pl,
    Ja,
    Zh,
    Ko,
    Ar,
}

/// Headers longer than this many ranges are not a person's; the rest is not read.
const MAX_RANGES: usize = 32;

impl Language {
    pub(crate) const ALL: [Self; 12] = [
        Self::En,
        Self::De,
        Self::Fr,
        Self::Es,
        Self::It,
        Self::Pt,
        Self::Nl,
        Self::Pl,
        Self::Ja,
        Self::Zh,
        Self::Ko,
        Self::Ar,
    ];

    /// The best language for an `Accept-Language` value (RFC 9110 section 12.5.4): the highest
    /// weight wins, the first of equals; only the primary subtag counts. English when nothing
    /// matches or the value makes no sense.
    pub(crate) fn negotiate(accept_language: &str) -> Self {
        let mut best = (Self::En, 0);
        for range in accept_language.split(',').take(MAX_RANGES) {
            let mut parts = range.split(';');
            let tag = parts.next().unwrap_or_default().trim();
            let primary = tag.split(['-', '_']).next().unwrap_or_default();
            let language = match primary {
                "*" => Some(Self::En),
                primary => {
                    Self::ALL.into_iter().find(|l| l.primary().eq_ignore_ascii_case(primary))
                }
            };
            let weight = super::accept::weight(parts);
            if let Some(language) = language
                && weight > best.1
            {
                best = (language, weight);
            }
        }
        best.0
    }

    /// The primary subtag of the language tag (RFC 5646).
    pub(crate) const fn primary(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::De => "de",
            Self::Fr => "fr",
            Self::Es => "es",
            Self::It => "it",
            Self::Pt => "pt",
            Self::Nl => "nl",
            Self::Pl => "pl",
            Self::Ja => "ja",
            Self::Zh => "zh",
            Self::Ko => "ko",
            Self::Ar => "ar",
        }
    }

    /// The tag for the `lang` attribute and `Content-Language`.
    pub(crate) const fn tag(self) -> &'static str {
        match self {
            Self::Zh => "zh-Hans",
            other => other.primary(),
        }
    }

    /// The writing direction, for the `dir` attribute.
    pub(super) const fn direction(self) -> &'static str {
        if matches!(self, Self::Ar) { "rtl" } else { "ltr" }
    }

    pub(super) const fn text(self) -> &'static Text {
        match self {
            Self::En => &en::TEXT,
            Self::De => &de::TEXT,
            Self::Fr => &fr::TEXT,
            Self::Es => &es::TEXT,
            Self::It => &it::TEXT,
            Self::Pt => &pt::TEXT,
            Self::Nl => &nl::TEXT,
            Self::Pl => &pl::TEXT,
            Self::Ja => &ja::TEXT,
            Self::Zh => &zh::TEXT,
            Self::Ko => &ko::TEXT,
            Self::Ar => &ar::TEXT,
        }
    }

    /// What stands between groups of three digits.
    pub(super) const fn separator(self) -> &'static str {
        match self {
            Self::De | Self::Es | Self::It | Self::Pt | Self::Nl => ".",
            Self::Fr | Self::Pl => "\u{202f}",
            _ => ",",
        }
    }

    /// `n` with its digits in groups, as waiting.js writes it too.
    pub(super) fn number(self, n: u64) -> String {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(n);
        let mut out = String::with_capacity(digits.len() * 4 / 3);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                out.push_str(self.separator());
            }
            out.push(digit);
        }
        out
    }

    /// Which of the four [`Forms`] goes with `n`: one, two, few, other.
    const fn form(self, n: u64) -> usize {
        match (self, n) {
            (_, 1) => 0,
            (_, 2) => 1,
            (Self::Pl, _) if matches!(n % 10, 2..=4) && !matches!(n % 100, 12..=14) => 2,
            (Self::Ar, _) if matches!(n % 100, 3..=10) => 2,
            _ => 3,
        }
    }

    fn counted(self, forms: &Forms, n: u64) -> String {
        forms[self.form(n)].replace("{n}", &self.number(n))
    }

    /// A wait in words, rounded up so that the promise is kept: minutes to 20, then five at a time,
    /// hours from two on. `None`: not measured yet. waiting.js rounds in the same way.
    pub(super) fn wait(self, eta_s: Option<u64>) -> String {
        let text = self.text();
        match eta_s {
            None => text.wait_unknown.into(),
            Some(0..60) => text.wait_moment.into(),
            Some(s @ 60..7200) => {
                let minutes = s.div_ceil(60);
                let minutes = if minutes > 20 { minutes.div_ceil(5) * 5 } else { minutes };
                self.counted(&text.minutes, minutes)
            }
            Some(s @ 7200..86_400) => self.counted(&text.hours, s.div_ceil(3600)),
            Some(_) => text.wait_day.into(),
        }
    }

    /// Time to go as a clock: `4:09`, `2:04:09`, `3d 02:04:09`. common.js ticks in the same way.
    pub(super) fn clock(self, ms: u64) -> String {
        let s = ms.div_ceil(1000);
        let (days, hours, minutes, seconds) = (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60);
        match (days, hours) {
            (0, 0) => format!("{minutes}:{seconds:02}"),
            (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
            _ => format!("{days}{} {hours:02}:{minutes:02}:{seconds:02}", self.text().day),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_weight_wins() {
        for (header, language) in [
            ("", Language::En),
            ("de", Language::De),
            ("de-CH,de;q=0.9,en;q=0.8", Language::De),
            ("en;q=0.5, fr;q=0.8, de;q=0.7", Language::Fr),
            ("tlh, ja;q=0.4, *;q=0.1", Language::Ja),
            ("*", Language::En),
            ("PT-br", Language::Pt),
            ("zh_TW", Language::Zh),
            ("ar;q=0, ko;q=0.001", Language::Ko),
            ("ko;q=0", Language::En),
            ("es;q=0.8,it;q=0.8", Language::Es),
            ("de;q=banana, pl;q=0.3", Language::Pl),
            ("de; q = 0.2 , nl ; q=1.000", Language::Nl),
            (";;;,,,;q=,q=1", Language::En),
            ("germanic", Language::En),
        ] {
            assert_eq!(Language::negotiate(header), language, "{header}");
        }
        let long = "xx,".repeat(100_000) + "de";
        assert_eq!(Language::negotiate(&long), Language::En);
    }

    #[test]
    fn numbers_are_grouped() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(Language::En.number(n), text);
        }
        assert_eq!(Language::De.number(50_000), "50.000");
        assert_eq!(Language::Fr.number(u64::MAX).chars().filter(|c| *c == '\u{202f}').count(), 6);
    }

    #[test]
    fn waits_round_up() {
        for (eta, words) in [
            (None, "we will know soon"),
            (Some(0), "less than a minute"),
            (Some(59), "less than a minute"),
            (Some(60), "about a minute"),
            (Some(61), "about 2 minutes"),
            (Some(20 * 60), "about 20 minutes"),
            (Some(20 * 60 + 1), "about 25 minutes"),
            (Some(7199), "about 120 minutes"),
            (Some(7200), "about 2 hours"),
            (Some(86_399), "about 24 hours"),
            (Some(86_400), "more than a day"),
            (Some(u64::MAX), "more than a day"),
        ] {
            assert_eq!(Language::En.wait(eta), words, "{eta:?}");
        }
    }

    #[test]
    fn plurals_follow_the_language() {
        let minutes = |l: Language, n: u64| l.wait(Some(n * 60));
        assert_eq!(minutes(Language::Pl, 3), "około 3 minuty");
        assert_eq!(minutes(Language::Pl, 5), "około 5 minut");
        assert_eq!(minutes(Language::Pl, 12), "około 12 minut");
        assert_eq!(minutes(Language::Ar, 2), "نحو دقيقتين");
        assert_eq!(minutes(Language::Ar, 10), "نحو 10 دقائق");
        assert_eq!(minutes(Language::Ar, 11), "نحو 11 دقيقة");
    }

    #[test]
    fn clocks_show_what_is_left() {
        for (ms, text) in [
            (0, "0:00"),
            (1, "0:01"),
            (249_000, "4:09"),
            (7_449_000, "2:04:09"),
            (266_649_000, "3d 02:04:09"),
        ] {
            assert_eq!(Language::En.clock(ms), text);
        }
    }
}
