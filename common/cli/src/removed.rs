//! Flags that earlier versions had.

use clap::error::{ContextKind, ContextValue};
use record::error::Fault;

/// A flag, perhaps with a value, after its tool's name unless several tools had it; and what to use
/// instead.
const REMOVED: &[(&str, &str)] = &[
    ("--connect-timeout", "set DGL_TOOLS_CONNECT_TIMEOUT"),
    ("--data-port", "set DGL_TOOLS_DATA_PORT"),
    ("--dial-address", "set DGL_TOOLS_DIAL_ADDRESS"),
    ("--dial-port", "set DGL_TOOLS_DIAL_PORT"),
    ("--host-key", "set DGL_TOOLS_HOST_KEY"),
    (
        "--identity",
        "set DGL_TOOLS_IDENTITY, or IdentityFile in ssh_config(5)",
    ),
    ("--ssh-config", "set DGL_TOOLS_SSH_CONFIG"),
    (
        "--ssh-port",
        "set DGL_TOOLS_SSH_PORT, or Port in ssh_config(5)",
    ),
    (
        "--ssh-username",
        "set DGL_TOOLS_SSH_USERNAME, or User in ssh_config(5)",
    ),
    (
        "--streams",
        "leave it out: each host has one login and one direct connection",
    ),
    (
        "dgl-env --group-id",
        "leave it out: dgl-spawn numbers the groups of persistent servers",
    ),
    (
        "dgl-env --launcher",
        "leave it out: each process is started separately; for torchrun, see dgl-tools-jobs(7)",
    ),
    (
        "dgl-env --launcher-arg",
        "make torchrun the command of one worker on each host, as in dgl-tools-jobs(7)",
    ),
    ("dgl-env --no-push-check", "give it to dgl-spawn"),
    (
        "dgl-report --openmetrics",
        "use the jq program in dgl-tools-jobs(7)",
    ),
    (
        "dgl-reap --forget",
        "leave it out: no job has a directory on its hosts",
    ),
    ("dgl-reap --server-name", "use --job NAME"),
    (
        "dgl-spawn --attach",
        "return to the tmux in which dgl-spawn runs, as in dgl-tools-jobs(7)",
    ),
    (
        "dgl-spawn --detach",
        "run dgl-spawn in tmux or under nohup, as in dgl-tools-jobs(7)",
    ),
    ("dgl-spawn --on-stall", "use --stall-timeout TIME:end"),
    (
        "dgl-spawn --profile",
        "run dgl-stacks --record while the job runs, as in dgl-tools-jobs(7)",
    ),
    (
        "dgl-spawn --sample",
        "run vmstat or nvidia-smi dmon as a service of the job, as in dgl-tools-jobs(7)",
    ),
    (
        "dgl-report --format speedscope",
        "use --format folded, which speedscope reads",
    ),
    (
        "dgl-stacks --native",
        "leave it out; for C functions run py-spy dump --native, as in dgl-stacks(1)",
    ),
    (
        "dgl-why --flight-recorder",
        "use torch's own analyser, as in dgl-tools-trouble(7)",
    ),
    ("host-probe --min-disk", "use --min disk=SIZE"),
    ("host-probe --min-gpu-memory", "use --min gpu=SIZE"),
    ("host-probe --min-memory", "use --min memory=SIZE"),
    ("host-probe --min-shm", "use --min shm=SIZE"),
    (
        "ipconf-check --login",
        "give a list in CSV with a column login, or jq '.login = …' its records",
    ),
    (
        "ipconf-check --resolve",
        "leave it out: names are always looked up",
    ),
    (
        "part-map --fetch",
        "have a job fetch the files, then use --parts remote, as in dgl-tools-partition(7)",
    ),
    ("part-map --include", "use --exclude '!GLOB'"),
    (
        "part-map --listing",
        "have a job fetch the files, then use --parts remote, as in dgl-tools-partition(7)",
    ),
    (
        "part-push --env",
        "have a job fetch the files, as in dgl-tools-partition(7); dgl-env has --env",
    ),
    (
        "part-push --relay",
        "leave it out: hosts hand on large files that go to several of them",
    ),
];

/// clap has refused the command line.
pub fn fault(tool: &str, error: &clap::Error) -> Option<Fault> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        _ => None,
    };
    // `--format <HOW>`, or `--ssh_port`
    let argument = text(ContextKind::InvalidArg)?;
    let flag = argument.split(' ').next()?.replace('_', "-");
    let given = match text(ContextKind::InvalidValue) {
        Some(value) => format!("{flag} {value}"),
        None => flag,
    };
    let of_tool = format!("{tool} {given}");
    let is_given = |removed: &str| removed == given || removed == of_tool;
    let (_, instead) = REMOVED.iter().find(|(removed, _)| is_given(removed))?;
    Some(Fault::usage(given, "was removed").fix(*instead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    #[test]
    fn a_removed_flag_is_an_error_that_says_what_to_do_instead() {
        let seen = |tool: &str, line: &str| {
            let format = Arg::new("format").long("format").value_parser(["folded"]);
            let command = Command::new("tool").arg(format);
            let error = command.try_get_matches_from(line.split(' ')).unwrap_err();
            fault(tool, &error).map(|fault| fault.to_string())
        };
        let port =
            "--ssh-port: was removed\n  fix: set DGL_TOOLS_SSH_PORT, or Port in ssh_config(5)";
        let include = "--include: was removed\n  fix: use --exclude '!GLOB'";
        let format = "--format speedscope: was removed\n  fix: use --format folded, which \
                      speedscope reads";
        let table = [
            ("host-probe", "t --ssh_port=22 --format folded", Some(port)),
            ("part-map", "t --include 3", Some(include)),
            ("part-push", "t --include 3", None),
            ("dgl-report", "t --format speedscope", Some(format)),
            ("dgl-report", "t --format other", None),
            ("dgl-stacks", "t --marginal", None),
            ("dgl-report", "t --format", None),
        ];
        for (tool, line, expected) in table {
            assert_eq!(seen(tool, line).as_deref(), expected, "{tool} {line}");
        }
    }
}
