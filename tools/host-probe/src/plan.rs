//! The meaning of a host's answer.

use crate::gpus;
use record::error::Fault;
use record::{Facts, Host};
use wire::Failure;
use wire::probe::{EphemeralPorts, Occupancy, Probed, Python};

#[derive(Debug, Default, PartialEq)]
pub struct ProbeAnswer {
    /// What the host's record gains.
    pub facts: Facts,
    pub warnings: Vec<Fault>,
    /// If requested.
    pub occupancy: Occupancy,
    /// Ports of outgoing connections.
    pub ephemeral_ports: Option<EphemeralPorts>,
}

pub fn answer(host: &Host, python: &Python, mut probed: Probed) -> Result<ProbeAnswer, Fault> {
    if let Some(failure) = probed.environment_failure {
        return Err(no_environment(host, python, failure));
    }
    let mut warnings = gpus::warnings(host, &probed);
    let mut warn = |problem: String, fix: &str| {
        warnings.push(Fault::data(host.location(), problem).fix(fix));
    };
    let mut interfaces = probed.interfaces.iter();
    probed.facts.iface = interfaces
        .find(|interface| interface.address == host.ip.0)
        .map(|interface| interface.name.clone());
    if probed.interfaces.is_empty() {
        let problem = "its network interfaces could not be listed, so the one that has its \
            address is unknown";
        warn(problem.to_owned(), "see what `ip addr` lists on the host");
    } else if probed.facts.iface.is_none() {
        let problem = not_of_an_interface(host, &probed);
        let fix = list_by_interface(host, &probed);
        let has_no_dgl = probed.facts.python.is_some() && probed.facts.dgl.is_none();
        if !has_no_dgl {
            let problem = format!("{problem}; DGL would mistake the host for machine 0");
            return Err(Fault::unreachable(host.location(), problem).fix(fix));
        }
        warn(
            format!("{problem}, so gloo may choose another"),
            &format!("{fix}; or dgl-env --env GLOO_SOCKET_IFNAME=NAME"),
        );
    }
    if let Some(failure) = probed.python_failure {
        let fix = match python {
            Python::Command(_) => {
                "name the job's Python: --conda ENV, --venv DIR or --python CMD, with --setup \
                 where it needs one"
            }
            Python::Conda(_) | Python::Venv(_) => "try it in a shell on the host, after --setup",
        };
        warn(failure.problem, fix);
    }
    Ok(ProbeAnswer {
        facts: probed.facts,
        warnings,
        occupancy: probed.occupancy,
        ephemeral_ports: probed.ephemeral_ports,
    })
}

/// The fault of a missing environment. Users paste the fix, so it has the path in their form.
fn no_environment(host: &Host, python: &Python, failure: Failure) -> Fault {
    let fix = match python {
        Python::Venv(folder) => {
            let below_home = folder.strip_prefix("~/");
            let home = if below_home.is_some() { "~/" } else { "" };
            let folder = record::quote::shown(below_home.unwrap_or(folder));
            format!(
                "create it on the host: python3 -m venv {home}{folder}; or use --conda if it is \
                 conda's"
            )
        }
        Python::Conda(_) | Python::Command(_) => {
            "conda env list on the host lists them; --conda accepts a directory too, and --venv \
             the directory of a venv"
                .to_owned()
        }
    };
    Fault::unreachable(host.location(), failure.problem).fix(fix)
}

/// The host's address belongs to none of its interfaces.
fn not_of_an_interface(host: &Host, probed: &Probed) -> String {
    let mut shown: Vec<String> = Vec::new();
    for interface in &probed.interfaces {
        if interface.name != "lo" {
            shown.push(format!("{} {}", interface.name, interface.address));
        }
    }
    if shown.is_empty() {
        shown.push("only lo".to_owned());
    }
    let (ip, shown) = (host.ip, wire::cut_message(&shown.join(", ")));
    format!("{ip} is not the first address of an interface of the host ({shown})")
}

/// What to write in ip_config. The HostName of ssh_config is often a public address, at which a
/// gateway answers: then the login needs the name, and DGL a private address.
fn list_by_interface(host: &Host, probed: &Probed) -> String {
    let login = host.target();
    if host.name.is_none() || !record::quote::may_be_pasted(&login) {
        return "write the first address of one of its interfaces in ip_config".to_owned();
    }
    let addresses = probed.interfaces.iter().map(|interface| interface.address);
    let mut private = addresses.filter(|address| address.is_private());
    let address = match (private.next(), private.next()) {
        (Some(address), None) => address.to_string(),
        _ => "ADDRESS".to_owned(),
    };
    format!(
        "list it by the address of its interface, and have ssh log in by the name: a first line \
         ip,login, then {address},{login}"
    )
}

#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub id: u32,
    pub of: u32,
    /// Of its first graph server.
    pub port: u16,
}

/// The record of a host with its facts, or why it cannot be used. Removes facts of an earlier
/// probe.
pub fn rewritten(host: &Host, placement: Placement, outcome: Result<&Facts, &str>) -> Host {
    let Placement { id, of, port } = placement;
    Host {
        id,
        of,
        port,
        facts: outcome.cloned().unwrap_or_default(),
        ok: outcome.is_err().then_some(false),
        error: outcome.err().map(str::to_owned),
        ..host.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::IpAddr;
    use wire::Failure;
    use wire::probe::Interface;

    fn host(ip: &str) -> Host {
        Host {
            of: 1,
            ip: IpAddr(ip.parse().unwrap()),
            port: 30050,
            ..Host::default()
        }
    }

    fn probed(interfaces: &[(&str, &str)]) -> Probed {
        let interface = |(name, address): &(&str, &str)| Interface {
            name: (*name).to_owned(),
            address: address.parse().unwrap(),
        };
        Probed {
            interfaces: interfaces.iter().map(interface).collect(),
            ..Probed::default()
        }
    }

    fn command(word: &str) -> Python {
        Python::Command(word.to_owned())
    }

    #[test]
    fn a_host_whose_name_leads_to_a_gateway_is_to_be_listed_by_a_private_address() {
        let interfaces = [("lo", "127.0.0.1"), ("eth0", "10.77.0.2")];
        let named = |name: &str| Host {
            name: Some(name.to_owned()),
            ..host("3.4.5.6")
        };
        let two = [
            ("eth0", "10.0.0.5"),
            ("docker0", "172.17.0.1"),
            ("eth1", "8.8.8.8"),
        ];
        for (host, interfaces, fix) in [
            (
                named("gpu1"),
                &interfaces[..],
                "a first line ip,login, then 10.77.0.2,gpu1",
            ),
            (named("gpu1"), &two[..], "then ADDRESS,gpu1"),
            (
                named("$(x)"),
                &two[..],
                "write the first address of one of its interfaces",
            ),
            (
                host("3.4.5.6"),
                &two[..],
                "write the first address of one of its interfaces",
            ),
        ] {
            let fault = answer(&host, &command("python3"), probed(interfaces)).unwrap_err();
            assert!(fault.fix.unwrap().contains(fix), "{fix}");
        }
    }

    #[test]
    fn answers() {
        let interfaces = [("lo", "127.0.0.1"), ("eth0", "10.77.0.2")];
        let no_python = Probed {
            python_failure: Some(Failure::new("python3 does not run: sh: not found")),
            ..probed(&interfaces)
        };
        let mut no_dgl = probed(&interfaces);
        no_dgl.facts.python = Some("3.11.2".to_owned());
        let table: [(&str, Probed, Result<(Option<&str>, &str), &str>); 6] = [
            (
                "10.0.0.5",
                no_dgl,
                Ok((
                    None,
                    "host 0 (10.0.0.5): 10.0.0.5 is not the first address of an interface of the \
                     host (eth0 10.77.0.2), so gloo",
                )),
            ),
            ("10.77.0.2", probed(&interfaces), Ok((Some("eth0"), ""))),
            (
                "10.0.0.5",
                probed(&interfaces),
                Err(
                    "10.0.0.5 is not the first address of an interface of the host (eth0 \
                     10.77.0.2); DGL",
                ),
            ),
            ("10.0.0.5", probed(&interfaces[..1]), Err("(only lo)")),
            (
                "10.77.0.2",
                no_python,
                Ok((
                    Some("eth0"),
                    "host 0 (10.77.0.2): python3 does not run: sh: not found\n  fix: name",
                )),
            ),
            (
                "10.77.0.2",
                Probed::default(),
                Ok((None, "host 0 (10.77.0.2): its network interfaces")),
            ),
        ];
        for (ip, probed, wanted) in table {
            match (answer(&host(ip), &command("python3"), probed), wanted) {
                (Ok(got), Ok((iface, warning))) => {
                    assert_eq!(got.facts.iface.as_deref(), iface, "{got:?}");
                    let warnings: String = got.warnings.iter().map(Fault::to_string).collect();
                    assert!(warnings.starts_with(warning), "{warnings}");
                    assert!(got.warnings.len() == usize::from(!warning.is_empty()));
                }
                (Err(fault), Err(text)) => assert!(fault.to_string().contains(text), "{fault}"),
                (got, wanted) => assert!(got.is_ok() == wanted.is_ok(), "{got:?} {wanted:?}"),
            }
        }
    }

    #[test]
    fn an_environment_that_is_not_there_has_a_cure_that_may_be_pasted() {
        let table = [
            (
                Python::Venv("~/v; x".into()),
                "fix: create it on the host: python3 -m venv ~/'v; x'; or use --conda",
            ),
            (
                Python::Venv("/v".into()),
                "fix: create it on the host: python3 -m venv /v; or use --conda",
            ),
            (
                Python::Conda("gnn".into()),
                "fix: conda env list on the host",
            ),
        ];
        for (python, fix) in table {
            let probed = Probed {
                environment_failure: Some(Failure::new("no such directory: /v")),
                ..Probed::default()
            };
            let fault = answer(&host("10.77.0.2"), &python, probed).unwrap_err();
            let wanted = format!("host 0 (10.77.0.2): no such directory: /v\n  {fix}");
            assert!(fault.to_string().starts_with(&wanted), "{fault}");
        }
    }

    #[test]
    fn records_keep_what_is_not_known_and_nothing_of_an_earlier_probe() {
        let facts = Facts {
            cpus: Some(8),
            ..Facts::default()
        };
        let table: [(&str, Result<&Facts, &str>, &str); 6] = [
            (
                r#","iface":"e","home":"/h","free_bytes":1"#,
                Ok(&facts),
                r#","cpus":8"#,
            ),
            (
                r#","shm_free_bytes":1,"master_port":1,"cpus":2,"mem_bytes":3"#,
                Err("no"),
                r#","ok":false,"error":"no""#,
            ),
            (
                r#","cpus":2,"prefix":"/v","path":"/bin","dgl":"1""#,
                Ok(&facts),
                r#","cpus":8"#,
            ),
            (r#","x":1.5,"cpus":2"#, Ok(&facts), r#","cpus":8,"x":1.5"#),
            (
                r#","ok":true,"error":"old","y":[{"type":"t"}]"#,
                Ok(&facts),
                r#","cpus":8,"y":[{"type":"t"}]"#,
            ),
            (
                r#","ok":true,"z":"ä","rack":7"#,
                Err("no"),
                r#","ok":false,"error":"no","z":"ä","rack":7"#,
            ),
        ];
        let placement = Placement {
            id: 1,
            of: 2,
            port: 30060,
        };
        let head = |id, of, port| {
            format!(r#"{{"type":"host","id":{id},"of":{of},"ip":"10.0.0.1","port":{port}"#)
        };
        for (more, outcome, wanted) in table {
            let line = format!("{}{more}}}", head(4, 6, 30050));
            let host: Host = serde_json::from_str(&line).unwrap();
            let line = record::jsonl::line(&rewritten(&host, placement, outcome));
            let wanted = format!("{}{wanted}}}\n", head(1, 2, 30060));
            assert_eq!(String::from_utf8(line).unwrap(), wanted);
        }
    }
}
