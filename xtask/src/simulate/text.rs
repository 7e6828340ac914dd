//! Numbers as people read them.

/// 1234567 as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Whole from 10 up, else with one digit after the point.
pub(super) fn short(number: f64) -> String {
    if number >= 10.0 { grouped(number.round() as u64) } else { format!("{number:.1}") }
}

pub(super) fn bytes(bytes: f64) -> String {
    scaled(bytes, "B")
}

pub(super) fn bits_per_s(bits: f64) -> String {
    scaled(bits, "bit/s")
}

pub(super) fn times(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { many })
}

fn scaled(number: f64, unit: &str) -> String {
    let (size, prefix) = match number {
        n if n >= 1e9 => (1e9, "G"),
        n if n >= 1e6 => (1e6, "M"),
        n if n >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{} {prefix}{unit}", short(number / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_scaled() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
        assert_eq!(short(9.96), "10.0");
        assert_eq!(short(1_234.5), "1,235");
        assert_eq!(bytes(250.0), "250 B");
        assert_eq!(bytes(1_250_000_000.0), "1.2 GB");
        assert_eq!(bits_per_s(15_000.0), "15 kbit/s");
        assert_eq!(times(1, "call", "calls"), "1 call");
    }
}
