//! What a process died of in its own words, and whether these words only say that another process
//! had gone.

use crate::evidence::{Evidence, Kind, Line, Raiser, Statement};
use crate::job::{Job, ProcessHistory};

/// The longest message that is quoted; the rest of it is in the output.
const QUOTED: usize = 400;
/// With more lines after an exception, the process has gone on and not died of it.
const GOES_ON_LINES: u64 = 50;

/// What words say about others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Echo {
    /// The process speaks of itself.
    None,
    /// A child of the process may have gone, or another process of the job.
    Child,
    /// Another process of the job had gone, or did not answer.
    Peer,
}

/// What libraries write when a process at the other end of a connection has gone or does not
/// answer: gloo, NCCL, torch's store and RPC, tensorpipe, DGL's and GLT's RPC, MPI.
const PEER: [&str; 47] = [
    "connection closed by peer",
    "connection closed by remote peer",
    "connection reset by peer",
    "connection reset by remote",
    "connection was closed",
    "connection refused",
    "connection was likely closed",
    "broken pipe",
    "connectfullmesh failed",
    "socket timeout",
    "timed out waiting",
    "timed out after",
    "wait timeout",
    "timed out in store based barrier",
    "timed out initializing process group",
    "client socket has timed out",
    "client socket has failed to connect",
    "failed to recv, got 0 bytes",
    "failed to recv",
    "recvvalue failed",
    "sendbytes failed",
    "recvbytes failed",
    "(this error originated at tensorpipe",
    "ncclremoteerror",
    "remote process exited",
    "remote process has exited",
    "nccl communicator was aborted",
    "watchdog caught collective operation timeout",
    "collective operation timeout",
    "taking the entire process down",
    "communicator was aborted",
    "heartbeat monitor timed out",
    "another rank",
    "from another rank",
    "remote rank failed",
    "detected mismatch between collectives",
    "failed to pass monitoredbarrier",
    "rpc ran for more than set timeout",
    "rpcerr:",
    "peer closed",
    "send_response failed",
    "fail to send rpc",
    "failed to send rpc",
    "waiting for response from",
    "mpi_abort was invoked",
    "errors are now fatal",
    "unexpected shutdown of",
];

/// What Python writes when a process at the other end of a pipe or socket has gone, which may be a
/// child of its own.
const CHILD: [&str; 12] = [
    "brokenpipeerror",
    "connectionreseterror",
    "connectionabortederror",
    "connectionrefusederror",
    "eoferror",
    "exited unexpectedly",
    "childfailederror",
    "processexitedexception",
    "brokenprocesspool",
    "signalexception",
    "worker process died",
    "workers died",
];

/// What a message says about others.
pub fn echo<'a>(lines: impl IntoIterator<Item = &'a str>) -> Echo {
    let lines: Vec<&str> = lines.into_iter().collect();
    let text = lines.join("\n").to_lowercase();
    let has = |words: &[&str]| words.iter().any(|words| text.contains(words));
    match () {
        // a server that belongs to no job
        () if has(&["http://", "https://", "urllib3", "httpx", "redis", "grpc"]) => Echo::None,
        () if has(&CHILD) => Echo::Child,
        () if has(&PEER) => Echo::Peer,
        () => Echo::None,
    }
}

/// A message in one line: its own lines, without what torch adds to each of its kind.
pub fn quoted(lines: &[String]) -> String {
    const BOILERPLATE: [&str; 8] = [
        "CUDA kernel errors might be",
        "For debugging consider",
        "Compile with `TORCH_USE_CUDA_DSA`",
        "Exception raised from",
        "frame #",
        "This error may indicate",
        "====",
        "----",
    ];
    let is_boilerplate = |line: &&String| BOILERPLATE.iter().any(|words| line.starts_with(words));
    let own: Vec<&str> = lines
        .iter()
        .take_while(|line| !is_boilerplate(line) || line.starts_with("CUDA"))
        .filter(|line| !is_boilerplate(line))
        .map(String::as_str)
        .collect();
    let text = own.join(" ");
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// What a process says that it died of.
#[derive(Clone)]
pub struct Account<'a> {
    pub process: &'a ProcessHistory,
    pub statement: &'a Statement,
    pub echo: Echo,
    /// Which of its children wrote it, in words.
    pub child: Option<String>,
}

impl<'a> Account<'a> {
    fn new(process: &'a ProcessHistory, statement: &'a Statement) -> Account<'a> {
        Account {
            process,
            statement,
            echo: echo(statement.cause().iter().map(String::as_str)),
            child: child(process, statement),
        }
    }

    /// The account of a process that has ended by itself, or was ended by a signal that is nobody
    /// else's.
    pub fn of_end(process: &'a ProcessHistory, is_signal: bool) -> Option<Account<'a>> {
        let all = own_statements(&process.evidence);
        let died = all
            .iter()
            .rfind(|one| one.kind == Kind::Died && !one.cause().is_empty());
        let raised = last_raised(&process.evidence, &all);
        let chosen = match is_signal {
            true => died.copied().or(raised),
            false => raised.or(died.copied()),
        };
        Some(Account::new(process, chosen?).with_first_cause(&all))
    }

    /// The account of a process that has raised an exception and done nothing since.
    pub fn of_raised(process: &'a ProcessHistory) -> Option<Account<'a>> {
        let raised = process.raised()?;
        let all = own_statements(&process.evidence);
        Some(Account::new(process, raised).with_first_cause(&all))
    }

    /// Where a process only says that another had gone, one of its children may have said more.
    fn with_first_cause(self, all: &[&'a Statement]) -> Account<'a> {
        if self.echo == Echo::None {
            return self;
        }
        let of_rank = failed_child(self.statement);
        let marked = of_rank.as_ref().map(|(rank, _)| format!("[rank{rank}]:"));
        let earlier = all.iter().filter(|one| {
            let says_more = one.is_raised() || one.kind == Kind::Died;
            says_more && one.first.number < self.statement.first.number
        });
        let accounts = earlier.map(|one| Account::new(self.process, one));
        let accounts: Vec<Account> = accounts.filter(|one| one.echo == Echo::None).collect();
        let is_marked = |one: &&Account| Some(&*one.statement.mark) == marked.as_deref();
        let first = accounts.iter().find(is_marked).or(accounts.first());
        match first {
            Some(first) => Account {
                child: child(self.process, self.statement).or(first.child.clone()),
                ..first.clone()
            },
            None if of_rank.is_some() => Account {
                echo: Echo::None,
                ..self
            },
            None => self,
        }
    }

    /// What happened, behind the name of the process: `raised ValueError: no`.
    pub fn words(&self) -> String {
        let (cause, result) = (self.statement.cause(), self.statement.result());
        let words = match (self.statement.kind, failed_child(self.statement)) {
            (Kind::Raised(_), Some((_, how))) => how,
            (Kind::Raised(_), None) => {
                let (first, last) = (quoted(cause), quoted(result));
                match last.contains(&first) || first.contains(&last) {
                    true => format!("raised {first}"),
                    false => format!("raised {first}, which led to {last}"),
                }
            }
            _ => format!("wrote: {}", quoted(cause)),
        };
        match &self.child {
            Some(child) => format!(", in {child}, {words}"),
            None => format!(" {words}"),
        }
    }
}

/// The first of these processes that has raised an exception and done nothing more: one that speaks
/// of itself, if there is one.
pub fn first_raised(job: &Job, is_wanted: impl Fn(&ProcessHistory) -> bool) -> Option<Account<'_>> {
    let wanted = job.processes.iter().filter(|one| is_wanted(one));
    let raised = wanted.filter_map(Account::of_raised);
    raised.min_by_key(|one| (one.echo, one.statement.named.time_ms))
}

/// The statements before the end of the job; those of a destructor and of DGL's leaving are none.
fn own_statements(evidence: &Evidence) -> Vec<&Statement> {
    let mut all = evidence.statements();
    all.retain(|one| !one.first.while_ending && one.kind != Kind::Raised(Raiser::Nobody));
    all
}

/// The exception by which a process has ended: the last one of its main thread, unless it has gone
/// on for long; otherwise that of a thread or a child.
fn last_raised<'a>(evidence: &Evidence, all: &[&'a Statement]) -> Option<&'a Statement> {
    let count = evidence
        .last_lines()
        .next_back()
        .map_or(0, |line| line.number);
    let is_late = |one: &&&Statement| count < one.last.number + GOES_ON_LINES;
    let mut late = all.iter().filter(|one| one.is_raised()).filter(is_late);
    let is_main = |one: &&&Statement| one.kind == Kind::Raised(Raiser::Main) && !is_feeder(one);
    let main = late.clone().rfind(is_main);
    main.or(late.next_back()).copied()
}

/// Whether the thread raised it that feeds a queue of multiprocessing, which no process dies of.
fn is_feeder(statement: &Statement) -> bool {
    let is_feed = |frame: &String| frame.starts_with("_feed (");
    statement.frames.iter().any(is_feed)
}

/// Which child of a process wrote a statement, in words; `None` if the process itself did.
fn child(process: &ProcessHistory, statement: &Statement) -> Option<String> {
    let is_in = |file: &str| statement.frames.iter().any(|frame| frame.contains(file));
    let cause = statement.cause().first().map_or("", String::as_str);
    let loader = statement.lines().find_map(|line| {
        let (_, rest) = line.split_once("in DataLoader worker process ")?;
        Some(rest.trim_end_matches('.').to_owned())
    });
    let ranks = [statement.mark.as_str(), "[default"];
    let rank = ranks[0]
        .strip_prefix("[rank")
        .and_then(|rest| rest.strip_suffix("]:"));
    let rank = rank.filter(|rank| process.process.rank.to_string() != **rank);
    let local = ranks[0]
        .strip_prefix(ranks[1])
        .and_then(|rest| rest.strip_suffix("]:"));
    match (failed_child(statement), &statement.child) {
        (Some((rank, _)), _) => Some(format!("its child of rank {rank}")),
        _ if loader.is_some() => loader.map(|number| format!("its data loader's worker {number}")),
        _ if is_in("_utils/worker.py") => Some("its data loader's worker".to_owned()),
        _ if is_in("dist_context.py") && statement.child.is_some() => {
            Some("its sampler".to_owned())
        }
        _ if is_feeder(statement) => Some("a queue's feeder thread".to_owned()),
        (None, Some(name)) => Some(format!("its child {name}")),
        _ if cause.starts_with("DataLoader worker") => Some("its data loader".to_owned()),
        _ => match (rank, local) {
            (Some(rank), _) => Some(format!("its child of rank {rank}")),
            (None, Some(rank)) => Some(format!("its child with local rank {rank}")),
            (None, None) => None,
        },
    }
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
    let how = match code
        .strip_prefix('-')
        .and_then(|number| number.parse().ok())
    {
        Some(number) => format!("was ended by SIG{}", record::exit::signal_name(number)),
        None => format!("exited with status {code}"),
    };
    Some((rank.to_owned(), how))
}

/// The last words of a process that has ended without an exception, such as those of
/// `sys.exit("text")`: the lines that it wrote last to stderr, or its very last line.
pub fn last_words(evidence: &Evidence) -> Vec<&Line> {
    /// As much is written at once.
    const AT_ONCE_MS: u64 = 100;
    const MAX_LINES: usize = 4;
    let own = || evidence.last_lines().filter(|line| !line.while_ending);
    let says_something = |line: &&Line| !line.text.trim().is_empty();
    let mut errors = own().filter(|line| line.is_stderr).filter(says_something);
    let Some(last) = errors.next_back() else {
        return own().rfind(says_something).into_iter().collect();
    };
    let is_at_once = |line: &&Line| line.time_ms.saturating_add(AT_ONCE_MS) >= last.time_ms;
    let mut lines: Vec<&Line> = errors
        .rev()
        .take_while(is_at_once)
        .take(MAX_LINES - 1)
        .collect();
    lines.reverse();
    lines.push(last);
    lines
}
