//! Decides which host an agent that has dialed in belongs to. All agents have the same secret, so a
//! report proves nothing: a compromised host could report the names of all others and receive their
//! data. So an agent belongs to the host whose address it connects from. If hosts share an address,
//! as on this machine, the reported name decides. The numbers of an engine do not count, because it
//! orders the nodes differently.

use record::Host;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use wire::dial::Hello;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvidence {
    /// The address from which it connects.
    Source,
    /// The addresses of its network interfaces, or else its names. For agents whose address differs
    /// from their host's, for instance behind address translation.
    Report,
}

/// The hosts by everything that identifies an agent. A host is an index into the list.
pub struct HostIndex {
    evidence: HostEvidence,
    addresses: Vec<Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, Vec<usize>>,
    by_name: HashMap<String, Vec<usize>>,
    /// Hosts by the part of the name before its first dot.
    by_label: HashMap<String, Vec<usize>>,
}

impl HostIndex {
    pub fn new(hosts: &[Host], evidence: HostEvidence) -> HostIndex {
        let mut index = HostIndex {
            evidence,
            addresses: hosts.iter().map(|host| host.ip.0).collect(),
            by_address: HashMap::new(),
            by_name: HashMap::new(),
            by_label: HashMap::new(),
        };
        for (host_index, host) in hosts.iter().enumerate() {
            index
                .by_address
                .entry(host.ip.0)
                .or_default()
                .push(host_index);
            for name in [&host.name, &host.login].into_iter().flatten() {
                let name = name.to_ascii_lowercase();
                if let Some(label) = label(&name) {
                    put(&mut index.by_label, label.to_owned(), host_index);
                }
                put(&mut index.by_name, name, host_index);
            }
        }
        index
    }

    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Usually one; none if the agent is unexpected.
    pub fn hosts_of(&self, hello: &Hello, from: IpAddr) -> Vec<usize> {
        let mut found = self.hosts_reported(hello);
        found.retain(|host| self.evidence == HostEvidence::Report || self.proves(from, *host));
        match from {
            IpAddr::V4(from) if found.is_empty() => {
                self.by_address.get(&from).cloned().unwrap_or_default()
            }
            _ => found,
        }
    }

    pub fn hosts_reported(&self, hello: &Hello) -> Vec<usize> {
        let of_addresses = hello.addresses.iter();
        let mut found: Vec<usize> = of_addresses
            .filter_map(|address| self.by_address.get(address))
            .flatten()
            .copied()
            .collect();
        // all agents on this machine have its addresses
        if found.is_empty() || self.evidence == HostEvidence::Source {
            let names = hello.names.iter().map(|name| name.to_ascii_lowercase());
            found.extend(names.flat_map(|name| self.hosts_named(&name)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn proves(&self, from: IpAddr, host: usize) -> bool {
        let address = self.addresses[host];
        let is_local = |address: Ipv4Addr| address.is_loopback() || crate::is_local(address);
        let IpAddr::V4(from) = from else { return false };
        from == address || (is_local(from) && is_local(address))
    }

    /// By the whole name; or by the first part, if only one of the two names has more parts and no
    /// other host shares the first.
    fn hosts_named(&self, name: &str) -> Vec<usize> {
        if let Some(found) = self.by_name.get(name) {
            return found.clone();
        }
        let (short, other) = match name.split_once('.') {
            Some((short, _)) => (short, &self.by_name),
            None => (name, &self.by_label),
        };
        match other.get(short).map(Vec::as_slice) {
            Some([host]) => vec![*host],
            _ => Vec::new(),
        }
    }
}

fn put(map: &mut HashMap<String, Vec<usize>>, key: String, host_index: usize) {
    let found = map.entry(key).or_default();
    if !found.contains(&host_index) {
        found.push(host_index);
    }
}

/// Only of a name with several parts.
fn label(name: &str) -> Option<&str> {
    let (first, _) = name.split_once('.')?;
    name.parse::<Ipv4Addr>().is_err().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::IpAddr;

    fn host(ip: [u8; 4], name: Option<&str>, login: Option<&str>) -> Host {
        Host {
            ip: IpAddr(ip.into()),
            name: name.map(str::to_owned),
            login: login.map(str::to_owned),
            ..Host::default()
        }
    }

    fn hello(names: &[&str], addresses: &[[u8; 4]]) -> Hello {
        Hello {
            agent: "a".to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            addresses: addresses.iter().map(|ip| Ipv4Addr::from(*ip)).collect(),
            position: None,
        }
    }

    #[test]
    fn an_agent_is_known_by_an_address_or_else_by_a_name() {
        let hosts = [
            host([10, 0, 0, 1], None, None),
            host([10, 0, 0, 2], Some("n2"), None),
            host([10, 0, 0, 3], Some("n3.a.example"), Some("pod-3")),
            host([10, 0, 0, 4], Some("twin.a.example"), None),
            host([10, 0, 0, 5], Some("twin.b.example"), None),
            host([10, 0, 0, 6], Some("10.0.0.6"), None),
        ];
        let index = HostIndex::new(&hosts, HostEvidence::Report);
        let lo = [127, 0, 0, 1];
        let table: [(&[&str], &[[u8; 4]], &[usize]); 13] = [
            (&["x"], &[lo, [10, 0, 0, 1]], &[0]),
            // an address counts more than a name
            (&["n2"], &[[10, 0, 0, 1]], &[0]),
            (&["n2"], &[lo], &[1]),
            (&["N2"], &[], &[1]),
            (&["n2.a.example"], &[], &[1]),
            (&["n3"], &[], &[2]),
            (&["x", "pod-3"], &[], &[2]),
            // the rest of both names differs
            (&["n3.b.example"], &[], &[]),
            (&["twin"], &[], &[]),
            (&["twin.b.example"], &[], &[4]),
            (&["10"], &[], &[]),
            (&["x"], &[lo], &[]),
            // one machine that is two hosts
            (&["x"], &[[10, 0, 0, 1], [10, 0, 0, 2]], &[0, 1]),
        ];
        for (names, addresses, expected) in table {
            assert_eq!(
                index.hosts_of(&hello(names, addresses), [192, 0, 2, 1].into()),
                expected,
                "{names:?} {addresses:?}"
            );
        }
        assert_eq!(index.count(), hosts.len());
    }
    #[test]
    fn the_source_address_decides_unless_the_word_of_agents_is_to_count() {
        let hosts = [
            host([192, 0, 2, 1], Some("n1"), None),
            host([192, 0, 2, 2], Some("n2"), None),
            // of this machine, one of them twice
            host([127, 0, 1, 1], Some("n3"), None),
            host([127, 0, 1, 2], Some("n4"), None),
            host([127, 0, 1, 2], Some("n5"), None),
        ];
        let (source, word) = (HostEvidence::Source, HostEvidence::Report);
        let table: [(HostEvidence, [u8; 4], &[&str], &[[u8; 4]], &[usize]); 10] = [
            (source, [192, 0, 2, 1], &["n1"], &[[192, 0, 2, 1]], &[0]),
            // whatever it reports
            (source, [192, 0, 2, 1], &["n2"], &[[192, 0, 2, 2]], &[0]),
            (
                source,
                [192, 0, 2, 1],
                &["n1", "n2"],
                &[[192, 0, 2, 2], [192, 0, 2, 1]],
                &[0],
            ),
            (source, [192, 0, 2, 9], &["n2"], &[[192, 0, 2, 2]], &[]),
            (source, [192, 0, 2, 9], &["n3"], &[[127, 0, 1, 1]], &[]),
            (word, [192, 0, 2, 9], &["n1"], &[[192, 0, 2, 2]], &[1]),
            (word, [192, 0, 2, 1], &["x"], &[], &[0]),
            // here each may be each
            (source, [127, 0, 0, 1], &["n3"], &[[127, 0, 0, 1]], &[2]),
            (source, [127, 0, 0, 1], &["n5"], &[[127, 0, 0, 1]], &[4]),
            (source, [127, 0, 0, 1], &["n1"], &[[192, 0, 2, 1]], &[]),
        ];
        for (evidence, from, names, addresses, expected) in table {
            let index = HostIndex::new(&hosts, evidence);
            assert_eq!(
                index.hosts_of(&hello(names, addresses), from.into()),
                expected,
                "{evidence:?} {from:?} {names:?} {addresses:?}"
            );
        }
    }
}
