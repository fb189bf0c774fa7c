//! What a process wrote about the reason of its end, and whether that is only the end of another
//! process.

use crate::job::{JobHistory, ProcessHistory};
use crate::words;
use evidence::syntax;
use evidence::{Evidence, LogLine, NO_TIME, Raiser, Statement, StatementKind};
use record::Process;
use record::exit::SignalNumber;
use record::stacks;
use std::collections::BTreeSet;

/// The longest quoted message, in characters; the output has the rest.
const QUOTED: usize = 400;
/// Native code's output this shortly before an exception, or an exception this shortly before the
/// end, belongs to it.
pub const BEFORE_MS: u64 = 5000;
/// Modules of Python that talk to servers outside of any job.
const SERVERS: [&str; 4] = ["http/client.py", "urllib", "ssl.py", "ftplib.py"];
/// If more lines than this follow an exception, the process survived it.
const GOES_ON_LINES: u64 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Echo {
    None,
    /// A child of the process, or another process of the job, may have ended.
    Child,
    /// Another process of the job had ended, or did not answer.
    Peer,
}

/// What only libraries of distributed jobs write, when another process has ended or does not
/// answer: torch's store and RPC, NCCL, DGL's and GLT's RPC, MPI.
const PEER: [&str; 26] = [
    "timed out after*waiting for clients",
    "timed out in store based barrier",
    "timed out initializing process group",
    "timed out in _all_gather",
    "client socket has timed out",
    "client socket has failed to connect",
    "recvvalue failed",
    "sendbytes failed",
    "recvbytes failed",
    "(this error originated at tensorpipe",
    "ncclremoteerror: ",
    "remote process exited",
    "collective operation timeout",
    "taking the entire process down",
    "communicator was aborted",
    "heartbeat monitor timed out",
    "remote rank failed",
    "detected mismatch between collectives",
    "failed to pass monitoredbarrier",
    "rpc ran for more than set timeout",
    "rpcerr:",
    "send_response failed",
    "fail to send rpc",
    "failed to send rpc",
    "mpi_abort was invoked",
    "errors are now fatal",
];

/// What any program may write about a lost connection. It is about a process of the job if one of
/// its libraries writes it.
const LOST: [&str; 16] = [
    "connection closed",
    "connection reset",
    "connection was closed",
    "connection refused",
    "connection was likely closed",
    "broken pipe",
    "socket timeout",
    "timed out waiting",
    "wait timeout",
    "failed to recv",
    "remote process has exited",
    "another rank",
    "peer closed",
    "waiting for response from",
    "unexpected shutdown of",
    "peer disconnected",
];
const LIBRARIES: [&str; 15] = [
    "gloo",
    "processgroupgloo",
    "pair.cc",
    "nccl…",
    "processgroupnccl",
    "c10d",
    "tcpstore",
    "store->",
    "tensorpipe",
    "torch…",
    "libtorch…",
    "dgl…",
    "rpc",
    "mpi_",
    "btl_",
];
/// Modules of Python whose exceptions can be about another process of the job.
const MODULES: [&str; 9] = [
    "torch",
    "dgl",
    "graphlearn_torch",
    "ray",
    "mpi4py",
    "deepspeed",
    "horovod",
    "multiprocessing",
    "concurrent",
];
/// Classes without a module that such libraries raise.
const CLASSES: [&str; 5] = [
    "RuntimeError",
    "TimeoutError",
    "ConnectionError",
    "OSError",
    "DGLError",
];

/// What Python writes when a child has ended, and what frameworks write where the reason is in
/// another traceback.
const CHILD: [&str; 7] = [
    "connectfullmesh failed",
    "dataloader worker*exited unexpectedly",
    "worker process died",
    "workers died",
    "root cause above",
    "stack trace for*root cause",
    "exception on one of the ranks",
];
/// Exceptions of Python if the process at the other end of a pipe or socket, perhaps a child, has
/// ended. Other libraries put the name of their module before such a class.
const LOST_CLASSES: [&str; 9] = [
    "connectionerror",
    "connectionreseterror",
    "connectionabortederror",
    "connectionrefusederror",
    "brokenpipeerror",
    "eoferror",
    "torch.multiprocessing.spawn.processexitedexception",
    "concurrent.futures.process.brokenprocesspool",
    "torch.distributed.elastic.multiprocessing.api.signalexception",
];

pub fn echo<'a>(lines: impl IntoIterator<Item = &'a str>) -> Echo {
    let text = Vec::from_iter(lines).join("\n");
    let can_be_of_peer = !is_of_others(&text);
    let text = text.to_lowercase();
    let has_any = |list| words::has_any(&text, list);
    let class = |line: &'_ str| {
        LOST_CLASSES
            .iter()
            .any(|class| line.split(':').next() == Some(class))
    };
    // a message of torch may have nothing else
    let is_only_lost = |lost: &&str| {
        text.split_once("runtimeerror: ")
            .is_some_and(|(_, message)| message.starts_with(lost) && words::has(message, lost))
    };
    if words::has(&text, "childfailederror") {
        Echo::Child
    } else if has_any(&["http://", "https://", "grpc"]) {
        // a server outside of any job
        Echo::None
    } else if has_any(&CHILD) || text.lines().any(class) {
        Echo::Child
    } else if can_be_of_peer
        && (has_any(&PEER)
            || has_any(&LOST) && has_any(&LIBRARIES)
            || LOST.iter().any(is_only_lost))
    {
        Echo::Peer
    } else {
        Echo::None
    }
}

/// Whether a statement is about its own process, not about a lost one.
pub fn is_own(statement: &Statement) -> bool {
    echo(statement.lines()) == Echo::None
}

/// Whether the message is an exception of the script, or of a library that knows nothing of other
/// processes of the job: its words about connections are about something else.
fn is_of_others(message: &str) -> bool {
    let message = message.strip_prefix("raised ").unwrap_or(message);
    let head = message.lines().next().unwrap_or_default();
    if !syntax::is_exception(head) {
        return false;
    }
    let class = head.split(':').next().unwrap_or_default();
    match class.rsplit_once('.') {
        Some((path, _)) => !MODULES.contains(&path.split('.').next().unwrap_or_default()),
        None => !CLASSES.contains(&class) && !class.starts_with("Dist"),
    }
}

/// Whether a line is about the signal with which launchers end a job.
pub fn tells_of_term(line: &str) -> bool {
    words::has_any(&line.to_lowercase(), &["sigterm", "signal 15"])
}

/// The signal whose handler of Python or Lightning raised an exception.
pub fn request(statement: &Statement) -> Option<&'static str> {
    let class = statement.head().split(':').next().unwrap_or_default();
    match class.rsplit('.').next()? {
        "KeyboardInterrupt" => Some("SIGINT, as Ctrl-C sends it"),
        "SIGTERMException" => Some("SIGTERM"),
        _ => None,
    }
}

/// A message in one line, without text that libraries add to all messages, and without the lines of
/// exit hooks at its end.
pub fn quoted(lines: &[String]) -> String {
    const BOILERPLATE: [&str; 12] = [
        "CUDA kernel errors might be",
        "For debugging consider",
        "Compile with `TORCH_USE_CUDA_DSA`",
        "Device-side assertions were",
        "Exception raised from",
        "frame #",
        "*** Check failure stack",
        "*** StackTrace",
        "This error may indicate",
        "====",
        "----",
        "ImportError: Error importing numpy: you should not",
    ];
    let is_boilerplate = |line: &str| BOILERPLATE.iter().any(|words| line.starts_with(words));
    let is_own = |line: &&str| {
        let word = line.split(": ").next().unwrap_or_default();
        let is_logged = word.len() < line.len()
            && word != "error"
            && word.chars().all(|c| c.is_ascii_lowercase());
        !is_logged && !is_boilerplate(line.trim_start())
    };
    let mut lines = lines.iter().map(String::as_str);
    let first = lines.next().filter(|line| !is_boilerplate(line));
    let others = lines.take_while(is_own).filter(|_| first.is_some());
    let own: Vec<&str> = first.into_iter().chain(others).map(str::trim).collect();
    let text = own.join(" ");
    // an exception's hint does not know the job
    let text = text.split(" HINT: ").next().unwrap_or_default();
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The reason that a process gave for its end.
#[derive(Clone)]
pub struct Account<'a> {
    pub process: &'a ProcessHistory,
    pub statement: &'a Statement,
    pub echo: Echo,
    /// The child that wrote it, in words.
    pub child: Option<String>,
    /// What native code wrote right before.
    before: Option<&'a Statement>,
}

impl<'a> Account<'a> {
    fn new(process: &'a ProcessHistory, statement: &'a Statement) -> Account<'a> {
        let rank = process.process.rank;
        let of_server = || SERVERS.iter().any(|module| statement.is_in(module));
        let echo = match echo(statement.cause().iter().map(String::as_str)) {
            // the script uses another address than the other processes
            Echo::Peer if names_other_address(&process.process, &statement.cause().concat()) => {
                Echo::None
            }
            Echo::None if statement.exchanges && !of_server() => Echo::Child,
            Echo::None if failed_ranks(statement).is_some_and(|ranks| !ranks.contains(&rank)) => {
                Echo::Peer
            }
            echo => echo,
        };
        Account {
            process,
            statement,
            echo,
            child: child(process, statement),
            before: None,
        }
    }

    /// For a process that ended by itself, or by a signal that it caused.
    pub fn of_end(process: &'a ProcessHistory, is_signal: bool) -> Option<Account<'a>> {
        let all = own_statements(&process.evidence);
        let died = || {
            let all = all.iter().copied();
            all.filter(|statement| statement.kind == StatementKind::Died)
        };
        let late = || died().filter(|statement| is_late(&process.evidence, statement));
        let native = late()
            .rfind(|statement| !is_fatal(statement))
            .or(late().next_back());
        let mut account = last_raised(&process.evidence, &all)
            .map(|raised| Account::new(process, raised).with_first_cause(&all))
            .filter(|account| {
                let number = account.statement.first.number;
                let is_first = native.is_none_or(|native| number < native.first.number);
                !is_signal || account.echo == Echo::None && is_first
            })
            .or(native.map(|native| Account::new(process, native)))
            .or_else(|| {
                // torch gives up with SIGABRT when NCCL has failed or a peer does not answer
                let words = [
                    "Watchdog caught",
                    "watchdog thread terminated with exception",
                ];
                let of_nccl =
                    |one: &&&Statement| words.iter().any(|words| one.head().contains(words));
                let logged = all.iter().filter(|_| is_signal).filter(of_nccl);
                let accounts = logged.map(|one| Account::new(process, one));
                accounts.min_by_key(|account| account.echo)
            })?;
        let statement = account.statement;
        // a shell that does not find a program has another exception as its result
        let text = statement.lines().collect::<Vec<_>>().join("\n");
        let is_of_shell = ["CalledProcessError", "127"]
            .iter()
            .any(|part| text.contains(part));
        account.before = died().find(|earlier| {
            (is_of_shell || !earlier.head().ends_with("not found"))
                && earlier.last.number < statement.first.number
                && if earlier.first.time_ms == NO_TIME {
                    led_to(&process.evidence, earlier, statement)
                } else {
                    earlier.first.time_ms.saturating_add(BEFORE_MS) > statement.first.time_ms
                }
        });
        Some(account)
    }

    /// What it wrote about itself after the end of the job had begun: output of other hosts may
    /// arrive in any order.
    pub fn of_late_end(process: &'a ProcessHistory) -> Option<Account<'a>> {
        let late = process.evidence.last_statement(|statement| {
            statement.is_raised()
                && statement.first.while_ending
                && !statement.head().starts_with("KeyboardInterrupt")
                && !statement.lines().any(tells_of_term)
        })?;
        let account = Account::new(process, late);
        (account.echo == Echo::None).then_some(account)
    }

    /// For a process that raised an exception and did nothing since.
    pub fn of_raised(process: &'a ProcessHistory) -> Option<Account<'a>> {
        let all = own_statements(&process.evidence);
        let raised = process.raised()?;
        Some(Account::new(process, raised).with_first_cause(&all))
    }

    /// For a process that got a fatal signal but has not ended: it may be writing its memory to
    /// disk.
    pub fn of_fatal(process: &'a ProcessHistory) -> Option<Account<'a>> {
        let fatal = own_statements(&process.evidence)
            .into_iter()
            .rfind(|statement| is_fatal(statement))?;
        let is_last = !process.evidence.continued_after(fatal);
        is_last.then(|| Account::new(process, fatal))
    }

    /// If the process only reports that another ended, one of its children may have reported more.
    fn with_first_cause(self, all: &[&'a Statement]) -> Account<'a> {
        if self.echo == Echo::None {
            return self;
        }
        let torchrun = failed_child(self.statement);
        let mut accounts = all
            .iter()
            .filter(|statement| {
                let says_more = statement.is_raised() || statement.kind == StatementKind::Died;
                let is_earlier = statement.first.number < self.statement.first.number;
                let evidence = &self.process.evidence;
                says_more && is_earlier && led_to(evidence, statement, self.statement)
            })
            .map(|statement| Account::new(self.process, statement));
        match accounts.find(|account| account.echo == Echo::None) {
            Some(first) => {
                let one = || torchrun.map(|_| "one of its children".to_owned());
                let child = first.child.clone().or_else(one);
                Account { child, ..first }
            }
            None => {
                let echo = torchrun.map_or(self.echo, |_| Echo::None);
                Account { echo, ..self }
            }
        }
    }

    /// Follows the process's name: `raised ValueError: no`.
    pub fn words(&self) -> String {
        let (cause, result) = (self.statement.cause(), self.statement.result());
        let mut words = match (self.statement.kind, failed_child(self.statement)) {
            (StatementKind::Raised(_), Some((_, how))) => how,
            (StatementKind::Raised(_), None) if self.statement.head().starts_with("ray.") => {
                format!("failed, as Ray reports: {}", quoted(cause))
            }
            (StatementKind::Raised(_), None) => format!("raised {}", quoted(cause)),
            _ => format!("wrote: {}", quoted(cause)),
        };
        words += &place(self.statement);
        let last = Some(quoted(result)).filter(|last| !last.is_empty() && !words.contains(last));
        if let Some(last) = last.filter(|last| !last.contains(&quoted(cause))) {
            words += &format!(", which led to {last}");
        }
        if let Some(before) = self.before {
            let text = quoted(before.cause()) + &place(before);
            if !words.contains(&text) {
                words += &format!("; before that it wrote: {text}");
            }
        }
        match &self.child {
            Some(child) => format!(", in {child}, {words}"),
            None => format!(" {words}"),
        }
    }
}

/// Where in the script it happened, in brackets; empty if unknown.
fn place(statement: &Statement) -> String {
    let frame = stacks::own_frame(&statement.frames);
    let Some((function, place)) = frame.and_then(|frame| frame.split_once(" (")) else {
        return String::new();
    };
    match place.trim_end_matches(')') {
        place if place.contains(['/', '<']) => String::new(),
        place if function == "<module>" => format!(" [{place}]"),
        place => format!(" [{function} ({place})]"),
    }
}

/// Whether faulthandler wrote it.
fn is_fatal(statement: &Statement) -> bool {
    statement.head().starts_with("Fatal Python error")
}

/// The ranks in the exception that torch's checkpoints raise in all ranks if some failed:
/// `CheckpointException ranks:dict_keys([3])`.
pub fn failed_ranks(statement: &Statement) -> Option<Vec<u32>> {
    let mut lines = statement.lines();
    let rest = lines.find_map(|line| Some(line.split_once("Exception ranks:dict_keys([")?.1))?;
    let ranks = rest.split_once("])")?.0.split(", ");
    ranks.map(|rank| rank.parse().ok()).collect()
}

/// Whether a message has another rendezvous address than the process was given: `trying to connect
/// to (localhost, 29500)`.
pub fn names_other_address(process: &Process, text: &str) -> bool {
    let given = |name: &str| process.env.get(name).map(String::as_str);
    let tried = text
        .split_once("trying to connect to (")
        .and_then(|(_, rest)| {
            let (address, rest) = rest.split_once(", ")?;
            Some((address, rest.split(')').next()?))
        });
    match (given("MASTER_ADDR").zip(given("MASTER_PORT")), tried) {
        (Some(given), Some(tried)) => given != tried,
        _ => false,
    }
}

/// The first of these processes that raised an exception and did nothing since, if possible one
/// whose message is about itself.
pub fn first_raised(
    job: &JobHistory,
    is_wanted: impl Fn(&ProcessHistory) -> bool,
) -> Option<Account<'_>> {
    job.processes
        .iter()
        .filter(|process| is_wanted(process))
        .filter_map(Account::of_raised)
        .min_by_key(|account| (account.echo, account.statement.named.time_ms))
}

/// The statements before the end of the job, except those of destructors and DGL's exit, and those
/// after which the process went on until it raised another exception.
fn own_statements(evidence: &Evidence) -> Vec<&Statement> {
    let mut all = evidence.statements();
    let is_late = |one: &&Statement| one.is_raised() && one.first.while_ending;
    let late = all.iter().copied().find(is_late);
    all.retain(|statement| {
        !statement.first.while_ending
            && statement.kind != StatementKind::Raised(Raiser::Nobody)
            && late.is_none_or(|late| {
                statement.first.number > late.first.number || led_to(evidence, statement, late)
            })
    });
    all
}

/// The numbers of the statements that can be about the end of a process: it did not go on for long
/// afterwards, nor until it raised another exception.
pub fn about_end(evidence: &Evidence) -> BTreeSet<u64> {
    let all = evidence.statements();
    let last = last_raised(evidence, &all);
    let can_be = |one: &&Statement| {
        let led_to_last =
            |last: &Statement| one.first.number >= last.first.number || led_to(evidence, one, last);
        is_late(evidence, one) && last.is_none_or(led_to_last)
    };
    let numbers = all.iter().copied().filter(can_be);
    numbers.map(|one| one.first.number).collect()
}

/// The exception that ended a process: its main thread's last one, unless it continued for long
/// afterwards; otherwise a thread's or child's.
fn last_raised<'a>(evidence: &Evidence, all: &[&'a Statement]) -> Option<&'a Statement> {
    let mut late = all
        .iter()
        .filter(|statement| statement.is_raised())
        .filter(|statement| is_late(evidence, statement));
    late.clone()
        .rfind(|statement| {
            statement.kind == StatementKind::Raised(Raiser::Main) && !is_feeder(statement)
        })
        .or(late.next_back())
        .copied()
}

/// Whether few lines follow a statement, so that it may explain the process's end.
pub fn is_late(evidence: &Evidence, statement: &Statement) -> bool {
    evidence.count <= statement.last.number + GOES_ON_LINES
}

/// Whether a statement may explain a later one: the process wrote nothing else in between. It may
/// have gone on for a while if a child of it ended.
fn led_to(evidence: &Evidence, earlier: &Statement, later: &Statement) -> bool {
    let is_of_child =
        earlier.mark != later.mark || earlier.kind == StatementKind::Raised(Raiser::Child);
    let text = later.lines().collect::<Vec<_>>().join("\n").to_lowercase();
    let tells_of_child = failed_child(later).is_some()
        || is_of_child && echo([&*text]) == Echo::Child
        || earlier.kind == StatementKind::Died && words::has_any(&text, &CHILD);
    if tells_of_child {
        evidence.lines_between(earlier, later) <= GOES_ON_LINES
    } else {
        !earlier.continued_before(later)
    }
}

/// Whether a multiprocessing queue's feeder thread raised it, which does not end the process.
pub fn is_feeder(statement: &Statement) -> bool {
    let mut frames = statement.frames.iter();
    frames.any(|frame| frame.starts_with("_feed ("))
}

fn child(process: &ProcessHistory, statement: &Statement) -> Option<String> {
    if let Some((rank, _)) = failed_child(statement) {
        return Some(format!("its child of rank {rank}"));
    }
    let loader = statement
        .lines()
        .find_map(|line| Some(line.split_once("in DataLoader worker process ")?.1));
    if let Some(number) = loader {
        let number = number.trim_end_matches('.');
        return Some(format!("its data loader's worker {number}"));
    }
    let words = match &statement.child {
        _ if statement.is_in("_utils/worker.py") => "its data loader's worker",
        Some(_) if statement.is_in("dist_context.py") => "its sampler",
        _ if is_feeder(statement) => "a queue's feeder thread",
        Some(name) => return Some(format!("its child {name}")),
        None if statement.head().starts_with("DataLoader worker") => "its data loader",
        None => {
            let mark = statement.mark.strip_suffix("]:")?;
            if let Some(rank) = mark.strip_prefix("[default") {
                return Some(format!("its child with local rank {rank}"));
            }
            let rank = mark.strip_prefix("[rank")?;
            return (process.process.rank.to_string() != rank)
                .then(|| format!("its child of rank {rank}"));
        }
    };
    Some(words.to_owned())
}

/// The child that torchrun names as the root cause, and how it ended.
fn failed_child(statement: &Statement) -> Option<(String, String)> {
    let mut lines = statement
        .lines()
        .skip_while(|line| !line.starts_with("Root Cause"));
    let value = |line: &str, name: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    };
    let rank = lines.find_map(|line| value(line, "rank"))?;
    let code = lines.find_map(|line| value(line, "exitcode"))?;
    let (rank, code) = (rank.split(' ').next()?, code.split(' ').next()?);
    let how = match code.parse::<i32>() {
        Ok(code @ ..0) => format!("was ended by SIG{}", SignalNumber(-code)),
        _ => format!("exited with status {code}"),
    };
    Some((rank.to_owned(), how))
}

/// The last stderr lines of a process that ended without an exception, such as those of
/// `sys.exit("text")`, or else its very last line.
pub fn last_words(evidence: &Evidence) -> Vec<&LogLine> {
    /// Lines within this time were written at once.
    const AT_ONCE_MS: u64 = 100;
    const MAX_LINES: usize = 4;
    let own = || {
        evidence
            .last_lines()
            .filter(|line| !line.while_ending && !line.text.trim().is_empty())
    };
    let errors: Vec<&LogLine> = own().filter(|line| line.is_stderr).collect();
    let Some(last) = errors.last() else {
        return own().next_back().into_iter().collect();
    };
    let earlier = errors
        .iter()
        .rposition(|line| line.time_ms.saturating_add(AT_ONCE_MS) < last.time_ms);
    let first = earlier.map_or(0, |earlier| earlier + 1);
    errors[first.max(errors.len().saturating_sub(MAX_LINES))..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::near;

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn echoes_of_lost_processes() {
        for (message, expected) in [
            (
                "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.1]:1",
                Echo::Peer,
            ),
            (
                "TimeoutError: Timed out after 21 seconds waiting for clients. 2/4",
                Echo::Peer,
            ),
            ("RuntimeError: Socket Timeout", Echo::Peer),
            (
                "RuntimeError: Engine core initialization failed. See root cause above. Failed \
                 core proc(s): {'EngineCore_0': 1}",
                Echo::Child,
            ),
            (
                "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This \
                 was caused by an exception on one of the ranks or an attempt to allreduce",
                Echo::Child,
            ),
            ("RuntimeError: root cause: above the limit", Echo::None),
            (
                "torch.distributed.DistNetworkError: Connection reset by peer",
                Echo::Peer,
            ),
            (
                "ConnectionResetError: [Errno 104] Connection reset by peer",
                Echo::Child,
            ),
            ("EOFError", Echo::Child),
            (
                "dgl._ffi.base.DGLError: [12:00:00] rpc.cc:1: Connection reset by peer",
                Echo::Peer,
            ),
            (
                "torch.distributed.DistStoreError: wait timeout after 5000ms",
                Echo::Peer,
            ),
            ("ValueError: loss is nan", Echo::None),
            // a part of a word
            (
                "RuntimeError: broken pipeline config: stage 3 has no layers",
                Echo::None,
            ),
            ("RuntimeError: torch model in an unbroken pipe", Echo::None),
            (
                "RuntimeError: cannot redistribute: another ranking of torch",
                Echo::None,
            ),
            // of something else than the job
            (
                "RuntimeError: feature store: socket timeout after 5 s",
                Echo::None,
            ),
            (
                "TimeoutError: feature store: socket timeout after 5 s",
                Echo::None,
            ),
            ("ValueError: broken pipe in the config of torch", Echo::None),
            ("KeyError: 'rpc: connection refused'", Echo::None),
            ("AssertionError: nccl: remote process exited", Echo::None),
            (
                "psycopg2.OperationalError: torch_runs: Connection refused",
                Echo::None,
            ),
            (
                "FileNotFoundError: /data/gloo/corrupt EOFErrors.txt",
                Echo::None,
            ),
            ("raised ValueError: dgl: connection closed", Echo::None),
        ] {
            assert_eq!(echo([message]), expected, "{message}");
        }
    }

    #[test]
    fn no_single_word_makes_an_echo() {
        let texts = near::texts("echo");
        for text in &texts {
            assert_eq!(echo([*text]), Echo::None, "{text}");
        }
        let entries = PEER.iter().chain(&LOST).chain(&CHILD).chain(&LOST_CLASSES);
        for entry in entries {
            assert!(
                near::has_word_of(entry, &texts),
                "near.txt has no text for: {entry}"
            );
        }
    }
}
