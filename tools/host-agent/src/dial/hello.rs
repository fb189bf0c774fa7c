//! The introduction of this host: everything by which the tool may identify it.

use nix::ifaddrs::getifaddrs;
use std::fs;
use std::io;
use wire::dial::{Ender, Hello};

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
/// Variables that are set if an engine ends whatever an agent leaves behind.
const ENDERS: [(&str, Ender); 3] = [
    ("SLURM_STEP_ID", Ender::Slurm),
    ("PBS_JOBID", Ender::Pbs),
    ("LSB_JOBID", Ender::Lsf),
];

/// The introduction of this agent.
pub fn hello() -> io::Result<Hello> {
    let addresses = getifaddrs()
        .into_iter()
        .flatten()
        .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()));
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let hello = hello_from(name.trim(), std::process::id() == 1, |variable| {
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

/// The introduction, from the kernel's name and the engine's variables.
fn hello_from(name: &str, is_first: bool, variable: impl Fn(&str) -> Option<String>) -> Hello {
    let names = NAME_VARIABLES.iter().filter_map(|name| variable(name));
    let position = POSITION_VARIABLES
        .iter()
        .find_map(|name| Some(format!("{name} {}", variable(name)?)));
    let ender = ENDERS
        .iter()
        .find(|(name, _)| variable(name).is_some())
        .map(|(_, ender)| *ender)
        .or(is_first.then_some(Ender::Container));
    Hello {
        agent: String::new(),
        names: std::iter::once(name.to_owned()).chain(names).collect(),
        addresses: Vec::new(),
        position,
        ender,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_engines_tell() {
        type Row<'a> = (
            &'a [(&'a str, &'a str)],
            bool,
            &'a [&'a str],
            Option<&'a str>,
            Option<Ender>,
        );
        let table: [Row<'_>; 5] = [
            (&[], false, &["n1"], None, None),
            (
                &[
                    ("SLURM_STEP_ID", "3"),
                    ("SLURM_NODEID", "2"),
                    ("PMI_RANK", "7"),
                    ("SLURMD_NODENAME", "node2"),
                ],
                false,
                &["n1", "node2"],
                Some("SLURM_NODEID 2"),
                Some(Ender::Slurm),
            ),
            (
                &[("OMPI_COMM_WORLD_RANK", "0")],
                false,
                &["n1"],
                Some("OMPI_COMM_WORLD_RANK 0"),
                None,
            ),
            (
                &[("JOB_COMPLETION_INDEX", "4")],
                true,
                &["n1"],
                Some("JOB_COMPLETION_INDEX 4"),
                Some(Ender::Container),
            ),
            (
                &[("PBS_JOBID", "1.a")],
                true,
                &["n1"],
                None,
                Some(Ender::Pbs),
            ),
        ];
        for (variables, is_first, names, position, ender) in table {
            let got = hello_from("n1", is_first, |name| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| (*value).to_owned())
            });
            assert_eq!(got.names, names, "{variables:?}");
            assert_eq!(got.position.as_deref(), position, "{variables:?}");
            assert_eq!(got.ender, ender, "{variables:?}");
        }
    }
}
