//! Finds hosts with another Python, torch or DGL than the others, whose processes could not work
//! together.

use indexmap::IndexMap;
use record::error::Fault;
use record::majority::most_frequent;
use record::python::minor;
use record::{Facts, Host};

/// The software whose version must be the same on all hosts. A torch that was built for CUDA has
/// that in its version: `2.2.1+cu121`.
const MUST_AGREE: [(&str, fn(&Facts) -> Option<&str>); 3] = [
    ("python", |facts| facts.python.as_deref().map(minor)),
    ("torch", |facts| facts.torch.as_deref()),
    ("dgl", |facts| facts.dgl.as_deref()),
];

/// The hosts whose version differs from that of most hosts, or of the first ones if no version is
/// more frequent, each with the difference.
pub fn odd<'a>(found: &[(&'a Host, &'a Facts)]) -> Vec<(u32, Fault)> {
    let mut differs: IndexMap<u32, Vec<String>> = IndexMap::new();
    for (name, version) in MUST_AGREE {
        let known = |(host, facts): &(&'a Host, &'a Facts)| Some((*host, version(facts)?));
        let versions: Vec<(&Host, &str)> = found.iter().filter_map(known).collect();
        let Some((usual, _)) = most_frequent(versions.iter().map(|(_, version)| *version)) else {
            continue;
        };
        let there = versions.iter().find(|(_, version)| *version == usual);
        let there = there.map_or(String::new(), |(host, _)| host.place());
        for (host, own) in &versions {
            if *own != usual {
                let text = format!("{name} {own}, where {there} has {usual}");
                differs.entry(host.id).or_default().push(text);
            }
        }
    }
    let fault = |(id, differs): (u32, Vec<String>)| {
        let (host, _) = found.iter().find(|(host, _)| host.id == id)?;
        let fault = Fault::unreachable(host.place(), format!("has {}", differs.join("; ")));
        Some((
            id,
            fault.fix(
                "install one version on all hosts, or name the right Python with --conda or \
                 --venv; --mixed-versions goes on all the same",
            ),
        ))
    };
    differs.into_iter().filter_map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The python, torch and dgl of a host; `-` where it has none.
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
                    "has python 3.11, where host 0 (0.0.0.0) has 3.8; dgl 1.0.4, where host 0 \
                     (0.0.0.0) has 0.9.1",
                )],
            ),
            (
                &[["3.8.1", "1.9.1+cu111", "0.9.1"], a, a],
                &[(0, "has torch 1.9.1+cu111, where host 1 (0.0.0.0) has 1.9.1")],
            ),
            (
                &[a, ["3.8.1", "1.9.1", "1.0.4"]],
                &[(1, "has dgl 1.0.4, where host 0 (0.0.0.0) has 0.9.1")],
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
            let odd = odd(&found);
            let got: Vec<(u32, &str)> = odd
                .iter()
                .map(|(id, fault)| (*id, fault.problem.as_str()))
                .collect();
            assert_eq!(got, wanted, "{versions:?}");
        }
    }
}
