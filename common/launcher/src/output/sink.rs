//! The output of the job: records or tagged lines on stdout, messages on stderr, and `--log-dir`.
//! The job does not wait for slow readers.

use crate::output::fold::is_folded;
use crate::output::log_dir::LogDir;
use crate::output::queue::{OutputLines, Queue, QueueItem};
use crate::run::launcher::own_fault;
use record::error::Report;
use record::jsonl::{self, Head, Stream};
use record::term;
use record::{Dropped, Output, Process, Record, Stack, Stalled, Summary};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use verdict::{Conclusion, JobHistory, Run};

/// Moves to the beginning of the line and empties it.
const CLEAR: &[u8] = b"\r\x1b[K";
/// Moves to the line above and empties it.
const LINE_ABOVE: &[u8] = b"\x1b[1A\r\x1b[K";
/// Turns wrapping off, so that a long line is cut.
const NO_WRAP: &[u8] = b"\x1b[?7l";
const WRAP: &[u8] = b"\x1b[?7h";
/// The host number, in the queue, for lines of this tool.
const NOTICES: u32 = u32::MAX;
const BATCH_BYTES: usize = 64 << 10;
/// After the end of the job: how long a reader of stdout may read nothing until a message says so,
/// and until it is given up. Somebody may read in a pager.
const READER_NOTICE: Duration = Duration::from_secs(5);
const READER_LIMIT: Duration = Duration::from_secs(3600);
/// How long the messages at the end may take.
const STDERR_LIMIT: Duration = Duration::from_secs(60);

pub struct OutputSink {
    human: bool,
    has_status: bool,
    log_dir: LogDir,
    run: Run,
    /// The last stall, until the job is active again.
    stall: Option<(Stalled, Vec<Stack>)>,
    stdout: Writer,
    /// For messages, unless a terminal shows them with the output.
    stderr: Option<Writer>,
}

/// A queue and the thread that writes it.
struct Writer {
    queue: Arc<Queue>,
    /// Returns whether everything was written; `None` if the caller takes from the queue.
    thread: Option<JoinHandle<bool>>,
}

impl Writer {
    fn start(
        name: &str,
        write: impl FnOnce(&Queue) -> bool + Send + 'static,
    ) -> Result<Writer, Report> {
        let queue = Arc::new(Queue::default());
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn({
            let queue = Arc::clone(&queue);
            move || write(&queue)
        });
        Ok(Writer {
            queue,
            thread: Some(thread.map_err(|error| own_fault(&error))?),
        })
    }

    fn is_busy(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }
}

impl OutputSink {
    /// Opens the log files and stdout. `tags` name the processes whose output is shown, by id;
    /// `None` if programs read stdout.
    pub fn new(
        tags: Option<BTreeMap<u32, String>>,
        log_dir: Option<&Path>,
        processes: &[Process],
    ) -> Result<OutputSink, Report> {
        let has_logs = log_dir.is_some();
        let log_dir = LogDir::open(log_dir, processes)?;
        let human = tags.is_some();
        let terminal = human && io::stdout().is_terminal();
        let has_status = terminal
            && io::stderr().is_terminal()
            && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let writer = StdoutWriter {
            colours: human && term::colours(),
            terminal,
            tags,
            unfinished: None,
            folded: 0,
        };
        let stderr = (!has_status).then(|| Writer::start("stderr", write_messages));
        Ok(OutputSink {
            human,
            has_status,
            log_dir,
            run: Run::new(0),
            stall: None,
            stdout: Writer::start("stdout", move |queue| writer.run(queue, has_logs))?,
            stderr: stderr.transpose()?,
        })
    }

    /// Output that the caller takes from the queue.
    pub fn queued(queue: Arc<Queue>) -> OutputSink {
        OutputSink {
            human: false,
            has_status: true,
            log_dir: LogDir::default(),
            run: Run::new(0),
            stall: None,
            stdout: Writer {
                queue,
                thread: None,
            },
            stderr: None,
        }
    }

    pub fn pass_input(&mut self, stream: &Stream) {
        for (line, _) in stream.lines() {
            self.examine(line);
        }
        self.pass(stream.bytes_but("", &[]));
    }

    fn examine(&mut self, line: &[u8]) {
        if let Ok(head) = Head::parse(line) {
            self.run.record(&head, line);
        }
    }

    pub fn last_lines(&self, id: u32) -> Vec<String> {
        self.run.last_lines(id)
    }

    /// Keeps the last stall and its stacks for the verdict; `None` when the job is active again.
    pub fn keep_stall(&mut self, stall: Option<(Stalled, Vec<Stack>)>) {
        self.stall = stall;
    }

    pub fn judge(&self, summary: &Summary) -> Conclusion {
        let mut job = JobHistory::of(&self.run).unwrap_or_default();
        job.summary = Some(summary.clone());
        if let Some((stalled, stacks)) = self.stall.clone() {
            job.add_stall(stalled, stacks);
        }
        verdict::verdict(&job)
    }

    /// The first of these processes, by id, that raised an exception, in the order of the verdict.
    pub fn first_raiser(&self, ids: &BTreeSet<u32>) -> Option<u32> {
        verdict::first_raiser(&JobHistory::of(&self.run).ok()?, ids)
    }

    fn pass(&mut self, records: Vec<u8>) {
        self.log_dir.write_records(&records);
        if !self.human {
            self.stdout.queue.push(QueueItem::Records(records));
        }
    }

    pub fn record<T: Record>(&mut self, record: &T) {
        let line = jsonl::line(record);
        self.examine(line.trim_ascii_end());
        self.pass(line);
    }

    /// Writes a record that a host may cause without limit.
    pub fn report<T: Record>(&mut self, host: u32, record: &T) {
        let text = jsonl::line(record);
        self.log_dir.write_report(host, &text);
        if !self.human {
            self.stdout.queue.push(QueueItem::Reports { host, text });
        }
    }

    /// Writes a process's lines, or a piece of one, to stdout and into the records.
    pub fn output(&mut self, lines: OutputLines) {
        self.log_dir.write_output_records(|| output_records(&lines));
        self.stdout.queue.push(QueueItem::Output(lines));
    }

    /// Writes only whole lines, because a log has both streams.
    pub fn log_lines(&mut self, lines: &OutputLines) {
        self.log_dir.write_lines(lines.id, &lines.text);
        for line in lines.text.split_inclusive(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
            self.run.line(
                lines.id,
                lines.stderr,
                &line,
                lines.time_ms,
                lines.while_ending,
            );
        }
    }

    pub fn has_lost_something(&self) -> bool {
        self.log_dir.has_failed
    }

    /// Flushes the log directory; called when no event waits.
    pub fn flush(&mut self) {
        self.log_dir.flush();
        for text in std::mem::take(&mut self.log_dir.notices) {
            self.notice(&text);
        }
    }

    /// Replaces the status line, a terminal's last one.
    pub fn status(&self, text: &str) {
        if self.has_status {
            self.stdout.queue.status(text);
        }
    }

    /// Shows a line on stdout or stderr, whichever is the terminal.
    pub fn notice(&self, text: &str) {
        let line = term::plain_lines(&format!("{text}\n"));
        let writer = self.stderr.as_ref().unwrap_or(&self.stdout);
        writer.queue.push(QueueItem::Reports {
            host: NOTICES,
            text: line.into_bytes(),
        });
    }

    /// Waits until everything is written, nothing more is read or `enough` returns true; returns
    /// whether nothing was lost that could have been written.
    pub fn finish(mut self, enough: impl Fn() -> bool) -> bool {
        self.flush();
        self.stdout.queue.close();
        let (mut is_announced, mut taken, mut since) = (false, 0, Instant::now());
        while self.stdout.is_busy() && since.elapsed() < READER_LIMIT && !enough() {
            if taken != self.stdout.queue.taken() {
                (taken, since) = (self.stdout.queue.taken(), Instant::now());
            }
            if since.elapsed() >= READER_NOTICE && !std::mem::replace(&mut is_announced, true) {
                self.notice(
                    "dgl-spawn: the program that reads stdout is slow or stopped: a signal \
                     (Ctrl-C) ends the wait for it",
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let stderr = self.stderr.as_ref();
        stderr.inspect(|stderr| stderr.queue.close());
        let until = Instant::now() + STDERR_LIMIT;
        while stderr.is_some_and(Writer::is_busy) && Instant::now() < until && !enough() {
            std::thread::sleep(Duration::from_millis(10));
        }
        // what a reader that is stuck does not read could not be written
        let is_stuck = self.stdout.is_busy();
        let writer = self.stdout.thread.filter(|_| !is_stuck);
        let is_written = writer.is_none_or(|writer| writer.join().unwrap_or(false));
        is_written && !self.log_dir.has_failed
    }
}

/// Writes each message in one piece, because other stages of a pipeline write to stderr, too.
fn write_messages(queue: &Queue) -> bool {
    while let Some(next) = queue.next(BATCH_BYTES) {
        if next.dropped > 0 {
            let dropped = term::count(next.dropped, "line");
            record::tell!("dgl-spawn: {dropped} hidden, because stderr was not read");
        }
        for item in &next.items {
            // the work continues without what cannot be written
            let _ = io::stderr().write_all(item.text());
        }
    }
    true
}

/// A process's line for people, after a prefix: without control sequences except colours, if these
/// are kept; a progress bar has its last state, and a colour ends with the line. A pipe may lead to
/// a terminal, too, by `| tee`.
pub fn printable_line(text: &[u8], keeps_colours: bool) -> Vec<u8> {
    let mut parts = text.rsplit(|byte| *byte == b'\r');
    let last = parts.find(|part| !part.is_empty()).unwrap_or_default();
    let mut shown = term::printable(last, keeps_colours);
    if shown.contains(&0x1b) {
        shown.extend_from_slice(b"\x1b[0m");
    }
    shown
}

struct StdoutWriter {
    colours: bool,
    terminal: bool,
    /// Of the processes that are shown; `None` if records are written.
    tags: Option<BTreeMap<u32, String>>,
    /// A terminal's last line, if it may be continued.
    unfinished: Option<Unfinished>,
    folded: u64,
}

/// An unfinished line on a terminal, which a longer version will replace.
struct Unfinished {
    id: u32,
    stderr: bool,
    text: Vec<u8>,
}

impl StdoutWriter {
    fn show(&mut self, lines: &OutputLines, out: &mut Vec<u8>) {
        let Some(tags) = &self.tags else {
            return out.extend_from_slice(&output_records(lines));
        };
        let Some(tag) = tags.get(&lines.id) else {
            return;
        };
        let tag = if lines.while_ending {
            &tag.replace(']', ", ending]")
        } else {
            tag
        };
        let tag = term::colour(tag, lines.id as usize, self.colours);
        let mut before = match self.unfinished.take() {
            Some(open) if lines.continues && (open.id, open.stderr) == (lines.id, lines.stderr) => {
                out.extend_from_slice(LINE_ABOVE);
                open.text
            }
            _ => Vec::new(),
        };
        for (nth, (text, partial)) in pieces(lines).enumerate() {
            // only the newline of a line whose pieces were all shown
            if nth == 0 && lines.continues && text.is_empty() && before.is_empty() {
                continue;
            }
            before.extend_from_slice(text);
            let text = std::mem::take(&mut before);
            if self.terminal && is_folded(&text, lines.stderr, lines.while_ending) {
                self.folded += u64::from(!partial);
                continue;
            }
            // a line that may be replaced is cut at the terminal's edge to occupy one row
            let is_cut = partial && self.terminal;
            if is_cut {
                out.extend_from_slice(NO_WRAP);
            }
            out.extend_from_slice(tag.as_bytes());
            out.push(b' ');
            out.extend(printable_line(&text, self.terminal));
            if is_cut {
                out.extend_from_slice(WRAP);
                self.unfinished = Some(Unfinished {
                    id: lines.id,
                    stderr: lines.stderr,
                    text,
                });
            }
            out.push(b'\n');
        }
    }

    fn dropped(&self, lines: u64) -> Vec<u8> {
        match self.tags {
            Some(_) => format!(
                "dgl-spawn: {lines} lines are missing here, because they arrived too fast\n"
            )
            .into_bytes(),
            None => jsonl::line(&Dropped {
                lines,
                time_ms: term::now_ms(),
            }),
        }
    }

    /// Returns whether everything was written.
    fn run(mut self, queue: &Queue, has_logs: bool) -> bool {
        let mut out = jsonl::Out::new("dgl-spawn").only_copy(!has_logs);
        let mut has_status = false;
        while let Some(next) = queue.next(BATCH_BYTES) {
            let mut batch = Vec::new();
            if has_status {
                batch.extend_from_slice(CLEAR);
            }
            if !next.kept.is_empty() || next.dropped > 0 {
                self.unfinished = None;
            }
            batch.extend(next.kept);
            if next.dropped > 0 {
                batch.extend(self.dropped(next.dropped));
            }
            for item in &next.items {
                match item {
                    QueueItem::Records(text) | QueueItem::Reports { text, .. } => {
                        self.unfinished = None;
                        batch.extend_from_slice(text);
                    }
                    QueueItem::Output(lines) => self.show(lines, &mut batch),
                }
            }
            has_status = !next.status.is_empty();
            if has_status {
                // a terminal without NO_WRAP would keep the rows above the last one
                let columns = term::width(io::stdout()).unwrap_or(usize::MAX);
                let status = term::cut(&next.status, columns);
                batch.extend([NO_WRAP, status.as_bytes(), WRAP].concat());
            }
            out.write(&batch);
        }
        if self.folded > 0 {
            let folded = term::count(self.folded, "line");
            let logs = if has_logs {
                "; the logs in --log-dir are complete"
            } else {
                ""
            };
            let note =
                format!("dgl-spawn: {folded} hidden (C++ frames, output after the stop){logs}\n");
            out.write(note.as_bytes());
        }
        !out.has_failed()
    }
}

/// The lines without newlines, and whether each will be continued.
fn pieces(lines: &OutputLines) -> impl Iterator<Item = (&[u8], bool)> {
    let ends = |byte: &u8| *byte == b'\n';
    lines.text.split_inclusive(ends).map(|line| {
        let whole = line.strip_suffix(b"\n");
        (whole.unwrap_or(line), whole.is_none())
    })
}

fn output_records(lines: &OutputLines) -> Vec<u8> {
    let mut records = Vec::new();
    for (text, partial) in pieces(lines) {
        let line = String::from_utf8_lossy(text);
        let lossy = lines.lossy || matches!(line, std::borrow::Cow::Owned(_));
        let record = Output {
            id: lines.id,
            stream: if lines.stderr { "stderr" } else { "stdout" }.to_owned(),
            line: line.into_owned(),
            time_ms: lines.time_ms,
            partial,
            lossy,
            while_ending: lines.while_ending,
        };
        jsonl::append(&record, &mut records);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_well() {
        let tags = BTreeMap::from([(7, "[h1 trainer 0]".to_owned())]);
        let writer = |human: bool, terminal| StdoutWriter {
            colours: false,
            terminal,
            tags: human.then(|| tags.clone()),
            unfinished: None,
            folded: 0,
        };
        let shown = |mut writer: StdoutWriter, text: &[u8]| {
            let mut out = Vec::new();
            let lines = OutputLines {
                id: 7,
                stderr: true,
                time_ms: 5,
                text: text.to_vec(),
                ..OutputLines::default()
            };
            writer.show(&lines, &mut out);
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
            (
                false,
                b"\x1b[31mr\x1b]0;title\x07ed\r\n",
                "[h1 trainer 0] red\n",
            ),
        ];
        for (terminal, text, wanted) in table {
            assert_eq!(shown(writer(true, terminal), text), wanted);
        }
        assert_eq!(
            shown(writer(false, false), b"a\n\xffb"),
            "{\"type\":\"output\",\"id\":7,\"stream\":\"stderr\",\"line\":\"a\",\"time_ms\":5}\n\
             {\"type\":\"output\",\"id\":7,\"stream\":\"stderr\",\
                  \"line\":\"\u{fffd}b\",\"time_ms\":5,\"partial\":true,\"lossy\":true}\n"
        );
    }
    #[test]
    fn a_line_that_has_no_end_yet_is_replaced_on_a_terminal() {
        let tags = [(0, "[a]".to_owned()), (1, "[b]".to_owned())];
        let mut writer = StdoutWriter {
            colours: false,
            terminal: true,
            tags: Some(tags.into()),
            unfinished: None,
            folded: 0,
        };
        let mut shown = |id: u32, continues: bool, text: &str| {
            let mut out = Vec::new();
            let lines = OutputLines {
                id,
                continues,
                text: text.into(),
                ..OutputLines::default()
            };
            writer.show(&lines, &mut out);
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
        writer.show(&ending, &mut out);
        assert_eq!(out, b"[a, ending] bye\n");
    }

    #[test]
    fn what_nobody_wants_to_see_is_left_out() {
        let writer = |terminal, shown: bool| StdoutWriter {
            colours: false,
            terminal,
            tags: Some(shown.then(|| (0, "[a]".to_owned())).into_iter().collect()),
            unfinished: None,
            folded: 0,
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
            let (mut writer, mut out) = (writer(terminal, is_shown), Vec::new());
            writer.show(&stack, &mut out);
            assert_eq!((out.len(), writer.folded), (length, folded));
        }
    }
}
