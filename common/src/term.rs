//! What people see: numbers with units, colours where they are wanted.

use std::io::IsTerminal;
use std::time::Duration;

/// Bytes with a decimal unit, three digits at most before it.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ if value < 9.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// Bytes in a time: `118 MB/s`.
pub fn rate(count: u64, time: Duration) -> String {
    format!("{}/s", bytes((count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)) as u64))
}

/// A span of time as people say it.
pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        s @ 60..3600 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

/// Milliseconds, as a record's field holds them.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, millis)
}

/// Whether stdout wants colours: a terminal, and no NO_COLOR (no-color.org).
pub fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The text in one of six colours, or plain.
pub fn colour(text: &str, number: usize, wanted: bool) -> String {
    match wanted {
        true => format!("\x1b[3{}m{text}\x1b[0m", number % 6 + 1),
        false => text.to_owned(),
    }
}

/// `1 file`, `2 files`, `2 processes`.
pub fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ if noun.ends_with('s') => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_read_well() {
        let table = [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (134_686, "135 kB"), (999_600, "1.0 MB"), (5_368_709_120, "5.4 GB")];
        for (count, text) in table {
            assert_eq!(super::bytes(count), text);
        }
        assert_eq!(super::rate(236_000_000, std::time::Duration::from_secs(2)), "118 MB/s");
    }

    #[test]
    fn one_or_more() {
        let table = [(0, "file", "0 files"), (1, "process", "1 process"), (2, "process", "2 processes")];
        for (number, noun, text) in table {
            assert_eq!(super::count(number, noun), text);
        }
    }
}
