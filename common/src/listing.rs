//! What a host says of its files.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Without any data for so long, a host is given up.
pub const SILENCE: Duration = Duration::from_secs(60);
/// A slow disk reads so much a second for a checksum,
const CHECKED_A_SECOND: f64 = 20e6;
/// and finds, makes or renames so many files.
const FILES_A_SECOND: f64 = 100.0;

/// How much longer than [`SILENCE`] a host may take over so many files and bytes.
pub fn patience(files: usize, bytes: u64) -> Duration {
    Duration::from_secs_f64(files as f64 / FILES_A_SECOND + bytes as f64 / CHECKED_A_SECOND)
}

/// What a host has under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct There {
    /// Its size.
    pub bytes: u64,
    /// What stat(1) knows; none on a host that has none.
    pub stat: Option<Stat>,
}

/// What a size does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Type and permission bits, as stat(2) has them.
    pub mode: u32,
    /// When it was changed: seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
}

impl Stat {
    /// When it was changed; none where that is no time a machine can have, whatever the host says.
    pub fn time(&self) -> Option<SystemTime> {
        let (seconds, nanos) = self.mtime;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let second = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        second?.checked_add(Duration::from_nanos(nanos.into()))
    }
}

/// Whether a file system that was given the first of these times may say the second: each has its steps, 1 s, 1 ms, 1 us, 100 ns or 1 ns.
pub fn same_time(given: (i64, u32), said: (i64, u32)) -> bool {
    given.0 == said.0 && [1, 100, 1_000, 1_000_000, 1_000_000_000].iter().any(|step| given.1 - given.1 % step == said.1)
}

/// What `stat -c '%f %s %Y %y %n/'` printed for the paths, in their order; those that are not there are left out of it. `?` stands for
/// what the host does not know.
pub fn parse_look<'a>(text: &[u8], paths: impl Iterator<Item = &'a Path>) -> Vec<Option<There>> {
    let mut rest = text;
    paths.map(|path| next_there(&mut rest, path)).collect()
}

fn next_there(rest: &mut &[u8], path: &Path) -> Option<There> {
    let mut words = rest.splitn(7, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (mode, bytes, seconds, _date, time, _zone) = (word()?, word()?, word()?, word()?, word()?, word()?);
    let name = words.next()?.strip_prefix(path.as_os_str().as_bytes())?.strip_prefix(b"/\n")?;
    let fraction = time.split_once('.').map_or("0", |(_, fraction)| fraction);
    let nanos = format!("{fraction:0<9}").parse().ok().filter(|nanos| *nanos < 1_000_000_000).unwrap_or(0);
    *rest = name;
    let stat = match mode {
        "?" => None,
        mode => Some(Stat { mode: u32::from_str_radix(mode, 16).ok()?, mtime: (seconds.parse().ok()?, nanos) }),
    };
    Some(There { bytes: bytes.parse().ok()?, stat })
}

/// What `cksum` printed for the paths, in their order: the checksum of each that could be read.
pub fn parse_sums<'a>(text: &[u8], paths: impl Iterator<Item = &'a Path>) -> Vec<Option<u32>> {
    let mut rest = text;
    let mut next = |path: &Path| -> Option<u32> {
        let mut words = rest.splitn(3, |byte| *byte == b' ');
        let sum = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        words.next()?;
        rest = words.next()?.strip_prefix(path.as_os_str().as_bytes())?.strip_prefix(b"\n")?;
        Some(sum)
    };
    paths.map(&mut next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_matched_to_names() {
        let names = ["/w/a", "/w/missing", "/w/two\nlines/", "/w/z"].map(Path::new);
        let sums = parse_sums(b"1 5 /w/a\n4294967295 6 /w/two\nlines/\n", names.into_iter());
        assert_eq!(sums, vec![Some(1), None, Some(u32::MAX), None]);
    }

    #[test]
    fn what_stat_prints_is_matched_to_names() {
        let names = ["/w/a", "/w/missing", "/w/two\nlines/", "/w/y", "/w/z"].map(Path::new);
        let text = "81a4 5 100 1970-01-01 00:01:40.000000007 +0000 /w/a/\n\
                    81ed 6 200 1970-01-01 00:03:20 +0000 /w/two\nlines//\n\
                    ? 7 ? ? ? ? /w/y/\n\
                    41ed 4096 300 1970-01-01 00:05:00.5 +0000 /w/z/\n";
        let there = |mode, bytes, mtime| Some(There { bytes, stat: Some(Stat { mode, mtime }) });
        let expected = vec![
            there(0o100_644, 5, (100, 7)),
            None,
            there(0o100_755, 6, (200, 0)),
            Some(There { bytes: 7, stat: None }),
            there(0o40_755, 4096, (300, 500_000_000)),
        ];
        assert_eq!(parse_look(text.as_bytes(), names.into_iter()), expected);
        assert_eq!(parse_look(b"", names.into_iter()), vec![None; 5]);
    }

    #[test]
    fn times_that_no_machine_can_have() {
        let look = |seconds: &str, fraction: &str| {
            let text = format!("81a4 5 {seconds} 1970-01-01 00:00:00.{fraction} +0000 /a/\n");
            let there = parse_look(text.as_bytes(), [Path::new("/a")].into_iter())[0]?;
            there.stat.map(|stat| (stat.mtime, stat.time()))
        };
        let after = |seconds, nanos| UNIX_EPOCH.checked_add(Duration::new(seconds, nanos));
        let (first, last) = ("-9223372036854775808", "9223372036854775807");
        let table = [
            ("100", "5", Some(((100, 500_000_000), after(100, 500_000_000)))),
            ("-1", "5", Some(((-1, 500_000_000), UNIX_EPOCH.checked_sub(Duration::from_millis(500))))),
            ("100", "4294967295", Some(((100, 0), after(100, 0)))),
            ("100", "99999999999999999999", Some(((100, 0), after(100, 0)))),
            (last, "999999999", Some(((i64::MAX, 999_999_999), after(i64::MAX as u64, 999_999_999)))),
            (first, "0", Some(((i64::MIN, 0), UNIX_EPOCH.checked_sub(Duration::from_secs(1 << 63))))),
            ("9223372036854775808", "0", None),
            ("x", "0", None),
        ];
        for (seconds, fraction, expected) in table {
            assert_eq!(look(seconds, fraction), expected, "{seconds}.{fraction}");
        }
    }
}
