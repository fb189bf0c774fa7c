//! Who gets what, and what of it is there already.

use common::error::{Fault, Report};
use common::record::{FileCopy, Host};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// One file to one host.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// 0..of-1.
    pub id: u32,
    /// The host's id.
    pub host: u32,
    /// The file's id.
    pub file: u32,
    /// What is sent.
    pub source: Source,
    /// Where it goes, absolute.
    pub dst: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// When it was changed, seconds and nanoseconds; none for one that is made.
    pub mtime: Option<(i64, u32)>,
    /// Permission bits.
    pub mode: u32,
}

/// Where the bytes come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file here.
    File(PathBuf),
    /// The record itself.
    Content(String),
    /// Nowhere: an empty folder.
    Folder,
    /// Nowhere: it must be there already.
    There,
}

impl Delivery {
    /// Whether there is something to send, and to compare.
    pub fn has_bytes(&self) -> bool {
        matches!(self.source, Source::File(_) | Source::Content(_))
    }
}

/// What a host has under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct There {
    /// Type and permission bits, as stat(2) has them.
    pub mode: u32,
    /// Its size.
    pub bytes: u64,
    /// When it was changed.
    pub mtime: (i64, u32),
}

/// The deliveries to these hosts, in the order of hosts and files.
pub fn deliveries(hosts: &[Host], files: &[FileCopy]) -> Result<Vec<Delivery>, Report> {
    let mut report = Report::default();
    let mut deliveries = Vec::new();
    for host in hosts {
        for file in files.iter().filter(|file| file.host.is_none_or(|id| id == host.id)) {
            if let Some(delivery) = report.keep(delivery(host, file).map_err(Report::from)) {
                deliveries.push(Delivery { id: u32::try_from(deliveries.len()).unwrap_or(u32::MAX), ..delivery });
            }
        }
    }
    report.check()?;
    Ok(deliveries)
}

fn delivery(host: &Host, file: &FileCopy) -> Result<Delivery, Fault> {
    let place = || format!("file record {}", file.id);
    let dst: PathBuf = file.destination()?.components().collect();
    let inside = dst.is_absolute() && dst.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !inside || dst.file_name().is_none() || dst.as_os_str().as_bytes().contains(&0) {
        return Err(Fault::data(place(), format!("dst {} is not an absolute path without ..", dst.display())));
    }
    let source = match (file.source()?, &file.content) {
        (None, None) if file.is_folder()? => Source::Folder,
        (None, None) => Source::There,
        (Some(path), None) => Source::File(path),
        (None, Some(content)) if content.len() as u64 == file.bytes => Source::Content(content.clone()),
        (None, Some(_)) => return Err(Fault::data(place(), "bytes is not the length of content")),
        (Some(_), Some(_)) => return Err(Fault::data(place(), "has a src and a content, where one is enough")),
    };
    let mtime = file.mtime_s.map(|seconds| (seconds, file.mtime_nsec.unwrap_or(0)));
    Ok(Delivery { id: 0, host: host.id, file: file.id, source, dst, bytes: file.bytes, mtime, mode: file.mode & 0o7777 })
}

/// The folder that all of them lie below.
pub fn base(deliveries: &[&Delivery]) -> PathBuf {
    let written = deliveries.iter().filter(|delivery| !matches!(delivery.source, Source::There));
    let mut parents = written.filter_map(|delivery| delivery.dst.parent());
    let first = parents.next().map(Path::to_owned).unwrap_or_default();
    parents.fold(first, |base, parent| {
        let common = base.components().zip(parent.components()).take_while(|(a, b)| a == b);
        common.map(|(part, _)| part).collect()
    })
}

/// Whether a file is there as it should be, as far as size and time show it. A host that cannot store fractions of a second is
/// believed to the second.
pub fn is_there(delivery: &Delivery, there: &There) -> bool {
    let regular = there.mode & 0o170_000 == 0o100_000;
    match delivery.source {
        Source::Folder => return there.mode & 0o170_000 == 0o040_000,
        Source::There => return regular && there.bytes > 0,
        Source::File(_) | Source::Content(_) => {}
    }
    let same_mode = there.mode & 0o7777 == delivery.mode;
    let same_time = delivery.mtime.is_none_or(|(s, ns)| s == there.mtime.0 && (ns == there.mtime.1 || there.mtime.1 == 0));
    regular && same_mode && there.bytes == delivery.bytes && same_time
}

/// What `stat -c '%f %s %Y %y %n/'` printed for the paths, in their order; those that are not there are left out of it.
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
    let nanos = format!("{fraction:0<9}").parse().unwrap_or(0);
    *rest = name;
    Some(There { mode: u32::from_str_radix(mode, 16).ok()?, bytes: bytes.parse().ok()?, mtime: (seconds.parse().ok()?, nanos) })
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

    fn delivery(dst: &str) -> Delivery {
        Delivery {
            id: 0,
            host: 0,
            file: 0,
            source: Source::Content(String::new()),
            dst: dst.into(),
            bytes: 5,
            mtime: Some((100, 7)),
            mode: 0o644,
        }
    }

    #[test]
    fn what_stat_prints_is_matched_to_names() {
        let names = ["/w/a", "/w/missing", "/w/two\nlines/", "/w/z"].map(Path::new);
        let text = "81a4 5 100 1970-01-01 00:01:40.000000007 +0000 /w/a/\n\
                    81ed 6 200 1970-01-01 00:03:20 +0000 /w/two\nlines//\n\
                    41ed 4096 300 1970-01-01 00:05:00.5 +0000 /w/z/\n";
        let there = |mode, bytes, mtime| Some(There { mode, bytes, mtime });
        let expected = vec![there(0o100_644, 5, (100, 7)), None, there(0o100_755, 6, (200, 0)), there(0o40_755, 4096, (300, 500_000_000))];
        assert_eq!(parse_look(text.as_bytes(), names.into_iter()), expected);
        assert_eq!(parse_look(b"", names.into_iter()), vec![None; 4]);
        assert_eq!(parse_sums(b"1 5 /w/a\n4294967295 6 /w/two\nlines/\n", names.into_iter()), vec![Some(1), None, Some(u32::MAX), None]);
    }

    #[test]
    fn same_size_and_time_is_there_already() {
        let there = There { mode: 0o100_644, bytes: 5, mtime: (100, 7) };
        let table = [
            (there, true),
            (There { mtime: (100, 0), ..there }, true),
            (There { mtime: (100, 8), ..there }, false),
            (There { mtime: (101, 7), ..there }, false),
            (There { bytes: 6, ..there }, false),
            (There { mode: 0o100_755, ..there }, false),
            (There { mode: 0o120_644, ..there }, false),
        ];
        for (there, expected) in table {
            assert_eq!(is_there(&delivery("/w/a"), &there), expected, "{there:?}");
        }
    }

    #[test]
    fn a_folder_and_a_file_that_must_be_there() {
        let (folder, file, empty) = (
            There { mode: 0o40_700, bytes: 4096, mtime: (1, 0) },
            There { mode: 0o100_600, bytes: 9, mtime: (1, 0) },
            There { mode: 0o100_600, bytes: 0, mtime: (1, 0) },
        );
        for (source, expected) in [(Source::Folder, [true, false, false]), (Source::There, [false, true, false])] {
            let delivery = Delivery { source, bytes: 0, mtime: None, ..delivery("/w/a") };
            assert_eq!([folder, file, empty].map(|there| is_there(&delivery, &there)), expected);
        }
        let record = |dst: &str| FileCopy { dst: Some(dst.into()), ..FileCopy::default() };
        let source = |dst: &str| super::delivery(&Host::default(), &record(dst)).map(|delivery| (delivery.dst, delivery.source));
        assert!(matches!(source("/w/a/"), Ok((dst, Source::Folder)) if dst.as_os_str() == "/w/a"));
        assert!(matches!(source("/w/a"), Ok((_, Source::There))));
    }

    #[test]
    fn the_folder_above_all() {
        let (a, b, c) = (delivery("/w/job/a"), delivery("/w/job/data/part0/b"), delivery("/w/jobs/c"));
        assert_eq!(base(&[&a, &b]), PathBuf::from("/w/job"));
        assert_eq!(base(&[&a, &c]), PathBuf::from("/w"));
        assert_eq!(base(&[&b]), PathBuf::from("/w/job/data/part0"));
    }

    #[test]
    fn a_destination_stays_where_it_was_planned() {
        let host = Host::default();
        let file =
            |dst: &str| FileCopy { dst: Some(dst.into()), content: Some("hello".into()), bytes: 5, mode: 0o644, ..FileCopy::default() };
        assert!(super::delivery(&host, &file("/w/a")).is_ok());
        for dst in ["a", "/w/../a", "/", "", "/w/\0"] {
            assert!(super::delivery(&host, &file(dst)).is_err(), "{dst:?}");
        }
        assert!(super::delivery(&host, &FileCopy { bytes: 4, ..file("/w/a") }).is_err());
    }
}
