//! The workspace, the partition config and the ip_config, which the command line and the graph
//! record may both give.

use record::Host;
use record::error::Fault;
use std::path::{Component, Path, PathBuf};

/// A path that the command line and a record may both give.
#[derive(Clone, Copy)]
pub struct ProcessPaths<'a> {
    /// The name of the option.
    pub option: &'static str,
    /// The value of the option.
    pub option_value: Option<&'a Path>,
    /// The value in the record.
    pub record_value: Option<&'a str>,
    /// The type of the record: graph or workspace.
    pub record: &'static str,
}

impl ProcessPaths<'_> {
    /// The path to use, with `~/` expanded. If both give one, they must mean the same path below
    /// `folder`.
    pub fn agreed(&self, folder: Option<&str>, hosts: &[Host]) -> Result<Option<String>, Fault> {
        let usage = |problem: &str| {
            Fault::usage(self.option, problem)
                .fix("give the path as it is on the hosts, or leave the option out")
        };
        let place = format!(
            "stdin: {} record: {}",
            self.record,
            self.option.trim_start_matches('-').replace('-', "_")
        );
        let wrong =
            |problem: &str| Fault::data(&place, problem).fix("make the stream anew, with part-map");
        let option_value = match self.option_value.map(|path| path.to_str()) {
            Some(None) => return Err(usage("must be UTF-8")),
            Some(Some("")) => return Err(usage("is empty")),
            Some(Some(path)) => Some(at_home(self.option, path, hosts)?),
            None => None,
        };
        let record_value = match self.record_value {
            Some("") => return Err(wrong("is empty")),
            Some(path) if path.contains('\0') => return Err(wrong("has a NUL byte in it")),
            Some(path) => Some(at_home(&place, path, hosts)?),
            None => None,
        };
        match (option_value, record_value) {
            (Some(ours), Some(theirs)) if !same(folder, &ours, &theirs) => {
                let problem = format!(
                    "{ours} here, but {theirs} in the stream's {} record",
                    self.record
                );
                Err(Fault::data(self.option, problem).fix(format!(
                    "leave {} out: the {} record says it",
                    self.option, self.record
                )))
            }
            (ours, theirs) => Ok(ours.or(theirs)),
        }
    }
}

/// Whether two paths below a folder are the same: `data/./g.json`, `data//g.json`,
/// `/ws/data/g.json`.
pub fn same(folder: Option<&str>, one: &str, other: &str) -> bool {
    let whole = |path: &str| -> PathBuf {
        let path = Path::new(folder.unwrap_or_default()).join(path);
        path.components()
            .filter(|part| *part != Component::CurDir)
            .collect()
    };
    whole(one) == whole(other)
}

/// Expands `~/x` by the hosts' home, which must be the same on all of them, because the folder of a
/// job is.
fn at_home(place: &str, path: &str, hosts: &[Host]) -> Result<String, Fault> {
    let below = match path.strip_prefix('~') {
        Some(below) if below.is_empty() || below.starts_with('/') => below,
        _ => return Ok(path.to_owned()),
    };
    let home = hosts.first().and_then(|host| host.facts.home.as_deref());
    for host in hosts {
        let fix = "write the folder out, from / on";
        match (host.facts.home.as_deref(), home) {
            (Some(own), _) if !own.starts_with('/') || own.contains('\0') => {
                let fault = Fault::data(
                    host.place(),
                    format!("home {own:?} is not an absolute path"),
                );
                return Err(fault.fix(format!("run host-probe again, or {fix}")));
            }
            (Some(own), Some(first)) if own == first => {}
            (Some(own), Some(first)) => {
                let problem = format!(
                    "{path}: home is {own} on {}, {first} on {}",
                    host.place(),
                    hosts[0].place()
                );
                return Err(Fault::data(place, problem).fix(fix));
            }
            _ => {
                let problem = format!("{path}: the home of {} is not known", host.place());
                return Err(Fault::data(place, problem)
                    .fix(format!("put host-probe before dgl-env, or {fix}")));
            }
        }
    }
    let path = format!("{}{below}", home.unwrap_or_default().trim_end_matches('/'));
    Ok(if path.is_empty() {
        "/".to_owned()
    } else {
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(homes: &[Option<&str>]) -> Vec<Host> {
        let host = |home: &Option<&str>| {
            let mut host = Host::default();
            host.facts.home = home.map(str::to_owned);
            host
        };
        homes.iter().map(host).collect()
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn which_path_counts() {
        let home: &[Option<&str>] = &[Some("/home/u"), Some("/home/u")];
        let table: &[(Option<&str>, Option<&str>, &[Option<&str>], &str)] = &[
            (None, None, &[], "-"),
            (Some("data/g.json"), None, &[None], "data/g.json"),
            (None, Some("data/g.json"), &[None], "data/g.json"),
            (
                Some("./data//g.json"),
                Some("data/g.json"),
                &[None],
                "./data//g.json",
            ),
            (
                Some("/ws/data/g.json"),
                Some("data/g.json"),
                &[None],
                "/ws/data/g.json",
            ),
            (
                Some("data/g.json"),
                Some("/ws/data/g.json"),
                &[None],
                "data/g.json",
            ),
            (Some("/else/g.json"), None, &[None], "/else/g.json"),
            (Some("~/g.json"), None, home, "/home/u/g.json"),
            (Some("~"), Some("/home/u"), home, "/home/u"),
            (
                Some("~/g.json"),
                Some("/home/u/./g.json"),
                home,
                "/home/u/g.json",
            ),
            (Some("~"), None, &[Some("/")], "/"),
            (Some("~other/g.json"), None, home, "~other/g.json"),
            (
                Some("g.json"),
                Some("data/g.json"),
                home,
                "--part-config: g.json here, but data/g.json in the stream",
            ),
            (Some(""), None, home, "--part-config: is empty"),
            (
                None,
                Some(""),
                home,
                "stdin: graph record: part_config: is empty",
            ),
            (
                None,
                Some("a\0b"),
                home,
                "stdin: graph record: part_config: has a NUL byte",
            ),
            (
                Some("~/g.json"),
                None,
                &[Some("/home/u"), None],
                "the home of host 0 (0.0.0.0) is not known\n  fix: put host-probe before",
            ),
            (
                Some("~/g.json"),
                None,
                &[Some("/home/u"), Some("/u")],
                "home is /u on host 0 (0.0.0.0), /home/u on",
            ),
            (
                Some("~/g.json"),
                None,
                &[Some("u")],
                "home \"u\" is not an absolute path",
            ),
        ];
        for (option_value, record_value, homes, expected) in table {
            let given = ProcessPaths {
                option: "--part-config",
                option_value: option_value.map(Path::new),
                record_value: *record_value,
                record: "graph",
            };
            match given.agreed(Some("/ws"), &hosts(homes)) {
                Ok(path) => assert_eq!(
                    path.as_deref().unwrap_or("-"),
                    *expected,
                    "{option_value:?} {record_value:?}"
                ),
                Err(fault) => assert!(fault.to_string().contains(expected), "{fault}"),
            }
        }
    }
}
