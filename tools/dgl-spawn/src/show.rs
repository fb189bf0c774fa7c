//! What comes out: records or tagged lines on stdout, a file a process. Whoever reads stdout may be slow; the job does not wait for it.

use common::jsonl;
use common::record::{Dropped, Output, Process, Record};
use common::term;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Lines that a slow reader has not taken yet; beyond it the oldest are dropped.
const QUEUE_BYTES: usize = 64 << 20;

/// All that the job shows.
pub struct Show {
    human: bool,
    colours: bool,
    tags: Vec<String>,
    logs: Vec<Option<BufWriter<File>>>,
    queue: Arc<Queue>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A line and whether it may be dropped.
    lines: VecDeque<(Vec<u8>, bool)>,
    bytes: usize,
    dropped: u64,
    over: bool,
}

impl Show {
    /// Opens the log files and stdout.
    pub fn new(human: bool, log_dir: Option<&Path>, processes: &[Process], names: &[String]) -> io::Result<Show> {
        let mut logs = Vec::new();
        if let Some(folder) = log_dir {
            std::fs::create_dir_all(folder)?;
        }
        for process in processes {
            let log = |folder: &Path| File::create(folder.join(format!("{}-{}.log", process.role.name(), process.rank)));
            logs.push(log_dir.map(log).transpose()?.map(BufWriter::new));
        }
        let tags =
            processes.iter().zip(names).map(|(process, name)| format!("[{name} {} {}]", process.role.name(), process.rank)).collect();
        let queue = Arc::new(Queue::default());
        let writer = std::thread::Builder::new().name("stdout".to_owned()).spawn({
            let queue = Arc::clone(&queue);
            move || queue.write_all()
        })?;
        Ok(Show { human, colours: human && term::colours(), tags, logs, queue, writer: Some(writer) })
    }

    /// Bytes that go out as they are.
    pub fn pass(&self, bytes: Vec<u8>) {
        if !self.human {
            self.queue.push(bytes, false);
        }
    }

    /// A record for programs.
    pub fn record<T: Record>(&self, record: &T) {
        self.pass(jsonl::line(record));
    }

    /// A line of a process.
    pub fn output(&mut self, at: usize, output: &Output) {
        if let Some(log) = &mut self.logs[at] {
            let end = if output.partial { "" } else { "\n" };
            if let Err(error) = write!(log, "{}{end}", output.line) {
                eprintln!("dgl-spawn: --log-dir: {error}; {} is not written any more", self.tags[at]);
                self.logs[at] = None;
            }
        }
        let line = match self.human {
            true => format!("{} {}\n", term::colour(&self.tags[at], at, self.colours), output.line).into_bytes(),
            false => jsonl::line(output),
        };
        self.queue.push(line, true);
    }

    /// Nothing more is at hand: what is buffered goes to the files.
    pub fn flush(&mut self) {
        for log in self.logs.iter_mut().flatten() {
            let _ = log.flush();
        }
    }

    /// Waits until all is written.
    pub fn finish(mut self) {
        self.flush();
        self.queue.lock().over = true;
        self.queue.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: Vec<u8>, may_drop: bool) {
        let mut state = self.lock();
        state.bytes += line.len();
        state.lines.push_back((line, may_drop));
        while state.bytes > QUEUE_BYTES {
            let Some(oldest) = state.lines.iter().position(|(_, may_drop)| *may_drop) else { break };
            if let Some((line, _)) = state.lines.remove(oldest) {
                state.bytes -= line.len();
                state.dropped += 1;
            }
        }
        self.changed.notify_one();
    }

    fn write_all(&self) {
        let mut out = jsonl::Out::new("dgl-spawn");
        loop {
            let mut state = self.lock();
            while state.lines.is_empty() && !state.over {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.lines.is_empty() {
                return;
            }
            let dropped = std::mem::take(&mut state.dropped);
            let mut batch = Vec::new();
            while let Some((line, _)) = state.lines.pop_front() {
                state.bytes -= line.len();
                batch.extend(line);
                if batch.len() > 1 << 16 {
                    break;
                }
            }
            drop(state);
            if dropped > 0 {
                out.record(&Dropped { lines: dropped, time_ms: term::now_ms() });
            }
            out.write(&batch);
        }
    }
}
