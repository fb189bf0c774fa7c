//! The syntax of errors of Python, torch, C++ and loggers: which lines begin a statement, and what
//! one line means.

use aho_corasick::{AhoCorasick, MatchKind};
use std::sync::LazyLock;

/// Ends the line that begins a traceback. `Original` (torch, for an exception of another process)
/// or `+ Exception Group` may precede it.
pub const TRACEBACK: &str = "Traceback (most recent call last):";
/// faulthandler ends with this list of all imported extension modules, thousands of characters
/// long.
pub const EXTENSION_MODULES: &str = "Extension modules:";
/// Lines between two tracebacks if the first exception led to the second.
const LINKS: [&str; 2] = [
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
];

/// What a line begins, independent of the lines before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineStart {
    Traceback,
    Stacks,
    /// The reason of a death, from a native library, the dynamic linker, a shell or the kernel.
    Death,
    Error,
    /// Text that is unrelated to the lines before: a warning, an ignored exception.
    Other,
}

/// What native code, the dynamic linker, shells and batch systems write about a death. `ERROR` and
/// the like are words of loggers.
const DEATHS: [&str; 49] = [
    "terminate called",
    "what():",
    "free(): invalid",
    "free(): double free",
    "malloc(): ",
    "malloc_consolidate(): ",
    "munmap_chunk(): ",
    "realloc(): ",
    "double free or corruption",
    "corrupted size vs. prev_size",
    "corrupted double-linked list",
    "*** stack smashing detected",
    "*** buffer overflow detected",
    "libgomp: ",
    "OMP: Error",
    "OpenBLAS blas_thread_init",
    "' panicked at",
    "error while loading shared libraries",
    "symbol lookup error",
    "version `GLIBC",
    "' failed.",
    "` failed.",
    "Check failed: ",
    "NCCL WARN",
    "ncclInternalError",
    "ncclSystemError",
    "ncclUnhandledCudaError",
    "taking the entire process down",
    "LLVM ERROR: ",
    "*** MPI_ERR_",
    "Bus error",
    "Segmentation fault",
    "Floating point exception",
    "Illegal instruction",
    "Aborted (core dumped)",
    "Killed  ",
    "Killed process",
    "oom-kill",
    "oom_kill",
    "Out of memory: ",
    "slurmstepd: error",
    "DUE TO TIME LIMIT",
    "No space left on device",
    "Disk quota exceeded",
    "Cannot allocate memory",
    ": command not found",
    ": not found",
    "can't open file",
    "cannot open shared object file",
];
const LEVELS: [&str; 6] = [
    "ERROR",
    "CRITICAL",
    "FATAL",
    "\"level\": \"error\"",
    "\"level\":\"error\"",
    "level=error",
];

const WARNING: &str = "Warning: ";
/// Levels of loggers. What follows them is no reason of a death, although it may have its words;
/// NCCL writes such reasons as warnings.
const HARMLESS: [&str; 3] = ["DEBUG", "INFO", "WARN"];

/// Searches for all words at once, because every line that a job writes is examined.
static WORDS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    leftmost(
        DEATHS
            .iter()
            .chain(&LEVELS)
            .chain([&WARNING])
            .chain(&HARMLESS),
    )
});

/// Finds the word that begins first: `LLVM ERROR: `, not the level within it.
fn leftmost<'a>(words: impl Iterator<Item = &'a &'a str>) -> Option<AhoCorasick> {
    let mut builder = AhoCorasick::builder();
    builder
        .match_kind(MatchKind::LeftmostFirst)
        .build(words)
        .ok()
}

/// Finds lines that may be evidence in much text that is none.
pub struct EvidenceFinder(Option<AhoCorasick>);

/// A word of each line that begins or names a statement. With more than 64 words, those of
/// launchers included, aho-corasick examines each byte instead of 32 at once.
const EVIDENCE_WORDS: [&str; 43] = [
    TRACEBACK,
    "(most recent call first)",
    "xception",
    "Error",
    "Interrupt",
    "Exit:",
    "Timeout:",
    "terminate called",
    "erminated",
    "():",
    "corrupt",
    "*** ",
    "libgomp: ",
    "OpenBLAS",
    "' panicked at",
    "error while loading",
    "lookup error",
    "version `GLIBC",
    "' failed.",
    "` failed.",
    "Check failed",
    "NCCL WARN",
    "entire process down",
    "Bus error",
    "Segmentation fault",
    "Illegal instruction",
    "Aborted",
    "Killed",
    "oom-kill",
    "oom_kill",
    "Out of memory",
    "slurmstepd: ",
    "DUE TO ",
    "space left on",
    "quota exceeded",
    "Cannot allocate",
    "not found",
    "t open ",
    "ERROR",
    "CRITICAL",
    "FATAL",
    "\"error\"",
    "level=error",
];

impl EvidenceFinder {
    pub fn with(words: &[&str]) -> EvidenceFinder {
        EvidenceFinder(leftmost(EVIDENCE_WORDS.iter().chain(words)))
    }

    pub fn find(&self, text: &[u8]) -> Option<usize> {
        Some(self.0.as_ref()?.find(text)?.start())
    }
}

impl LineStart {
    /// Takes a line without its marks.
    pub fn of(line: &str) -> Option<LineStart> {
        let begins = |words: &str| line.starts_with(words);
        if line.ends_with(TRACEBACK) || is_relayed(line) {
            return Some(LineStart::Traceback);
        } else if begins("Fatal Python error: ") || is_thread(line) {
            return Some(LineStart::Stacks);
        } else if raiser_line(line).is_some() || line.contains("cannot be preloaded") {
            return Some(LineStart::Other);
        }
        match glog_level(line) {
            // such a line is the last of its program
            Some('F' | 'C') => return Some(LineStart::Death),
            Some('E') => return Some(LineStart::Error),
            Some(_) => return Some(LineStart::Other),
            None => {}
        }
        let found = WORDS.as_ref()?.find_iter(line);
        let is_death = |found: aho_corasick::Match| found.pattern().as_usize() < DEATHS.len();
        let (mut is_error, mut is_harmless) = (false, false);
        for word in found {
            if is_death(word) {
                if is_harmless {
                    continue;
                }
                return Some(LineStart::Death);
            }
            if line[word.range()] == *WARNING {
                return Some(LineStart::Other);
            }
            let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let (before, after) = (&line[..word.start()], &line[word.end()..]);
            let after = after.strip_prefix("ING").unwrap_or(after);
            let is_word =
                !is_letter(before.chars().next_back()) && !is_letter(after.chars().next());
            if HARMLESS.contains(&&line[word.range()]) {
                is_harmless |= is_word;
            } else {
                is_error |= is_word;
            }
        }
        // a shell that reports the end of its child writes only this word
        let is_killed = matches!(line.trim_end(), "Killed" | "Aborted" | "Terminated");
        match (is_killed, is_error) {
            (true, _) => Some(LineStart::Death),
            (false, true) => Some(LineStart::Error),
            (false, false) => None,
        }
    }
}

/// The level in a line of glog, torch's C++ logger or Ray: `[E1126 07:00:00.123 x.cpp:5] …`, `[W
/// socket.cpp:601] …`, `E1126 07:00:00 …`, `[2026-01-01 07:00:00,123 E 77 80] …`.
fn glog_level(line: &str) -> Option<char> {
    let (bracket, rest) = match line.strip_prefix('[') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    // the level follows a time of 24 bytes
    let rest = match rest.get(24..) {
        Some(after) if bracket && rest.as_bytes()[19] == b',' => after,
        _ => rest,
    };
    let level = rest.chars().next().filter(|c| "IWEFC".contains(*c))?;
    let rest = &rest[1..];
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    // torch writes the month without a zero: `[E420 15:43:53.566 x.cpp:616]`
    let is_date = [4, 6, 8].contains(&digits) || bracket && (digits == 0 || digits == 3);
    let is_log = is_date && rest[digits..].starts_with(' ') && rest.contains("] ");
    is_log.then_some(level)
}

/// The lines within one that several processes wrote, because one had not ended its own:
/// `97%|###[rank1]: Traceback (most recent call last):`.
pub fn unglued(line: &str) -> Vec<&str> {
    let is_glued = |(offset, word): &(usize, &str)| {
        let rest = line[offset + word.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
        let is_mark = *word == TRACEBACK || rest.starts_with("]:");
        let is_end = |c: char| c.is_alphanumeric() || ".)]}'\"!%|…".contains(c);
        is_mark && line[..*offset].ends_with(is_end)
    };
    let words = [TRACEBACK, "[rank"];
    let found = words.iter().flat_map(|word| line.match_indices(word));
    let mut cuts: Vec<usize> = found.filter(is_glued).map(|(offset, _)| offset).collect();
    cuts.sort_unstable();
    cuts.push(line.len());
    let mut begin = 0;
    let part = |end| &line[std::mem::replace(&mut begin, end)..end];
    cuts.into_iter().map(part).collect()
}

/// Whether a line begins the stack of a thread, as faulthandler writes it.
fn is_thread(line: &str) -> bool {
    let is_named = ["Current thread ", "Thread 0x", "Stack (", "Timeout (0:"];
    is_named.iter().any(|words| line.starts_with(words))
        && (line.ends_with("(most recent call first):") || line.ends_with(")!"))
}

/// Whether a line begins a traceback that another process raised, and this one repeats: `Original
/// Traceback …`, `Traceback (most recent call last): (RANK 3)` of torch.distributed.checkpoint.
pub fn is_relayed(line: &str) -> bool {
    let (before, after) = line.split_once(TRACEBACK).unwrap_or_default();
    before == "Original " || after.starts_with(" (RANK ")
}

pub fn is_link(line: &str) -> bool {
    LINKS.contains(&line)
}

/// Whether the exception before this line quotes the traceback after it, because another process
/// raised it first.
pub fn is_quotation(line: &str) -> bool {
    line == "\"\"\"" || line.starts_with("-- Process ") && line.contains("terminated with")
}

/// Who raised an exception, according to the line before its traceback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Raiser {
    /// The main thread, or code that caught and printed the exception.
    #[default]
    Main,
    /// A thread that the exception ended.
    Thread,
    /// A child of multiprocessing that the exception ended.
    Child,
    /// Python ignores these exceptions, for instance of a destructor or an exit hook.
    Nobody,
}

/// Whether a line of Python, or the function of a frame, exchanges data with another process:
/// `recv`, `recv_into`, `receive_all`, `readexactly`, `sendall`.
pub fn exchanges(text: &str) -> bool {
    ["recv", "receive", "readexactly", "sendall"]
        .iter()
        .any(|word| {
            text.match_indices(word).any(|(offset, _)| {
                let is_begin = !text[..offset].ends_with(|c: char| c.is_alphanumeric());
                let rest = text[offset + word.len()..]
                    .trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '_');
                is_begin && (rest.starts_with('(') || rest.starts_with(" ("))
            })
        })
}

/// How lines begin that Python, its logging and asyncio write before exceptions that end nothing.
const IGNORED: [&str; 8] = [
    "Exception ignored ",
    "Error in atexit._run_exitfuncs:",
    "Error in sys.excepthook:",
    "--- Logging error ---",
    "Exception in callback ",
    "future: <",
    "task: <",
    "handle: <",
];

pub fn raiser_line(line: &str) -> Option<Raiser> {
    let begins = |words: &str| line.starts_with(words);
    if begins("Exception in thread ") {
        Some(Raiser::Thread)
    } else if IGNORED.iter().any(|words| begins(words))
        || line.ends_with("exception was never retrieved")
    {
        Some(Raiser::Nobody)
    } else if begins("Process ") && line.ends_with(':') {
        Some(Raiser::Child)
    } else {
        None
    }
}

/// Whether a line belongs to the exception before it where several processes write: the message is
/// incomplete, or the line has a form of torch's and CUDA's further lines.
pub fn continues(before: &str, line: &str) -> bool {
    const FURTHER: [&str; 16] = [
        "CUDA kernel errors",
        "For debugging",
        "Compile with",
        "Device-side assertions",
        "Last error",
        "nccl",
        "Exception raised from",
        "frame #",
        "Parameter",
        "making sure all",
        "If you already have done",
        "-- Process ",
        "The actor is dead",
        // of logging, after its own exception
        "Call stack:",
        "Message: ",
        "Arguments: ",
    ];
    line.is_empty()
        || line == "\"\"\""
        || is_link(line)
        || line.starts_with([' ', '\t'])
        || before.trim_end().ends_with([':', ','])
        || FURTHER.iter().any(|words| line.starts_with(words))
}

/// `None` if the line has no margin of an exception group.
pub fn without_margin(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix(['|', '+'])?;
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    (line.starts_with(' ')).then_some(rest)
}

/// `ValueError: no`, `my.Odd`. The class precedes the colon, if there is one.
pub fn has_class(line: &str) -> bool {
    let class = line.split(':').next().unwrap_or_default();
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    class
        .trim_end()
        .split('.')
        .all(|part| is_name(part) || part == "<locals>")
}

/// The class has a typical name.
pub fn is_exception(line: &str) -> bool {
    let class = line.split(':').next().unwrap_or_default();
    let ends = [
        "Error",
        "Exception",
        "ExceptionGroup",
        "Interrupt",
        "Exit",
        "Timeout",
    ];
    ends.iter().any(|end| class.ends_with(end)) && has_class(line)
}

/// Turns `  File "/srv/train.py", line 97 in train` into `train (train.py:97)`. A file in a package
/// keeps its directory: `backward (torch/_tensor.py:488)`.
pub fn frame(line: &str) -> Option<String> {
    let (path, rest) = line.trim_start().strip_prefix("File \"")?.split_once('"')?;
    let (number, function) = rest.strip_prefix(", line ")?.split_once(" in ")?;
    // a traceback has a comma here
    let number = number.trim_end_matches(',');
    Some(format!("{function} ({}:{number})", short(path)))
}

/// Whether a process may write this line while it exits after a failure: a warning, the summary of
/// wandb, an exception of a finalizer.
pub fn is_at_exit(line: &str) -> bool {
    let begins = ["wandb: ", "Exception ignored ", " "];
    line.is_empty()
        || begins.iter().any(|begin| line.starts_with(begin))
        || LineStart::of(line).is_some()
}

/// Whether a main thread runs exit functions: the outermost frame of a script is module-level code.
pub fn has_left_script(frames: &[String]) -> bool {
    !frames.iter().any(|frame| frame.starts_with("<module> ("))
}

/// The path below the directory in which Python searches for packages; otherwise the file name.
fn short(path: &str) -> &str {
    let below = |folder: &str| Some(path.rsplit_once(folder)?.1);
    let library = || {
        let (version, rest) = below("/lib/python3")?.split_once('/')?;
        version
            .chars()
            .all(|c| c == '.' || c.is_ascii_digit())
            .then_some(rest)
    };
    below("/site-packages/")
        .or_else(|| below("/dist-packages/"))
        .or_else(library)
        .or_else(|| Some(path.rsplit_once('/')?.1))
        .unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn what_a_line_begins() {
        let table = [
            (
                "Original Traceback (most recent call last):",
                Some(LineStart::Traceback),
            ),
            (
                "Traceback (most recent call last): (RANK 3)",
                Some(LineStart::Traceback),
            ),
            ("a Traceback (most recent call last): follows", None),
            ("LLVM ERROR: no libdevice", Some(LineStart::Death)),
            (
                "[h1:7] *** MPI_ERR_TRUNCATE: message truncated",
                Some(LineStart::Death),
            ),
            ("[h1:7] *** MPI_ERRORS_ARE_FATAL (processes", None),
            (
                "F20220801 07:29:34.7  2256 fs.cc:42] no path",
                Some(LineStart::Death),
            ),
            (
                "[2026-01-01 07:00:00,900 E 869 1530] gcs_rpc_client.h:542: no",
                Some(LineStart::Error),
            ),
            (
                "[2026-01-01 07:00:00,900 C 65 65] (raylet) node_manager.cc:999: no",
                Some(LineStart::Death),
            ),
            (
                "[2026-01-01 07:00:00,900 I 869 1530] core_worker.cc:5: yes",
                Some(LineStart::Other),
            ),
            ("[2026-01-01 07:00:00,900] Epoch 3 of 4]", None),
            ("Fatal Python error: Aborted", Some(LineStart::Stacks)),
            (
                "Thread 0x00007f (most recent call first):",
                Some(LineStart::Stacks),
            ),
            ("Thread-3 has ended", None),
            (
                "terminate called after throwing an instance of 'x'",
                Some(LineStart::Death),
            ),
            (
                "  what():  [enforce fail at pair.cc:446]",
                Some(LineStart::Death),
            ),
            (
                "bash: line 1: 5123 Killed   python3 x.py",
                Some(LineStart::Death),
            ),
            ("Killed", Some(LineStart::Death)),
            ("Killed all 5 monsters", None),
            (
                "gpu1:1:1 [0] NCCL INFO dlerror=libnccl-net.so: cannot open shared object file",
                None,
            ),
            ("wandb: WARNING No space left on device, continuing", None),
            ("2026-01-01 [DEBUG] sh: 1: nvidia-smi: not found", None),
            ("INFORM: No space left on device", Some(LineStart::Death)),
            (
                "h:7:8 [0] x.cc:57 NCCL WARN Cuda failure",
                Some(LineStart::Death),
            ),
            ("ERROR:root:no", Some(LineStart::Error)),
            (
                "2026-01-01 00:00:00,1 - x - ERROR - no",
                Some(LineStart::Error),
            ),
            ("MY_ERROR=1", None),
            ("no ERRORS", None),
            ("[E socket.cpp:435] [c10d] no", Some(LineStart::Error)),
            (
                "[E1126 07:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 0] no",
                Some(LineStart::Error),
            ),
            (
                "E1126 07:00:00.1 140 torch/x/api.py:833] failed",
                Some(LineStart::Error),
            ),
            (
                "[E420 15:43:53.5 ProcessGroupNCCL.cpp:616] [Rank 0] no",
                Some(LineStart::Error),
            ),
            ("E420 is a room] no", None),
            ("[W socket.cpp:601] [c10d] no", Some(LineStart::Other)),
            ("/x/y.py:3: UserWarning: no", Some(LineStart::Other)),
            ("Every epoch is well", None),
            ("epoch 3 loss 0.5", None),
            ("", None),
        ];
        for (line, start) in table {
            assert_eq!(LineStart::of(line), start, "{line}");
        }
    }

    #[test]
    fn lines_of_several_processes_are_cut() {
        let table: [(&str, &[&str]); 8] = [
            ("ValueError: no", &["ValueError: no"]),
            ("", &[""]),
            (
                "ValueError: no[rank1]: Traceback (most recent call last):",
                &[
                    "ValueError: no",
                    "[rank1]: Traceback (most recent call last):",
                ],
            ),
            (
                "OSError: a.Traceback (most recent call last):",
                &["OSError: a.", "Traceback (most recent call last):"],
            ),
            (
                "97%|### | 5/10 [00:01<00:09, 97.1it/s][rank12]: E: no",
                &["97%|### | 5/10 [00:01<00:09, 97.1it/s]", "[rank12]: E: no"],
            ),
            (
                "[default0]:[rank8]: Traceback (most recent call last):",
                &["[default0]:[rank8]: Traceback (most recent call last):"],
            ),
            (
                "Original Traceback (most recent call last):",
                &["Original Traceback (most recent call last):"],
            ),
            ("    x = parts[rank]", &["    x = parts[rank]"]),
        ];
        for (line, parts) in table {
            assert_eq!(unglued(line), parts, "{line}");
        }
    }

    #[test]
    fn what_begins_a_statement_is_found_in_much_text() {
        let finder = EvidenceFinder::with(&[]);
        let others = [
            "Fatal Python error: Aborted",
            "Thread 1 (most recent call first):",
        ];
        for words in DEATHS.iter().chain(&LEVELS).chain(&others) {
            assert!(finder.find(words.as_bytes()).is_some(), "{words}");
        }
    }

    #[test]
    fn exceptions_are_known_by_their_names() {
        for (line, has_shape, has_name) in [
            ("ValueError: no", true, true),
            ("KeyboardInterrupt", true, true),
            ("dgl._ffi.base.DGLError: [12:00] x", true, true),
            ("Odd: 2", true, false),
            ("  ValueError: within", false, false),
            ("An Error: words", false, false),
            ("", false, false),
        ] {
            assert_eq!(
                (has_class(line), is_exception(line)),
                (has_shape, has_name),
                "{line}"
            );
        }
    }

    #[test]
    fn files_of_packages_have_their_folders() {
        for (path, name) in [
            (
                "/opt/dgl/lib/python3/site-packages/torch/_tensor.py",
                "torch/_tensor.py",
            ),
            (
                "/usr/lib/python3.11/multiprocessing/queues.py",
                "multiprocessing/queues.py",
            ),
            ("/usr/lib/python3.11/threading.py", "threading.py"),
            ("/srv/job/code/train.py", "train.py"),
            ("<string>", "<string>"),
        ] {
            assert_eq!(short(path), name);
        }
    }
}
