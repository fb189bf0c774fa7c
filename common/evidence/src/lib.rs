//! Collects what a process writes about its own end: whole exceptions, with their messages and the
//! chain to the first cause; deaths of native code; stacks of faulthandler; errors of loggers; and
//! the last lines. It keeps a bounded amount, because a launcher has one for every process of a
//! job.

pub mod marks;
pub mod syntax;

use marks::LineMarks;
use std::borrow::Cow;
use std::collections::VecDeque;
use syntax::LineStart;

pub use syntax::Raiser;

/// The limit for a process: 4,000 processes that write only tracebacks fill 128 MB.
const MAX_BYTES: usize = 32 << 10;
/// Longer lines are truncated: no known message is longer, but a printed tensor is.
pub const MAX_LINE: usize = 1000;
/// torchrun's message about the eight processes of a host has 70 lines.
const MAX_MESSAGE_LINES: usize = 80;
/// Exceptions of a chain or a group.
const MAX_MESSAGES: usize = 64;
/// The innermost frames of a stack.
const MAX_FRAMES: usize = 100;
/// For the frames of a statement, and as many for its messages.
const MAX_STATEMENT_BYTES: usize = MAX_BYTES / 2;
/// A line that arrives later than this after the beginning of a message does not belong to it.
const AFTERTHOUGHT_MS: u64 = 2000;
/// The last lines explain a failure without other evidence.
pub const LAST_LINES: usize = 20;
/// How many of a logger's first errors are always kept: the first is often the cause of all.
const FIRST_ERRORS: usize = 3;
/// Launchers mark the lines of their children, at most as many on a host as it has GPUs.
const MAX_READERS: usize = 36;
/// The time of a line of text. Only its form shows whether it belongs to the line before.
pub const NO_TIME: u64 = 0;
/// DGL writes this when a client leaves, for whatever reason.
const LEAVING: &str = "is exiting...";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLine {
    /// Among all lines of the process.
    pub number: u64,
    /// The index of the file that has it, if there are several.
    pub file: u32,
    pub is_stderr: bool,
    pub text: String,
    pub time_ms: u64,
    pub while_ending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    Raised(Raiser),
    /// From native code, the dynamic linker, a shell or the kernel.
    Died,
    Stacks,
    /// Marked by a logger, or naming an exception without a traceback.
    Logged,
}

#[derive(Clone, Debug)]
pub struct Statement {
    pub kind: StatementKind,
    pub first: LogLine,
    /// The line of the last exception of a chain, or of the first frame of stacks.
    pub named: LogLine,
    pub last: LogLine,
    /// Each in lines; an exception has its first cause first.
    messages: Vec<Vec<String>>,
    /// The frames of its first traceback or the main thread's stack, the innermost first.
    pub frames: Vec<String>,
    /// Whether the innermost line of its first traceback exchanges data with another process.
    pub exchanges: bool,
    /// The name that multiprocessing gives the child which wrote it.
    pub child: Option<String>,
    /// The marks before its lines.
    pub mark: String,
    /// The last line before it that belongs to no statement: its number and time.
    follows: Option<(u64, u64)>,
}

impl Statement {
    fn new(kind: StatementKind, line: &LogLine, mark: &str) -> Statement {
        Statement {
            kind,
            first: line.clone(),
            named: line.clone(),
            last: line.clone(),
            messages: vec![Vec::new()],
            frames: Vec::new(),
            exchanges: false,
            child: None,
            mark: mark.to_owned(),
            follows: None,
        }
    }

    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().flatten().map(String::as_str)
    }

    /// The message of the first cause, in lines.
    pub fn cause(&self) -> &[String] {
        self.messages.first().map_or(&[], Vec::as_slice)
    }

    pub fn head(&self) -> &str {
        self.cause().first().map_or("", String::as_str)
    }

    /// Whether the process went on between this statement and a later one.
    pub fn continued_before(&self, later: &Statement) -> bool {
        self.precedes(later.follows)
    }

    fn precedes(&self, line: Option<(u64, u64)>) -> bool {
        let last = &self.last;
        // text has no times, only an order of lines
        let is_later = |time_ms| time_ms > last.time_ms || last.time_ms == NO_TIME;
        line.is_some_and(|(number, time_ms)| number > last.number && is_later(time_ms))
    }

    /// Whether one of its frames contains these words.
    pub fn is_in(&self, words: &str) -> bool {
        self.frames.iter().any(|frame| frame.contains(words))
    }

    /// The message of the last exception of the chain, in lines.
    pub fn result(&self) -> &[String] {
        self.messages.last().map_or(&[], Vec::as_slice)
    }

    /// Whether the main thread raised it, or a child or thread that it ended.
    pub fn is_raised(&self) -> bool {
        matches!(self.kind, StatementKind::Raised(raiser) if raiser != Raiser::Nobody)
    }

    fn bytes(&self) -> usize {
        self.frame_bytes() + self.message_bytes() + self.first.text.len() * 3
    }

    fn frame_bytes(&self) -> usize {
        self.frames.iter().map(String::len).sum()
    }

    fn message_bytes(&self) -> usize {
        self.lines().map(str::len).sum()
    }

    /// A frame that was called by the others.
    fn add_inner_frame(&mut self, frame: String) {
        self.frames.insert(0, frame);
        while self.frames.len() > MAX_FRAMES || self.frame_bytes() > MAX_STATEMENT_BYTES {
            self.frames.pop();
        }
    }

    /// A frame that called the others.
    fn add_outer_frame(&mut self, frame: String) {
        if self.frames.len() < MAX_FRAMES && self.frame_bytes() + frame.len() <= MAX_STATEMENT_BYTES
        {
            self.frames.push(frame);
        }
    }

    fn has_room_for(&self, text: &str) -> bool {
        self.lines().count() < MAX_MESSAGE_LINES
            && self.message_bytes() + text.len() <= MAX_STATEMENT_BYTES
    }
}

/// The lines of one stream with the same mark.
#[derive(Clone, Debug)]
struct MarkedReader {
    is_stderr: bool,
    mark: String,
    before: String,
    open: Option<Statement>,
    state: NextLines,
    /// The message to which lines are added, or before which a quoted one is put; none if the
    /// statement has too many.
    message: usize,
    raiser: Raiser,
    is_mixed: bool,
    /// Tracebacks that others have cut, so their exceptions are still to come.
    cut: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextLines {
    Idle,
    /// Frames of a traceback, up to the line that names the exception.
    Frames,
    Message,
    /// `taken` if this thread's stack is kept, `chosen` if it is the final choice.
    Stacks {
        taken: bool,
        chosen: bool,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub count: u64,
    /// The file of the latest line.
    file: u32,
    /// How many of the last lines are kept, if more than [`LAST_LINES`].
    lines: usize,
    last_lines: VecDeque<LogLine>,
    /// The last line before the end of the job, once that has begun.
    last: Option<LogLine>,
    /// The last line after the statements: its number and time.
    continued: Option<(u64, u64)>,
    /// When the first line arrived after the end had begun.
    pub ending_ms: Option<u64>,
    statements: Vec<Statement>,
    bytes: usize,
    readers: Vec<MarkedReader>,
    marks: LineMarks,
    is_mixed: bool,
}

impl Evidence {
    /// Several processes may write the lines, which have no marks.
    pub fn mixed(lines: usize) -> Evidence {
        Evidence {
            is_mixed: true,
            ..Evidence::keeping(lines)
        }
    }

    pub fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// [`syntax::EvidenceFinder`] found nothing in these lines.
    pub fn skip(&mut self, lines: u64) {
        self.count += lines;
        self.continued = Some((self.count, u64::MAX));
    }

    /// The lines that follow are of this file.
    pub fn in_file(&mut self, file: u32) {
        if self.file != file {
            self.finish_statements();
            self.file = file;
        }
    }

    fn finish_statements(&mut self) {
        for reader in std::mem::take(&mut self.readers) {
            reader.open.into_iter().for_each(|open| self.keep(open));
        }
    }

    pub fn retain(&mut self, is_wanted: impl Fn(&Statement) -> bool) {
        self.finish_statements();
        for index in (0..self.statements.len()).rev() {
            if !is_wanted(&self.statements[index]) {
                self.remove(index);
            }
        }
    }

    /// The process had ended: lines after this many are of its launcher.
    pub fn limit_count(&mut self, count: u64) {
        self.count = self.count.min(count);
        self.last_lines.retain(|line| line.number < count);
    }

    /// All remaining statements are of one process.
    pub fn attribute_to_one(&mut self) {
        self.is_mixed = false;
        self.last_lines.clear();
    }

    pub fn retain_last_lines(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.last_lines.retain(|line| is_wanted(&line.text));
    }

    /// Keeps at least this many of the last lines.
    pub fn keeping(lines: usize) -> Evidence {
        Evidence {
            lines,
            ..Evidence::default()
        }
    }

    /// Takes the next line of a stream, without its end. Returns the exception that it names, and
    /// who raised it.
    pub fn line<'a>(
        &mut self,
        is_stderr: bool,
        text: &'a str,
        time_ms: u64,
        while_ending: bool,
    ) -> Option<(Raiser, &'a str)> {
        let lines = syntax::unglued(text).into_iter();
        lines.fold(None, |named, line| {
            self.unglued_line(is_stderr, line, time_ms, while_ending)
                .or(named)
        })
    }

    fn unglued_line<'a>(
        &mut self,
        is_stderr: bool,
        text: &'a str,
        time_ms: u64,
        while_ending: bool,
    ) -> Option<(Raiser, &'a str)> {
        let mut ends = MAX_LINE..text.len();
        let end = ends.find(|end| text.is_char_boundary(*end));
        let text = &text[..end.unwrap_or(text.len())];
        if while_ending && self.ending_ms.is_none() {
            self.ending_ms = Some(time_ms);
            self.last = self.last_lines.back().cloned();
        }
        // most lines are no evidence, so each must cost as little as possible
        let is_full = self.last_lines.len() >= LAST_LINES.max(self.lines);
        let mut line = is_full
            .then(|| self.last_lines.pop_front())
            .flatten()
            .unwrap_or_default();
        text.clone_into(&mut line.text);
        (line.number, line.file, line.time_ms) = (self.count, self.file, time_ms);
        (line.is_stderr, line.while_ending) = (is_stderr, while_ending);
        self.count += 1;
        let plain = without_escapes(text);
        let marked = self.marks.split(&plain);
        let mark = &*marked.mark;
        let index = self
            .readers
            .iter()
            .position(|reader| reader.is_stderr == is_stderr && reader.mark == mark)
            .unwrap_or_else(|| {
                if self.readers.len() == MAX_READERS
                    && let Some(open) = self.readers.remove(0).open
                {
                    self.keep(open);
                }
                self.readers
                    .push(MarkedReader::new(is_stderr, mark, self.is_mixed));
                self.readers.len() - 1
            });
        let reader = &mut self.readers[index];
        if marked.in_traceback {
            reader.line(syntax::TRACEBACK, &line);
        }
        let read = reader.line(marked.text.trim_end(), &line);
        if self.ending_ms.is_some() && !while_ending {
            self.last = Some(line.clone());
        }
        let number = line.number;
        if let Some(open) = &mut reader.open
            && open.first.number == number
        {
            open.follows = self.continued;
        }
        self.last_lines.push_back(line);
        if read.continues && !while_ending && !text.ends_with(LEAVING) {
            self.continued = Some((number, time_ms));
        }
        read.closed
            .into_iter()
            .for_each(|statement| self.keep(statement));
        let offset = text.find(read.named.as_deref()?)?;
        Some((self.readers[index].raiser, text[offset..].trim_end()))
    }

    /// Drops older statements if there are too many: first a logger's errors after the first few,
    /// then the oldest.
    fn keep(&mut self, statement: Statement) {
        self.add(statement);
        while self.bytes > MAX_BYTES && self.statements.len() > 1 {
            let is_logged = |index: &usize| self.statements[*index].kind == StatementKind::Logged;
            let error = (0..self.statements.len())
                .filter(is_logged)
                .nth(FIRST_ERRORS);
            self.remove(error.unwrap_or(0));
        }
    }

    fn add(&mut self, mut statement: Statement) {
        statement.messages.retain(|message| !message.is_empty());
        self.bytes += statement.bytes();
        self.statements.push(statement);
    }

    fn remove(&mut self, index: usize) {
        self.bytes -= self.statements.remove(index).bytes();
    }

    pub fn statements(&self) -> Vec<&Statement> {
        let open = self
            .readers
            .iter()
            .filter_map(|reader| reader.open.as_ref());
        let mut all: Vec<&Statement> = self.statements.iter().chain(open).collect();
        all.sort_by_key(|statement| statement.first.number);
        all
    }

    pub fn last_lines(&self) -> impl DoubleEndedIterator<Item = &LogLine> + ExactSizeIterator {
        self.last_lines.iter()
    }

    pub fn last_statement(&self, is_wanted: impl Fn(&Statement) -> bool) -> Option<&Statement> {
        self.statements()
            .into_iter()
            .rfind(|statement| is_wanted(statement))
    }

    /// The last line before the end of the job.
    pub fn last(&self) -> Option<&LogLine> {
        match self.ending_ms {
            Some(_) => self.last.as_ref(),
            None => self.last_lines.back(),
        }
    }

    /// The stacks of the process and its children, as faulthandler wrote them, each with the line
    /// of its innermost frame.
    pub fn stacks(&self) -> Vec<(&LogLine, &[String])> {
        let all = self.statements();
        // a process whose peers were ended first raises an exception because of that, and is at
        // another line when it is ended
        let is_stack =
            |statement: &&&Statement| !statement.is_raised() && !statement.frames.is_empty();
        let written = all.iter().filter(is_stack);
        all.iter()
            .find(|statement| statement.is_raised() && statement.first.while_ending)
            .into_iter()
            .chain(written)
            .map(|statement| (&statement.named, statement.frames.as_slice()))
            .collect()
    }

    /// How many of the last lines follow a statement and belong to none. Which of two streams was
    /// first within a millisecond is unknown.
    pub fn lines_after(&self, statement: &Statement) -> usize {
        let last = &statement.last;
        let statements = self.statements();
        let is_stated = |line: &LogLine| {
            let mut spans = statements
                .iter()
                .map(|one| one.first.number..=one.last.number);
            spans.any(|span| span.contains(&line.number))
        };
        let is_later = |line: &LogLine| {
            let is_known = line.is_stderr == last.is_stderr || line.time_ms > last.time_ms;
            line.number > last.number && is_known
        };
        let is_noise = |line: &LogLine| {
            let text = line.text.trim_end();
            text.ends_with(LEAVING) || syntax::is_at_exit(text)
        };
        (self.last_lines.iter())
            .filter(|line| is_later(line) && !is_noise(line) && !is_stated(line))
            .count()
    }

    /// How many lines between two statements belong to no other.
    pub fn lines_between(&self, earlier: &Statement, later: &Statement) -> u64 {
        let (first, end) = (earlier.last.number + 1, later.first.number);
        let lines_of = |one: &&Statement| {
            let (from, to) = (one.first.number.max(first), (one.last.number + 1).min(end));
            to.saturating_sub(from)
        };
        let stated: u64 = self.statements().iter().map(lines_of).sum();
        end.saturating_sub(first).saturating_sub(stated)
    }

    /// Whether the latest line belongs to a statement.
    pub fn ends_with_statement(&self) -> bool {
        let mut lasts = self.statements().into_iter().map(|one| one.last.number);
        lasts.any(|last| last + 1 == self.count)
    }

    pub fn continued_after(&self, statement: &Statement) -> bool {
        statement.precedes(self.continued)
    }

    /// The time of the last line before the end of the job that belongs to no statement.
    pub fn continued_ms(&self) -> Option<u64> {
        self.continued.map(|(_, time_ms)| time_ms)
    }
}

#[derive(Default)]
struct LineRead {
    closed: Vec<Statement>,
    named: Option<String>,
    /// It belongs to no statement and is not noise.
    continues: bool,
}

impl MarkedReader {
    fn new(is_stderr: bool, mark: &str, is_mixed: bool) -> MarkedReader {
        MarkedReader {
            is_stderr,
            mark: mark.to_owned(),
            before: String::new(),
            open: None,
            state: NextLines::Idle,
            message: 0,
            raiser: Raiser::Main,
            is_mixed,
            cut: 0,
        }
    }

    fn line(&mut self, text: &str, line: &LogLine) -> LineRead {
        let mut read = LineRead::default();
        let in_group = self.state != NextLines::Idle || text.contains("Exception Group Traceback");
        let margin = in_group.then(|| syntax::without_margin(text)).flatten();
        let text = margin.unwrap_or(text);
        self.read_by_state(text, margin.is_some(), line, &mut read);
        if !text.is_empty() {
            text.clone_into(&mut self.before);
        }
        read
    }

    fn read_by_state(&mut self, text: &str, has_margin: bool, line: &LogLine, read: &mut LineRead) {
        let start = LineStart::of(text);
        match (self.state, start) {
            (_, Some(LineStart::Traceback)) => self.open_traceback(text, has_margin, line, read),
            (NextLines::Frames, _) if has_margin && text.starts_with('-') => {}
            (NextLines::Frames, None | Some(LineStart::Error | LineStart::Death)) => {
                self.traceback_line(text, line, read);
            }
            (NextLines::Message, _)
                if has_margin && text.trim_start_matches('+').starts_with('-') =>
            {
                self.open_member();
            }
            (NextLines::Message, None) if self.cut > 0 && syntax::is_exception(text) => {
                self.cut -= 1;
                self.open_with(StatementKind::Raised(self.raiser), text, line, read);
                self.state = NextLines::Message;
            }
            (NextLines::Message, None)
                if (self.is_mixed || line.time_ms == NO_TIME)
                    && !syntax::continues(&self.before, text) =>
            {
                self.close(read);
                self.read_by_state(text, has_margin, line, read);
            }
            (NextLines::Message, None) if self.is_timely(line) && !text.is_empty() => {
                // a link announces the next traceback of the chain
                if !syntax::is_link(text) && text != "\"\"\"" {
                    self.add(text, line);
                }
            }
            (NextLines::Message, None) if text.is_empty() => {}
            // torch quotes the words of NCCL
            (NextLines::Message, Some(LineStart::Death))
                if text.starts_with("nccl")
                    || (self.open.as_ref())
                        .is_some_and(|open| open.kind == StatementKind::Died) =>
            {
                self.add(text, line);
            }
            (NextLines::Stacks { taken, chosen }, _)
                if self.stack_line(text, line, taken, chosen) => {}
            (_, Some(LineStart::Stacks)) => self.open_stacks(text, line, read),
            (_, Some(LineStart::Death)) => {
                self.open_with(StatementKind::Died, text, line, read);
                // further lines belong to the C++ exception
                self.state = NextLines::Message;
            }
            (_, Some(LineStart::Error)) => {
                self.open_with(StatementKind::Logged, text, line, read);
            }
            (NextLines::Idle, None) if syntax::is_exception(text) => {
                self.open_with(StatementKind::Logged, text, line, read);
            }
            (_, other) => {
                self.close(read);
                read.continues = other.is_none() && !text.is_empty();
            }
        }
    }

    fn close(&mut self, read: &mut LineRead) {
        self.state = NextLines::Idle;
        read.closed.extend(self.open.take());
    }

    fn open_statement(&mut self, kind: StatementKind, line: &LogLine, read: &mut LineRead) {
        self.close(read);
        self.open = Some(Statement::new(kind, line, &self.mark));
        self.message = 0;
    }

    fn open_with(&mut self, kind: StatementKind, text: &str, line: &LogLine, read: &mut LineRead) {
        self.open_statement(kind, line, read);
        self.add(text, line);
    }

    /// Begins a statement, or adds to the chain of the one before.
    fn open_traceback(
        &mut self,
        text: &str,
        has_margin: bool,
        line: &LogLine,
        read: &mut LineRead,
    ) {
        let is_quoted = syntax::is_relayed(text) || syntax::is_quotation(&self.before);
        let is_linked = syntax::is_link(&self.before);
        let is_member = has_margin && !text.contains("Exception Group");
        match &mut self.open {
            Some(_) if is_quoted || is_linked || is_member => {
                if !is_member {
                    self.open_message(self.message.saturating_add(usize::from(is_linked)));
                }
            }
            _ => {
                let is_cut = |open: &mut Statement| open.lines().next().is_none();
                if self.state == NextLines::Frames
                    && self.is_mixed
                    // frames of both processes follow, and nothing tells whose they are
                    && self.open.take_if(is_cut).is_some()
                {
                    self.cut += 1;
                }
                self.raiser = syntax::raiser_line(&self.before).unwrap_or_default();
                self.open_statement(StatementKind::Raised(self.raiser), line, read);
                if let Some(open) = &mut self.open
                    && self.raiser == Raiser::Child
                {
                    let name = self.before.trim_end_matches(':').strip_prefix("Process ");
                    open.child = name.map(str::to_owned);
                }
            }
        }
        self.state = NextLines::Frames;
    }

    /// The next member of an exception group. Earlier members precede it; the group itself comes
    /// last.
    fn open_member(&mut self) {
        let Some(open) = &self.open else { return };
        let message = open.messages.get(self.message).into_iter().flatten();
        let is_group = message.take(1).any(|line| line.contains("sub-exception"));
        self.open_message(self.message.saturating_add(usize::from(!is_group)));
        self.state = NextLines::Frames;
    }

    fn open_message(&mut self, index: usize) {
        let Some(open) = &mut self.open else { return };
        self.message = if open.messages.len() < MAX_MESSAGES && index <= open.messages.len() {
            open.messages.insert(index, Vec::new());
            index
        } else {
            usize::MAX
        };
    }

    fn traceback_line(&mut self, text: &str, line: &LogLine, read: &mut LineRead) {
        let Some(open) = &mut self.open else { return };
        open.last = line.clone();
        if text.starts_with([' ', '\t', '│', '╭', '╰', '>', '❱']) || text.is_empty() {
            // quoted tracebacks follow later, and belong to the cause
            if self.message == 0 {
                open.exchanges = match syntax::frame(text) {
                    Some(frame) => {
                        let exchanges = syntax::exchanges(&frame);
                        open.add_inner_frame(frame);
                        exchanges
                    }
                    None => open.exchanges || syntax::exchanges(text),
                };
            }
            return;
        }
        // a line of another process within the traceback
        let is_named = if self.is_mixed {
            syntax::is_exception(text)
        } else {
            syntax::has_class(text)
        };
        if !is_named {
            return;
        }
        // an exception class with an unusual name is known only by its position
        open.named = line.clone();
        let outermost = open.frames.last();
        if outermost.is_some_and(|frame| frame.starts_with("_run_finalizers (multiprocessing/")) {
            self.raiser = Raiser::Nobody;
            open.kind = StatementKind::Raised(Raiser::Nobody);
        }
        if self.cut > 0 {
            open.frames.clear();
        }
        self.state = NextLines::Message;
        read.named = Some(text.to_owned());
        self.add(text, line);
    }

    fn add(&mut self, text: &str, line: &LogLine) {
        let Some(open) = &mut self.open else { return };
        open.last = line.clone();
        let text = text.trim_end();
        if !open.has_room_for(text) {
            return;
        }
        // several processes write the same line at once
        let is_new = |message: &&mut Vec<String>| {
            !(self.is_mixed && message.last().is_some_and(|last| last == text))
        };
        if let Some(message) = open.messages.get_mut(self.message).filter(is_new) {
            message.push(text.to_owned());
        }
    }

    fn is_timely(&self, line: &LogLine) -> bool {
        let is_soon =
            |open: &Statement| open.named.time_ms.saturating_add(AFTERTHOUGHT_MS) >= line.time_ms;
        self.open.as_ref().is_some_and(is_soon)
    }

    fn open_stacks(&mut self, text: &str, line: &LogLine, read: &mut LineRead) {
        if text.starts_with("Fatal") {
            self.open_with(StatementKind::Died, text, line, read);
        } else {
            self.open_statement(StatementKind::Stacks, line, read);
        }
        let (taken, chosen) = (false, false);
        self.state = NextLines::Stacks { taken, chosen };
        self.stack_line(text, line, taken, chosen);
    }

    /// Whether the line belongs to stacks. Keeps the stack of the current thread, or else the last
    /// one, which is the main thread's.
    fn stack_line(&mut self, text: &str, line: &LogLine, taken: bool, chosen: bool) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let is_current = text.starts_with("Current thread");
        match syntax::frame(text) {
            Some(frame) if taken => {
                if open.frames.is_empty() {
                    open.named = line.clone();
                }
                open.add_outer_frame(frame);
            }
            Some(_) => {}
            None if LineStart::of(text) == Some(LineStart::Stacks)
                && !text.starts_with("Fatal") =>
            {
                let taken = is_current || !chosen;
                if taken {
                    open.frames.clear();
                }
                let chosen = chosen || is_current;
                self.state = NextLines::Stacks { taken, chosen };
            }
            None => {
                let words = [
                    "Garbage-collecting",
                    "<no Python frame>",
                    "Python runtime state",
                    syntax::EXTENSION_MODULES,
                ];
                let mut words = words.iter();
                return text.is_empty()
                    || words.any(|word| text.trim_start().starts_with(*word))
                    || text.starts_with("Fatal") && open.first.number == line.number;
            }
        }
        open.last = line.clone();
        true
    }
}

/// Without sequences that change colours, move the cursor or set titles.
pub fn without_escapes(text: &str) -> Cow<'_, str> {
    let Some((before, rest)) = text.split_once('\x1b') else {
        return Cow::Borrowed(text);
    };
    let mut plain = before.to_owned();
    for part in rest.split('\x1b') {
        let end = match part.chars().next() {
            Some('[') => part[1..]
                .find(|c: char| ('@'..='~').contains(&c))
                .map(|end| end + 2),
            Some(']') => part.find('\x07').map(|end| end + 1),
            first => first.map(char::len_utf8),
        };
        plain += &part[end.unwrap_or(part.len())..];
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "Traceback (most recent call last):\n  File \"/w/a.py\", line 1, in f\n";
    const DURING: &str =
        "\nDuring handling of the above exception, another exception occurred:\n\n";

    fn of(text: &str) -> Evidence {
        let mut evidence = Evidence::default();
        for line in text.lines() {
            evidence.line(true, line, 1, false);
        }
        evidence
    }

    /// The kind, first cause, result and first frame of each statement.
    fn stated(text: &str) -> Vec<(StatementKind, String, String, String)> {
        let evidence = of(text);
        let told = |statement: &&Statement| {
            let frame = statement.frames.first().cloned().unwrap_or_default();
            (
                statement.kind,
                statement.cause().join(" / "),
                statement.result().join(" / "),
                frame,
            )
        };
        evidence.statements().iter().map(told).collect()
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn statements_are_whole() {
        const MAIN: StatementKind = StatementKind::Raised(Raiser::Main);
        const NOBODY: StatementKind = StatementKind::Raised(Raiser::Nobody);
        let thread = StatementKind::Raised(Raiser::Thread);
        let child = StatementKind::Raised(Raiser::Child);
        let marked = format!("{TRACE}E: 1\nmore").replace('\n', "\n[rank1]: ");
        let table: Vec<(String, Vec<(StatementKind, &str, &str, &str)>)> = vec![
            (
                format!("epoch 1\n{TRACE}E: 1\n  and more\n\nat last\n"),
                vec![{
                    let all = "E: 1 /   and more / at last";
                    (MAIN, all, all, "f (a.py:1)")
                }],
            ),
            (
                format!("{TRACE}E: 1\n{DURING}{TRACE}F: 2\n"),
                vec![(MAIN, "E: 1", "F: 2", "f (a.py:1)")],
            ),
            (
                format!("Exception in thread Thread-3 (run):\n{TRACE}E: 1\n{DURING}{TRACE}F: 2"),
                vec![(thread, "E: 1", "F: 2", "f (a.py:1)")],
            ),
            (
                format!("Process SpawnProcess-1:\n{TRACE}E: 1\n{TRACE}F: 2"),
                vec![(child, "E: 1", "E: 1", "f (a.py:1)"), (MAIN, "F: 2", "F: 2", "f (a.py:1)")],
            ),
            (
                format!("{TRACE}E: Caught F in DataLoader worker process 0.\nOriginal {TRACE}F: 2"),
                vec![(MAIN, "F: 2", "E: Caught F in DataLoader worker process 0.", "f (a.py:1)")],
            ),
            (
                format!(
                    "{TRACE}api.CheckpointException: ranks:dict_keys([3])\nTraceback (most recent \
                     call last): (RANK 3)\n  File \"/w/b.py\", line 2, in g\nE: 1\n"
                ),
                vec![(
                    MAIN,
                    "E: 1",
                    "api.CheckpointException: ranks:dict_keys([3])",
                    "g (b.py:2)",
                )],
            ),
            (
                format!(
                    "{TRACE}torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 \
                     terminated with the following error:\n{TRACE}E: 1\n"
                ),
                vec![(
                    MAIN,
                    "E: 1",
                    "torch.multiprocessing.spawn.ProcessRaisedException: / -- Process 1 \
                     terminated with the following error:",
                    "f (a.py:1)",
                )],
            ),
            (
                "  + Exception Group Traceback (most recent call last):\n  |   File \"/w/a.py\", \
                 line 1, in f\n  |     raise x\n  | ExceptionGroup: many (2 sub-exceptions)\n  \
                 +-+---------------- 1 ----------------\n    | Traceback (most recent call \
                 last):\n    |   File \"/w/a.py\", line 2, in g\n    | E: 1\n    \
                 +---------------- 2 ----------------\n    | F: 2\n    \
                 +------------------------------------\nbye"
                    .to_owned(),
                vec![(MAIN, "E: 1", "ExceptionGroup: many (2 sub-exceptions)", "g (a.py:2)")],
            ),
            (
                format!("Exception ignored in: <function A.__del__ at 0x7f>\n{TRACE}E: 1\nbye"),
                vec![(
                    NOBODY,
                    "E: 1 / bye",
                    "E: 1 / bye",
                    "f (a.py:1)",
                )],
            ),
            (
                format!("--- Logging error ---\n{TRACE}E: 1\nCall stack:\n  File \"x\"\n"),
                vec![(
                    NOBODY,
                    "E: 1 / Call stack: /   File \"x\"",
                    "E: 1 / Call stack: /   File \"x\"",
                    "f (a.py:1)",
                )],
            ),
            (
                format!("{TRACE}E: 1\nError in atexit._run_exitfuncs:\n{TRACE}F: 2\n"),
                vec![(MAIN, "E: 1", "E: 1", "f (a.py:1)"), (NOBODY, "F: 2", "F: 2", "f (a.py:1)")],
            ),
            (
                format!(
                    "Error in sys.excepthook:\n{TRACE}E: 1\n\nOriginal exception was:\n\
                     {TRACE}F: 2\n"
                ),
                vec![
                    (
                        NOBODY,
                        "E: 1 / Original exception was:",
                        "E: 1 / Original exception was:",
                        "f (a.py:1)",
                    ),
                    (MAIN, "F: 2", "F: 2", "f (a.py:1)"),
                ],
            ),
            (
                format!(
                    "ERROR:asyncio:Task exception was never retrieved\nfuture: <Task>\n\
                     {TRACE}E: 1\n"
                ),
                vec![(NOBODY, "E: 1", "E: 1", "f (a.py:1)")],
            ),
            (
                "Traceback (most recent call last):\n  File \
                 \"/usr/lib/python3/multiprocessing/util.py\", line 300, in _run_finalizers\n    \
                 finalizer()\n  File \"/w/a.py\", line 1, in f\nOSError: 1\n"
                    .to_owned(),
                vec![(NOBODY, "OSError: 1", "OSError: 1", "f (a.py:1)")],
            ),
            (
                format!("[rank1]: {marked}\n"),
                vec![(MAIN, "E: 1 / more", "E: 1 / more", "f (a.py:1)")],
            ),
            // a line of another process in between
            (
                format!("{TRACE}sampler 3 of 4: 17 rows\nE: 1"),
                vec![(MAIN, "E: 1", "E: 1", "f (a.py:1)")],
            ),
            ("ValueError: no traceback".to_owned(), {
                vec![(
                    StatementKind::Logged,
                    "ValueError: no traceback",
                    "ValueError: no traceback",
                    "",
                )]
            }),
            (
                "terminate called after throwing an instance of 'c10::Error'\n  what():  no\nframe \
                 #0: x\n"
                    .to_owned(),
                vec![{
                    let all = "terminate called after throwing an instance of 'c10::Error' /   \
                               what():  no / frame #0: x";
                    (StatementKind::Died, all, all, "")
                }],
            ),
            (
                "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File \
                 \"/x/y.py\", line 5 in other\n\nCurrent thread 0x2 (most recent call first):\n  \
                 Garbage-collecting\n  File \"/w/b.py\", line 8 in back\n\nExtension modules: a"
                    .to_owned(),
                vec![(
                    StatementKind::Died,
                    "Fatal Python error: Aborted",
                    "Fatal Python error: Aborted",
                    "back (b.py:8)",
                )],
            ),
            (
                "Timeout (0:00:05)!\nThread 0x1 (most recent call first):\n  File \"/x/y.py\", \
                 line 5 in other\n\nThread 0x2 (most recent call first):\n  File \"/w/b.py\", line \
                 8 in back\n"
                    .to_owned(),
                vec![(StatementKind::Stacks, "", "", "back (b.py:8)")],
            ),
            (
                "\u{1b}[31mERROR:root:no\u{1b}[0m\nhello".to_owned(),
                vec![(StatementKind::Logged, "ERROR:root:no", "ERROR:root:no", "")],
            ),
        ];
        for (text, expected) in table {
            let found = stated(&text);
            let found: Vec<(StatementKind, &str, &str, &str)> = found
                .iter()
                .map(|(kind, cause, result, frame)| (*kind, &**cause, &**result, &**frame))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    /// How the message of a caught exception ends, and whether the process has gone on.
    #[test]
    fn lines_of_a_process_that_goes_on_are_no_message() {
        let shown = |steps: u64, step_ms: u64, line: &str| {
            let mut evidence = Evidence::default();
            for line in format!("{TRACE}E: 1").lines() {
                evidence.line(true, line, step_ms.min(1), false);
            }
            for step in 1..=steps {
                evidence.line(true, line, 1 + step * step_ms, false);
            }
            let statement = evidence.statements()[0].clone();
            (
                statement.lines().count(),
                evidence.continued_after(&statement),
            )
        };
        // a step each 300 ms: each line renews nothing
        assert_eq!(shown(20, 300, "step"), (7, true));
        assert_eq!(shown(2, 1, "more of the message"), (3, false));
    }

    #[test]
    fn text_without_times_shows_by_its_form_who_goes_on() {
        let table = [
            ("[rank1]: ", "skipped a bad sample", true),
            ("", "100%|###| 10/10", true),
            ("3: ", "INFO epoch 2", true),
            ("[rank1]: ", "  and more", false),
            ("[rank1]: ", "For debugging consider passing", false),
            ("[rank1]: ", "", false),
        ];
        for (mark, line, is_expected) in table {
            let mut evidence = Evidence::default();
            for line in format!("{TRACE}E: 1\n{line}").lines() {
                evidence.line(true, &format!("{mark}{line}"), NO_TIME, false);
            }
            let statement = evidence.statements()[0].clone();
            let goes_on = evidence.continued_after(&statement);
            assert_eq!(goes_on, is_expected, "{mark}{line}");
        }
    }

    #[test]
    fn lines_of_children_do_not_mix() {
        let text = "[default0]:Traceback (most recent call last):\n[default1]:Traceback (most \
                    recent call last):\n[default0]:  File \"a.py\", line 1, in f\n[default1]:  \
                    File \"a.py\", line 2, in g\n[default1]:E: 1\n[default0]:F: 0\n";
        let found = stated(text);
        let causes: Vec<&str> = found.iter().map(|one| one.1.as_str()).collect();
        assert_eq!(causes, ["F: 0", "E: 1"]);
    }

    #[test]
    fn whose_exception_a_line_names() {
        let mut evidence = Evidence::default();
        let text = format!("Exception in thread Thread-3 (run):\n{TRACE}E: 1\nbye");
        let named: Vec<_> = text
            .lines()
            .map(|line| evidence.line(true, line, 0, false))
            .collect();
        assert_eq!(
            named,
            [None, None, None, Some((Raiser::Thread, "E: 1")), None]
        );
    }

    /// Each kind of line again and again, within a statement that is never closed.
    #[test]
    fn a_statement_that_does_not_end_has_a_limit() {
        let frame = format!("  File \"/w/{}.py\", line 1, in f\n", "a".repeat(900));
        let long = format!("{}\n", "x".repeat(990));
        let member = "    +---------------- 1 ----------------\n";
        let group = "  + Exception Group Traceback (most recent call last):\n  | E: 1\n";
        let table = [
            (TRACE.to_owned(), frame.clone()),
            (format!("{TRACE}E: 1\n"), long.clone()),
            (format!("{TRACE}E: 1\n"), format!("{DURING}{TRACE}E: 2\n")),
            (
                format!("{TRACE}E: 1\n"),
                format!("\nOriginal {TRACE}E: 2\n"),
            ),
            (group.to_owned(), member.to_owned()),
            (
                group.to_owned(),
                format!("{member}    | {TRACE}    | E: 2\n"),
            ),
            (
                "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call \
                 first):\n"
                    .to_owned(),
                frame,
            ),
            (
                "terminate called after throwing an instance of 'c10::Error'\n".to_owned(),
                long.clone(),
            ),
            (String::new(), format!("ERROR {long}")),
        ];
        for (begin, again) in table {
            let evidence = of(&format!("{begin}{}", again.repeat(500)));
            let bytes: usize = evidence
                .statements()
                .iter()
                .map(|statement| statement.bytes())
                .sum();
            let messages = evidence
                .statements()
                .iter()
                .map(|statement| statement.messages.len())
                .max();
            assert!(bytes <= 2 * MAX_BYTES, "{begin}{again}: {bytes} bytes");
            assert!(
                messages <= Some(MAX_MESSAGES),
                "{begin}{again}: {messages:?}"
            );
        }
        let many: String = (0..300)
            .map(|line| format!("  File \"a.py\", line {line}, in f\n"))
            .collect();
        let told = stated(&format!("{TRACE}{many}E: 1\n"));
        assert_eq!(told[0].3, "f (a.py:299)", "the innermost frames are kept");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_first_cause_stays() {
        let mut evidence = of("ERROR:root:the first\n");
        of(TRACE);
        for line in format!("{TRACE}E: the cause").lines() {
            evidence.line(true, line, 0, false);
        }
        for number in 0..10_000 {
            evidence.line(true, &format!("ERROR:root:{number}"), 0, false);
            evidence.line(false, &"x".repeat(100_000), 0, false);
        }
        let kept = evidence.statements();
        let bytes: usize = kept.iter().map(|statement| statement.bytes()).sum();
        assert!(bytes < MAX_BYTES + MAX_LINE, "{bytes}");
        let all: Vec<&str> = kept
            .iter()
            .flat_map(|statement| statement.lines())
            .collect();
        for wanted in ["ERROR:root:the first", "E: the cause", "ERROR:root:9999"] {
            assert!(all.contains(&wanted), "{wanted}");
        }
        assert_eq!(evidence.last_lines().len(), LAST_LINES);
        assert!(
            evidence
                .last_lines()
                .all(|line| line.text.len() <= MAX_LINE + 1)
        );
    }

    #[test]
    fn what_is_forgotten_leaves_room() {
        let mut evidence = Evidence::default();
        for number in 0..100 {
            evidence.in_file(number / 2);
            evidence.line(true, &format!("ERROR {}", "x".repeat(900)), NO_TIME, false);
        }
        evidence.finish_statements();
        let bytes = |evidence: &Evidence| -> usize {
            let kept = evidence.statements();
            kept.iter().map(|statement| statement.bytes()).sum()
        };
        assert!(bytes(&evidence) <= MAX_BYTES, "{}", bytes(&evidence));
        evidence.retain(|_| false);
        for line in format!("{TRACE}E: the cause\nERROR then\nERROR last\n").lines() {
            evidence.line(true, line, NO_TIME, false);
        }
        let heads: Vec<&str> = (evidence.statements().iter())
            .map(|statement| statement.head())
            .collect();
        assert_eq!(heads, ["E: the cause", "ERROR then", "ERROR last"]);
    }
}
