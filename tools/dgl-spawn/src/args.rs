//! The command line.

use clap::Parser;
use cli::{ConnectArgs, duration, job_name};
use job::{Limit, SHORTEST_STALL, StallRule};
use record::{Process, Role};
use std::path::PathBuf;
use std::time::Duration;

/// Starts the processes of a job on their hosts, supervises them, and stops them all if one fails.
///
/// Reads host and process records. When a process fails, all are stopped, and the exit status is
/// its status (128+n for signal n). Ctrl-C stops the job, a second one at once. Nothing of the job
/// is left on any host, even if dgl-spawn itself is killed.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  … | dgl-env --num-trainers 2 -- python3 code/train.py | dgl-spawn
  … | dgl-spawn --job try7 --log-dir logs
  … | dgl-spawn --dry-run"
)]
pub struct Args {
    /// The job's name [default: job- and 8 random characters]
    ///
    /// At most 64 letters, digits, dots, dashes and underscores.
    #[arg(long, value_name = "NAME", value_parser = job_name)]
    pub job: Option<String>,

    /// Start nothing; show what each host would run
    ///
    /// For each process this prints an ssh(1) command, with taskset(1) if the process is bound to
    /// processors, which you can paste into a shell. While it runs, other users can see the values
    /// of `dgl-env --env` in the list of processes.
    #[arg(long)]
    pub dry_run: bool,

    /// Also write each process's output (trainer-3.log) and all records (run.jsonl) to DIR
    ///
    /// Only you can read `run.jsonl`, because it has the values of `dgl-env --env`. All records
    /// except *output* records are written immediately. The directory is created if necessary. A
    /// log may be a FIFO or a symbolic link of yours, but not of another user. A link may lead to a
    /// file, FIFO or device of yours, or to a FIFO or device of root's, such as `/dev/null`. Files
    /// of an earlier run are first moved to a subdirectory, `run-1`, `run-2` and so on. The
    /// directory of a running job is refused.
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,

    /// Show only the output of these processes, such as trainer:0,server:*
    ///
    /// The example shows the first trainer and all servers. Records and log files are not affected.
    #[arg(long, hide_short_help = true, value_name = "PROCESSES", value_delimiter = ',',
        value_parser = shown)]
    pub show: Vec<ShownProcesses>,

    /// How long processes may take to exit after TERM, before KILL
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    pub grace: Duration,

    /// How long a host or dgl-spawn may be silent before it counts as lost
    ///
    /// A host that receives nothing from dgl-spawn for this time stops its part of the job. If
    /// dgl-spawn was stopped or its machine slept, the message says so, and no host counts as lost.
    /// The same time applies while a job ends. The minimum is 2s.
    #[arg(long, default_value = "30s", value_parser = host_timeout, value_name = "TIME")]
    pub host_timeout: Duration,

    /// Stop a job that takes longer; Python prints its stacks first
    ///
    /// The time begins when all processes have started; 0 means no limit. When it is over,
    /// dgl-spawn sends ABRT, on which Python prints its stacks, and a second later TERM.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    timeout: Option<Duration>,

    /// Stop a job unless all servers listen within this time; Python prints its stacks first
    ///
    /// The job is stopped as with `--timeout`; 0 means no limit.
    #[arg(long, hide_short_help = true, value_parser = duration, value_name = "TIME")]
    start_timeout: Option<Duration>,

    /// Report a job that is inactive for this time; with TIME:end also stop it
    ///
    /// See [A job that stalls]. The time is 5s or more; 0 switches the report off. If the stall
    /// stops the job, the exit status is 124.
    #[arg(long, default_value = "10m", value_parser = stall_timeout,
        value_name = "TIME", conflicts_with = "dry_run")]
    stall_timeout: StallRule,

    /// Stop the job if a process keeps running after an uncaught exception
    ///
    /// The exit status is then 1. See [A process that raises an exception and does not end].
    #[arg(long, hide_short_help = true, conflicts_with = "dry_run")]
    pub fail_on_exception: bool,

    /// Start a failed job again from the beginning, up to N times
    ///
    /// All processes are started again if a process fails, a host is lost, `--start-timeout` is
    /// reached, or the job stalls with `--stall-timeout TIME:end`. The script must continue from a
    /// checkpoint; `TORCHELASTIC_RESTART_COUNT` and the placeholder `{attempt}` of dgl-env(1) count
    /// the restarts. Under torchrun the variable counts torchrun's attempts, so use the
    /// placeholder.
    ///
    /// dgl-spawn checks the hosts again before each attempt; if the first check finds a fault, it
    /// exits. The next attempt begins after 1 second, or, if a host was lost, after the time in
    /// which this host stops its part.
    ///
    /// A job is not started again if `dgl-reap --job` stopped it, or after a signal to dgl-spawn,
    /// but it is after a signal that dgl-reap(1) sent to its processes.
    ///
    /// `--timeout` and *started* and *exited* records apply to each attempt, the *summary* record
    /// and the exit status to the last one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub restart: u32,

    /// Wait up to this time for jobs that hold what this job needs
    ///
    /// This can be its name, a port or `/dev/shm`. Trainers also wait for persistent graph servers
    /// that do not listen yet. Without this option the job is refused with status 74.
    #[arg(long, hide_short_help = true, value_parser = duration, value_name = "TIME",
        conflicts_with = "dry_run")]
    pub wait: Option<Duration>,

    /// Give the job a private /dev/shm on each host, so that two jobs of DGL can share hosts and
    /// leave nothing in it
    ///
    /// It holds up to half of the host's memory. This needs root on the hosts, or hosts that permit
    /// users to create user namespaces.
    #[arg(long)]
    pub private_shm: bool,

    /// Do not check the hosts before the start
    #[arg(long)]
    pub no_preflight: bool,

    /// Accept files in the stream that were not pushed
    ///
    /// The stream then has *file* records but no *pushed* records.
    #[arg(long, hide_short_help = true)]
    pub no_push_check: bool,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: ConnectArgs,
}

impl Args {
    /// The time limits of the job, without those of 0, which are none.
    pub fn limits(&self) -> Vec<Limit> {
        let set = |time: Option<Duration>| time.filter(|time| !time.is_zero());
        let start = set(self.start_timeout).map(Limit::Start);
        start
            .into_iter()
            .chain(set(self.timeout).map(Limit::Job))
            .collect()
    }

    /// When a job stalls and what is done then, unless it is not to be watched.
    pub fn stall(&self) -> Option<StallRule> {
        (!self.stall_timeout.limit.is_zero()).then_some(self.stall_timeout)
    }
}

/// The processes that `--show` selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownProcesses {
    role: Role,
    /// The rank; `None` for all processes of the role.
    rank: Option<u32>,
}

impl ShownProcesses {
    /// Whether a process is selected.
    pub fn has(&self, process: &Process) -> bool {
        process.role == self.role && self.rank.is_none_or(|rank| rank == process.rank)
    }
}

impl std::fmt::Display for ShownProcesses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "{}:{rank}", self.role.name()),
            None => write!(f, "{}:*", self.role.name()),
        }
    }
}

/// Parses `trainer:0` or `server:*`.
fn shown(text: &str) -> Result<ShownProcesses, String> {
    let wrong = || "a role and a rank, as trainer:0, or all of a role, as server:*".to_owned();
    let (name, rank) = text.split_once(':').ok_or_else(wrong)?;
    let role = name.parse().map_err(|_| wrong())?;
    let rank = match rank {
        "*" => None,
        number => Some(number.parse().map_err(|_| wrong())?),
    };
    Ok(ShownProcesses { role, rank })
}

/// Parses a span of time of at least this many seconds.
fn at_least(text: &str, seconds: u64) -> Result<Duration, String> {
    let time = duration(text)?;
    if time >= Duration::from_secs(seconds) {
        Ok(time)
    } else {
        Err(format!("{seconds}s or more"))
    }
}

/// Parses a host timeout. A host counts the launcher's silence in whole seconds, and a message
/// takes a while on a busy network.
fn host_timeout(text: &str) -> Result<Duration, String> {
    at_least(text, 2)
}

/// Parses a stall timeout: zero, or as long as it takes to tell work from waiting.
fn stall_timeout(text: &str) -> Result<StallRule, String> {
    let (text, ends) = match text.strip_suffix(":end") {
        Some(time) => (time, true),
        None => (text, false),
    };
    let limit = if duration(text)?.is_zero() {
        Duration::ZERO
    } else {
        at_least(text, SHORTEST_STALL.as_secs()).map_err(|least| {
            format!("0, or {least}: in less, a process that waits looks like one that works")
        })?
    };
    Ok(StallRule { limit, ends })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_of_0_is_none() {
        let limits = |words: &str| {
            let args = Args::try_parse_from(format!("dgl-spawn {words}").split_whitespace());
            args.map(|args| (args.limits(), args.stall().is_some()))
        };
        let second = Duration::from_secs(1);
        for (words, expected, stalls) in [
            ("", vec![], true),
            ("--timeout 0", vec![], true),
            ("--timeout 0s --start-timeout 0", vec![], true),
            ("--timeout 0 --stall-timeout 0", vec![], false),
            (
                "--timeout 1s --start-timeout 1s",
                vec![Limit::Start(second), Limit::Job(second)],
                true,
            ),
        ] {
            assert_eq!(limits(words).unwrap(), (expected, stalls), "{words}");
        }
        // a silent host is never waited for without end
        assert!(limits("--host-timeout 0").is_err());
    }

    #[test]
    fn when_a_job_stalls_and_what_is_done_then() {
        let stall = |words: &str| {
            let args = Args::try_parse_from(format!("dgl-spawn {words}").split_whitespace());
            args.map(|args| args.stall().map(|rule| (rule.limit.as_secs(), rule.ends)))
        };
        for (words, expected) in [
            ("", Some((600, false))),
            ("--stall-timeout 5s", Some((5, false))),
            ("--stall-timeout 2m:end", Some((120, true))),
            ("--stall-timeout 0", None),
            ("--stall-timeout 0s:end", None),
        ] {
            assert_eq!(stall(words).unwrap(), expected, "{words}");
        }
        for words in ["4s:end", ":end", "5s:notice", "5s:"] {
            assert!(
                stall(&format!("--stall-timeout {words}")).is_err(),
                "{words}"
            );
        }
    }
}
