//! Finds the files of a config on this machine and makes file records of them.

use crate::format::{FileFormat, HEAD};
use record::error::{Fault, Report};
use record::{FileCopy, Host, LocalFile, RESERVED, at_home, is_reserved, path_fields};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// A file's place in a config: `part-2.part_graph`, or `node_map`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// `None` for a file of no part.
    pub part: Option<u32>,
    pub name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.part {
            Some(k) => write!(f, "part-{k}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A file that a config names, or one beside it.
#[derive(Debug, Clone)]
pub struct WantedFile {
    /// The first path that exists counts.
    pub candidates: Vec<PathBuf>,
    /// If not empty, the file must be in one of these directories, whatever links lead to it. A
    /// config from elsewhere could name any file of this user under a key that DGL does not read,
    /// where its content does not show whether it belongs to the graph.
    pub only_in: Vec<PathBuf>,
    pub required: bool,
    pub format: FileFormat,
    /// The file on the host, without its source.
    pub item: FileItem,
}

impl WantedFile {
    /// The first path with a file.
    pub fn path(&self) -> Result<Option<&PathBuf>, Fault> {
        let Some(folder) = self.only_in.first() else {
            return first_file(self.candidates.iter());
        };
        let is_in = |path: &Path, folder: &PathBuf| {
            folder
                .canonicalize()
                .is_ok_and(|folder| path.starts_with(folder))
        };
        let may_be_taken = |path: &&PathBuf| {
            let real = path.canonicalize();
            real.is_ok_and(|real| self.only_in.iter().any(|folder| is_in(&real, folder)))
        };
        let inside = first_file(self.candidates.iter().filter(may_be_taken))?;
        let Some(outside) = first_file(self.candidates.iter())?.filter(|_| inside.is_none()) else {
            return Ok(inside);
        };
        let key = self.item.key.as_ref().map_or(String::new(), Key::to_string);
        let problem = format!(
            "{} is not in {}, the directory of the config; files under keys that DGL does not use \
             must be",
            outside.display(),
            folder.display()
        );
        Err(Fault::data(&key, problem)
            .fix(format!("move it there, or remove {key} from the config")))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileSource {
    Copied(LocalFile),
    Made(Content),
    Folder,
    /// It must already be on the host.
    OnHost,
    /// In the workspace that all hosts share.
    InPlace,
}

/// What a file is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub text: String,
    /// The user's file from which it was made, unless it can replace that.
    pub original: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileItem {
    /// `None` for all hosts.
    pub host: Option<u32>,
    pub kind: &'static str,
    pub dst: PathBuf,
    pub key: Option<Key>,
    pub source: FileSource,
}

impl FileItem {
    pub fn new(kind: &'static str, dst: PathBuf, source: FileSource) -> FileItem {
        FileItem {
            host: None,
            kind,
            dst,
            key: None,
            source,
        }
    }

    /// The source, for messages.
    pub fn label(&self) -> String {
        match &self.source {
            FileSource::Copied(here) => here.path.display().to_string(),
            FileSource::Made(_) => format!("the {} that part-map writes", self.kind),
            _ => self.dst.display().to_string(),
        }
    }

    /// Whether the source is the same, under any name.
    fn is_same(&self, other: &FileItem) -> bool {
        match (&self.source, &other.source) {
            (FileSource::Copied(here), FileSource::Copied(other)) => {
                (here.identity, here.bytes) == (other.identity, other.bytes)
            }
            (FileSource::Folder, FileSource::Folder) => true,
            (source, others) => source == others && self.kind == other.kind,
        }
    }

    fn clash(&self, problem: String) -> Fault {
        Fault::data(
            self.label(),
            format!("goes to {}{problem}", self.dst.display()),
        )
        .fix("rename one of them, or leave one out with --exclude")
    }

    /// `None` if the file is in place.
    fn record(self) -> Option<FileCopy> {
        let mut dst = self.dst;
        let file = match self.source {
            FileSource::InPlace => return None,
            FileSource::Copied(here) => here.record(),
            FileSource::OnHost => FileCopy {
                mode: 0o644,
                ..FileCopy::default()
            },
            FileSource::Made(Content { text, original }) => {
                let (original, original_b64) =
                    original.as_deref().map_or((None, None), path_fields);
                FileCopy {
                    bytes: text.len() as u64,
                    content: Some(text),
                    original,
                    original_b64,
                    mode: 0o644,
                    ..FileCopy::default()
                }
            }
            FileSource::Folder => {
                dst.push("");
                FileCopy {
                    mode: 0o755,
                    ..FileCopy::default()
                }
            }
        };
        let (dst, dst_b64) = path_fields(&dst);
        Some(FileCopy {
            host: self.host,
            kind: self.kind.to_owned(),
            dst,
            dst_b64,
            ..file
        })
    }
}

/// Reports all missing or wrong files at once.
pub fn find(
    wanted: impl IntoIterator<Item = WantedFile>,
    fix: &str,
) -> Result<Vec<FileItem>, Report> {
    let mut report = Report::default();
    let mut found = Vec::new();
    for file in wanted {
        let path = report.keep(file.path());
        let WantedFile {
            candidates, item, ..
        } = &file;
        let item = item.clone();
        match (path.flatten(), candidates.first()) {
            (Some(path), _) => {
                let here = report.keep(inspect(path, file.format));
                found.extend(here.map(|here| FileItem {
                    source: FileSource::Copied(here),
                    ..item
                }));
            }
            (None, Some(first)) if file.required => {
                let name = item.key.map_or(String::new(), |key| key.to_string());
                let problem = format!("no such file: {}", first.display());
                report.push(Fault::data(name, problem).did_you_mean(first).fix(fix));
            }
            (None, _) => {}
        }
    }
    report.check()?;
    Ok(found)
}

/// The first path with a file. One that cannot be examined may be the file.
fn first_file<'a>(
    candidates: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<Option<&'a PathBuf>, Fault> {
    for path in candidates {
        match path.metadata() {
            Ok(meta) if meta.is_file() => return Ok(Some(path)),
            Ok(_) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(unreadable(path, &error)),
        }
    }
    Ok(None)
}

pub fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

pub fn unreadable(path: &Path, error: &std::io::Error) -> Fault {
    let location = path.display().to_string();
    Fault::unreachable(location, error.to_string()).fix("make it readable, or leave it out")
}

/// Examines a file, which must be readable and begin as its format does.
pub fn inspect(path: &Path, format: FileFormat) -> Result<LocalFile, Fault> {
    let location = path.display().to_string();
    let failed = |error: std::io::Error| unreadable(path, &error);
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let mut head = Vec::new();
    if format != FileFormat::Any {
        file.take(HEAD).read_to_end(&mut head).map_err(failed)?;
    }
    if let Some(problem) = format.problem(&head, meta.len()) {
        return Err(Fault::data(location, problem)
            .fix("make it again, with partition_graph or as it was made, or fetch it whole"));
    }
    let path = std::path::absolute(path).map_err(failed)?;
    Ok(LocalFile::of(path, &meta))
}

/// Refuses two sources for one destination, because either could arrive; a file where another one
/// needs a directory; and names of part-push.
pub fn records(items: Vec<FileItem>) -> Result<Vec<FileCopy>, Report> {
    let mut report = Report::default();
    for item in items.iter().filter(|item| is_reserved(&item.dst)) {
        let problem = format!(
            "goes to {}, but names that begin with {RESERVED} are part-push's own",
            item.dst.display()
        );
        let fix = format!("rename it, or leave it out with --exclude '{RESERVED}*'");
        report.push(Fault::data(item.label(), problem).fix(fix));
    }
    let again = named_again(&items, &mut report);
    let mut folders: HashMap<&Path, HashSet<Option<u32>>> = HashMap::new();
    for item in &items {
        let above = match item.source {
            FileSource::Folder => Some(item.dst.as_path()),
            _ => item.dst.parent(),
        };
        for folder in above.into_iter().flat_map(Path::ancestors) {
            // the directories above are known too
            if !folders.entry(folder).or_default().insert(item.host) {
                break;
            }
        }
    }
    for (index, item) in items.iter().enumerate() {
        let hosts = folders.get(item.dst.as_path());
        let is_in_the_way = hosts.is_some_and(|hosts| {
            item.host.is_none() || hosts.contains(&None) || hosts.contains(&item.host)
        });
        if is_in_the_way && item.source != FileSource::Folder && !again.contains(&index) {
            report.push(item.clash(", where other files need a directory".to_owned()));
        }
    }
    report.check()?;
    let once = items.into_iter().enumerate();
    let once = once.filter(|(index, _)| !again.contains(index));
    let mut files: Vec<FileCopy> = once.filter_map(|(_, item)| item.record()).collect();
    let of = u32::try_from(files.len()).map_err(|_| {
        Fault::data("files", "more than a stream can number").fix("leave some out with --exclude")
    })?;
    for (id, file) in (0..of).zip(&mut files) {
        (file.id, file.of) = (id, of);
    }
    Ok(files)
}

/// The indices of items with the same source and destination as an earlier one. Two sources for one
/// destination are a fault.
fn named_again(items: &[FileItem], report: &mut Report) -> HashSet<usize> {
    // files for all hosts come first, so that others are compared with them
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|index| items[*index].host.is_some());
    let mut taken: HashMap<(&Path, bool, Option<u32>), usize> = HashMap::new();
    let mut again = HashSet::new();
    for index in order {
        let item = &items[index];
        let (dst, is_folder) = (item.dst.as_path(), item.source == FileSource::Folder);
        let other = taken
            .get(&(dst, is_folder, None))
            .copied()
            .or_else(|| taken.insert((dst, is_folder, item.host), index));
        match other.map(|other| &items[other]) {
            None => {}
            Some(other) if other.is_same(item) => drop(again.insert(index)),
            Some(other) => report.push(item.clash(format!(", and so does {}", other.label()))),
        }
    }
    again
}

/// A path on the hosts: absolute, below the home of all hosts or, if given, below `folder`. The
/// result is absolute, UTF-8 and free of `.` and `..`.
pub fn path_on_hosts(
    option: &str,
    path: &Path,
    folder: Option<&Path>,
    hosts: &[Host],
) -> Result<PathBuf, Fault> {
    let wrong = |problem: &str, fix: &str| {
        Err(Fault::usage(option, format!("{} {problem}", path.display())).fix(fix))
    };
    let Some(text) = path.to_str().filter(|text| !text.contains('\0')) else {
        return wrong("must be UTF-8", "records and the partition config are");
    };
    if path.components().any(|part| part == Component::ParentDir) {
        return wrong("has .. in it", "write where it leads to");
    }
    let path = PathBuf::from(at_home(option, text, hosts)?);
    let path = match (path.is_absolute(), folder) {
        (true, _) => path,
        (false, Some(folder)) => folder.join(path),
        (false, None) => {
            return wrong(
                "is not an absolute path",
                "it is the same directory on every host: begin it with / or, after host-probe, \
                 with ~/",
            );
        }
    };
    let parts = path.components();
    Ok(parts.filter(|part| *part != Component::CurDir).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(host: Option<u32>, dst: &str, src: &str) -> FileItem {
        let here = LocalFile {
            path: src.into(),
            identity: (0, src[1..].parse().unwrap_or(0)),
            ..LocalFile::default()
        };
        FileItem {
            host,
            ..FileItem::new("script", dst.into(), FileSource::Copied(here))
        }
    }

    fn folder(dst: &str) -> FileItem {
        FileItem::new("script", dst.into(), FileSource::Folder)
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn two_sources_for_one_destination() {
        let content = Content {
            text: String::new(),
            original: None,
        };
        let made =
            |kind, dst: &str| FileItem::new(kind, dst.into(), FileSource::Made(content.clone()));
        let table: [(&[FileItem], Option<&str>); 14] = [
            (
                &[item(Some(0), "/ws/a", "/1"), item(Some(1), "/ws/a", "/2")],
                None,
            ),
            (
                &[item(None, "/ws/a", "/1"), item(None, "/ws/a", "/1")],
                None,
            ),
            (
                &[item(None, "/ws/a/b", "/1"), item(None, "/ws/a/c", "/2")],
                None,
            ),
            (
                &[item(Some(0), "/ws/a", "/1"), item(Some(0), "/ws/a", "/2")],
                Some("/2: goes to /ws/a, and so does /1"),
            ),
            (
                &[item(None, "/ws/a", "/1"), item(Some(0), "/ws/a", "/2")],
                Some("/2: goes to /ws/a, and so does /1"),
            ),
            (
                &[item(Some(0), "/ws/a", "/1"), item(None, "/ws/a", "/2")],
                Some("/1: goes to /ws/a, and so does /2"),
            ),
            (
                &[item(None, "/ws/a", "/1"), folder("/ws/a")],
                Some("/1: goes to /ws/a, where other files need a directory"),
            ),
            (
                &[item(None, "/ws/.part-push.lock", "/1")],
                Some("/1: goes to /ws/.part-push.lock, but names that begin with .part-push. are"),
            ),
            (
                &[folder("/ws/b/.part-push.kept")],
                Some("/ws/b/.part-push.kept: goes to /ws/b/.part-push.kept, but names"),
            ),
            (&[item(None, "/ws/.part-pushed", "/1")], None),
            (
                &[item(None, "/ws/ip_config.txt", "/1")],
                Some(
                    "/1: goes to /ws/ip_config.txt, and so does the ip_config that part-map writes",
                ),
            ),
            (
                &[item(None, "/ws/a", "/1"), item(None, "/ws/a/b/c", "/2")],
                Some("/1: goes to /ws/a, where other files need a directory"),
            ),
            (
                &[item(None, "/ws", "/1"), item(None, "/ws/b", "/2")],
                Some("/1: goes to /ws, where"),
            ),
            (
                &[made("config", "/ws/ip_config.txt")],
                Some("the config that part-map writes: goes to /ws/ip_config.txt, and so does"),
            ),
        ];
        for (items, problem) in table {
            let mut all = vec![made("ip_config", "/ws/ip_config.txt")];
            all.extend_from_slice(items);
            let got = records(all).err().map(|report| report.0[0].to_string());
            assert_eq!(got.is_some(), problem.is_some(), "{got:?}");
            assert!(
                got.as_deref()
                    .unwrap_or_default()
                    .starts_with(problem.unwrap_or_default()),
                "{got:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_examined_is_not_missing_and_no_copy_takes_its_place() {
        let folder = std::env::temp_dir().join(format!("dgl-tools-loop-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("loop", folder.join("loop")).unwrap();
        std::fs::write(folder.join("copy"), "an old copy").unwrap();
        for required in [true, false] {
            let wanted = |first: &str| WantedFile {
                candidates: vec![folder.join(first), folder.join("copy")],
                only_in: Vec::new(),
                required,
                format: FileFormat::Any,
                item: item(None, "/ws/a", "/1"),
            };
            let fault = find([wanted("loop")], "").unwrap_err().0[0].to_string();
            assert!(fault.contains("Too many levels"), "{fault}");
            assert_eq!(find([wanted("missing")], "").unwrap().len(), 1);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// A config from elsewhere names it, perhaps in the hope that it goes to hosts of others.
    #[test]
    fn under_an_unknown_key_only_files_in_the_directory_of_the_config_are_taken() {
        let folder = std::env::temp_dir().join(format!("dgl-tools-keys-{}", std::process::id()));
        for name in ["config/part0", "config-2", "real"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        let files = [
            "id_ed25519",
            "config-2/a",
            "config/a",
            "config/part0/a",
            "real/a",
        ];
        for name in files {
            std::fs::write(folder.join(name), name).unwrap();
        }
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(folder.join(to), folder.join(name)).unwrap();
        };
        link("id_ed25519", "config/link");
        link("config/a", "config/inner");
        link("config", "moved");
        let take = |folders: &[&str], names: &[&str]| {
            let all = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect();
            let mut item = item(None, "/ws/a", "/1");
            let name = "plan".to_owned();
            item.key = Some(Key {
                part: Some(0),
                name,
            });
            let wanted = WantedFile {
                candidates: all(names),
                only_in: all(folders),
                required: false,
                format: FileFormat::NotEmpty,
                item,
            };
            let found = find([wanted], "");
            found
                .map(|found| found.len())
                .map_err(|report| report.0[0].to_string())
        };
        for name in ["config/a", "config/part0/a", "config/inner", "moved/a"] {
            assert_eq!(take(&["config"], &[name]), Ok(1), "{name}");
        }
        for name in [
            "config/../id_ed25519",
            "config-2/a",
            "id_ed25519",
            "config/link",
        ] {
            let fault = take(&["config"], &[name]).unwrap_err();
            assert!(
                fault.contains("is not in ") && fault.contains("remove part-0.plan"),
                "{fault}"
            );
        }
        // the directory has moved, and the old one still exists
        assert_eq!(take(&["config"], &["real/a", "config/a"]), Ok(1));
        assert_eq!(take(&["config"], &["config/none"]), Ok(0));
        assert_eq!(take(&["config", "real"], &["real/a"]), Ok(1));
        assert_eq!(take(&[], &["id_ed25519"]), Ok(1), "a known key");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_of_one_host_is_not_in_the_way_of_a_directory_of_another() {
        let below = |host| item(host, "/ws/a/b", "/2");
        let file = || item(Some(0), "/ws/a", "/1");
        assert!(records(vec![file(), below(Some(1))]).is_ok());
        assert!(records(vec![file(), below(Some(0))]).is_err());
        assert!(records(vec![file(), below(None)]).is_err());
    }

    #[test]
    fn what_is_named_twice_is_one_record() {
        let twice = vec![
            item(None, "/ws/a", "/1"),
            item(Some(1), "/ws/a", "/1"),
            folder("/ws/b"),
            folder("/ws/b"),
        ];
        let files = records(twice).unwrap();
        assert_eq!(files.len(), 2);
        assert!(files.iter().all(|file| file.of == 2));
    }
}
