//! Files that their hosts get by a command of the user's, and the listing of what there is.

use crate::numbered::{HOST, PARTS, number};
use partition::files::{Item, Source};
use record::error::{Fault, Report};
use record::quote::shown;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// What stands for the path of a file in a command, and for where the host is to write it.
const PATH: &str = "{path}";
const DST: &str = "{dst}";

/// Checks a command.
pub fn check(command: &str) -> Result<(), Report> {
    let mut report = Report::default();
    let mut fault = |problem: String, fix: &str| {
        report.push(Fault::usage("--fetch", problem).fix(fix));
    };
    if !command.contains(DST) {
        fault(
            format!("has no {DST} in it"),
            "write {dst} where the command takes the name of the file that it writes",
        );
    }
    let mut before = '\0';
    for (at, c) in command.char_indices() {
        let word = command[at..]
            .split_inclusive('}')
            .next()
            .unwrap_or_default();
        let name = word.trim_start_matches('{').trim_end_matches('}');
        // ${name} is the shell's
        let is_placeholder = c == '{'
            && before != '$'
            && word.ends_with('}')
            && !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if is_placeholder && ![PATH, HOST, DST].contains(&word) {
            fault(
                format!("{word} stands for nothing"),
                "{path}, {host} and {dst} are known; leave a blank within other braces",
            );
        }
        before = c;
    }
    report.check()
}

/// What is known of a file before it is fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub bytes: Option<u64>,
    /// In hexadecimal digits.
    pub sha256: Option<String>,
}

impl Known {
    pub fn sized(bytes: u64) -> Known {
        Known {
            bytes: Some(bytes),
            sha256: None,
        }
    }
}

/// A file that is fetched by its path. {host} is filled by [`for_hosts`].
pub fn source(command: &str, path: &Path, known: &Known) -> Source {
    if known.bytes == Some(0) {
        // in a record 0 is a size that is not known
        return Source::Made(String::new());
    }
    // braces of the path itself, which is in single quotes then, stand for nothing
    let quoted = shown(path.as_os_str().as_bytes()).replace('{', "{''");
    let mut command = command.replace(PATH, &quoted);
    if let Some(sum) = &known.sha256 {
        command = format!(
            "({command}\n) && {{ test \"$(sha256sum <{DST})\" = '{sum}  -' || \
             {{ echo 'its SHA-256 is not {sum}' >&2; exit 1; }}; }}"
        );
    }
    Source::Fetched {
        command,
        bytes: known.bytes.unwrap_or(0),
    }
}

/// Fills the hosts into all commands. A file for all hosts whose command differs becomes one for
/// each.
pub fn for_hosts(items: Vec<Item>, num_hosts: usize) -> Result<Vec<Item>, Report> {
    let mut report = Report::default();
    let mut fetched: HashMap<(Option<u32>, String), PathBuf> = HashMap::new();
    let mut filled = Vec::with_capacity(items.len());
    for item in items {
        let Source::Fetched { command, bytes } = &item.source else {
            filled.push(item);
            continue;
        };
        let hosts: Vec<Option<u32>> = match item.host {
            None if command.contains(HOST) => (0u32..).take(num_hosts).map(Some).collect(),
            host => vec![host],
        };
        for host in hosts {
            let number = host.map(|host| host.to_string()).unwrap_or_default();
            let command = command.replace(HOST, &number);
            if let Some(other) = fetched.insert((host, command.clone()), item.dst.clone()) {
                let problem = format!(
                    "brings the same as {} and as {}: {command}",
                    other.display(),
                    item.dst.display()
                );
                let fix = "write {path} where the command names what it fetches";
                report.push(Fault::usage("--fetch", problem).fix(fix));
            }
            let bytes = *bytes;
            filled.push(Item {
                host,
                source: Source::Fetched { command, bytes },
                ..item.clone()
            });
        }
    }
    report.check().map(|()| filled)
}

/// The files that there are, by their paths.
pub type Listing = BTreeMap<PathBuf, Known>;

/// Reads a listing: a line for each file, with its path, its size and path, its SHA-256 and path as
/// `sha256sum` prints them, or as `aws s3 ls --recursive` prints it, with the time before its size
/// and the path from the bucket on, of which the folders above the parts are left out.
pub fn parse(location: &str, text: &str) -> Result<Listing, Report> {
    let mut report = Report::default();
    let mut listing = Listing::new();
    let mut in_bucket = true;
    for (number, line) in (1..).zip(text.lines()) {
        let (path, known, of_bucket) = split(line);
        // folders have no content
        if path.is_empty() || path.ends_with('/') {
            continue;
        }
        in_bucket &= of_bucket;
        let names = Path::new(path).components();
        let names = names.filter(|name| *name != Component::CurDir);
        if names
            .clone()
            .any(|name| !matches!(name, Component::Normal(_)))
        {
            let fault = Fault::data(
                format!("{location}:{number}"),
                format!("{path} leaves the folder"),
            );
            report.push(fault.fix("list paths relative to the folder that has the parts"));
        }
        listing.insert(names.collect(), known);
    }
    report.check()?;
    match in_bucket {
        true => Ok(strip_prefix(listing)),
        false => Ok(listing),
    }
}

/// The path of a line, what it says of the file, and whether the path begins at the bucket.
fn split(line: &str) -> (&str, Known, bool) {
    if let Some((path, known)) = summed(line) {
        return (path, known, false);
    }
    let sized = |line| word(line).and_then(|(size, path)| Some((path, size.parse().ok()?)));
    let dated = || {
        let (date, rest) = word(line)?;
        let (time, rest) = word(rest)?;
        (date.contains('-') && time.contains(':')).then(|| sized(rest))?
    };
    match (sized(line), dated()) {
        (Some((path, bytes)), _) => (path, Known::sized(bytes), false),
        (None, Some((path, bytes))) => (path, Known::sized(bytes), true),
        (None, None) => (line.trim_start(), Known::default(), false),
    }
}

/// A line of sha256sum's.
fn summed(line: &str) -> Option<(&str, Known)> {
    let (sum, path) = line.split_at_checked(64)?;
    let path = path
        .strip_prefix("  ")
        .or_else(|| path.strip_prefix(" *"))?;
    let known = Known {
        bytes: None,
        sha256: Some(sum.to_ascii_lowercase()),
    };
    let is_sum = sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_sum.then_some((path, known))
}

fn word(text: &str) -> Option<(&str, &str)> {
    text.trim_start().split_once(' ')
}

/// Takes away the folders above the parts.
fn strip_prefix(listing: Listing) -> Listing {
    let is_part = |name: &OsStr| {
        let name = name.to_string_lossy();
        PARTS.iter().any(|form| number(form, &name).is_some())
    };
    let above = |path: &PathBuf| {
        let mut all = path.ancestors();
        let part = all.find(|path| path.file_name().is_some_and(is_part))?;
        part.parent().map(Path::to_owned)
    };
    let prefix = listing.keys().find_map(above).unwrap_or_default();
    let all = listing.into_iter();
    all.map(|(path, known)| match path.strip_prefix(&prefix) {
        Ok(below) => (below.to_owned(), known),
        Err(_) => (path, known),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_of_all_kinds() {
        let parsed = |text: &str| {
            let listing = parse("list", text).map_err(|report| report.0[0].to_string())?;
            let files = listing.into_iter();
            let files = files.map(|(path, known)| (path.display().to_string(), known));
            Ok::<_, String>(files.collect::<Vec<_>>())
        };
        let sized = |path: &str, bytes| (path.to_owned(), Known::sized(bytes));
        let one = |path: &str| (path.to_owned(), Known::default());
        let expected = vec![sized("META", 0), sized("part0/a b", 12)];
        let aws = "2026-01-02 03:04:05          0 a/g/META\n2026-01-02 03:04:05         12 \
            a/g/part0/a b\n2026-01-02 03:04:05          0 a/g/part0/\n";
        for text in [
            "12 part0/a b\n0 META",
            " 0 ./META\n12 part0//a b\n\n3 part0/\n",
            aws,
        ] {
            assert_eq!(parsed(text), Ok(expected.clone()), "{text}");
        }
        let names = vec![one("d/META"), one("d/part_0/a")];
        assert_eq!(parsed("d/META\nd/part_0/a\nd/\n"), Ok(names));
        let sum = "0123456789abcdef".repeat(4);
        let known = Known {
            bytes: None,
            sha256: Some(sum.clone()),
        };
        let upper = sum.to_ascii_uppercase();
        for text in [format!("{sum}  ./a b"), format!("{upper} *a b")] {
            assert_eq!(parsed(&text), Ok(vec![("a b".to_owned(), known.clone())]));
        }
        let file = format!("{sum}/a");
        assert_eq!(parsed(&file), Ok(vec![one(&file)]));
        for path in ["/a", "../a", "a/../b"] {
            let problem = parsed(&format!("a\n7 {path}")).unwrap_err();
            assert!(
                problem.starts_with(&format!("list:2: {path} leaves the folder")),
                "{problem}"
            );
        }
    }

    #[test]
    fn commands_and_their_placeholders() {
        let table = [
            ("cp s3://b/{path} {dst}", 0),
            (
                "f() { cp $1 {dst}; }; f ${x}/{path}; awk '{ print }' {host} '{0}' {}",
                0,
            ),
            ("cp {path}", 1),
            ("cp {pth} {dist} $dst", 3),
        ];
        for (command, faults) in table {
            let report = check(command).map_or_else(|report| report.0.len(), |()| 0);
            assert_eq!(report, faults, "{command}");
        }
        let fetched = |host, path: &str| Item {
            host,
            ..Item::new(
                "map",
                path.into(),
                source(
                    "get h{host}/{path} {dst}",
                    Path::new(path),
                    &Known::default(),
                ),
            )
        };
        let items = vec![fetched(Some(1), "a/it's {host}{dst}"), fetched(None, "m")];
        let filled = for_hosts(items, 2).unwrap();
        let commands = filled.iter().map(|item| match &item.source {
            Source::Fetched { command, .. } => (item.host, command.as_str()),
            _ => (None, ""),
        });
        let odd = r"get h1/'a/it'\''s {''host}{''dst}' {dst}";
        let expected = [
            (Some(1), odd),
            (Some(0), "get h0/m {dst}"),
            (Some(1), "get h1/m {dst}"),
        ];
        assert_eq!(commands.collect::<Vec<_>>(), expected);
        let same = |path: &str| {
            Item::new(
                "map",
                path.into(),
                source("get {dst}", Path::new(path), &Known::default()),
            )
        };
        assert!(for_hosts(vec![same("a"), same("b")], 2).is_err());
    }
}
