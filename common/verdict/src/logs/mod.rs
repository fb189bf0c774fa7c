//! The history of a job from the logs of any launcher, in one file or many. Text has no times, and
//! often does not show who wrote a line or who failed first; the judgement then names nobody.

mod container;
mod files;
mod history;
mod mpi;
mod ray;
mod report;
mod shell;
mod slurm;
mod torchrun;

pub use files::LogFile;

use evidence::marks::{self, LineMarks, Writer};
use evidence::syntax::{self, EvidenceFinder, LineStart};
use evidence::{Evidence, LAST_LINES, Statement, without_escapes};
use report::{Forms, LauncherReport, ReportedEnd, Stated};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read};
use std::sync::LazyLock;

/// How many bytes are searched at once for lines that may be evidence.
const BLOCK: usize = 1 << 20;
/// The end of a file, in bytes, is read line by line: it shows who went on and how it ended.
const TAIL: usize = 256 << 10;
/// If more lines of work than this follow the ends of tasks, Slurm has started the job again, and
/// after the failure of a rank, torchrun its ranks. Fewer lines may
/// come from ranks on other nodes.
const LINES_OF_RUN: u64 = 50;
/// How many lines are read after one that may be evidence: messages have many lines, and what
/// follows shows whether the process has survived it.
const LINES_AFTER: usize = 60;
/// torchrun's table and traceback have about 40 lines, which must not displace the last lines of
/// the processes.
const KEPT_LINES: usize = 4 * LAST_LINES;

/// A log with more writers than a job has processes would fill the memory. What the others write is
/// counted together.
const MAX_WRITERS: usize = 16_384;

/// Words that launchers write, beside those of processes.
const LAUNCHERS: [&str; 21] = [
    "exitcode",
    "(local_rank: ",
    "  host      : ",
    "closing signal",
    "death signal",
    "srun: ",
    " CANCELLED AT ",
    "process rank",
    "xit code",
    "EXIT ",
    "exited with code",
    "low on resource",
    "Root Cause",
    "OOMKilled",
    "MPI_ABORT",
    "with errorcode",
    " RUNNING AT ",
    "world_rank=",
    "cmd = pdsh",
    "distributed/run.py",
    "distributed.run:",
];

/// The forms of the lines that only launchers write.
static LAUNCHER_FORMS: LazyLock<Option<Forms>> = LazyLock::new(|| {
    let launchers: [&[report::Form]; 5] = [
        &torchrun::FORMS,
        &mpi::FORMS,
        &container::FORMS,
        &shell::FORMS,
        &slurm::FORMS,
    ];
    Forms::new(&launchers).ok()
});
/// These lines belong to exceptions too.
static RAY_FORMS: LazyLock<Option<Forms>> = LazyLock::new(|| Forms::new(&[&ray::FORMS]).ok());
static LIGHTNING_FORMS: LazyLock<Option<Forms>> =
    LazyLock::new(|| Forms::new(&[&torchrun::LIGHTNING]).ok());
static SPAWN_FORMS: LazyLock<Option<Forms>> =
    LazyLock::new(|| Forms::new(&[&torchrun::SPAWNED]).ok());

static FINDER: LazyLock<EvidenceFinder> = LazyLock::new(|| EvidenceFinder::with(&LAUNCHERS));

#[derive(Default)]
pub struct Logs {
    /// The names of those that were read.
    files: Vec<String>,
    processes: Vec<LogProcess>,
    by_writer: HashMap<Writer, usize>,
    /// The rank of a local rank at a place, or of an actor; none if several torchruns write there,
    /// of which each has this local rank.
    ranks: HashMap<Writer, Option<u32>>,
    /// What ended the whole job, and whether somebody asked for it.
    job_end: Option<(String, bool)>,
    is_out_of_memory: bool,
    /// Whether torchrun wrote a line: then tasks of srun are launchers, which start the ranks.
    has_agents: bool,
    /// How many ends launchers have reported.
    ends: usize,
    /// How often torchrun has seen processes fail.
    failures: u64,
    /// How many ends were known when another torchrun began in the same log: a rank that had ended
    /// before was started again.
    begun: usize,
}

struct LogProcess {
    writer: Writer,
    host: Option<String>,
    evidence: Evidence,
    end: Option<LogEnd>,
    /// Its name if it stands for several.
    group: Option<String>,
    /// The number of the failure that torchrun saw last before a line of this process, and how many
    /// lines the process had written before.
    failure: (u64, u64),
    /// How many files had been begun when it wrote last, or its end was reported.
    file: usize,
    /// Whether a launcher marks its lines, or they have a file.
    has_marked_lines: bool,
}

#[derive(Default)]
struct LogEnd {
    reported: ReportedEnd,
    /// The process among whose lines the report is.
    source: Option<usize>,
    /// How many lines that process had written before.
    line: u64,
    /// Its place among all ends.
    order: usize,
    while_ending: bool,
    /// How many files had been begun.
    file: usize,
}

impl Logs {
    pub fn read(&mut self, file: &LogFile, mut input: impl Read) -> io::Result<()> {
        let mut reader = LogReader::new(self, file);
        let mut text = Vec::new();
        loop {
            let limit = (BLOCK + TAIL - text.len()) as u64;
            let count = input.by_ref().take(limit).read_to_end(&mut text)?;
            if count == 0 {
                break;
            }
            let before_tail = text.len().saturating_sub(TAIL);
            let end = memchr::memrchr2(b'\n', b'\r', &text[..before_tail]);
            // a line that fills the block is cut
            let end = end.map_or(before_tail, |end| end + 1);
            reader.block(&text[..end]);
            text.drain(..end);
        }
        reader.lines_left = usize::MAX;
        reader.block(&text);
        reader.finish();
        Ok(())
    }

    /// The process of a writer, which is new if nothing was known of it.
    fn process(&mut self, mut writer: Writer, place_of_file: Option<&str>) -> usize {
        let place = writer.place.take();
        let local = writer.local_rank.map(|local_rank| Writer {
            place: place.clone().or(place_of_file.map(str::to_owned)),
            ..Writer::local(local_rank)
        });
        let rank = writer
            .rank
            .or_else(|| *self.ranks.get(local.as_ref()?)?)
            .or_else(|| *self.ranks.get(&Writer::at(place.as_ref()?))?);
        let key = match (rank, local) {
            (Some(rank), local) => {
                if let Some(local) = local {
                    self.is_ranked(local, rank);
                }
                Writer::ranked(rank)
            }
            (None, Some(local)) => local,
            (None, None) => Writer { place, ..writer },
        };
        let has_room = self.processes.len() < MAX_WRITERS || self.by_writer.contains_key(&key);
        let others = || Writer::at("one of the other processes");
        let key = if has_room { key } else { others() };
        let processes = &mut self.processes;
        *self.by_writer.entry(key.clone()).or_insert_with(|| {
            let is_own = key.rank.is_some() || key.local_rank.is_some();
            processes.push(LogProcess {
                writer: key,
                host: None,
                evidence: if is_own {
                    Evidence::default()
                } else {
                    Evidence::mixed(KEPT_LINES)
                },
                end: None,
                group: None,
                failure: (0, 0),
                file: 0,
                has_marked_lines: false,
            });
            processes.len() - 1
        })
    }

    /// Records that a local rank has this rank, and gives the rank what is known of it.
    fn is_ranked(&mut self, local: Writer, rank: u32) {
        let known = self.ranks.entry(local.clone()).or_insert(Some(rank));
        if *known != Some(rank) {
            *known = None;
            return;
        }
        let writer = Writer::ranked(rank);
        if let Some(index) = self.by_writer.remove(&local) {
            match self.by_writer.get(&writer) {
                None => {
                    self.processes[index].writer = writer.clone();
                    self.by_writer.insert(writer, index);
                }
                Some(own) => {
                    let (own, known) = (*own, self.processes[index].end.take());
                    let local = &mut self.processes[index];
                    let (evidence, is_marked) =
                        (std::mem::take(&mut local.evidence), local.has_marked_lines);
                    let own = &mut self.processes[own];
                    own.has_marked_lines |= is_marked;
                    own.end = own.end.take().or(known);
                    if own.evidence.count == 0 || self.begun > 0 {
                        own.evidence = evidence;
                    } else {
                        self.processes[index].evidence = evidence;
                    }
                }
            }
        }
    }

    /// The local ranks at a place are those of several torchruns, whose lines cannot be told apart.
    /// What their tables report of such ranks is about one of those that wrote.
    fn are_shared(&mut self, place: Option<&str>, torchruns: &Torchruns) {
        for index in 0..self.processes.len() {
            let writer = &self.processes[index].writer;
            let is_placed = |_: &u32| writer.place.as_deref() == place;
            let Some(local) = writer.local_rank.filter(is_placed) else {
                continue;
            };
            let count = torchruns.count();
            let name = format!("local rank {local} of one of {count} torchruns");
            self.processes[index].group = Some(name);
            let same = torchruns.ranks.iter().filter(|(_, other)| *other == local);
            for (rank, _) in same {
                let Some(own) = self.by_writer.get(&Writer::ranked(*rank)) else {
                    continue;
                };
                let own = &mut self.processes[*own];
                let has_lines = own.evidence.count > 0;
                let is_python = |end: &mut LogEnd| !has_lines && end.reported.end.code == Some(1);
                let end = own.end.take_if(is_python);
                let known = &mut self.processes[index].end;
                *known = known.take().or(end);
            }
        }
    }

    /// The evidence of a process that has written another line, into the latest file.
    fn evidence(&mut self, index: usize) -> &mut Evidence {
        let process = &mut self.processes[index];
        if process.failure.0 < self.failures {
            process.failure = (self.failures, process.evidence.count);
        }
        process.file = self.files.len();
        process.evidence.in_file(self.files.len() as u32 - 1);
        &mut process.evidence
    }

    fn ended(&mut self, index: usize, reported: ReportedEnd, source: usize, while_ending: bool) {
        let (order, line) = (self.ends, self.processes[source].evidence.count);
        self.ends += 1;
        let process = &mut self.processes[index];
        process.end.take_if(|end| end.order < self.begun);
        process.file = self.files.len();
        process.host = reported.host.clone().or(process.host.take());
        match &mut process.end {
            // a table repeats the line before it
            Some(end) => {
                end.reported.is_first |= reported.is_first;
                end.reported.time = reported.time.or(end.reported.time.take());
            }
            None => {
                process.end = Some(LogEnd {
                    reported,
                    source: Some(source),
                    line,
                    order,
                    while_ending,
                    file: self.files.len(),
                });
            }
        }
    }
}

/// The process that a report is about. A task of srun is kept apart from the rank of its number,
/// because it may be a launcher of ranks.
fn key_of(end: &ReportedEnd) -> Writer {
    match end.writer.rank {
        Some(task) if end.is_task => Writer::at(&format!("task {task} of srun")),
        _ => end.writer.clone(),
    }
}

/// Slurm cancels the steps of a job too.
fn is_cancelled_job(text: &str) -> bool {
    text.starts_with("Slurm cancelled job ")
}

/// Slurm puts a job into its queue again after a preemption or the loss of a node.
fn can_start_again(text: &str) -> bool {
    let is_for_good = text.contains("time limit") || !text.contains(" due to ");
    text.starts_with("Slurm lost node ") || is_cancelled_job(text) && !is_for_good
}

/// Whether it belongs to torch's report of a C++ exception, which has many lines. With NCCL, each
/// rank that loses another one writes such a report.
fn is_of_crash(line: &str) -> bool {
    let begins = [
        "frame #",
        "Exception raised from ",
        "Last error:",
        "nccl",
        "Thread 0x",
    ];
    begins.iter().any(|begin| line.starts_with(begin))
}

fn is_line_end(byte: &u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// What a log shows of the torchruns that wrote it at the same time.
#[derive(Default)]
struct Torchruns {
    /// How many have begun, as far as they wrote it.
    begun: usize,
    /// Another one that begins now was started after them.
    have_run: bool,
    /// How many others were read before, in the same log.
    before: usize,
    /// The ranks and local ranks in their tables.
    ranks: BTreeSet<(u32, u32)>,
}

impl Torchruns {
    /// How many there are at least.
    fn count(&self) -> usize {
        let locals = self.ranks.iter().map(|(_, local)| local);
        let same = |local: &u32| {
            self.ranks
                .iter()
                .filter(|(_, other)| other == local)
                .count()
        };
        locals.map(same).max().unwrap_or(1).max(self.begun)
    }
}

/// What had been read when tasks of a job ended that Slurm ended. What follows belongs to the same
/// run, unless it shows that Slurm has started the job again.
#[derive(Default)]
struct JobOver {
    /// How many lines each process had written when the first task ended.
    counts: Vec<u64>,
    /// How many ends were known then, and how many when the last one ended.
    first: usize,
    ends: usize,
    /// How many lines of work have followed the last one.
    work: u64,
}

struct LogReader<'a> {
    logs: &'a mut Logs,
    name: &'a str,
    /// The place whose log it is.
    place: Option<String>,
    /// The process whose lines have no mark.
    unmarked: usize,
    /// The process of the last mark.
    latest: (String, usize),
    marks: LineMarks,
    stated: Stated,
    /// How many processes were known when torchrun last saw one fail, unless it has printed its
    /// table since. If processes go on after that, it has started them again.
    failed_at: Option<usize>,
    /// How many lines of work have followed.
    work_since: u64,
    /// Whether the launcher ends the processes.
    is_shutdown: bool,
    /// If Slurm ended the job, and tasks have ended since.
    over: Option<JobOver>,
    /// Whether a line reported what ended the job.
    is_job_over: bool,
    torchruns: Torchruns,
    /// How many lines are read without a search.
    lines_left: usize,
}

impl<'a> LogReader<'a> {
    fn new(logs: &'a mut Logs, file: &'a LogFile) -> LogReader<'a> {
        logs.files.push(file.name.clone());
        logs.begun = 0;
        let place = file.writer.place.clone();
        let unmarked = logs.process(file.writer.clone(), place.as_deref());
        LogReader {
            logs,
            name: &file.name,
            place,
            unmarked,
            latest: (String::new(), unmarked),
            marks: LineMarks::default(),
            stated: Stated::default(),
            failed_at: None,
            work_since: 0,
            is_shutdown: false,
            over: None,
            is_job_over: false,
            torchruns: Torchruns::default(),
            lines_left: 0,
        }
    }

    /// Reads the lines that have words of evidence or come shortly after, and counts the others.
    fn block(&mut self, text: &[u8]) {
        let find = |from| Some(from + FINDER.find(&text[from..])?);
        let mut begin = 0;
        let mut word = find(0);
        while begin < text.len() {
            if self.lines_left == 0 {
                let Some(found) = word else {
                    return self.skip(&text[begin..]);
                };
                // the line before may say who raised an exception
                let mut lines = text[begin..found].rsplitn(3, is_line_end);
                let before = lines.next().map_or(0, <[u8]>::len);
                let before = before + lines.next().map_or(0, |line| line.len() + 1);
                self.skip(&text[begin..found - before]);
                begin = found - before;
                self.lines_left = LINES_AFTER;
            }
            let length = memchr::memchr2(b'\n', b'\r', &text[begin..]);
            let end = length.map_or(text.len(), |length| begin + length);
            if end > begin {
                let line = String::from_utf8_lossy(&text[begin..end]);
                for line in syntax::unglued(&without_escapes(&line)) {
                    self.line(line);
                }
                self.lines_left = self.lines_left.saturating_sub(1);
            }
            begin = end + 1;
            if word.is_some_and(|word| word < begin) {
                self.lines_left = self.lines_left.max(LINES_AFTER);
                word = find(begin.min(text.len()));
            }
        }
    }

    fn skip(&mut self, text: &[u8]) {
        let count = |end| memchr::memchr_iter(end, text).count();
        let lines = count(b'\n') + count(b'\r');
        if lines > 0 {
            self.logs.evidence(self.unmarked).skip(lines as u64);
            self.worked(lines as u64);
        }
    }

    fn line(&mut self, line: &str) {
        let marked = self.marks.split(line);
        if self.latest.0 != marked.mark {
            let mut writer = Writer::of(&marked.mark);
            let task = marked.mark.split_once(": ");
            let task = task.and_then(|(task, rest)| Some((task.parse::<u32>().ok()?, rest)));
            if let Some((task, rest)) = task {
                let is_other = writer.rank.is_some_and(|rank| rank != task);
                self.logs.has_agents |= is_other || marks::is_of_agent(marked.text);
                if self.logs.has_agents && rest.is_empty() {
                    writer = Writer::at(&format!("task {task}"));
                }
            }
            let process = if writer == Writer::default() {
                self.unmarked
            } else {
                self.torchruns.have_run |= writer.local_rank.is_some();
                self.logs.process(writer, self.place.as_deref())
            };
            self.latest = (marked.mark.into_owned(), process);
        }
        let process = self.latest.1;
        if !self.logs.processes[process].has_marked_lines {
            // torch marks its own lines and tracebacks with `[rank3]:`, and nothing else
            let is_of_torch = self.latest.0.starts_with("[rank")
                && (marked.text.starts_with(['[', ' ']) || LineStart::of(marked.text).is_some());
            self.logs.processes[process].has_marked_lines = !is_of_torch;
        }
        self.report(RAY_FORMS.as_ref(), marked.text, self.unmarked);
        self.report(SPAWN_FORMS.as_ref(), marked.text, process);
        if self.report(LIGHTNING_FORMS.as_ref(), line, self.unmarked) {
            return;
        }
        if self.launcher_line(marked.text, process) {
            return;
        }
        if marked.text.contains("ChildFailedError") {
            self.failed_at = None;
        }
        self.torchruns.have_run |= marked.text.starts_with("torch.distributed.elastic.");
        // what follows the end of a task may be another run
        let is_ending = self.is_job_over && self.logs.job_end.is_some();
        let while_ending = is_ending && self.over.is_none();
        let evidence = self.logs.evidence(process);
        if marked.in_traceback {
            evidence.line(true, syntax::TRACEBACK, 0, while_ending);
        }
        evidence.line(true, marked.text, 0, while_ending);
        let is_awaited = self.failed_at.is_some() || self.over.is_some();
        let is_work = is_awaited
            && !history::is_launcher_line(marked.text)
            && !is_of_crash(marked.text)
            && LineStart::of(marked.text).is_none()
            && !evidence.ends_with_statement();
        if is_work {
            self.worked(1);
        }
    }

    fn worked(&mut self, lines: u64) {
        self.work_since += lines;
        if let Some(over) = &mut self.over {
            over.work += lines;
        }
    }

    /// Takes a line of a launcher; returns whether it was one.
    fn launcher_line(&mut self, line: &str, process: usize) -> bool {
        let joined = mpi::joined(&mut self.stated, line);
        let line = joined.as_deref().unwrap_or(line);
        let is_launcher = self.report(LAUNCHER_FORMS.as_ref(), line, process);
        self.logs.has_agents |= marks::is_of_agent(line) || torchrun::is_agent_line(line);
        if line.contains("failed (exitcode: ") {
            self.logs.failures += 1;
            self.failed_at = Some(self.logs.processes.len());
            self.work_since = 0;
        }
        is_launcher
    }

    /// Slurm has started the job again, and appends to the same log.
    fn forget_run(&mut self) {
        if let Some(over) = self.over.take() {
            (self.is_shutdown, self.is_job_over) = (false, false);
            (self.logs.job_end, self.logs.is_out_of_memory) = (None, false);
            self.keep_run(&over, true);
        }
    }

    /// Keeps only what belongs to the run before or after this end of a job.
    fn keep_run(&mut self, over: &JobOver, is_later: bool) {
        // of other nodes, other files tell
        let file = self.logs.files.len();
        let processes = self.logs.processes.iter_mut().enumerate();
        for (index, process) in processes.filter(|(_, process)| process.file == file) {
            let lines = over.counts.get(index).copied().unwrap_or(0);
            let is_kept = |statement: &Statement| (statement.first.number >= lines) == is_later;
            process.evidence.retain(is_kept);
            process.end.take_if(|end| is_later && end.order < over.ends);
        }
    }

    fn finish(&mut self) {
        if self
            .over
            .as_ref()
            .is_some_and(|over| over.work > LINES_OF_RUN)
        {
            self.forget_run();
        }
        if let Some(over) = self.over.take() {
            self.keep_run(&over, false);
        }
        self.finish_torchruns();
    }

    /// If others have run before, what follows is as the log of another place.
    fn torchrun_begins(&mut self) {
        if self.torchruns.have_run {
            self.finish_torchruns();
            let before = self.torchruns.before + self.torchruns.count();
            let place = format!("torchrun {} of {}", before + 1, self.name);
            self.torchruns = Torchruns {
                before,
                ..Torchruns::default()
            };
            self.logs.begun = self.logs.ends;
            self.unmarked = self.logs.process(Writer::at(&place), None);
            self.latest = (String::new(), self.unmarked);
            (self.place, self.stated) = (Some(place), Stated::default());
            (self.is_shutdown, self.is_job_over) = (false, false);
        }
        self.torchruns.begun += 1;
    }

    /// Gives the lines of local ranks to the ranks in torchrun's table. With several torchruns at
    /// once, it is unknown which of them wrote a line.
    fn finish_torchruns(&mut self) {
        let place = self.place.as_deref();
        if self.torchruns.count() > 1 {
            self.logs.are_shared(place, &self.torchruns);
        } else {
            for (rank, local_rank) in std::mem::take(&mut self.torchruns.ranks) {
                let local = Writer {
                    place: place.map(str::to_owned),
                    ..Writer::local(local_rank)
                };
                self.logs.is_ranked(local, rank);
            }
        }
        self.forget_restarted();
    }

    /// The end of a run is reported: of the one in which a rank failed, or of a later one, if
    /// torchrun has started the ranks again since.
    fn run_ends(&mut self) {
        if self.work_since > LINES_OF_RUN {
            self.forget_restarted();
        }
        self.failed_at = None;
    }

    /// Forgets what processes wrote before torchrun started them again.
    fn forget_restarted(&mut self) {
        let Some(known) = self.failed_at.take().filter(|_| self.work_since > 0) else {
            return;
        };
        // of other nodes, other files tell
        let file = self.logs.files.len();
        let known = self.logs.processes[..known].iter_mut();
        for process in known.filter(|process| process.file == file) {
            process.end = None;
            let (failure, lines) = process.failure;
            let has_gone_on = failure == self.logs.failures;
            process
                .evidence
                .retain(|statement| has_gone_on && statement.first.number >= lines);
        }
    }

    fn tasks_ended(&mut self, tasks: Vec<ReportedEnd>, source: usize) {
        let file = self.logs.files.len();
        // tasks of an earlier step, and of another step of the same run, have the same numbers
        let first = self
            .over
            .as_ref()
            .filter(|over| over.work > 0)
            .map(|over| over.first);
        let has_ended = |task: &ReportedEnd| {
            let index = self.logs.by_writer.get(&key_of(task));
            let end = index.and_then(|index| self.logs.processes[*index].end.as_ref());
            end.is_some_and(|end| {
                let is_since = first.is_some_and(|first| end.order >= first);
                is_since && end.reported.is_task && end.file == file
            })
        };
        if tasks.iter().any(has_ended) {
            self.forget_run();
        }
        let begun = self.logs.ends;
        for task in tasks {
            self.ended(task, source);
        }
        self.job_over(begun);
    }

    /// Notes that tasks have ended after Slurm ended a job that it may start again; `first` is the
    /// number of their first end.
    fn job_over(&mut self, first: usize) {
        let job_end = self.logs.job_end.as_ref();
        if job_end.is_some_and(|(text, _)| can_start_again(text)) {
            let counts = self.logs.processes.iter().map(|one| one.evidence.count);
            let over = self.over.get_or_insert_with(|| JobOver {
                counts: counts.collect(),
                first,
                ..JobOver::default()
            });
            (over.ends, over.work) = (self.logs.ends, 0);
        }
    }

    /// Takes what a line of this process reports; returns whether it reports anything.
    fn report(&mut self, forms: Option<&Forms>, line: &str, process: usize) -> bool {
        let reports = forms.map_or(Vec::new(), |forms| forms.read(&mut self.stated, line));
        let has_reports = !reports.is_empty();
        for report in reports {
            match report {
                LauncherReport::Process(mut end) => {
                    line.clone_into(&mut end.line);
                    self.ended(end, process);
                }
                LauncherReport::Tasks { node, tasks, end } => {
                    let ended = tasks.into_iter().map(|task| ReportedEnd {
                        writer: Writer::ranked(task),
                        host: Some(node.clone()),
                        end,
                        is_task: true,
                        line: line.to_owned(),
                        ..ReportedEnd::default()
                    });
                    self.tasks_ended(ended.collect(), process);
                }
                LauncherReport::Rank { rank, local_rank } => {
                    self.torchruns.ranks.insert((rank, local_rank));
                }
                LauncherReport::Actor { name, rank } => {
                    self.logs.is_ranked(Writer::at(&name), rank);
                }
                LauncherReport::OutOfMemory => self.logs.is_out_of_memory = true,
                LauncherReport::Job { text, is_request } => self.job_ended(text, is_request),
                LauncherReport::Begins => {
                    self.job_over(self.logs.ends);
                    self.forget_run();
                    self.torchrun_begins();
                }
                LauncherReport::Closing => {}
                LauncherReport::Shutdown => self.is_shutdown = true,
            }
        }
        has_reports
    }

    fn job_ended(&mut self, text: String, is_request: bool) {
        self.run_ends();
        let is_of_job = is_cancelled_job(&text);
        let job_end = &mut self.logs.job_end;
        // the line about a step may come before that about its job
        job_end.take_if(|(known, _)| is_of_job && known.starts_with("Slurm cancelled step "));
        if is_of_job
            && job_end
                .as_ref()
                .is_some_and(|(known, _)| is_cancelled_job(known))
        {
            self.forget_run();
        }
        let has_failed = self.logs.has_failed();
        // srun cancels the other tasks of a step too, but no job
        if !is_request || !has_failed && (is_of_job || !self.is_shutdown) {
            self.logs.job_end.get_or_insert((text, is_request));
        }
        (self.is_shutdown, self.is_job_over) = (true, true);
    }

    fn ended(&mut self, end: ReportedEnd, source: usize) {
        self.run_ends();
        let writer = key_of(&end);
        let index = if writer == Writer::default() {
            source
        } else {
            self.logs.process(writer, self.place.as_deref())
        };
        self.logs.ended(index, end, source, self.is_shutdown);
    }
}
