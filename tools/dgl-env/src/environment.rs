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
