//! Variables that the user sets, for all processes or for one role.

use crate::args::Args;
use crate::placeholders::Template;
use record::error::{Fault, Report};
use record::{Role, is_variable_name};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// The option whose values often contain braces, like the words of a command.
const ALL: &str = "--env";

/// These count, number or identify processes: with a value other than the plan's, the job would
/// hang.
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

/// The later of two variables with one name wins.
#[derive(Default)]
pub struct UserEnv {
    /// `--env`
    all: Vec<(String, Template)>,
    /// `--server-env`, which overrides `--env`.
    server: Vec<(String, Template)>,
    /// `--trainer-env`, which overrides `--env`; also for workers.
    trainer: Vec<(String, Template)>,
}

impl UserEnv {
    /// A name alone takes its value unchanged from `lookup`.
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

    pub fn sets(&self, role: Role, name: &str) -> bool {
        self.of(role).any(|(other, _)| other == name)
    }

    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let all = [&self.all, &self.server, &self.trainer];
        all.into_iter().flatten().map(|(_, value)| value)
    }

    /// First those for all processes, then those of the role, which override them.
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
            .fix("leave it out: options of dgl-env set these variables"));
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
