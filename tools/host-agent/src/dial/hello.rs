//! The introduction of this host, with everything by which the tool may identify it.

use nix::ifaddrs::getifaddrs;
use std::fs;
use std::io;
use wire::dial::Hello;

/// Variables with a host's name in its engine, which may differ from the kernel's.
const NAME_VARIABLES: [&str; 1] = ["SLURMD_NODENAME"];
/// Variables with the position that an engine has given to this agent.
const POSITION_VARIABLES: [&str; 6] = [
    "SLURM_NODEID",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "JOB_COMPLETION_INDEX",
    "PBS_NODENUM",
];
pub fn hello() -> io::Result<Hello> {
    let addresses = getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()));
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let hello = hello_from(name.trim(), |variable| {
        std::env::var(variable)
            .ok()
            .filter(|value| !value.is_empty())
    });
    Ok(Hello {
        agent: tls::token()?,
        addresses: addresses.collect(),
        ..hello
    })
}

fn hello_from(name: &str, variable: impl Fn(&str) -> Option<String>) -> Hello {
    let names = NAME_VARIABLES.iter().filter_map(|name| variable(name));
    let position = POSITION_VARIABLES
        .iter()
        .find_map(|name| Some(format!("{name} {}", variable(name)?)));
    Hello {
        agent: String::new(),
        names: std::iter::once(name.to_owned()).chain(names).collect(),
        addresses: Vec::new(),
        position,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_engines_tell() {
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], Option<&'a str>);
        let table: [Row<'_>; 4] = [
            (&[], &["n1"], None),
            (
                &[
                    ("SLURM_NODEID", "2"),
                    ("PMI_RANK", "7"),
                    ("SLURMD_NODENAME", "node2"),
                ],
                &["n1", "node2"],
                Some("SLURM_NODEID 2"),
            ),
            (
                &[("OMPI_COMM_WORLD_RANK", "0")],
                &["n1"],
                Some("OMPI_COMM_WORLD_RANK 0"),
            ),
            (
                &[("JOB_COMPLETION_INDEX", "4")],
                &["n1"],
                Some("JOB_COMPLETION_INDEX 4"),
            ),
        ];
        for (variables, names, position) in table {
            let got = hello_from("n1", |name| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| (*value).to_owned())
            });
            assert_eq!(got.names, names, "{variables:?}");
            assert_eq!(got.position.as_deref(), position, "{variables:?}");
        }
    }
}
