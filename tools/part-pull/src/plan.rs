//! Decides which files are wanted, and where they go.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use record::error::{Fault, Report};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use transfer::fates::Numbered;
use transfer::partial::KeptPartial;
use transfer::source;
use wire::files::Meta;

#[derive(Debug)]
pub struct SelectedFiles {
    /// What to list, relative to the workspace.
    pub roots: Vec<String>,
    /// Globs of the directories below the roots in which something may match.
    pub enter: Vec<String>,
    pub patterns: Vec<String>,
    /// By pattern.
    dots: Vec<DotFiles>,
    files: Globs,
    /// The directories in which something may match: the beginnings of each pattern.
    above: Globs,
}

#[derive(Debug)]
struct Globs {
    set: GlobSet,
    /// The index of the pattern of each glob.
    pattern: Vec<usize>,
}

/// The names with a leading dot that a pattern allows. A host chooses the names that a wildcard
/// matches, and `--to .` must not fetch a `.git/hooks`.
#[derive(Clone, Debug)]
enum DotFiles {
    /// The path has no wildcard, and a directory includes everything in it.
    All,
    /// Those whose dot is in the pattern, as in a shell.
    Written(GlobSet),
}

#[derive(Clone, Debug)]
pub struct PulledFile {
    /// Among all files of all hosts.
    pub id: u32,
    /// On the host, in the form of find(1): `./logs/a`.
    pub src: PathBuf,
    /// On this machine.
    pub dst: PathBuf,
    /// On the host.
    pub there: Meta,
    /// Why the host cannot read it, so that it is not copied.
    pub unreadable: Option<String>,
}

impl Numbered for PulledFile {
    fn number(&self) -> u32 {
        self.id
    }
}

impl PulledFile {
    /// Bytes to fetch.
    pub fn bytes(&self) -> u64 {
        if self.there.is_folder() {
            0
        } else {
            self.there.bytes
        }
    }

    /// The space that it needs beside its partial file.
    pub fn room_needed(&self, partial: Option<&KeptPartial>) -> u64 {
        let kept = partial.map_or(0, |partial| partial.parts.bytes());
        match self.there.sent {
            None => self.bytes() - kept,
            Some(sent) => {
                let meta = partial.and_then(|partial| partial.file.metadata().ok());
                let occupied = meta.map_or(0, |meta| source::room(&meta));
                sent.min(self.bytes()) - occupied.min(kept).min(sent)
            }
        }
    }
}

const QUOTE: &str = "[*] stands for a star, [[] for a bracket, [{] for a brace";

pub fn wanted(patterns: &[String]) -> Result<SelectedFiles, Report> {
    let mut report = Report::default();
    let (mut files, mut above) = (Vec::new(), Vec::new());
    let mut dots = Vec::new();
    let mut roots = Vec::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let clean = pattern.trim_start_matches("./").trim_end_matches('/');
        if !is_below(Path::new(clean)) || clean.is_empty() {
            let fault = Fault::usage(
                "pattern",
                format!("{pattern} is not a path below the workspace"),
            );
            report.push(fault.fix("write it relative to the workspace, without .."));
            continue;
        }
        // the file or directory itself, and everything in it
        for text in [clean.to_owned(), format!("{clean}/**")] {
            match glob(&text) {
                Ok(glob) => files.push((index, glob)),
                Err(error) => {
                    report.push(Fault::usage("pattern", error.to_string()).fix(QUOTE));
                    break;
                }
            }
        }
        let beginnings = beginnings(clean).filter_map(|text| glob(&text).ok());
        above.extend(beginnings.map(|glob| (index, glob)));
        dots.push(self::dots(clean));
        roots.push(root(clean));
    }
    report.check()?;
    roots.sort();
    roots.dedup();
    let enter = files.iter().chain(&above);
    Ok(SelectedFiles {
        roots,
        enter: enter.map(|(_, glob)| glob.glob().to_owned()).collect(),
        patterns: patterns.to_vec(),
        dots,
        files: Globs::of(files)?,
        above: Globs::of(above)?,
    })
}

fn glob(text: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(text).literal_separator(true).build()
}

/// Patterns for the directories in which a pattern may match: after `**`, and after a brace, which
/// may contain a slash, any directory.
fn beginnings(pattern: &str) -> impl Iterator<Item = String> {
    let ends = pattern.match_indices('/').map(|(end, _)| &pattern[..end]);
    let is_plain = |beginning: &&str| !beginning.contains("**") && !beginning.contains('{');
    let plain = ends.take_while(is_plain).map(str::to_owned);
    let open = pattern.find("**").into_iter().chain(pattern.find('{'));
    let open = open.min().map(|bracket| {
        let end = pattern[..bracket].rfind('/').map_or(0, |slash| slash + 1);
        format!("{}**", &pattern[..end])
    });
    plain.chain(open)
}

const WILDCARDS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// Includes alternatives in braces.
fn dots(pattern: &str) -> DotFiles {
    if !pattern.contains(WILDCARDS) {
        return DotFiles::All;
    }
    let words = pattern
        .split(['/', '{', ',', '}'])
        .filter(|word| word.starts_with('.'));
    let globs = words.filter_map(|word| glob(word).ok());
    let mut written = GlobSetBuilder::new();
    for glob in globs {
        written.add(glob);
    }
    DotFiles::Written(written.build().unwrap_or_else(|_| GlobSet::empty()))
}

impl DotFiles {
    fn allow(&self, path: &Path) -> bool {
        let written = |name: &std::ffi::OsStr| match self {
            DotFiles::All => true,
            DotFiles::Written(globs) => globs.is_match(Path::new(name)),
        };
        path.iter()
            .all(|name| !name.as_bytes().starts_with(b".") || written(name))
    }
}

/// The path before the first component with a wildcard.
fn root(pattern: &str) -> String {
    let plain = pattern
        .split('/')
        .take_while(|part| !part.contains(WILDCARDS));
    plain.fold(".".to_owned(), |path, part| format!("{path}/{part}"))
}

fn is_below(path: &Path) -> bool {
    path.components()
        .all(|part| matches!(part, Component::Normal(_)))
}

impl Globs {
    fn of(globs: Vec<(usize, Glob)>) -> Result<Globs, Fault> {
        let mut set = GlobSetBuilder::new();
        let pattern = globs.into_iter().map(|(pattern, glob)| {
            set.add(glob);
            pattern
        });
        let pattern = pattern.collect();
        let set = set.build();
        let set = set.map_err(|error| Fault::usage("pattern", error.to_string()).fix(QUOTE))?;
        Ok(Globs { set, pattern })
    }

    /// The patterns that match and allow the path's names with a leading dot.
    fn matching(&self, path: &Path, dots: &[DotFiles]) -> Vec<usize> {
        let globs = self.set.matches(path).into_iter();
        let patterns = globs.map(|glob| self.pattern[glob]);
        patterns
            .filter(|pattern| dots[*pattern].allow(path))
            .collect()
    }
}

impl SelectedFiles {
    /// The patterns that select a file or an empty directory of a host, which cannot name anything
    /// outside the workspace.
    pub fn matching(&self, path: &Path) -> Vec<usize> {
        match path.strip_prefix(".") {
            Ok(path) if path.file_name().is_some() && is_below(path) => {
                self.files.matching(path, &self.dots)
            }
            _ => Vec::new(),
        }
    }

    /// The patterns that may select files at or below a path that a host cannot read.
    pub fn matching_below(&self, path: &Path) -> Vec<usize> {
        let mut patterns = self.matching(path);
        patterns.extend(match path.strip_prefix(".") {
            Ok(path) if path.as_os_str().is_empty() => (0..self.patterns.len()).collect(),
            Ok(path) if is_below(path) => self.above.matching(path, &self.dots),
            _ => Vec::new(),
        });
        patterns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_matters_where_a_pattern_may_match() {
        let table: [(&str, &[&str], &[&str]); 6] = [
            ("model.pt", &[".", "./model.pt"], &["./lost+found"]),
            (
                "*.pt",
                &[".", "./a.pt"],
                &["./lost+found", "./lost+found/a.pt"],
            ),
            ("*", &[".", "./lost+found", "./logs/deep"], &["./.cache"]),
            (
                "logs/*/a",
                &["./logs", "./logs/0", "./logs/0/a", "./logs/0/a/b"],
                &["./log", "./logs/0/b", "./logs/.0"],
            ),
            (
                "logs/**/a",
                &["./logs", "./logs/0", "./logs/0/1"],
                &["./log"],
            ),
            (
                "logs/{0/1,2}/a",
                &["./logs", "./logs/0", "./logs/0/1"],
                &["./log"],
            ),
        ];
        for (pattern, may, may_not) in table {
            let wanted = wanted(&[pattern.to_owned()]).unwrap();
            let there = |path: &&&str| !wanted.matching_below(Path::new(path)).is_empty();
            assert!(may.iter().all(|path| there(&path)), "{pattern}");
            assert!(!may_not.iter().any(|path| there(&path)), "{pattern}");
        }
    }

    /// The paths of a list, each ended by NUL, that are wanted; in order.
    fn choose(wanted: &SelectedFiles, list: &[u8]) -> Vec<PathBuf> {
        let names = list
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty());
        let paths = names.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)));
        let mut chosen: Vec<PathBuf> = paths
            .filter(|path| !wanted.matching(path).is_empty())
            .collect();
        chosen.sort();
        chosen
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn patterns_choose_files_below_the_workspace() {
        let list = b"./logs/a.log\0./logs/deep/b.log\0./model.pt\0./emb/0/x\0./../etc/passwd\0\
             /etc/passwd\0./emb/\xff\0";
        let table: [(&[&str], &[&str], &[&str]); 6] = [
            (&["logs/*.log"], &["./logs"], &["./logs/a.log"]),
            (
                &["**/*.log"],
                &["."],
                &["./logs/a.log", "./logs/deep/b.log"],
            ),
            (
                &["./logs/"],
                &["./logs"],
                &["./logs/a.log", "./logs/deep/b.log"],
            ),
            (&["model.pt", "model.pt"], &["./model.pt"], &["./model.pt"]),
            (
                &["*"],
                &["."],
                &[
                    "./emb/0/x",
                    "./emb/\u{fffd}",
                    "./logs/a.log",
                    "./logs/deep/b.log",
                    "./model.pt",
                ],
            ),
            (&["nothing"], &["./nothing"], &[]),
        ];
        for (patterns, roots, expected) in table {
            let patterns: Vec<String> =
                patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            let wanted = wanted(&patterns).unwrap();
            let chosen: Vec<_> = choose(&wanted, list)
                .iter()
                .map(|path| path.to_string_lossy().into_owned())
                .collect();
            assert_eq!(wanted.roots, roots, "{patterns:?}");
            assert_eq!(chosen, expected, "{patterns:?}");
        }
        let list = b"./.git/hooks/post-checkout\0./a/.git/config\0./a/b\0./run/.hydra/x.yaml\0\
             ./run/.hydra/.secret\0./.env\0";
        let table: [(&[&str], &[&str]); 13] = [
            (&["*"], &["./a/b"]),
            (&["**"], &["./a/b"]),
            (&["**/*"], &["./a/b"]),
            (&["?git/**"], &[]),
            (&["[.]git"], &[]),
            (&["{a,b}*"], &["./a/b"]),
            (&["*/.hydra"], &["./run/.hydra/x.yaml"]),
            (&["*/.hydra/.*"], &["./run/.hydra/.secret"]),
            (&["{.env,x}"], &["./.env"]),
            (&[".*"], &["./.env", "./.git/hooks/post-checkout"]),
            (&[".git"], &["./.git/hooks/post-checkout"]),
            // a directory without a wildcard includes everything in it
            (&["a"], &["./a/.git/config", "./a/b"]),
            (
                &["*", "run"],
                &["./a/b", "./run/.hydra/.secret", "./run/.hydra/x.yaml"],
            ),
        ];
        for (patterns, expected) in table {
            let wanted = wanted(
                &patterns
                    .iter()
                    .map(|&pattern| pattern.to_owned())
                    .collect::<Vec<_>>(),
            )
            .unwrap();
            let chosen: Vec<_> = choose(&wanted, list)
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            assert_eq!(chosen, expected, "{patterns:?}");
        }
        for bad in ["../x", "/etc/passwd", "", "a[", "./"] {
            assert!(wanted(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
