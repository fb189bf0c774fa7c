//! Text for people: numbers with units, colours, and foreign text without control sequences.

use nix::time::{ClockId, clock_gettime};
use std::borrow::Cow;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Duration;
use terminal_size::{Width, terminal_size_of};

/// With a decimal unit and at most three digits before the point.
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

/// `118 MB/s`.
pub fn rate(count: u64, time: Duration) -> String {
    format!(
        "{}/s",
        bytes((count as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE)) as u64)
    )
}

/// `2 min 5 s`.
pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        s @ 60..3600 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub fn now_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, millis)
}

/// How long the machine has run, including sleep, by a clock that cannot be set.
pub fn uptime() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// Whether stdout is a terminal and NO_COLOR (no-color.org) is not set.
pub fn colours() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Columns; `None` if the stream is not a terminal.
pub fn width(stream: impl AsFd) -> Option<usize> {
    terminal_size_of(stream).map(|(Width(columns), _)| columns.into())
}

/// The beginning of a text of more characters, with an ellipsis.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most.saturating_sub(1)) {
        Some((offset, last)) if offset + last.len_utf8() < text.len() => {
            format!("{}…", &text[..offset])
        }
        _ => text.to_owned(),
    }
}

/// Wraps between words into lines of at most this many columns; all but the first are indented.
pub fn wrapped(text: &str, columns: usize, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = 0;
    for word in text.split_inclusive(' ') {
        let length = word.chars().count();
        if line > indent.len() && line + word.trim_end().chars().count() > columns {
            lines.truncate(lines.trim_end().len());
            lines += "\n";
            lines += indent;
            line = indent.len();
        }
        lines += word;
        line += length;
    }
    lines
}

/// One of six colours.
pub fn colour(text: &str, number: usize, wanted: bool) -> String {
    if wanted {
        format!("\x1b[3{}m{text}\x1b[0m", number % 6 + 1)
    } else {
        text.to_owned()
    }
}

/// Makes text of a host, a file or a user safe for one of our lines. Whatever would move the
/// cursor, set a title, query the terminal, begin a line or reverse the direction of text is
/// escaped, as `\x1b`.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if is_hidden(c) && u32::from(c) < 0x100 => {
                shown += &format!("\\x{:02x}", u32::from(c));
            }
            c if is_hidden(c) => shown += &format!("\\u{{{:x}}}", u32::from(c)),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Makes each line [`plain`]. Everything that writes lines calls this, so that no control sequence
/// of a host or a file reaches the terminal.
pub fn plain_lines(text: &str) -> String {
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(plain).collect();
    lines.join("\n")
}

/// ASCII control characters, those of the upper half (which begin sequences too), and invisible
/// ones of Unicode.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Removes all control sequences of a line, except its colours if `keeps_colours`.
pub fn printable(line: &[u8], keeps_colours: bool) -> Vec<u8> {
    let mut clean = Vec::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        clean.extend(
            chunk
                .valid()
                .chars()
                .filter(|c| !('\u{80}'..='\u{9f}').contains(c))
                .collect::<String>()
                .into_bytes(),
        );
        clean.extend(chunk.invalid().iter().filter(|byte| **byte >= 0xa0));
    }
    let mut shown = Vec::with_capacity(clean.len());
    let mut rest = clean.as_slice();
    while let Some((&byte, behind)) = rest.split_first() {
        match byte {
            0x1b => {
                let length = sequence(behind);
                let (sequence, behind) = behind.split_at(length);
                if keeps_colours
                    && let Some(colours) = sequence
                        .strip_prefix(b"[")
                        .and_then(|text| text.strip_suffix(b"m"))
                    && colours
                        .iter()
                        .all(|byte| byte.is_ascii_digit() || b";:".contains(byte))
                {
                    shown.push(0x1b);
                    shown.extend_from_slice(sequence);
                }
                rest = behind;
                continue;
            }
            b'\t' => shown.push(byte),
            byte if byte.is_ascii_control() => {}
            byte => shown.push(byte),
        }
        rest = behind;
    }
    shown
}

/// After its ESC (ECMA-48, 5.3 to 5.6). A sequence without an end includes all of the text.
fn sequence(text: &[u8]) -> usize {
    let until = |from: usize, is_last: fn(u8) -> bool| {
        let last = text.iter().skip(from).position(|byte| is_last(*byte));
        last.map_or(text.len(), |last| from + last + 1)
    };
    match text.first() {
        Some(b'[') => until(1, |byte| (0x40..0x7f).contains(&byte)),
        // a string ends with BEL, or ESC and a backslash, which is another sequence
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            match text.iter().position(|byte| [0x07, 0x1b].contains(byte)) {
                Some(end) if text[end] == 0x1b => end,
                Some(end) => end + 1,
                None => text.len(),
            }
        }
        _ => until(0, |byte| (0x30..0x7f).contains(&byte)),
    }
}

/// `a, b and 3 more`.
pub fn first_few(names: impl IntoIterator<Item = impl AsRef<str>>, most: usize) -> String {
    let mut names = names.into_iter();
    let mut text = String::new();
    for name in names.by_ref().take(most) {
        let comma = if text.is_empty() { "" } else { ", " };
        text += comma;
        text += name.as_ref();
    }
    match names.count() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// ` (and 2 more that grew)`, if the first of three was named; empty if there is only one.
pub fn and_more(count: usize, what: &str) -> String {
    match count {
        0 | 1 => String::new(),
        _ => format!(" (and {} more{what})", count - 1),
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
        let table = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (134_686, "135 kB"),
            (999_600, "1.0 MB"),
            (5_368_709_120, "5.4 GB"),
        ];
        for (count, text) in table {
            assert_eq!(super::bytes(count), text);
        }
        assert_eq!(
            super::rate(236_000_000, std::time::Duration::from_secs(2)),
            "118 MB/s"
        );
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_in_a_message() {
        let table = [
            ("plain, ä, 日本", "plain, ä, 日本"),
            ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
            ("a\n  fix: b\r\tc\x7f", "a\\n  fix: b\\r\\tc\\x7f"),
            ("\u{9b}31m", "\\x9b31m"),
            ("a\u{202e}b\u{feff}", "a\\u{202e}b\\u{feff}"),
        ];
        for (text, shown) in table {
            assert_eq!(super::plain(text), shown);
            assert_eq!(super::plain(shown), shown, "once is enough");
        }
    }

    #[test]
    fn of_what_a_process_wrote_a_terminal_gets_the_colours() {
        let table: [(&[u8], &[u8]); 10] = [
            (b"\x1b[1;31mred\x1b[0m\ttab", b"\x1b[1;31mred\x1b[0m\ttab"),
            (b"a\x1b[2K\x1b[10;1Hb\x1b[?25lc", b"abc"),
            (b"a\x1b]0;title\x07b\x1b]52;c;cm0gLXJm\x1b\\c", b"abc"),
            (b"a\x1bPq~~\x1b\\b\x1b_x\x1b\\c", b"abc"),
            (b"a\x1b(0b\x1b7c\x1bcd\x08\x07", b"abcd"),
            (b"a\x1b]8;;http://x", b"a"),
            (b"a\x1b[31", b"a"),
            (b"a\x1b", b"a"),
            ("ä\u{9b}31m é".as_bytes(), "ä31m é".as_bytes()),
            (b"\xe9t\xe9\x9b2J", b"\xe9t\xe92J"),
        ];
        for (line, shown) in table {
            assert_eq!(
                super::printable(line, true),
                shown,
                "{}",
                line.escape_ascii()
            );
            assert!(!super::printable(line, false).contains(&0x1b));
        }
        assert_eq!(super::printable(table[0].0, false), b"red\ttab");
    }

    #[test]
    fn lines_fit_a_terminal() {
        let table = [
            ("job a", "job a"),
            ("job ab", "job ab"),
            ("job äbc", "job ä…"),
        ];
        for (text, cut) in table {
            assert_eq!(super::cut(text, 6), cut);
        }
        let table = [
            ("  fix: a bc", "  fix: a bc"),
            ("  fix: a bc def", "  fix: a bc\n       def"),
            (
                "  fix: a long-long-word b",
                "  fix: a\n       long-long-word\n       b",
            ),
            ("  fix: long-long-word", "  fix: long-long-word"),
        ];
        for (text, lines) in table {
            assert_eq!(super::wrapped(text, 12, "       "), lines);
        }
    }

    #[test]
    fn one_or_more() {
        let table = [
            (0, "file", "0 files"),
            (1, "process", "1 process"),
            (2, "process", "2 processes"),
        ];
        for (number, noun, text) in table {
            assert_eq!(super::count(number, noun), text);
        }
    }
}
