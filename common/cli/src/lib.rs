//! The frame of every tool (parse, call, report, exit), and the options shared by all tools that
//! reach hosts.

pub mod copy;
pub mod progress;
mod removed;
pub mod typography;

pub use record::job_name;
pub use session::signal;

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use nix::unistd::close;
use progress::ProgressWhen;
use record::Host;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::term;
use remote::direct::{Wire, WireOptions};
use remote::limit::RateLimit;
use remote::{HostKey, RemoteOptions};
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

static TOOL: OnceLock<String> = OnceLock::new();

/// Whether stdout was closed when the program began (`>&-`).
static STDOUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, because Rust's runtime then replaces a closed stdout by /dev/null, which
/// looks like one that others opened, such as Python's `subprocess.DEVNULL`.
#[ctor::ctor]
fn examine_stdout() {
    let is_closed = fcntl(std::io::stdout(), FcntlArg::F_GETFD).is_err();
    STDOUT_IS_CLOSED.store(is_closed, Ordering::Relaxed);
}

/// A large job's logins, connections and logs exceed the usual soft limit of 1024 descriptors; the
/// hard limit is far higher.
fn raise_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // on failure, the code that lacks a descriptor reports it
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn notice(line: &str) {
    let tool = TOOL.get().map_or("dgl-tools", String::as_str);
    record::tell!("{tool}: {line}");
}

/// Parses the command line, runs the tool, prints its faults and exits with their status.
pub fn run<A: Parser + CommandFactory + FromArgMatches>(
    tool: &str,
    main: impl FnOnce(A) -> Result<Exit, Report>,
) -> ExitCode {
    let _ = TOOL.set(tool.to_owned());
    host::panic::abort_on_panic(None);
    raise_descriptors();
    if let Err(error) = host::inherited::reset_signals(&SigSet::empty()) {
        let fault = Fault::unreachable("signals", error.to_string());
        fault.report().print(tool);
        return Exit::Unreachable.into();
    }
    let mut least = Exit::Done;
    if STDOUT_IS_CLOSED.load(Ordering::Relaxed) {
        let fault = Fault::unreachable("stdout", "it is closed; the tool continues without it");
        fault
            .fix("give it a file or a pipe, or >/dev/null to discard what is written")
            .report()
            .print(tool);
        least = Exit::Unreachable;
    }
    if let Err(report) = check_typography() {
        // our scripts pass all of their arguments here first, so the message is theirs
        let script = env::var(record::error::WRAPPER);
        report.print(script.as_deref().unwrap_or(tool));
        return report.exit().into();
    }
    let matches = command::<A>().try_get_matches();
    let exit = match matches.and_then(|matches| A::from_arg_matches(&matches)) {
        Ok(args) => main(args).unwrap_or_else(|report| {
            report.print(tool);
            report.exit()
        }),
        Err(error) => describe::<A>(tool, &error),
    };
    remote::end_connectors();
    if let Err(error) = close_stdout() {
        let fault = Fault::unreachable("stdout", error.to_string());
        fault.fix("check where stdout goes").report().print(tool);
        least = Exit::Unreachable;
    }
    exit.worst(least).into()
}

/// A network file system may report only at close(2) that what was written is not stored.
fn close_stdout() -> io::Result<()> {
    let duplicate = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(close(duplicate)?)
}

fn check_typography() -> Result<(), Report> {
    let fault = |argument: OsString| typography::fault("command line", &argument.to_string_lossy());
    Report(env::args_os().skip(1).filter_map(fault).collect()).check()
}

fn describe<A: CommandFactory>(tool: &str, error: &clap::Error) -> Exit {
    if error.use_stderr() {
        let fault = removed::fault(tool, error).unwrap_or_else(|| usage::<A>(tool, error));
        let exit = fault.exit;
        fault.report().print(tool);
        return exit;
    }
    let is_long = env::args_os().any(|word| word == "--help");
    // a pager that was closed early has read enough
    let _ = match error.kind() {
        ErrorKind::DisplayHelp if is_long => help(command::<A>()),
        _ => error.print(),
    };
    Exit::Done
}

/// clap's message in the form of other faults: in a pipeline a bare `error: …` would not show its
/// tool.
fn usage<A: CommandFactory>(tool: &str, error: &clap::Error) -> Fault {
    let text = as_typed::<A>(error.render().to_string(), env::args());
    let problem = text.trim_start_matches("error: ").split("\n\n").next();
    let words: Vec<&str> = problem.unwrap_or_default().split_whitespace().collect();
    let tips = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "));
    let mut fix: Vec<String> = tips
        .filter(|tip| tip.contains("similar"))
        .map(str::to_owned)
        .collect();
    let unknown = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let is_word = error.kind() == ErrorKind::UnknownArgument
        && unknown.is_some_and(|argument| !argument.starts_with('-'));
    let command = A::command();
    if is_word && command.get_positionals().any(Arg::is_last_set) {
        fix.push(format!(
            "put -- before the command, as in {tool} … -- python3 train.py"
        ));
    } else if is_word && command.get_positionals().next().is_none() {
        fix.push(format!(
            "it reads records from stdin: … | {tool}, or {tool} <FILE"
        ));
    }
    fix.push(format!("{tool} --help lists the options"));
    Fault::usage("command line", words.join(" ")).fix(fix.join("; "))
}

/// clap names an option by its first name, also if another one was typed.
fn as_typed<A: CommandFactory>(text: String, words: impl Iterator<Item = String>) -> String {
    let command = command::<A>();
    let words: Vec<String> = words.collect();
    let is_typed = |name: &str| {
        let mut names = words.iter().filter_map(|word| word.strip_prefix("--"));
        names.any(|word| word.split('=').next() == Some(name))
    };
    let rename = |text: String, arg: &Arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let typed = aliases.into_iter().find(|alias| is_typed(alias));
        match (arg.get_long(), typed) {
            (Some(long), Some(typed)) if !is_typed(long) => {
                text.replace(&format!("--{long} "), &format!("--{typed} "))
            }
            _ => text,
        }
    };
    command.get_arguments().fold(text, rename)
}

/// The tool's command line. Long options may also have underscores (`--num_trainers`), as in DGL's
/// scripts.
pub fn command<A: CommandFactory>() -> clap::Command {
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .help_heading(None);
    let help = help.help("Print help: -h in short, --help with all options and examples");
    A::command()
        .disable_help_flag(true)
        .arg(help)
        .mut_args(|mut arg| {
            if arg.get_help_heading() == Some(HOSTS) {
                arg = arg.hide_short_help(true);
            }
            let aliases = arg.get_all_aliases().unwrap_or_default();
            let names = arg.get_long().into_iter().chain(aliases);
            let underscored: Vec<String> = names
                .filter(|name| name.contains('-'))
                .map(|name| name.replace('-', "_"))
                .collect();
            arg.aliases(underscored)
        })
}

/// Prints `--help`, as compact as `-h`: clap's long form has empty lines between options and fills
/// three screens.
fn help(mut command: clap::Command) -> std::io::Result<()> {
    if let Some(about) = command.get_long_about().cloned() {
        command = command.about(about);
    }
    if let Some(examples) = command.get_after_long_help().cloned() {
        command = command.after_help(examples);
    }
    let text = command
        .mut_args(|arg| arg.hide_short_help(false))
        .render_help();
    let text = if term::colours() {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    std::io::stdout().write_all(text.as_bytes())
}

/// How hosts are reached, from variables, for all tools of a pipeline.
#[derive(Clone, Debug)]
pub struct Settings {
    /// All but the connector, which is an option.
    pub options: RemoteOptions,
    /// The port of the hosts for direct connections; 0 for any.
    pub data_port: u16,
}

/// Variables are read with the command line, so that wrong ones are reported like wrong options.
impl FromArgMatches for Settings {
    fn from_arg_matches(_: &ArgMatches) -> Result<Settings, clap::Error> {
        let path = |name| variable(name).map(PathBuf::from);
        let timeout = read("DGL_TOOLS_CONNECT_TIMEOUT", connect_timeout)?;
        let options = RemoteOptions {
            connect: None,
            ssh_port: read("DGL_TOOLS_SSH_PORT", u16::from_str)?,
            ssh_username: read("DGL_TOOLS_SSH_USERNAME", String::from_str)?,
            identity: path("DGL_TOOLS_IDENTITY"),
            ssh_config: path("DGL_TOOLS_SSH_CONFIG"),
            host_key: read("DGL_TOOLS_HOST_KEY", host_key)?,
            connect_timeout: timeout.unwrap_or(Duration::from_secs(10)),
            dial_address: read("DGL_TOOLS_DIAL_ADDRESS", Ipv4Addr::from_str)?,
            dial_port: read("DGL_TOOLS_DIAL_PORT", u16::from_str)?.unwrap_or(0),
            notice,
            stop: Arc::default(),
        };
        Ok(Settings {
            options,
            data_port: read("DGL_TOOLS_DATA_PORT", u16::from_str)?.unwrap_or(0),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Settings::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Settings {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

/// An empty variable counts as unset.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn read<T, E: Display>(
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>, clap::Error> {
    let Some(value) = variable(name) else {
        return Ok(None);
    };
    let value = value.to_string_lossy();
    parse(&value).map(Some).map_err(|error| {
        let problem = format!("{name}={value}: {error}");
        clap::Error::raw(ErrorKind::ValueValidation, problem)
    })
}

fn host_key(text: &str) -> Result<HostKey, String> {
    match text {
        "strict" => Ok(HostKey::Strict),
        "accept-new" => Ok(HostKey::AcceptNew),
        _ => Err("is neither strict nor accept-new".to_owned()),
    }
}

/// The heading of these options; `-h` leaves them out.
const HOSTS: &str = "Hosts";

/// How hosts are reached, which of them, and how results are shown.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = HOSTS)]
pub struct ConnectArgs {
    /// How to reach hosts: auto, ssh2, ssh, local, 'kubectl exec -i {login} --', 'dial COMMAND'
    ///
    /// The default is auto: ssh2 if it can log in, and otherwise ssh.
    #[arg(long, env = "DGL_TOOLS_CONNECT", value_name = "HOW", hide_env = true)]
    pub connect: Option<String>,

    /// What variables say about it.
    #[command(flatten)]
    pub settings: Settings,

    /// Act on these hosts only
    ///
    /// The number is the *id* of the *host* record.
    #[arg(long, value_delimiter = ',', value_name = "ID[,ID…]")]
    pub host: Vec<u32>,

    /// Accept an incomplete stream, such as the output of jq 'select(…)'
    ///
    /// Records with `"ok":false` are ignored, with a notice on stderr.
    #[arg(long)]
    pub partial: bool,

    /// What to print: records, or text for people [auto: text on a terminal]
    #[arg(long, value_enum, default_value_t = OutputFormat::Auto, value_name = "auto|human|jsonl",
        hide_possible_values = true)]
    pub format: OutputFormat,
}

/// Options of tools that copy files.
#[derive(Args, Clone, Copy, Debug)]
pub struct CopyArgs {
    /// Send content directly, or through logins [auto: directly where possible]
    #[arg(long, value_enum, default_value_t = WireChoice::Auto, value_name = "auto|ssh|direct",
        hide_possible_values = true, hide_short_help = true)]
    pub wire: WireChoice,

    /// The highest rate for all hosts together, such as 50MB/s
    ///
    /// The minimum is 100kB/s. All connections of this machine count, but not what hosts pass on to
    /// each other in a push.
    #[arg(long, value_parser = rate, value_name = "RATE", hide_short_help = true)]
    pub limit: Option<u64>,

    /// Show what would be copied, but copy nothing
    ///
    /// This compares the files on the hosts.
    #[arg(long)]
    pub dry_run: bool,

    /// Show progress on stderr [auto: bars on a terminal; otherwise a line now and then, and one
    /// when each host is done]
    ///
    /// This shows the rate, the remaining time, and whether data goes directly, through logins or
    /// through a chain of hosts.
    #[arg(long, value_enum, default_value_t = ProgressWhen::Auto, value_name = "auto|always|never",
        hide_possible_values = true)]
    pub progress: ProgressWhen,
}

/// The choice of a route for the content of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WireChoice {
    /// More than 4 MB to or from a host go directly if a port of the host answers within a second,
    /// and the rest, also after a break, through the login. If this machine is a host too, its
    /// files go through a pipe, unless its record has a *login*.
    Auto,
    /// Through the logins, whatever the connector is.
    Ssh,
    /// This machine connects by TLS to a port of each host, at the *ip* of its *host* record, and a
    /// host that it cannot reach in this way fails. Both sides make a new key for each run and
    /// exchange them through the login; the port accepts no other key and is closed at the end.
    /// This needs half the CPU time of ssh.
    Direct,
}

impl CopyArgs {
    pub fn options(&self, connect: &ConnectArgs) -> WireOptions {
        WireOptions {
            wire: match self.wire {
                WireChoice::Auto => Wire::Auto,
                WireChoice::Ssh => Wire::Ssh,
                WireChoice::Direct => Wire::Direct,
            },
            data_port: connect.settings.data_port,
            limit: connect.settings.options.connect_timeout,
        }
    }

    pub fn limit(&self) -> Option<Arc<RateLimit>> {
        self.limit.map(|rate| Arc::new(RateLimit::new(rate)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text on a terminal, records elsewhere.
    Auto,
    /// Text for people.
    Human,
    /// Records, one on each line.
    Jsonl,
}

impl OutputFormat {
    pub fn human(self) -> bool {
        match self {
            OutputFormat::Auto => std::io::IsTerminal::is_terminal(&std::io::stdout()),
            OutputFormat::Human => true,
            OutputFormat::Jsonl => false,
        }
    }
}

impl ConnectArgs {
    pub fn options(&self) -> RemoteOptions {
        RemoteOptions {
            // an empty variable counts as unset
            connect: self.connect.clone().filter(|how| !how.is_empty()),
            ..self.settings.options.clone()
        }
    }

    /// For a tool that handles signals: connecting ends when `stop` is no longer 0.
    pub fn options_until(&self, stop: &Arc<AtomicUsize>) -> RemoteOptions {
        RemoteOptions {
            stop: Arc::clone(stop),
            ..self.options()
        }
    }

    pub fn choose(&self, hosts: Vec<Host>) -> Result<Vec<Host>, Report> {
        if self.host.is_empty() {
            return Ok(hosts);
        }
        let mut report = Report::default();
        for id in &self.host {
            if record::host_of(&hosts, *id).is_none() {
                let fault = Fault::usage("--host", format!("the stream has no host {id}"));
                report.push(fault.fix(
                    "hosts have the numbers of their records, from 0 on in the order of ip_config",
                ));
            }
        }
        report.check()?;
        let chosen = hosts
            .into_iter()
            .filter(|host| self.host.contains(&host.id));
        Ok(chosen.collect())
    }

    pub fn say_partial(&self, tool: &str) {
        if self.partial {
            record::tell!("{tool}: --partial: missing records are ignored");
        }
    }
}

/// `10s`, `2m`, `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    /// So that a time can be added to any other.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let time = humantime::parse_duration(text)
        .map_err(|_| "is not a length of time; write it as 10s, 500ms or 2m".to_owned())?;
    if time > LONGEST {
        return Err("is longer than 100 years".to_owned());
    }
    Ok(time)
}

fn connect_timeout(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    // less counts as no time for some connectors, and as any time for libssh2
    if time < Duration::from_millis(1) {
        return Err("must be 1ms or more".to_owned());
    }
    Ok(time)
}

pub fn record_time(text: &str) -> Result<Duration, String> {
    /// A longer recording no longer shows what a job does now.
    const LONGEST_RECORD: Duration = Duration::from_secs(3600);
    let time = duration(text)?;
    if (Duration::from_secs(1)..=LONGEST_RECORD).contains(&time) {
        return Ok(time);
    }
    Err("give it from 1s to 1h".to_owned())
}

/// `64G` with decimal units, in which tools print bytes, or `64GiB`.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = number.parse::<u64>().ok();
    let bytes = number.zip(unit_bytes(unit));
    bytes
        .and_then(|(number, unit)| number.checked_mul(unit))
        .ok_or_else(|| "is not a size; write it as 500M, 64G or 2T".to_owned())
}

/// `50MB/s`, `500kB`, `1.5GiB/s`.
pub fn rate(text: &str) -> Result<u64, String> {
    const LEAST: f64 = 1e5;
    let amount = text.strip_suffix("/s").unwrap_or(text);
    let digits = amount.find(|c: char| !c.is_ascii_digit() && c != '.');
    let rate = digits.and_then(|digits| {
        let (number, unit) = amount.split_at(digits);
        Some(number.parse::<f64>().ok()? * unit_bytes(unit)? as f64)
    });
    rate.filter(|rate| (LEAST..1e15).contains(rate))
        .map(|rate| rate as u64)
        .ok_or_else(|| "write it as 50MB/s, 500kB/s or 1GiB/s; 100kB/s at least".to_owned())
}

fn unit_bytes(unit: &str) -> Option<u64> {
    match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "kb" => Some(1_000),
        "m" | "mb" => Some(1_000_000),
        "g" | "gb" => Some(1_000_000_000),
        "t" | "tb" => Some(1_000_000_000_000),
        "kib" => Some(1 << 10),
        "mib" => Some(1 << 20),
        "gib" => Some(1 << 30),
        "tib" => Some(1 << 40),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let table = [
            ("0", Some(0)),
            ("64G", Some(64_000_000_000)),
            ("64 GB", Some(64_000_000_000)),
            ("2GiB", Some(2 << 30)),
            ("7k", Some(7_000)),
            ("G", None),
            ("-1", None),
            ("1.5G", None),
            ("1 parsec", None),
            ("99999999T", None),
        ];
        for (text, bytes) in table {
            assert_eq!(size(text).ok(), bytes, "{text}");
        }
    }

    #[test]
    fn rates_as_people_write_them() {
        for (text, bytes) in [
            ("50MB/s", 50_000_000),
            ("500kB", 500_000),
            ("1.5 GiB/s", 1_610_612_736),
            ("2m/s", 2_000_000),
        ] {
            assert_eq!(rate(text), Ok(bytes), "{text}");
        }
        for text in [
            "", "50", "MB/s", "1kB/s", "1..5MB", "-1MB", "1TB/h", "1e9GB",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
