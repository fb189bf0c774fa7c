//! What Python writes when something goes wrong: tracebacks, and the stacks of faulthandler.

/// The first line of a traceback.
const TRACEBACK: &str = "Traceback (most recent call last):";
/// The line that faulthandler writes before the frames of the thread that got the signal.
const CURRENT_THREAD: &str = "Current thread ";
/// The line that stands before the frames if Python was looking for memory to free.
const GARBAGE: &str = "Garbage-collecting";
/// The list of all imported extension modules, thousands of characters long, which faulthandler
/// writes last.
pub const EXTENSION_MODULES: &str = "Extension modules:";

/// Whether a line begins a traceback.
fn begins(line: &str) -> bool {
    unmarked(line) == TRACEBACK
}

/// The line without the marks before it: `[trainer0]:` of torchrun, and `[rank0]: ` before each
/// line of an exception that ends a process of torch.distributed, as torch 2.4 writes them.
fn unmarked(line: &str) -> &str {
    match line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]:"))
    {
        Some((mark, rest)) if mark.starts_with("rank") => rest.strip_prefix(' ').unwrap_or(rest),
        Some((mark, rest)) if mark.chars().all(|c| c.is_ascii_alphanumeric()) => unmarked(rest),
        _ => line,
    }
}

/// The exception that a line names, as the last line of a traceback does: `ValueError: it is not
/// one`. Such a line is not indented and begins with a class whose name says what it is.
fn exception(line: &str) -> Option<&str> {
    let line = unmarked(line);
    let class = line.split(':').next().unwrap_or_default();
    let name = class.rsplit('.').next().unwrap_or_default();
    let is_class = !class.is_empty()
        && class
            .split('.')
            .all(|part| part.starts_with(|c: char| c.is_alphabetic() || c == '_'))
        && class
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let says_so = ["Error", "Exception", "Interrupt", "Exit", "Timeout"]
        .iter()
        .any(|end| name.ends_with(end));
    (is_class && says_so).then_some(line)
}

/// The last exception that the last lines of a process name. One that Python ignored, as that of a
/// destructor, has not ended the process.
pub fn last_exception(lines: &[String]) -> Option<&str> {
    let mut exceptions = Exceptions::default();
    let named = lines.iter().filter_map(|line| match exceptions.line(line) {
        Some((Raiser::Nobody, _)) => None,
        _ => exception(line),
    });
    named.last()
}

/// The exceptions among the lines of one stream, without those that Python ignored: the position of
/// the traceback's first line, the position of the line that names the exception, and that
/// exception.
pub fn exceptions<'a>(lines: &[&'a str]) -> Vec<(usize, usize, &'a str)> {
    let (mut exceptions, mut from, mut found) = (Exceptions::default(), 0, Vec::new());
    for (at, line) in lines.iter().enumerate() {
        if begins(line) {
            from = at;
        }
        match exceptions.line(line) {
            None | Some((Raiser::Nobody, _)) => {}
            Some((_, exception)) => found.push((from, at, exception)),
        }
    }
    found
}

/// Who raised the exception of a traceback, as the line before it tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Raiser {
    /// The main thread; or code that caught the exception and printed it.
    #[default]
    Main,
    /// Another thread, which has ended by it.
    Thread,
    /// A child process of multiprocessing, which has ended by it.
    Child,
    /// Code whose exceptions Python ignores, such as a destructor.
    Nobody,
}

impl Raiser {
    /// The raiser that the line before the traceback tells. An exception that is raised while
    /// another one is handled has the raiser of that one (`last`).
    fn by(line: &str, last: Raiser) -> Raiser {
        let line = unmarked(line);
        let begins = |words: &str| line.starts_with(words);
        match () {
            () if begins("Exception in thread ") => Raiser::Thread,
            () if begins("Exception ignored ") => Raiser::Nobody,
            () if begins("Process ") && line.ends_with(':') => Raiser::Child,
            () if begins("During handling of the above exception") => last,
            () if begins("The above exception was the direct cause") => last,
            () => Raiser::Main,
        }
    }
}

/// Finds exceptions among the lines of one stream as they come.
#[derive(Clone, Debug, Default)]
pub struct Exceptions {
    /// The last line that was not empty.
    before: String,
    /// The raiser of the traceback that has begun.
    within: Option<Raiser>,
    last: Raiser,
}

impl Exceptions {
    /// Takes the next line, without its end. Returns the exception that it names, and who raised
    /// it.
    pub fn line<'a>(&mut self, line: &'a str) -> Option<(Raiser, &'a str)> {
        let mut found = None;
        if begins(line) {
            self.last = Raiser::by(&self.before, self.last);
            self.within = Some(self.last);
        } else if let Some(raiser) = self.within
            && !line.is_empty()
            && !unmarked(line).starts_with([' ', '\t'])
        {
            // an exception class whose name says nothing is recognised by its position alone
            self.within = None;
            found = Some((raiser, unmarked(line)));
        }
        if !line.is_empty() {
            line.clone_into(&mut self.before);
        }
        found
    }
}

/// The stacks that faulthandler wrote, each of the thread that got the signal, which is the main
/// thread: the position of the first frame among the lines, and the frames as `function
/// (file.py:123)`, the innermost first. If child processes write to the same stream, there are
/// several.
pub fn fatal_stacks(lines: &[&str]) -> Vec<(usize, Vec<String>)> {
    let begins = |line: &&str| unmarked(line).starts_with(CURRENT_THREAD);
    let mut stacks = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| begins(line)) {
        let frames = lines[at + 1..]
            .iter()
            .filter(|line| line.trim() != GARBAGE)
            .map_while(|line| frame(unmarked(line)));
        let frames: Vec<String> = frames.collect();
        if !frames.is_empty() {
            stacks.push((at + 1, frames));
        }
    }
    stacks
}

/// The frames of a traceback in the form of [`fatal_stacks`], the innermost first.
pub fn raised_in(lines: &[&str]) -> Vec<String> {
    let frames = lines.iter().filter_map(|line| frame(unmarked(line)));
    frames.rev().collect()
}

/// Converts `  File "/srv/train.py", line 97 in train` to `train (train.py:97)`. A file in a
/// package keeps its folder: `backward (torch/_tensor.py:488)`.
fn frame(line: &str) -> Option<String> {
    let (path, rest) = line.trim_start().strip_prefix("File \"")?.split_once('"')?;
    let (number, function) = rest.strip_prefix(", line ")?.split_once(" in ")?;
    // a traceback has a comma here
    let number = number.trim_end_matches(',');
    Some(format!("{function} ({}:{number})", short(path)))
}

/// Whether a frame is that of a file as a whole, outside of all functions. It is the outermost
/// frame of a main thread that runs its script.
pub fn is_module(frame: &str) -> bool {
    frame.starts_with("<module> (")
}

/// The path below the folder in which Python looks for packages; otherwise the name of the file.
fn short(path: &str) -> &str {
    let below = |folder: &str| Some(path.rsplit_once(folder)?.1);
    let library = || {
        let (version, rest) = below("/lib/python3")?.split_once('/')?;
        let is_version = version.chars().all(|c| c == '.' || c.is_ascii_digit());
        is_version.then_some(rest)
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

    #[test]
    fn exceptions_are_known_by_their_names() {
        let table = [
            ("ValueError: no", Some("ValueError: no")),
            ("KeyboardInterrupt", Some("KeyboardInterrupt")),
            (
                "dgl._ffi.base.DGLError: [12:00] x",
                Some("dgl._ffi.base.DGLError: [12:00] x"),
            ),
            ("[trainer0]:RuntimeError: CUDA", Some("RuntimeError: CUDA")),
            ("[rank1]: RuntimeError: CUDA", Some("RuntimeError: CUDA")),
            ("[trainer0]:[rank10]: ValueError", Some("ValueError")),
            ("[rank1]:   ValueError: within", None),
            ("  ValueError: within", None),
            ("An Error: words", None),
            ("Loss: 5", None),
            ("[12:00:01] /opt/rpc.cc:390: Error", None),
            ("", None),
        ];
        for (line, found) in table {
            assert_eq!(exception(line), found, "{line}");
        }
    }

    #[test]
    fn the_last_of_a_chain_is_found_too() {
        let text = "hello\nTraceback (most recent call last):\n  File \"a.py\", line 1, in \
             f\n    g()\nKeyError: 1\n\nDuring handling of the above exception, another \
             exception occurred:\n\nTraceback (most recent call last):\n  File \
             \"a.py\", line 3, in <module>\nOdd: 2\nbye";
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            exceptions(&lines),
            [(1, 4, "KeyError: 1"), (8, 10, "Odd: 2")]
        );
        assert_eq!(raised_in(&lines[..5]), ["f (a.py:1)"]);
    }

    #[test]
    fn whose_exception_it_is() {
        const TRACE: &str = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n";
        let during = "\nDuring handling of the above exception, another exception occurred:\n\n";
        let table = [
            (
                format!("epoch 1\n{TRACE}E: 1"),
                vec![(Raiser::Main, "E: 1")],
            ),
            (
                format!("Exception in thread Thread-3 (run):\n{TRACE}E: 1\n{during}{TRACE}F: 2"),
                vec![(Raiser::Thread, "E: 1"), (Raiser::Thread, "F: 2")],
            ),
            (
                format!("Process SpawnProcess-1:\n{TRACE}E: 1\n{TRACE}F: 2"),
                vec![(Raiser::Child, "E: 1"), (Raiser::Main, "F: 2")],
            ),
            (
                format!("Exception ignored in: <function A.__del__ at 0x7f>\n{TRACE}E: 1\nbye"),
                vec![(Raiser::Nobody, "E: 1")],
            ),
            (
                format!("[trainer0]:{}", TRACE.replace("\n  ", "\n[trainer0]:  ")),
                vec![],
            ),
            (
                format!(
                    "[rank0]: {}[rank0]: E: 1",
                    TRACE.replace("\n  ", "\n[rank0]:   ")
                ),
                vec![(Raiser::Main, "E: 1")],
            ),
            ("ValueError: no traceback".to_owned(), vec![]),
        ];
        for (text, expected) in table {
            let mut exceptions = Exceptions::default();
            let found: Vec<_> = text
                .lines()
                .filter_map(|line| exceptions.line(line))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn what_python_ignores_is_not_what_ended_a_process() {
        let text = "    raise ValueError(1)\n[rank0]: ValueError: 1\nException ignored in: \
             <function A.__del__ at 0x7f>\nTraceback (most recent call last):\n  File \"a.py\", \
             line 1, in f\nKeyError: 2";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(last_exception(&lines), Some("ValueError: 1"));
        assert_eq!(last_exception(&lines[2..]), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(exceptions(&lines), []);
    }

    #[test]
    fn the_stack_of_the_thread_that_got_the_signal() {
        let text = "Fatal Python error: Aborted\n\nThread 0x1 (most recent call \
             first):\n  File \"/x/y.py\", line 5 in other\n\nCurrent thread 0x2 (most \
             recent call first):\n  File \"/x/torch/_tensor.py\", line 488 in \
             backward\n  File \"/srv/train.py\", line 131 in <module>\n\nExtension \
             modules: a, b";
        let lines: Vec<&str> = text.lines().collect();
        let frames = ["backward (_tensor.py:488)", "<module> (train.py:131)"];
        assert_eq!(
            fatal_stacks(&lines),
            [(6, frames.map(str::to_owned).to_vec())]
        );
        assert_eq!(fatal_stacks(&lines[..5]), []);
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
