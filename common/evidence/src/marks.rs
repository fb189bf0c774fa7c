//! Which process wrote a line: the marks that launchers, loggers and libraries put before lines.

use crate::syntax::LineStart;
use std::borrow::Cow;

/// A log does not have more kinds of lines with tracebacks.
const MAX_LEARNED: usize = 256;
/// Host, process id, address and time.
const MAX_PREFIX: usize = 150;
const ANY_DIGIT: u8 = 1;

/// A process, as far as a mark or the name of a file identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Writer {
    pub rank: Option<u32>,
    pub local_rank: Option<u32>,
    /// A host, pod or actor, as its launcher names it.
    pub place: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct LineMarks {
    /// Prefixes without a known form, seen before a line of a traceback.
    learned: Vec<Vec<u8>>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct MarkedLine<'a> {
    /// The marks without times.
    pub mark: Cow<'a, str>,
    pub text: &'a str,
    /// Whether it shows that its mark is one: then the traceback began in the line before.
    pub in_traceback: bool,
}

impl LineMarks {
    pub fn split<'a>(&mut self, line: &'a str) -> MarkedLine<'a> {
        let (mut text, mut has_time) = after_marks(line);
        let mut in_traceback = false;
        let learned = self.learned.iter().find(|shape| has_shape(text, shape));
        if let Some(shape) = learned {
            has_time |= shape.contains(&ANY_DIGIT);
            text = &text[shape.len()..];
        } else if let Some(prefix) = before_frame(text).or_else(|| before_known(text))
            && self.learned.len() < MAX_LEARNED
        {
            let shape = shape(prefix);
            has_time |= shape.contains(&ANY_DIGIT);
            in_traceback = text[prefix.len()..].starts_with("  File");
            text = &text[prefix.len()..];
            self.learned.push(shape);
        }
        // `3: [rank7]: ` of torchrun as a task of srun
        if text.starts_with("[rank") {
            let (rest, is_time) = after_marks(text);
            text = rest;
            has_time |= is_time;
        }
        let free = MAX_LEARNED - self.learned.len();
        self.learned.extend(of_pdsh(text).take(free));
        let mark = &line[..line.len() - text.len()];
        let mark = if has_time {
            let mut shape = shape(mark);
            shape.retain(|byte| *byte != ANY_DIGIT);
            Cow::Owned(String::from_utf8_lossy(&shape).into_owned())
        } else {
            Cow::Borrowed(mark)
        };
        MarkedLine {
            mark,
            text,
            in_traceback,
        }
    }
}

/// The rest after all marks of known forms, and whether one was a time.
fn after_marks(mut text: &str) -> (&str, bool) {
    let mut has_time = false;
    while let Some((rest, is_time)) = after_mark(text) {
        text = rest;
        has_time |= is_time;
    }
    (text, has_time)
}

/// The rest after the first mark of a known form, and whether that was a time.
fn after_mark(line: &str) -> Option<(&str, bool)> {
    if let Some(rest) = line.strip_prefix('[') {
        let (mark, after) = rest.split_once(']').filter(|(mark, _)| mark.len() < 100)?;
        let is_word = mark.starts_with(|c: char| c.is_ascii_alphabetic())
            && mark.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let after = if is_word {
            // `[rank0]: ` of torch 2.4 and later, `[default0]:` of torchrun
            let after = after.strip_prefix(':')?;
            let spaced = after.strip_prefix(' ').filter(|_| mark.starts_with("rank"));
            spaced.unwrap_or(after)
        } else if mark.starts_with("rank: ") || mark.starts_with("rank=") || is_pod(mark) {
            // of Lightning; of `kubectl logs --prefix`
            after.strip_prefix(' ')?
        } else {
            // `[1,3]<stderr>:` of mpirun, `[prterun-h2-77@1,3]<stderr>: ` of PRRTE
            let after = after
                .strip_prefix("<stderr>:")
                .or(after.strip_prefix("<stdout>:"))?;
            after.strip_prefix(' ').unwrap_or(after)
        };
        return Some((after, false));
    }
    if let Some(rest) = line.strip_prefix('(') {
        // `(RayTrainWorker pid=812, ip=10.0.0.2) ` of Ray
        let (mark, after) = rest.split_once(") ")?;
        let is_actor = mark.len() < MAX_PREFIX && (mark.contains("pid=") || mark.contains("ip="));
        return is_actor.then_some((after, false));
    }
    // `2026-01-01T10:00:00.123456789Z ` of Kubernetes, docker and containerd
    let time = line.get(..20).map(str::as_bytes)?;
    if !(time[0].is_ascii_digit() && time[4] == b'-' && time[10] == b'T' && time[13] == b':') {
        return None;
    }
    let (_, after) = line.split_once(' ').filter(|(time, _)| time.len() < 40)?;
    let streams = ["stdout F ", "stderr F "];
    let of_stream = streams.iter().find_map(|stream| after.strip_prefix(stream));
    Some((of_stream.unwrap_or(after), true))
}

fn is_pod(mark: &str) -> bool {
    mark.starts_with("pod/")
}

/// The prefix before a traceback's frame, unless it is the margin of a group.
fn before_frame(text: &str) -> Option<&str> {
    let (prefix, rest) = text.split_once("  File \"")?;
    let is_mark = prefix.len() < MAX_PREFIX
        && !prefix.trim_start().is_empty()
        && !prefix.trim_start().starts_with(['|', '+', '\u{2502}'])
        // NumPy's warning about its version has both on one line
        && !prefix.contains("Traceback")
        && rest.contains("\", line ");
    is_mark.then_some(prefix)
}

/// The prefix of pdsh or of `srun --label` before a line that begins with the host too, as NCCL's
/// does, or that is a launcher's or a logger's: `h1: h1:77:80 [0] NCCL …`, `3: ERROR:root:no`.
fn before_known(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once(": ")?;
    let is_host = || {
        let is_nccl = |rest: &str| rest.starts_with(':') && rest.contains("NCCL ");
        rest.strip_prefix(name).is_some_and(is_nccl)
            || rest.starts_with("[20") && rest.contains("] [launch.py:")
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    // `h1:77:80 [0] NCCL …`
    let is_nccl = || rest.contains(" NCCL ") && rest.split(':').nth(1).is_some_and(is_number);
    let is_known = if is_number(name) {
        is_of_agent(rest)
            || is_nccl()
            || matches!(
                LineStart::of(rest),
                Some(LineStart::Traceback | LineStart::Error)
            )
    } else {
        !name.contains(' ') && is_host()
    };
    (!name.is_empty() && is_known).then(|| &text[..name.len() + 2])
}

/// Whether torchrun wrote a line before it started the ranks.
pub fn is_of_agent(text: &str) -> bool {
    text.contains("torch/distributed/run.py") || text.contains("torch.distributed.run:")
}

/// The prefixes of the hosts in a command of DeepSpeed: `cmd = pdsh -S -f 1024 -w h1,h2 export …`.
fn of_pdsh(text: &str) -> impl Iterator<Item = Vec<u8>> {
    let command = text.split_once("cmd = pdsh ");
    let hosts = command.and_then(|(_, rest)| rest.split_once("-w ")?.1.split(' ').next());
    let hosts = hosts.into_iter().flat_map(|hosts| hosts.split(','));
    hosts.map(|host| format!("{host}: ").into_bytes())
}

/// Each digit of a date or a time stands for any digit.
fn shape(prefix: &str) -> Vec<u8> {
    let is_of_time = |byte: &u8| byte.is_ascii_digit() || b":.,-".contains(byte);
    let mut shape = prefix.as_bytes().to_vec();
    for run in shape.split_mut(|byte| !is_of_time(byte)) {
        let count = |mark: u8| run.iter().filter(|byte| **byte == mark).count();
        let is_date = run.len() >= 10 && run[4] == b'-' && run[7] == b'-';
        if is_date || count(b':') >= 2 && count(b'.') < 3 {
            let digits = run.iter_mut().filter(|byte| byte.is_ascii_digit());
            digits.for_each(|digit| *digit = ANY_DIGIT);
        }
    }
    shape
}

fn has_shape(text: &str, shape: &[u8]) -> bool {
    let fits = |(byte, wanted): (&u8, &u8)| {
        byte == wanted || *wanted == ANY_DIGIT && byte.is_ascii_digit()
    };
    text.is_char_boundary(shape.len()) && text.as_bytes().iter().zip(shape).all(fits)
}

impl Writer {
    pub fn ranked(rank: u32) -> Writer {
        Writer {
            rank: Some(rank),
            ..Writer::default()
        }
    }

    pub fn local(local_rank: u32) -> Writer {
        Writer {
            local_rank: Some(local_rank),
            ..Writer::default()
        }
    }

    pub fn at(place: &str) -> Writer {
        Writer {
            place: Some(place.to_owned()),
            ..Writer::default()
        }
    }

    pub fn of(mark: &str) -> Writer {
        let after = |key: &str| number(mark.split_once(key)?.1);
        let rank = after("[rank")
            .or_else(|| after("rank: "))
            .or_else(|| after("rank="));
        // `[1,3]<stderr>`: the program, then the process; `[3]<stderr>` of horovodrun;
        // `[1,mpirank:3,algo-2]<stderr>` of SageMaker
        let of_mpi = || {
            let (tag, _) = mark.split_once("]<std")?;
            let of_sagemaker = tag
                .split_once("mpirank:")
                .and_then(|(_, rank)| number(rank));
            of_sagemaker.or_else(|| number(tag.rsplit([',', '[']).next()?))
        };
        // `3: ` of `srun --label`
        let of_task = || mark.strip_suffix(": ")?.parse().ok();
        Writer {
            rank: rank.or_else(of_mpi).or_else(of_task),
            local_rank: local_rank(mark),
            place: place(mark),
        }
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse().ok()
}

/// `[default3]:` or `[trainer3]:` of torchrun.
fn local_rank(mark: &str) -> Option<u32> {
    let (role, _) = mark.strip_prefix('[')?.split_once("]:")?;
    let name = role.trim_end_matches(|c: char| c.is_ascii_digit());
    (name != "rank").then(|| role[name.len()..].parse().ok())?
}

fn place(mark: &str) -> Option<String> {
    if let Some((pod, _)) = mark
        .strip_prefix("[pod/")
        .and_then(|mark| mark.split_once(['/', ']']))
    {
        return Some(pod.to_owned());
    }
    if let Some((actor, _)) = mark
        .strip_prefix('(')
        .and_then(|mark| mark.split_once(") "))
    {
        let name = actor.replacen(", ip=", " on ", 1).replacen("pid=", "", 1);
        return Some(name.split(',').next().unwrap_or_default().to_owned());
    }
    // `worker-0: ` of pdsh, `trainer-1  | ` of docker compose
    let name = mark
        .strip_suffix(": ")
        .or(mark.strip_suffix("| "))?
        .trim_end();
    let is_name = name.parse::<u32>().is_err()
        && !["stdout", "stderr"].contains(&name)
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-@".contains(c))
        && name
            .chars()
            .any(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn marks_are_taken_off_and_name_the_process() {
        let at = |place: &str| Writer::at(place);
        let actor = "(RayTrainWorker pid=812, ip=10.0.0.2) ";
        for (line, mark, text, writer) in [
            ("[trainer3]:CUDA", "[trainer3]:", "CUDA", Writer::local(3)),
            ("[rank1]: E: no", "[rank1]: ", "E: no", Writer::ranked(1)),
            (
                "[rank1]:   E: in",
                "[rank1]: ",
                "  E: in",
                Writer::ranked(1),
            ),
            (
                "[rank1]:[E1126 x.cpp:1] no",
                "[rank1]:",
                "[E1126 x.cpp:1] no",
                Writer::ranked(1),
            ),
            (
                "[rank: 3] Seed set",
                "[rank: 3] ",
                "Seed set",
                Writer::ranked(3),
            ),
            ("[1,3]<stderr>:E", "[1,3]<stderr>:", "E", Writer::ranked(3)),
            ("[3]<stderr>:E", "[3]<stderr>:", "E", Writer::ranked(3)),
            (
                "[1,mpirank:3,algo-2]<stderr>:E",
                "[1,mpirank:3,algo-2]<stderr>:",
                "E",
                Writer::ranked(3),
            ),
            (
                "[prterun-h-7@1,3]<stderr>: E",
                "[prterun-h-7@1,3]<stderr>: ",
                "E",
                Writer::ranked(3),
            ),
            (
                "(RayTrainWorker pid=812, ip=10.0.0.2) E",
                actor,
                "E",
                at("RayTrainWorker 812 on 10.0.0.2"),
            ),
            ("[pod/t-0/main] E", "[pod/t-0/main] ", "E", at("t-0")),
            (
                "2026-01-01T10:00:00.1234Z stderr F E",
                "-T.Z stderr F ",
                "E",
                Writer::default(),
            ),
            ("[0]:", "", "[0]:", Writer::default()),
            (
                "[12:00:01] /opt/rpc.cc:390: E",
                "",
                "[12:00:01] /opt/rpc.cc:390: E",
                Writer::default(),
            ),
            (
                "[Rank 0] Watchdog",
                "",
                "[Rank 0] Watchdog",
                Writer::default(),
            ),
            ("ValueError: no", "", "ValueError: no", Writer::default()),
            (
                "(a note) on this",
                "",
                "(a note) on this",
                Writer::default(),
            ),
        ] {
            let split = LineMarks::default().split(line);
            if !mark.contains("-T.Z") {
                assert_eq!(split.mark, mark, "{line}");
            }
            assert_eq!(split.text, text, "{line}");
            assert_eq!(Writer::of(&split.mark), writer, "{line}");
        }
        let both = LineMarks::default()
            .split("[default0]:[rank8]: E")
            .mark
            .into_owned();
        let writer = Writer::of(&both);
        assert_eq!((writer.rank, writer.local_rank), (Some(8), Some(0)));
    }

    #[test]
    fn prefixes_are_learned_from_frames() {
        let frame = "  File \"/srv/train.py\", line 3, in train";
        for (prefix, other, writer) in [
            ("3: ", "4: ", Writer::ranked(3)),
            ("c000001: ", "c000000: ", Writer::at("c000001")),
            ("10.77.0.2: ", "10.77.0.3: ", Writer::at("10.77.0.2")),
            ("worker-1: ", "worker-0: ", Writer::at("worker-1")),
            ("trainer-1  | ", "trainer-2  | ", Writer::at("trainer-1")),
            (
                "2026-01-01 10:00:00 | ERROR | stderr | ",
                "",
                Writer::default(),
            ),
            (
                "[2026-01-01 10:00:00,123] ab12 [rank=1] || ",
                "",
                Writer::ranked(1),
            ),
            ("stderr: ", "", Writer::default()),
        ] {
            let mut marks = LineMarks::default();
            let line = format!("{prefix}ValueError: no");
            assert_eq!(marks.split(&line).text, line, "{prefix}");
            let line = format!("{prefix}{frame}");
            let split = marks.split(&line);
            assert_eq!((split.text, split.in_traceback), (frame, true), "{prefix}");
            let later = prefix
                .replace("10:00:00", "23:59:01")
                .replace("2026-01-01", "2026-12-31");
            let line = format!("{later}ValueError: no");
            let split = marks.split(&line);
            assert_eq!(
                (split.text, split.in_traceback),
                ("ValueError: no", false),
                "{prefix}"
            );
            assert_eq!(Writer::of(&split.mark), writer, "{prefix}");
            if !other.is_empty() {
                let line = format!("{other}ValueError: no");
                assert_eq!(marks.split(&line).text, line, "{prefix}");
            }
        }
        // frames without a prefix, and the margin of a group
        for line in [
            frame,
            "  |   File \"/srv/train.py\", line 3, in f",
            "see  File \"x\"",
        ] {
            assert_eq!(LineMarks::default().split(line).text, line);
        }
    }

    #[test]
    fn prefixes_are_learned_from_other_lines() {
        for (line, prefix) in [
            ("3: ERROR:root:no", "3: "),
            ("3: [rank7]: ERROR:root:no", "3: [rank7]: "),
            (
                "3: W0302 19:05:07 70652 torch/distributed/run.py:792] *****",
                "3: ",
            ),
            ("h1: h1:77:80 [0] NCCL INFO x", "h1: "),
            (
                "h1: [2026-01-01 10:00:00,1] [INFO] [launch.py:3:main] x",
                "h1: ",
            ),
            ("3: epoch 5", ""),
            ("h1: h2:77:80 [0] NCCL INFO x", ""),
        ] {
            assert_eq!(LineMarks::default().split(line).mark, prefix, "{line}");
        }
        let mut marks = LineMarks::default();
        marks.split(
            "[INFO] [runner.py:568:main] cmd = pdsh -S -f 1024 -w h1,h2 export A=1; python3",
        );
        assert_eq!(marks.split("h2: bash: no").mark, "h2: ");
        assert_eq!(marks.split("h3: bash: no").mark, "");
    }
}
