//! The command line.

use crate::plan::What;
use clap::{ArgGroup, Parser};
use cli::{ConnectArgs, duration};
use record::Role;
use record::exit::SignalNumber;
use std::time::Duration;

/// Lists, signals or stops the processes of jobs.
///
/// Reads host records. A process belongs to a job by the token that dgl-spawn put into its
/// environment, never by its name; only those of the user that logs in are affected. Files in
/// /dev/shm that only they mapped are removed with them.
#[derive(Parser)]
#[command(version, override_usage = "dgl-reap [OPTIONS] <--list|--job NAME|--all|--stale-shm>",
    group = ArgGroup::new("what").required(true).args(["list", "job", "all", "stale_shm"]),
    after_long_help = "Examples:
  ipconf-check ip_config.txt | dgl-reap --list
  ipconf-check ip_config.txt | dgl-reap --job try7
  ipconf-check ip_config.txt | dgl-reap --job try7 --role trainer --rank 3 --signal ABRT
  ipconf-check ip_config.txt | dgl-reap --stale-shm")]
pub struct Args {
    /// List the processes of all jobs; stop nothing
    ///
    /// See [The table].
    #[arg(long)]
    pub list: bool,

    /// Stop this job
    ///
    /// Persistent graph servers are the job of their `--server-name`. dgl-reap looks up the
    /// processes on all hosts first, and then stops them everywhere at once; it reports and skips a
    /// host that needs more than 15 s for the lookup.
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,

    /// Stop all jobs of this user
    ///
    /// This includes healthy jobs.
    #[arg(long)]
    pub all: bool,

    /// Remove this user's files of DGL in /dev/shm that no process maps
    ///
    /// Jobs of `launch.py` and killed processes leave such files, with the names of DGL 0.5 to 2.1.
    /// They are kept in a container that shares /dev/shm with its machine, as with `docker run
    /// --ipc=host`, because it does not see all processes: run dgl-reap on the machine.
    #[arg(long)]
    pub stale_shm: bool,

    /// Send a signal instead of stopping the job; ABRT makes Python print its stacks
    ///
    /// Write ABRT, SIGABRT, abrt or 6. dgl-reap reaches all hosts before it sends the first signal,
    /// so that all receive it before dgl-spawn(1) may stop the job because of it. Without `--rank`,
    /// it names hosts that have no process to signal.
    ///
    /// On ABRT a Python process prints the stacks of all threads and fails, if
    /// `PYTHONFAULTHANDLER` is set (dgl-env(1) sets it). dgl-stacks(1) shows the stacks without
    /// stopping anything.
    #[arg(long, requires = "job", conflicts_with_all = ["list", "all", "stale_shm"],
        value_name = "NAME", value_parser = signal_number)]
    pub signal: Option<SignalNumber>,

    /// Signal processes of this role only: server, trainer, worker or a program's name
    ///
    /// This needs `--signal`.
    #[arg(long, requires = "signal", value_name = "NAME")]
    pub role: Option<Role>,

    /// Signal the process of this rank only, with its samplers
    ///
    /// This needs `--role`.
    #[arg(long, requires = "role", value_name = "N")]
    pub rank: Option<u32>,

    /// How long processes may take to exit after TERM, before KILL
    #[arg(long, hide_short_help = true, default_value = "10s", value_parser = duration,
        value_name = "TIME")]
    pub grace: Duration,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: ConnectArgs,
}

impl Args {
    /// What is to be done.
    pub fn what(&self) -> What<'_> {
        match (&self.job, self.signal) {
            (Some(job), Some(signal)) => What::Signal {
                job,
                role: self.role,
                rank: self.rank,
                signal,
            },
            (Some(job), None) => What::End(Some(job)),
            (None, _) if self.all => What::End(None),
            (None, _) if self.stale_shm => What::StaleShm,
            (None, _) => What::List,
        }
    }

    /// The subject in messages: `job try7`.
    pub fn of_what(&self) -> String {
        match &self.job {
            Some(name) => format!("job {name}"),
            None => "any job".to_owned(),
        }
    }
}

/// Parses a signal: `ABRT`, `SIGABRT`, `abrt` or 6.
fn signal_number(text: &str) -> Result<SignalNumber, String> {
    let upper = text.to_uppercase();
    let wanted = upper.strip_prefix("SIG").unwrap_or(&upper);
    let by_number = || {
        let number = (1..32).find(|number: &i32| number.to_string() == wanted);
        number.map(SignalNumber)
    };
    let signal = SignalNumber::named(wanted).or_else(by_number);
    signal.ok_or_else(|| "no such signal; kill -l lists them".to_owned())
}
