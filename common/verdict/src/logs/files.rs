//! Which process the name of a log names.

use evidence::marks::Writer;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// A log, and the process that wrote its unmarked lines.
pub struct LogFile {
    pub name: String,
    pub writer: Writer,
}

impl LogFile {
    /// For a log whose name shows no process, such as standard input.
    pub fn named(name: &str) -> LogFile {
        LogFile {
            name: name.to_owned(),
            writer: Writer::default(),
        }
    }

    /// The files of a job. What varies in their names is the rank or the host. Only the last
    /// attempt of torchrun's directories counts.
    pub fn of(paths: &[PathBuf]) -> Vec<(PathBuf, LogFile)> {
        let attempts: Vec<Option<Attempt>> = paths.iter().map(|path| Attempt::of(path)).collect();
        let mut last: HashMap<PathBuf, u32> = HashMap::new();
        for attempt in attempts.iter().flatten() {
            let number = last.entry(attempt.folder.clone()).or_default();
            *number = attempt.number.max(*number);
        }
        let mut templates: HashMap<String, usize> = HashMap::new();
        let stems: Vec<Stem> = paths.iter().map(|path| Stem::of(path)).collect();
        let distinct: BTreeSet<&str> = stems.iter().map(|stem| stem.text.as_str()).collect();
        let is_one = distinct.len() < 2;
        for text in distinct {
            *templates.entry(Stem::template(text)).or_default() += 1;
        }
        // torchrun's own output beside its directory
        let place = |path: &Path| {
            let mut folders = last.keys().filter(|_| last.len() > 1);
            let folder = folders.find(|folder| folder.parent() == path.parent())?;
            Some(folder.display().to_string())
        };
        let writer = |index: usize| {
            let stem = &stems[index];
            let is_varied = templates[&Stem::template(&stem.text)] > 1;
            match &attempts[index] {
                Some(attempt) => Writer {
                    place: (last.len() > 1).then(|| attempt.folder.display().to_string()),
                    ..Writer::local(attempt.local_rank)
                },
                None => match (stem.rank, stem.task.filter(|_| is_varied)) {
                    (Some(rank), _) | (None, Some(rank)) => Writer::ranked(rank),
                    _ if is_one => Writer::default(),
                    _ => Writer::at(&place(&paths[index]).unwrap_or(stem.text.clone())),
                },
            }
        };
        let is_last = |index: &usize| {
            let attempt = attempts[*index].as_ref();
            attempt.is_none_or(|attempt| last.get(&attempt.folder) == Some(&attempt.number))
        };
        let file = |index: usize| {
            let path = paths[index].clone();
            let name = record::run::name_of(Some(&path));
            let writer = writer(index);
            (path, LogFile { name, writer })
        };
        let mut files: Vec<(PathBuf, LogFile)> =
            (0..paths.len()).filter(is_last).map(file).collect();
        // stderr comes last, because it explains the end
        files.sort_by_key(|(path, _)| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().contains("err"))
        });
        files
    }
}

/// `attempt_0/3/stderr.log`, from torchrun --log-dir.
struct Attempt {
    folder: PathBuf,
    number: u32,
    local_rank: u32,
}

impl Attempt {
    fn of(path: &Path) -> Option<Attempt> {
        let of_rank = path.parent()?;
        let of_attempt = of_rank.parent()?;
        let name = of_attempt.file_name()?.to_str()?;
        Some(Attempt {
            folder: of_attempt.parent()?.to_owned(),
            number: name.strip_prefix("attempt_")?.parse().ok()?,
            local_rank: of_rank.file_name()?.to_str()?.parse().ok()?,
        })
    }
}

/// A file's name without the endings of logs.
struct Stem {
    text: String,
    /// The number behind `rank`.
    rank: Option<u32>,
    /// The number between dots, as in `job.3.err`, or alone.
    task: Option<u32>,
}

impl Stem {
    fn of(path: &Path) -> Stem {
        const ENDINGS: [&str; 7] = ["log", "out", "err", "txt", "stdout", "stderr", "output"];
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_ending = |part: &&str| ENDINGS.contains(part);
        let parts: Vec<&str> = name.split('.').filter(|part| !is_ending(part)).collect();
        let text = parts.join(".");
        let rank = text.rsplit_once("rank").and_then(|(_, rest)| {
            let rest = rest.trim_start_matches(['_', '-', '.', '=']);
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            rest[..digits].parse().ok()
        });
        let task = parts.iter().rev().find_map(|part| part.parse().ok());
        Stem { text, rank, task }
    }

    fn template(text: &str) -> String {
        let parts = text.split('.').map(|part| match part.parse::<u32>() {
            Ok(_) => "#",
            Err(_) => part,
        });
        parts.collect::<Vec<_>>().join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_who_wrote() {
        let local = |local_rank, place: Option<&str>| Writer {
            place: place.map(str::to_owned),
            ..Writer::local(local_rank)
        };
        let table: [(&[&str], Vec<Writer>); 9] = [
            (&["slurm-4711.out"], vec![Writer::default()]),
            (&["j/job.4711.err"], vec![Writer::default()]),
            (
                &["run.out", "run.err"],
                vec![Writer::default(), Writer::default()],
            ),
            (
                &["l/rank_3.log", "l/main.log"],
                vec![Writer::ranked(3), Writer::at("main")],
            ),
            (
                &["job.0.err", "job.3.err"],
                vec![Writer::ranked(0), Writer::ranked(3)],
            ),
            (
                &["gpu1.log", "gpu2.log"],
                vec![Writer::at("gpu1"), Writer::at("gpu2")],
            ),
            (
                &[
                    "r/attempt_0/0/stderr.log",
                    "r/attempt_1/0/stderr.log",
                    "r/attempt_1/1/stdout.log",
                ],
                vec![local(1, None), local(0, None)],
            ),
            (
                &["a/attempt_0/0/stderr.log", "b/attempt_0/0/stderr.log"],
                vec![local(0, Some("a")), local(0, Some("b"))],
            ),
            (
                &[
                    "a/torchrun.log",
                    "a/r/attempt_0/0/stdout.log",
                    "b/r/attempt_0/0/stdout.log",
                ],
                vec![
                    Writer::at("a/r"),
                    local(0, Some("a/r")),
                    local(0, Some("b/r")),
                ],
            ),
        ];
        for (names, expected) in table {
            let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            let files = LogFile::of(&paths);
            let writers: Vec<Writer> = files.into_iter().map(|(_, file)| file.writer).collect();
            assert_eq!(writers, expected, "{names:?}");
        }
    }
}
