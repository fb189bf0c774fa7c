//! Warnings about ports of graph servers that the kernel also gives to outgoing connections, which
//! may use one when a server needs it.

use record::error::Fault;
use record::{DEFAULT_PORT, Host};
use wire::probe::EphemeralPorts;

pub struct HostServers<'a> {
    pub host: &'a Host,
    pub first_port: u16,
    /// Ports of outgoing connections.
    pub ephemeral: &'a EphemeralPorts,
}

/// They need no privileges.
const ORDINARY_PORTS: std::ops::RangeInclusive<u16> = 1024..=65535;

/// For each host with such a port; `count` is the number of servers on each.
pub fn warnings(servers: &[HostServers<'_>], count: u16) -> Vec<Fault> {
    let mut warnings = Vec::new();
    let fix = fix(servers, count);
    for server in servers {
        let ephemeral = server.ephemeral;
        let last = server.first_port.saturating_add(count - 1);
        if let Some(port) = (server.first_port..=last).find(|port| ephemeral.may_take(*port)) {
            let problem = format!(
                "port {port} may be in use when the job starts: the host's kernel gives {} to {} \
                 to outgoing connections (net.ipv4.ip_local_port_range)",
                ephemeral.first, ephemeral.last
            );
            warnings.push(Fault::data(server.host.location(), problem).fix(&fix));
        }
    }
    warnings
}

fn fix(servers: &[HostServers<'_>], count: u16) -> String {
    let mut safe: Vec<(u16, u16)> = Vec::new();
    for port in ORDINARY_PORTS {
        if servers.iter().any(|server| server.ephemeral.may_take(port)) {
            continue;
        }
        match safe.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(port) => *last = port,
            _ => safe.push((port, port)),
        }
    }
    safe.retain(|(first, last)| last - first >= count - 1);
    let Some((lowest, _)) = safe.first() else {
        return "reserve the ports of the servers on all hosts, in \
                net.ipv4.ip_local_reserved_ports (sysctl -w)"
            .to_owned();
    };
    let has_default = safe
        .iter()
        .filter(|(first, _)| *first <= DEFAULT_PORT)
        .filter_map(|(_, last)| last.checked_sub(DEFAULT_PORT))
        .any(|beyond| beyond >= count - 1);
    let example = if has_default { DEFAULT_PORT } else { *lowest };
    let shown = safe
        .iter()
        .map(|(first, last)| format!("{first} to {last}"));
    let shown = shown.take(3).collect::<Vec<_>>().join(", ");
    format!("use port {example}, or another that is safe on all hosts: {shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_outgoing_connections_are_warned_of() {
        let usual = EphemeralPorts {
            first: 32768,
            last: 60999,
            reserved: vec![(40000, 40003)],
        };
        let wide = |reserved: &[(u16, u16)]| EphemeralPorts {
            first: 1024,
            last: 65535,
            reserved: reserved.to_vec(),
        };
        let (with_reserved, wide) = (wide(&[(30050, 30051), (20000, 20000)]), wide(&[]));
        let safe = "use port 30050, or another that is safe on all hosts: 1024 to 32767, 40000 \
                    to 40003, 61000 to 65535";
        let table: [(&[(u16, &EphemeralPorts)], u16, &[&str], &str); 7] = [
            (&[(30050, &usual), (61000, &usual)], 4, &[], ""),
            (&[(40000, &usual)], 4, &[], ""),
            (
                &[(40000, &usual)],
                5,
                &["port 40004 may"],
                &safe.replace(" 40000 to 40003,", ""),
            ),
            (
                &[(32768, &usual), (30050, &usual)],
                1,
                &["port 32768 may"],
                safe,
            ),
            (&[(32767, &usual)], 2, &["port 32768 may"], safe),
            (
                &[
                    (30050, &usual),
                    (30050, &with_reserved),
                    (30051, &with_reserved),
                ],
                2,
                &["port 30052 may"],
                "use port 30050, or another that is safe on all hosts: 30050 to 30051",
            ),
            (
                &[(30050, &wide)],
                1,
                &["port 30050 may"],
                "reserve the ports",
            ),
        ];
        for (ports, count, problems, fix) in table {
            let host = Host::default();
            let servers = ports.iter().map(|&(first_port, ephemeral)| HostServers {
                host: &host,
                first_port,
                ephemeral,
            });
            let found = warnings(&servers.collect::<Vec<_>>(), count);
            assert_eq!(found.len(), problems.len(), "{ports:?}: {found:?}");
            for (fault, problem) in found.iter().zip(problems) {
                assert!(fault.problem.starts_with(problem), "{fault}");
                assert!(fault.fix.as_ref().unwrap().starts_with(fix), "{fault}");
            }
        }
    }
}
