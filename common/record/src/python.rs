//! Versions of Python and its packages, and hosts whose versions differ from the others'.

use crate::majority::most_frequent;
use crate::{Facts, Host};

/// Must be the same on all hosts, because their processes work together. The version of a torch for
/// CUDA names that: `2.2.1+cu121`.
const MUST_AGREE: [(&str, fn(&Facts) -> Option<&str>); 3] = [
    ("python", |facts| facts.python.as_deref().map(minor)),
    ("torch", |facts| facts.torch.as_deref()),
    ("dgl", |facts| facts.dgl.as_deref()),
];

/// The variables that activating a venv or a conda environment with this name sets. `path` is PATH
/// without it.
pub fn activation(
    prefix: &str,
    conda_env: Option<&str>,
    path: &str,
) -> Vec<(&'static str, String)> {
    let path = ("PATH", format!("{prefix}/bin:{path}"));
    match conda_env {
        Some(name) => vec![
            path,
            ("CONDA_PREFIX", prefix.to_owned()),
            ("CONDA_DEFAULT_ENV", name.to_owned()),
        ],
        None => vec![path, ("VIRTUAL_ENV", prefix.to_owned())],
    }
}

/// How each host differs from the most frequent versions, or from the first of equally frequent
/// ones. If `must_have`, hosts must have what the others have.
pub fn odd_versions(hosts: &[(&Host, &Facts)], must_have: bool) -> Vec<Option<String>> {
    let mut odd = vec![Vec::new(); hosts.len()];
    for (name, version) in MUST_AGREE {
        let versions = hosts.iter().filter_map(|(_, facts)| version(facts));
        let Some((usual, _)) = most_frequent(versions) else {
            continue;
        };
        let Some((host, _)) = hosts
            .iter()
            .find(|(_, facts)| version(facts) == Some(usual))
        else {
            continue;
        };
        let there = format!("where {} has {usual}", host.location());
        for ((_, facts), differences) in hosts.iter().zip(&mut odd) {
            match version(facts) {
                Some(own) if own != usual => differences.push(format!("{name} {own}, {there}")),
                None if must_have => differences.push(format!("no {name}, {there}")),
                _ => {}
            }
        }
    }
    odd.into_iter()
        .map(|differences| (!differences.is_empty()).then(|| differences.join("; ")))
        .collect()
}

/// Major, minor, patch.
pub type Version = (u32, u32, u32);

/// `3.11` of `3.11.2`; pickled or compiled data fits all patch releases.
pub fn minor(version: &str) -> &str {
    version
        .match_indices('.')
        .map(|(position, _)| position)
        .nth(1)
        .map_or(version, |second| &version[..second])
}

/// Of Python or a package: `1.0.4`, `0.6.0post1`, `1.13.0+cu117`; `None` for `unknown`.
pub fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|part| {
        let digits = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        part[..digits].parse().ok()
    });
    Some((
        numbers.next()??,
        numbers.next()??,
        numbers.next().flatten().unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let table = [
            ("1.0.4", Some((1, 0, 4))),
            ("0.6.0post1", Some((0, 6, 0))),
            ("1.13.0+cu117", Some((1, 13, 0))),
            ("2.4", Some((2, 4, 0))),
            ("2.4.dev3", Some((2, 4, 0))),
            ("unknown", None),
            ("", None),
            ("99999999999.1", None),
        ];
        for (text, parsed) in table {
            assert_eq!(version(text), parsed, "{text}");
        }
    }

    /// The python, torch and dgl of a host; `-` if it lacks one.
    type Versions = [&'static str; 3];

    #[test]
    fn who_differs_from_most() {
        let a = ["3.8.1", "1.9.1", "0.9.1"];
        let table: [(&[Versions], &[(u32, &str)]); 7] = [
            (&[a, a], &[]),
            (&[a, ["3.8.20", "1.9.1", "0.9.1"]], &[]),
            (&[a, ["3.8.1", "-", "-"]], &[]),
            (&[], &[]),
            (
                &[a, a, ["3.11.2", "1.9.1", "1.0.4"]],
                &[(
                    2,
                    "python 3.11, where host 0 (0.0.0.0) has 3.8; dgl 1.0.4, where host 0 \
                     (0.0.0.0) has 0.9.1",
                )],
            ),
            (
                &[["3.8.1", "1.9.1+cu111", "0.9.1"], a, a],
                &[(0, "torch 1.9.1+cu111, where host 1 (0.0.0.0) has 1.9.1")],
            ),
            (
                &[a, ["3.8.1", "1.9.1", "1.0.4"]],
                &[(1, "dgl 1.0.4, where host 0 (0.0.0.0) has 0.9.1")],
            ),
        ];
        for (versions, wanted) in table {
            let known = |version: &str| (version != "-").then(|| version.to_owned());
            let hosts: Vec<Host> = (0..)
                .zip(versions)
                .map(|(id, [python, torch, dgl])| Host {
                    id,
                    facts: Facts {
                        python: known(python),
                        torch: known(torch),
                        dgl: known(dgl),
                        ..Facts::default()
                    },
                    ..Host::default()
                })
                .collect();
            let found: Vec<_> = hosts.iter().map(|host| (host, &host.facts)).collect();
            let odd = odd_versions(&found, false);
            let got: Vec<(u32, &str)> = (0..)
                .zip(&odd)
                .filter_map(|(id, differences)| Some((id, differences.as_deref()?)))
                .collect();
            assert_eq!(got, wanted, "{versions:?}");
        }
        let hosts = [Host::default(), Host::default()];
        let dgl = Facts {
            dgl: Some("1.0.4".to_owned()),
            ..Facts::default()
        };
        let found = [(&hosts[0], &hosts[0].facts), (&hosts[1], &dgl)];
        let lacks = Some("no dgl, where host 0 (0.0.0.0) has 1.0.4".to_owned());
        assert_eq!(odd_versions(&found, true), [lacks, None]);
    }
}
