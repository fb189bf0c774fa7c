//! Variables that the user sets, for all processes or for those of one role.

use crate::args::Args;
use crate::placeholders::Template;
use record::error::{Fault, Report};
use record::{Role, is_variable_name};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// The option in whose values, as in the words of a command, braces are common.
const ALL: &str = "--env";

/// Variables that count, number or identify processes. Another value than the plan's would make the
/// job hang.
const RESERVED_NAMES: [&str; 18] = [
    "DGL_ROLE",
    "DGL_SERVER_ID",
    "DGL_DIST_MODE",
    "DGL_NUM_CLIENT",
    "DGL_NUM_SERVER",
    "DGL_NUM_SAMPLER",
    "DGL_CONF_PATH",
    "DGL_IP_CONFIG",
    "DGL_GROUP_ID",
    "DGL_KEEP_ALIVE",
    "DGL_TOOLS_JOB",
    "DGL_TOOLS_PROGRAM",
    "DGL_TOOLS_TOKEN",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
];

/// The variables that the user sets; the later of two with one name wins.
#[derive(Default)]
pub struct UserEnv {
    /// `--env`
    all: Vec<(String, Template)>,
    /// `--server-env`, which overrides `--env`.
    server: Vec<(String, Template)>,
    /// `--trainer-env`, which overrides `--env`; of workers too.
    trainer: Vec<(String, Template)>,
}

impl UserEnv {
    /// Parses the values of the options. A name alone takes its value unchanged from `lookup`.
    pub fn new(args: &Args, lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<UserEnv, Report> {
        let mut report = Report::default();
        let mut each = |option: &'static str, entries: &[OsString]| -> Vec<(String, Template)> {
            let read = |entry: &OsString| variable(option, entry.as_bytes(), lookup);
            entries
                .iter()
                .filter_map(|entry| report.keep(read(entry)))
                .collect()
        };
        let env = UserEnv {
            all: each(ALL, &args.env),
            server: each("--server-env", &args.server_env),
            trainer: each("--trainer-env", &args.trainer_env),
        };
        report.check()?;
        Ok(env)
    }

    /// Whether a variable is set for the processes of a role.
    pub fn sets(&self, role: Role, name: &str) -> bool {
        self.of(role).any(|(other, _)| other == name)
    }

    /// The values that may differ between processes.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let all = [&self.all, &self.server, &self.trainer];
        all.into_iter().flatten().map(|(_, value)| value)
    }

    /// The variables for all processes, then those of the role, which override them.
    pub fn of(&self, role: Role) -> impl Iterator<Item = &(String, Template)> {
        let of_role = match role {
            Role::Server => &self.server,
            _ => &self.trainer,
        };
        self.all.iter().chain(of_role)
    }
}

fn variable(
    option: &str,
    entry: &[u8],
    lookup: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(String, Template), Fault> {
    let equals = entry.iter().position(|byte| *byte == b'=');
    let name = String::from_utf8_lossy(&entry[..equals.unwrap_or(entry.len())]).into_owned();
    if !is_variable_name(&name) {
        let fault = Fault::usage(option, format!("{name:?} is not a variable's name"));
        return Err(fault.fix(format!("write {option} NAME=VALUE, once for each variable")));
    }
    if RESERVED_NAMES.contains(&name.as_str()) {
        let problem = format!(
            "{name} cannot be set: with another value than the plan's, the job hangs or mistakes \
             one process for another"
        );
        return Err(Fault::usage(option, problem)
            .fix("leave it out: flags of dgl-env make these variables"));
    }
    let value = match equals {
        Some(equals) if option != ALL => {
            Template::of_value(&entry[equals + 1..]).map_err(|problem| {
                Fault::usage(option, format!("{name}: {problem}"))
                    .fix("write {{ and }} for braces of the value itself")
            })?
        }
        Some(equals) => Template::of_word(&entry[equals + 1..]),
        None => {
            let found = lookup(&name).ok_or_else(|| {
                Fault::usage(option, format!("{name} is not set here"))
                    .fix(format!("write {option} {name}=VALUE"))
            })?;
            Template::literal(found.as_bytes())
        }
    };
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placeholders::with_values;
    use clap::Parser;

    fn parse(option: &str, entry: &[u8]) -> Result<(String, Template), Fault> {
        variable(option, entry, &|name| {
            (name == "HERE").then(|| "{here}".into())
        })
    }

    #[test]
    fn values_are_literal_but_for_placeholders() {
        let table: [(&str, &[u8], &[u8]); 14] = [
            ("--env", b"A=", b""),
            ("--env", b"A=b=c", b"b=c"),
            (
                "--env",
                b"A=$HOME `x` \"y\" 'z' \\\n;&",
                b"$HOME `x` \"y\" 'z' \\\n;&",
            ),
            ("--env", b"A=\xff\x01\x7f", b"\xff\x01\x7f"),
            ("--env", b"A={rank} {} {x}", b"5 {} {x}"),
            ("--env", b"A={{rank}}", b"{rank}"),
            ("--env", b"A={store.master_addr}", b"10.0.0.1"),
            ("--env", b"HERE", b"{here}"),
            ("--trainer-env", b"CUDA_VISIBLE_DEVICES={local_rank}", b"1"),
            (
                "--trainer-env",
                b"A={rank}.{host}.{local_rank}{rank}",
                b"5.2.15",
            ),
            ("--trainer-env", b"A={{rank}} {{}}", b"{rank} {}"),
            ("--trainer-env", b"A={{{rank}}}", b"{5}"),
            ("--trainer-env", b"A=\xff{host}", b"\xff2"),
            ("--server-env", b"HERE", b"{here}"),
        ];
        for (option, entry, value) in table {
            let (_, template) = parse(option, entry).unwrap();
            assert_eq!(
                with_values(|values| template.fill(values)).as_bytes(),
                value,
                "{}",
                String::from_utf8_lossy(entry)
            );
        }
    }

    #[test]
    fn what_is_no_variable() {
        let table: [(&str, &[u8], &str); 11] = [
            ("--env", b"", "\"\" is not a variable's name"),
            ("--env", b"=x", "\"\" is not a variable's name"),
            ("--env", b"A-B=x", "\"A-B\" is not"),
            ("--env", b"1A=x", "\"1A\" is not"),
            ("--env", b"\xff=x", "is not a variable's name"),
            (
                "--env",
                b"NOWHERE",
                "NOWHERE is not set here\n  fix: write --env NOWHERE=VALUE",
            ),
            ("--env", b"DGL_NUM_CLIENT=3", "DGL_NUM_CLIENT cannot be set"),
            ("--trainer-env", b"RANK={rank}", "RANK cannot be set"),
            (
                "--trainer-env",
                b"A={gpu}",
                "A: {gpu} is not {local_rank}, {rank}, {host}, {num_hosts}, {world_size}, ",
            ),
            ("--server-env", b"A={\"a\":1}", "is not {local_rank}"),
            ("--server-env", b"A=a}b", "a } stands alone"),
        ];
        for (option, entry, problem) in table {
            let got = parse(option, entry).expect_err(problem).to_string();
            assert!(got.starts_with(option) && got.contains(problem), "{got}");
        }
    }

    #[test]
    fn the_later_wins_and_that_of_the_role_beats_that_of_all() {
        let line =
            "dgl-env --num-trainers 1 --env A=1 --env A=2 --env B=3 --trainer-env B={rank} t";
        let args = Args::parse_from(line.split(' '));
        let env = UserEnv::new(&args, &|_| None).unwrap();
        let last = |role: Role, wanted: &str| {
            let (_, value) = env.of(role).filter(|(name, _)| name == wanted).last()?;
            with_values(|values| value.fill(values)).into_string().ok()
        };
        let seen = [Role::Server, Role::Trainer].map(|role| (last(role, "A"), last(role, "B")));
        let two = || Some("2".to_owned());
        let wanted = [(two(), Some("3".to_owned())), (two(), Some("5".to_owned()))];
        assert_eq!(seen, wanted);
    }
}
