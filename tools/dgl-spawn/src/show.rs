//! What comes out: records or tagged lines on stdout, a file a process. Whoever reads stdout may be slow; the job does not wait for it.

use crate::detach::log_name;
use crate::queue::{Lines, Queue};
use common::jsonl;
use common::record::{Dropped, Output, Process, Record};
use common::term;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// To the beginning of the line, and it is empty.
const CLEAR: &[u8] = b"\r\x1b[K";
/// What was written to stdout in one go, before a slow reader is waited for.
const BATCH_BYTES: usize = 64 << 10;

/// All that the job shows.
pub struct Show {
    human: bool,
    status: bool,
    logs: Vec<Option<(String, BufWriter<File>)>>,
    queue: Arc<Queue>,
    writer: Option<JoinHandle<()>>,
}

impl Show {
    /// Opens the log files and stdout.
    pub fn new(human: bool, log_dir: Option<&Path>, processes: &[Process], names: &[String]) -> io::Result<Show> {
        let mut logs = Vec::new();
        if let Some(folder) = log_dir {
            std::fs::create_dir_all(folder)?;
        }
        for process in processes {
            let name = log_name(process);
            let log = |folder: &Path| OpenOptions::new().create(true).write(true).truncate(true).open(folder.join(&name));
            logs.push(log_dir.map(log).transpose()?.map(|file| (name, BufWriter::new(file))));
        }
        let tags =
            processes.iter().zip(names).map(|(process, name)| format!("[{name} {} {}]", process.role.name(), process.rank)).collect();
        let ids = processes.iter().map(|process| process.id).collect();
        let terminal = human && io::stdout().is_terminal();
        let status = terminal && io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let style = Style { human, colours: human && term::colours(), terminal, tags, ids };
        let queue = Arc::new(Queue::default());
        let writer = std::thread::Builder::new().name("stdout".to_owned()).spawn({
            let queue = Arc::clone(&queue);
            move || write_all(&queue, &style)
        })?;
        Ok(Show { human, status, logs, queue, writer: Some(writer) })
    }

    /// Bytes that go out as they are.
    pub fn pass(&self, bytes: Vec<u8>) {
        if !self.human {
            self.queue.keep(bytes);
        }
    }

    /// A record for programs.
    pub fn record<T: Record>(&self, record: &T) {
        self.pass(jsonl::line(record));
    }

    /// Lines of a process, or a piece of a long one.
    pub fn output(&mut self, lines: Lines) {
        let log = &mut self.logs[lines.at];
        if let Some((name, file)) = log
            && let Err(error) = file.write_all(&lines.text)
        {
            eprintln!("dgl-spawn: --log-dir: {name}: {error}; it is not written any more");
            *log = None;
        }
        self.queue.push(lines);
    }

    /// Nothing more is at hand: what is buffered goes to the files.
    pub fn flush(&mut self) {
        for (_, log) in self.logs.iter_mut().flatten() {
            let _ = log.flush();
        }
    }

    /// The line that stands below all others on a terminal.
    pub fn status(&self, text: &str) {
        if self.status {
            self.queue.status(text);
        }
    }

    /// A line for people, wherever they are.
    pub fn say(&self, text: &str) {
        match self.status {
            true => self.queue.keep(format!("{text}\n").into_bytes()),
            // one write: in a batch job's file it stands among the records
            false => {
                let line = format!("{text}\n");
                eprint!("{line}");
            }
        }
    }

    /// Waits until all is written, or nobody wants to wait any longer.
    pub fn finish(mut self, enough: impl Fn() -> bool) {
        self.flush();
        self.queue.close();
        if let Some(writer) = self.writer.take() {
            while !writer.is_finished() {
                if enough() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// A line of a process as a terminal shows it behind something else: what would overwrite that, or do anything but colour the line, is
/// left out, so a progress bar shows its last state; a colour that it began ends with it.
pub fn on_terminal(text: &[u8]) -> Vec<u8> {
    let shown = text.rsplit(|byte| *byte == b'\r').find(|part| !part.is_empty()).unwrap_or_default();
    let shown = term::coloured(shown);
    let end: &[u8] = if shown.contains(&0x1b) { b"\x1b[0m" } else { b"" };
    [shown.as_slice(), end].concat()
}

/// How lines look.
struct Style {
    human: bool,
    colours: bool,
    terminal: bool,
    tags: Vec<String>,
    ids: Vec<u32>,
}

impl Style {
    fn show(&self, lines: &Lines, out: &mut Vec<u8>) {
        for line in lines.text.split_inclusive(|byte| *byte == b'\n') {
            let whole = line.strip_suffix(b"\n");
            let (text, partial) = (whole.unwrap_or(line), whole.is_none());
            match self.human {
                true => self.tagged(lines.at, text, out),
                false => out.extend(self.record(lines, text, partial)),
            }
        }
    }

    /// A line for people.
    fn tagged(&self, at: usize, text: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(term::colour(&self.tags[at], at, self.colours).as_bytes());
        out.push(b' ');
        match self.terminal {
            true => out.extend(on_terminal(text)),
            false => out.extend_from_slice(text),
        }
        out.push(b'\n');
    }

    fn record(&self, lines: &Lines, text: &[u8], partial: bool) -> Vec<u8> {
        let text = String::from_utf8_lossy(text);
        let lossy = matches!(text, std::borrow::Cow::Owned(_));
        jsonl::line(&Output {
            id: self.ids[lines.at],
            stream: if lines.stderr { "stderr" } else { "stdout" }.to_owned(),
            line: text.into_owned(),
            time_ms: lines.time_ms,
            partial,
            lossy,
        })
    }

    fn dropped(&self, lines: u64) -> Vec<u8> {
        match self.human {
            true => format!("dgl-spawn: {lines} lines are missing here, because they came too fast\n").into_bytes(),
            false => jsonl::line(&Dropped { lines, time_ms: term::now_ms() }),
        }
    }
}

/// The thread that stdout belongs to.
fn write_all(queue: &Queue, style: &Style) {
    let mut out = jsonl::Out::new("dgl-spawn");
    let mut status = String::new();
    while let Some(next) = queue.next(BATCH_BYTES) {
        let mut batch = if status.is_empty() { Vec::new() } else { CLEAR.to_vec() };
        next.kept.iter().for_each(|bytes| batch.extend_from_slice(bytes));
        if next.dropped > 0 {
            batch.extend(style.dropped(next.dropped));
        }
        for item in &next.items {
            match item {
                Ok(bytes) => batch.extend_from_slice(bytes),
                Err(lines) => style.show(lines, &mut batch),
            }
        }
        status = next.status;
        if !status.is_empty() {
            batch.extend_from_slice(format!("\x1b[?7l{status}\x1b[?7h").as_bytes()); // cut, not wrapped, at the terminal's edge
        }
        out.write(&batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_well() {
        let style = |human, terminal| Style { human, colours: false, terminal, tags: vec!["[h1 trainer 0]".into()], ids: vec![7] };
        let shown = |style: Style, text: &[u8]| {
            let mut out = Vec::new();
            style.show(&Lines { at: 0, stderr: true, time_ms: 5, text: text.to_vec() }, &mut out);
            String::from_utf8(out).unwrap()
        };
        let table: [(bool, &[u8], &str); 5] = [
            (true, b"a\nb\n", "[h1 trainer 0] a\n[h1 trainer 0] b\n"),
            (true, b"a piece", "[h1 trainer 0] a piece\n"),
            (true, b" 1%\r 50%\r100%\r\n", "[h1 trainer 0] 100%\n"),
            (true, b"\x1b[31mred\n", "[h1 trainer 0] \x1b[31mred\x1b[0m\n"),
            (false, b"\x1b[31mred\r\n", "[h1 trainer 0] \x1b[31mred\r\n"),
        ];
        for (terminal, text, wanted) in table {
            assert_eq!(shown(style(true, terminal), text), wanted);
        }
        assert_eq!(
            shown(style(false, false), b"a\n\xffb"),
            "{\"type\":\"output\",\"id\":7,\"stream\":\"stderr\",\"line\":\"a\",\"time_ms\":5}\n\
             {\"type\":\"output\",\"id\":7,\"stream\":\"stderr\",\"line\":\"\u{fffd}b\",\"time_ms\":5,\"partial\":true,\"lossy\":true}\n"
        );
    }
}
