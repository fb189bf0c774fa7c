//! The output of the job: records or tagged lines on stdout, and the files of `--log-dir`. The job
//! does not wait for a slow reader of stdout.

use crate::output::fold::is_folded;
use crate::output::log_dir::LogDir;
use crate::output::queue::{OutputLines, Queue};
use record::jsonl;
use record::term;
use record::{Dropped, Output, Process, Record};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Moves to the beginning of the line and empties it.
const CLEAR: &[u8] = b"\r\x1b[K";
/// Moves to the line above and empties it.
const LINE_ABOVE: &[u8] = b"\x1b[1A\r\x1b[K";
/// Turns wrapping off, so that a long line is cut.
const NO_WRAP: &[u8] = b"\x1b[?7l";
const WRAP: &[u8] = b"\x1b[?7h";
/// How many bytes are written to stdout in one go, before a slow reader is waited for.
const BATCH_BYTES: usize = 64 << 10;

/// All output of the job.
pub struct OutputSink {
    human: bool,
    status: bool,
    log_dir: Option<LogDir>,
    /// The ids of the processes in records.
    ids: Vec<u32>,
    queue: Arc<Queue>,
    /// The thread that writes stdout; it returns whether everything was written.
    writer: Option<JoinHandle<bool>>,
}

impl OutputSink {
    /// Opens the log files and stdout.
    pub fn new(
        human: bool,
        log_dir: Option<&Path>,
        processes: &[Process],
        names: &[String],
        is_shown: impl Fn(&Process) -> bool,
    ) -> io::Result<OutputSink> {
        let log_dir = log_dir
            .map(|folder| LogDir::open(folder, processes))
            .transpose()?;
        let tags = processes
            .iter()
            .zip(names)
            .map(|(process, name)| format!("[{name} {} {}]", process.role.name(), process.rank))
            .collect();
        let ids: Vec<u32> = processes.iter().map(|process| process.id).collect();
        let terminal = human && io::stdout().is_terminal();
        let status = terminal
            && io::stderr().is_terminal()
            && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let style = Style {
            human,
            colours: human && term::colours(),
            terminal,
            tags,
            ids: ids.clone(),
            shown: processes.iter().map(is_shown).collect(),
        };
        let queue = Arc::new(Queue::default());
        let writer = std::thread::Builder::new()
            .name("stdout".to_owned())
            .spawn({
                let queue = Arc::clone(&queue);
                let has_logs = log_dir.is_some();
                move || write_all(&queue, &style, has_logs)
            })?;
        Ok(OutputSink {
            human,
            status,
            log_dir,
            ids,
            queue,
            writer: Some(writer),
        })
    }

    /// Writes records unchanged.
    pub fn pass(&mut self, records: Vec<u8>) {
        if let Some(log_dir) = &mut self.log_dir {
            log_dir.write_records(&records);
        }
        if !self.human {
            self.queue.keep(records);
        }
    }

    /// Writes a record.
    pub fn record<T: Record>(&mut self, record: &T) {
        self.pass(jsonl::line(record));
    }

    /// Writes lines of a process, or a piece of one, to stdout and into the records of the run.
    pub fn output(&mut self, lines: OutputLines) {
        if let Some(log_dir) = &mut self.log_dir {
            let id = self.ids[lines.at];
            let records =
                pieces(&lines).flat_map(|(text, partial)| output_record(id, &lines, text, partial));
            log_dir.write_output_records(&records.collect::<Vec<_>>());
        }
        self.queue.push(lines);
    }

    /// Writes lines of a process to its log: only whole ones, because both of its streams go there.
    pub fn log_lines(&mut self, at: usize, text: &[u8]) {
        if let Some(log_dir) = &mut self.log_dir {
            log_dir.write_lines(at, text);
        }
    }

    /// Whether a file of the log folder could not be written.
    pub fn has_lost_something(&self) -> bool {
        self.log_dir.as_ref().is_some_and(LogDir::has_failed)
    }

    /// Writes buffered bytes to the log folder, because nothing more is at hand.
    pub fn flush(&mut self) {
        if let Some(log_dir) = &mut self.log_dir {
            log_dir.flush();
        }
    }

    /// Replaces the status line, which stands below all others on a terminal.
    pub fn status(&self, text: &str) {
        if self.status {
            self.queue.status(text);
        }
    }

    /// Shows people a line, on whichever of stdout and stderr they read.
    pub fn notice(&self, text: &str) {
        match self.status {
            true => self.queue.keep(format!("{text}\n").into_bytes()),
            false => record::tell!("{text}"),
        }
    }

    /// Waits until everything is written or `enough` says to stop waiting; returns whether nothing
    /// was lost that could have been written.
    pub fn finish(mut self, enough: impl Fn() -> bool) -> bool {
        self.flush();
        self.queue.close();
        let Some(writer) = self.writer.take() else {
            return !self.has_lost_something();
        };
        while !writer.is_finished() {
            if enough() {
                return !self.has_lost_something();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        writer.join().unwrap_or(false) && !self.has_lost_something()
    }
}

/// A line of a process, made fit to stand behind something else on a terminal: only its colours
/// stay, and a progress bar shows its last state. A colour that it began ends with it.
pub fn on_terminal(text: &[u8]) -> Vec<u8> {
    let shown = text
        .rsplit(|byte| *byte == b'\r')
        .find(|part| !part.is_empty())
        .unwrap_or_default();
    let shown = term::coloured(shown);
    let end: &[u8] = if shown.contains(&0x1b) {
        b"\x1b[0m"
    } else {
        b""
    };
    [shown.as_slice(), end].concat()
}

/// The form of the lines on stdout.
struct Style {
    human: bool,
    colours: bool,
    terminal: bool,
    tags: Vec<String>,
    ids: Vec<u32>,
    /// Whether people want to see the output of each process.
    shown: Vec<bool>,
}

/// The part of the earlier output that matters for the next line.
#[derive(Default)]
struct LineState {
    unfinished: Option<Unfinished>,
    /// How many lines were left out on a terminal.
    folded: u64,
}

/// The last line on a terminal, if more of it may follow: the longer line will replace it.
struct Unfinished {
    at: usize,
    stderr: bool,
    text: Vec<u8>,
}

impl Style {
    fn show(&self, lines: &OutputLines, shown: &mut LineState, out: &mut Vec<u8>) {
        if self.human && !self.shown[lines.at] {
            return;
        }
        let open = shown
            .unfinished
            .take()
            .filter(|open| (open.at, open.stderr) == (lines.at, lines.stderr));
        let mut before = match open {
            Some(open) if lines.continues => {
                out.extend_from_slice(LINE_ABOVE);
                open.text
            }
            _ => Vec::new(),
        };
        for (nth, (text, partial)) in pieces(lines).enumerate() {
            if !self.human {
                out.extend(output_record(self.ids[lines.at], lines, text, partial));
                continue;
            }
            // only the end of a line whose pieces were all shown
            if nth == 0 && lines.continues && text.is_empty() && before.is_empty() {
                continue;
            }
            before.extend_from_slice(text);
            let text = std::mem::take(&mut before);
            if self.terminal && is_folded(&text, lines.stderr, lines.while_ending) {
                shown.folded += u64::from(!partial);
                continue;
            }
            self.tagged(lines, &text, partial, out);
            if partial && self.terminal {
                shown.unfinished = Some(Unfinished {
                    at: lines.at,
                    stderr: lines.stderr,
                    text,
                });
            }
        }
    }

    /// Appends a line for people. A line that may be replaced is cut at the terminal's edge, so
    /// that it stays one line there.
    fn tagged(&self, lines: &OutputLines, text: &[u8], partial: bool, out: &mut Vec<u8>) {
        let cut = partial && self.terminal;
        if cut {
            out.extend_from_slice(NO_WRAP);
        }
        let tag = match lines.while_ending {
            true => self.tags[lines.at].replace(']', ", ending]"),
            false => self.tags[lines.at].clone(),
        };
        out.extend_from_slice(term::colour(&tag, lines.at, self.colours).as_bytes());
        out.push(b' ');
        match self.terminal {
            true => out.extend(on_terminal(text)),
            false => out.extend_from_slice(text),
        }
        if cut {
            out.extend_from_slice(WRAP);
        }
        out.push(b'\n');
    }

    fn dropped(&self, lines: u64) -> Vec<u8> {
        match self.human {
            true => {
                format!("dgl-spawn: {lines} lines are missing here, because they came too fast\n")
                    .into_bytes()
            }
            false => jsonl::line(&Dropped {
                lines,
                time_ms: term::now_ms(),
            }),
        }
    }
}

/// The lines without their ends, and whether each is a piece of which more follows.
fn pieces(lines: &OutputLines) -> impl Iterator<Item = (&[u8], bool)> {
    let ends = |byte: &u8| *byte == b'\n';
    lines.text.split_inclusive(ends).map(|line| {
        let whole = line.strip_suffix(b"\n");
        (whole.unwrap_or(line), whole.is_none())
    })
}

/// The record of a line, or of a piece of one, of the process with this id.
fn output_record(id: u32, lines: &OutputLines, text: &[u8], partial: bool) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let lossy = matches!(text, std::borrow::Cow::Owned(_));
    jsonl::line(&Output {
        id,
        stream: if lines.stderr { "stderr" } else { "stdout" }.to_owned(),
        line: text.into_owned(),
        time_ms: lines.time_ms,
        partial,
        lossy,
        while_ending: lines.while_ending,
    })
}

/// The body of the thread that writes stdout.
fn write_all(queue: &Queue, style: &Style, has_logs: bool) -> bool {
    let mut out = jsonl::Out::new("dgl-spawn");
    let mut status = String::new();
    let mut shown = LineState::default();
    while let Some(next) = queue.next(BATCH_BYTES) {
        let mut batch = if status.is_empty() {
            Vec::new()
        } else {
            CLEAR.to_vec()
        };
        if !next.kept.is_empty() || next.dropped > 0 {
            shown.unfinished = None;
        }
        next.kept
            .iter()
            .for_each(|bytes| batch.extend_from_slice(bytes));
        if next.dropped > 0 {
            batch.extend(style.dropped(next.dropped));
        }
        for item in &next.items {
            match item {
                Ok(bytes) => {
                    shown.unfinished = None;
                    batch.extend_from_slice(bytes);
                }
                Err(lines) => style.show(lines, &mut shown, &mut batch),
            }
        }
        status = next.status;
        if !status.is_empty() {
            // a terminal that does not know NO_WRAP would leave what stands above its last line
            if let Some(columns) = term::width(io::stdout()) {
                status = term::cut(&status, columns);
            }
            [NO_WRAP, status.as_bytes(), WRAP]
                .iter()
                .for_each(|bytes| batch.extend_from_slice(bytes));
        }
        out.write(&batch);
    }
    if shown.folded > 0 {
        let folded = term::count(shown.folded, "line");
        let note = format!(
            "dgl-spawn: {folded} not shown here: C++ frames, and what processes wrote because they \
             were ended{}\n",
            if has_logs { "; --log-dir has all" } else { "" }
        );
        out.write(note.as_bytes());
    }
    !out.has_failed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_well() {
        let style = |human, terminal| Style {
            human,
            colours: false,
            terminal,
            tags: vec!["[h1 trainer 0]".into()],
            ids: vec![7],
            shown: vec![true],
        };
        let shown = |style: Style, text: &[u8]| {
            let mut out = Vec::new();
            let lines = OutputLines {
                stderr: true,
                time_ms: 5,
                text: text.to_vec(),
                ..OutputLines::default()
            };
            style.show(&lines, &mut LineState::default(), &mut out);
            String::from_utf8(out).unwrap()
        };
        let table: [(bool, &[u8], &str); 6] = [
            (true, b"a\nb\n", "[h1 trainer 0] a\n[h1 trainer 0] b\n"),
            (true, b"a piece", "\x1b[?7l[h1 trainer 0] a piece\x1b[?7h\n"),
            (false, b"a piece", "[h1 trainer 0] a piece\n"),
            (true, b" 1%\r 50%\r100%\r\n", "[h1 trainer 0] 100%\n"),
            (
                true,
                b"\x1b[31mred\n",
                "[h1 trainer 0] \x1b[31mred\x1b[0m\n",
            ),
            (false, b"\x1b[31mred\r\n", "[h1 trainer 0] \x1b[31mred\r\n"),
        ];
        for (terminal, text, wanted) in table {
            assert_eq!(shown(style(true, terminal), text), wanted);
        }
        assert_eq!(
            shown(style(false, false), b"a\n\xffb"),
            "{\"type\":\"output\",\"id\":7,\"stream\":\"stderr\",\"line\":\"a\",\"time_ms\":5}\n\
             {\"type\":\"output\",\"id\":7,\"stream\":\"stderr\",\
                  \"line\":\"\u{fffd}b\",\"time_ms\":5,\"partial\":true,\"lossy\":true}\n"
        );
    }
    #[test]
    fn a_line_that_has_no_end_yet_is_replaced_on_a_terminal() {
        let style = Style {
            human: true,
            colours: false,
            terminal: true,
            tags: vec!["[a]".into(), "[b]".into()],
            ids: vec![1, 2],
            shown: vec![true; 2],
        };
        let mut state = LineState::default();
        let mut shown = |at: usize, continues: bool, text: &str| {
            let mut out = Vec::new();
            let lines = OutputLines {
                at,
                continues,
                text: text.into(),
                ..OutputLines::default()
            };
            style.show(&lines, &mut state, &mut out);
            String::from_utf8(out)
                .unwrap()
                .replace("\x1b[1A\r\x1b[K", "^")
                .replace("\x1b[?7l", "")
                .replace("\x1b[?7h", "")
        };
        assert_eq!(shown(0, false, " 1%"), "[a]  1%\n");
        assert_eq!(shown(0, true, "\r 2%"), "^[a]  2%\n");
        assert_eq!(shown(0, true, "\n"), "^[a]  2%\n");
        assert_eq!(shown(0, false, "x"), "[a] x\n");
        assert_eq!(shown(1, false, "other\n"), "[b] other\n");
        assert_eq!(shown(0, true, "\n"), "", "it is above already");
        let ending = OutputLines {
            text: b"bye\n".to_vec(),
            while_ending: true,
            ..OutputLines::default()
        };
        let mut out = Vec::new();
        style.show(&ending, &mut LineState::default(), &mut out);
        assert_eq!(out, b"[a, ending] bye\n");
    }

    #[test]
    fn what_nobody_wants_to_see_is_left_out() {
        let style = |terminal, shown| Style {
            human: true,
            colours: false,
            terminal,
            tags: vec!["[a]".into()],
            ids: vec![1],
            shown: vec![shown],
        };
        let stack = OutputLines {
            stderr: true,
            while_ending: true,
            text: b"Fatal Python error: Aborted\n\n".to_vec(),
            ..OutputLines::default()
        };
        for (terminal, is_shown, length, folded) in [
            (true, true, 0, 2),
            (false, true, 53, 0),
            (true, false, 0, 0),
        ] {
            let (mut state, mut out) = (LineState::default(), Vec::new());
            style(terminal, is_shown).show(&stack, &mut state, &mut out);
            assert_eq!((out.len(), state.folded), (length, folded));
        }
    }
}
