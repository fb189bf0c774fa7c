//! Turns the text of an ip_config into host records, or into all of its faults.

use crate::text::{HostLine, MAX_FAULTS, is_name};
use record::error::{Fault, Report};
use record::{Host, IpAddr};
use std::collections::{BTreeSet, HashMap};
use std::net::{self, Ipv4Addr, Ipv6Addr};

/// The meaning of a name.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// The name or address to which ssh connects: HostName of ssh_config, or the name itself.
    pub host_name: String,
    /// The setting of ssh_config that connects through another host, such as a bastion.
    pub proxy: Option<String>,
    /// The addresses of `host_name`; the error is the resolver's message.
    pub addresses: Result<Vec<net::IpAddr>, String>,
}

/// The resolution of a name from a line, which may have a user.
pub type Resolver<'a> = &'a dyn Fn(&str) -> Option<Resolution>;

/// The options of the command line.
pub struct PlanOptions<'a> {
    /// The name of the file, for messages.
    pub file: &'a str,
    /// The port of a host without one.
    pub default_port: u16,
    /// How many ports each host needs.
    pub num_servers: u16,
    /// Looks up names.
    pub resolver: Resolver<'a>,
}

const REACHABLE: &str = "write the address of the interface that the other hosts reach";
/// The fix if a name does not lead to the address that DGL needs; ssh can still log in by the name.
const BY_ADDRESS: &str = "list it by the address at which the other hosts reach it, and have ssh \
     log in by the name: a first line ip,login, then ADDRESS,NAME";

/// All addresses of lines that are names to look up, each once.
pub fn names(lines: &[HostLine]) -> Vec<&str> {
    let words = lines.iter().map(|line| line.address.as_str());
    let names = words.filter(|word| is_name(host_of(word)));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The name or address of `USER@HOST`.
fn host_of(word: &str) -> &str {
    word.split_once('@').map_or(word, |(_, host)| host)
}

/// Plans one host record for each line.
pub fn plan(lines: &[HostLine], options: &PlanOptions<'_>) -> Result<Vec<Host>, Report> {
    if lines.is_empty() {
        return Err(Fault::data(options.file, "names no host")
            .fix("write a line a host: its IPv4 address, then its port if it is not 30050")
            .report());
    }
    // far below, as lines() guarantees
    let of = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    let mut report = Report::default();
    let mut hosts = Vec::new();
    let mut first_lines: HashMap<Ipv4Addr, u64> = HashMap::new();
    for (id, line) in (0..of).zip(lines) {
        if report.0.len() >= MAX_FAULTS {
            break;
        }
        let Some(host) = report.keep(host(line, options)) else {
            continue;
        };
        let ip = host.ip.0;
        if let Some(earlier) = first_lines.insert(ip, line.number) {
            report.push(listed_twice(line, ip, earlier));
        }
        if ip.is_loopback() && of > 1 {
            let problem =
                format!("{ip} is every machine's own address; other hosts cannot reach it");
            report.push(Fault::data(&line.location, problem).fix(REACHABLE));
        }
        hosts.push(Host { id, of, ..host });
    }
    report.check()?;
    Ok(hosts)
}

fn host(line: &HostLine, options: &PlanOptions<'_>) -> Result<Host, Report> {
    let location = &line.location;
    let mut report = Report::default();
    let ip = report.keep(address(line, options.resolver));
    let port = match &line.port {
        None => Some(options.default_port),
        Some(word) => report.keep(port(location, word)),
    };
    let with_user = Some(&line.address).filter(|word| word.contains('@'));
    let login = line.login.as_ref().or(with_user);
    let login = login.and_then(|word| report.keep(login_of(location, word)));
    if let Some(surplus) = &line.surplus {
        let fault = Fault::data(location, format!("a third column: {surplus:?}"));
        report.push(fault.fix("a line is an address and a port; put all else behind a #"));
    }
    let servers = options.num_servers;
    let last_port = 65535 - (servers - 1);
    if let Some(port) = port.filter(|port| *port > last_port) {
        let problem = format!("{servers} servers from port {port} on go beyond 65535");
        let fix = format!("take a port of at most {last_port}");
        report.push(Fault::data(location, problem).fix(fix));
    }
    report.check()?;
    let ip = ip.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let resolved = Some(host_of(&line.address)).filter(|word| is_name(word));
    // ssh need not know the name of a host in a console
    let called = line.name.as_deref().filter(|word| is_name(word));
    let by_address = called.is_some() && resolved.is_none();
    Ok(Host {
        ip: IpAddr(ip),
        port: port.unwrap_or_default(),
        line: Some(line.number),
        name: resolved.or(called).map(str::to_owned),
        login: login.or_else(|| by_address.then(|| ip.to_string())),
        ..Host::default()
    })
}

/// The destination of logins: a name or an address, perhaps after a user.
fn login_of(location: &str, word: &str) -> Result<String, Fault> {
    let (user, host) = word.split_once('@').unwrap_or(("u", word));
    let is_user = is_name(user) && user.len() <= 256;
    match is_user && (is_name(host) || host.parse::<std::net::IpAddr>().is_ok()) {
        true => Ok(word.to_owned()),
        false => Err(Fault::data(
            location,
            format!("login {word:?} is neither a name nor an address"),
        )
        .fix(
            "write NAME, ADDRESS or USER@NAME; a port belongs into ssh_config, or into \
             DGL_TOOLS_SSH_PORT",
        )),
    }
}

fn listed_twice(line: &HostLine, ip: Ipv4Addr, earlier: u64) -> Fault {
    let name = host_of(&line.address);
    let (problem, fix) = match is_name(name) {
        true => (
            format!("{name} has the address {ip}, as the host of line {earlier}"),
            format!("list each host once; if they share a public address, {BY_ADDRESS}"),
        ),
        false => (
            format!("{ip} stands in line {earlier} already"),
            "a host holds one partition: list it once, and partition the graph into as many parts \
             as there are hosts"
                .to_owned(),
        ),
    };
    Fault::data(&line.location, problem).fix(fix)
}

fn address(line: &HostLine, resolve: Resolver<'_>) -> Result<Ipv4Addr, Fault> {
    let location = &line.location;
    let word = host_of(&line.address);
    let wrong = |problem: String, fix: &str| Err(Fault::data(location, problem).fix(fix));
    let ip = if let Ok(ip) = word.parse() {
        ip
    } else if word.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok() {
        let problem = format!("{word} is an IPv6 address, which no version of DGL supports");
        return wrong(problem, "write the host's IPv4 address");
    } else if is_name(word) {
        resolved(line, resolve(&line.address))?
    } else {
        let fix = match word.contains([',', ';']) {
            true => "a file with separators needs a header in its first line: ip,port,name,login",
            false => match word.contains(':') {
                true => "put a blank before the port, in place of the colon",
                false => "write four numbers from 0 to 255 with dots between them, or a name",
            },
        };
        return wrong(
            format!("{word:?} is neither an IPv4 address nor a name"),
            fix,
        );
    };
    match ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast() {
        true => wrong(format!("{ip} is not a host's address"), REACHABLE),
        false => Ok(ip),
    }
}

/// The address of a name, if it has exactly one that other hosts can reach.
fn resolved(line: &HostLine, resolution: Option<Resolution>) -> Result<Ipv4Addr, Fault> {
    let location = &line.location;
    let name = host_of(&line.address);
    let Some(resolution) = resolution else {
        return Err(Fault::unreachable(
            location,
            format!("{name}: was not looked up"),
        ));
    };
    let is_renamed = !resolution.host_name.eq_ignore_ascii_case(name);
    let shown = match is_renamed {
        true => format!("{name} (HostName {} of ssh_config)", resolution.host_name),
        false => name.to_owned(),
    };
    let addresses = resolution
        .addresses
        .map_err(|error| match &resolution.proxy {
            Some(proxy) => {
                let problem = format!(
                    "{shown}: {error}; ssh reaches it by {proxy}, so only that may know the name"
                );
                Fault::unreachable(location, problem).fix(BY_ADDRESS)
            }
            None => Fault::unreachable(location, format!("{shown}: {error}"))
                .fix("correct the name, or write the host's IPv4 address"),
        })?;
    let (problem, fix) = match ipv4_to_choose_from(&addresses)[..] {
        [ip] if !ip.is_loopback() || name == "localhost" => return Ok(ip),
        [ip] if !is_renamed => (
            format!("{name} resolves to {ip} here, which is every machine's own address"),
            format!(
                "write its address in place of the name, or correct the line `{ip} {name}` of \
                 /etc/hosts (Debian writes 127.0.1.1 there)"
            ),
        ),
        [_] => (
            format!("{shown} is every machine's own address"),
            BY_ADDRESS.to_owned(),
        ),
        [] => {
            let ips: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let problem = format!(
                "{shown} has only an IPv6 address ({}), which no version of DGL supports",
                ips.join(", ")
            );
            (problem, BY_ADDRESS.to_owned())
        }
        ref ips => {
            let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
            let problem = format!("{shown} has several addresses: {}", ips.join(", "));
            (problem, BY_ADDRESS.to_owned())
        }
    };
    Err(Fault::data(location, problem).fix(fix))
}

/// The IPv4 addresses, each once, without those of loopback if there are others.
fn ipv4_to_choose_from(addresses: &[net::IpAddr]) -> Vec<Ipv4Addr> {
    let mut ips: Vec<Ipv4Addr> = Vec::new();
    for address in addresses {
        match address {
            net::IpAddr::V4(ip) if !ips.contains(ip) => ips.push(*ip),
            _ => {}
        }
    }
    if ips.iter().any(|ip| !ip.is_loopback()) {
        ips.retain(|ip| !ip.is_loopback());
    }
    ips
}

fn port(location: &str, word: &str) -> Result<u16, Fault> {
    match word.parse::<u16>() {
        Ok(port) if port > 0 && word.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
        _ => Err(Fault::data(location, format!("{word:?} is not a port"))
            .fix("write a number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines;

    /// A name, the HostName of ssh_config, a proxy, and the addresses or the resolver's message.
    type Known<'a> = (&'a str, &'a str, &'a str, Result<&'a [&'a str], &'a str>);

    fn hosts(text: &str) -> Result<Vec<(u32, String, u16, u64)>, Vec<String>> {
        check(text, 1, &[])
    }

    fn check(
        text: &str,
        num_servers: u16,
        names: &[Known<'_>],
    ) -> Result<Vec<(u32, String, u16, u64)>, Vec<String>> {
        let resolve = |name: &str| {
            let mut known = names.iter();
            let (_, host_name, proxy, addresses) = known.find(|known| known.0 == name)?;
            let parsed = |ips: &&[&str]| ips.iter().map(|ip| ip.parse().unwrap()).collect();
            Some(Resolution {
                host_name: (*host_name).to_owned(),
                proxy: Some((*proxy).to_owned()).filter(|proxy| !proxy.is_empty()),
                addresses: addresses
                    .as_ref()
                    .map(parsed)
                    .map_err(|error| (*error).to_owned()),
            })
        };
        let options = PlanOptions {
            file: "f",
            default_port: 30050,
            num_servers,
            resolver: &resolve,
        };
        let planned = lines("f", text.as_bytes()).and_then(|lines| plan(&lines, &options));
        match planned {
            Ok(hosts) => Ok(hosts
                .into_iter()
                .map(|h| (h.id, h.ip.to_string(), h.port, h.line.unwrap()))
                .collect()),
            Err(report) => Err(report
                .0
                .into_iter()
                .map(|fault| format!("{}: {}", fault.location, fault.problem))
                .collect()),
        }
    }

    #[test]
    fn every_shape_that_users_have() {
        let two = |a, b| {
            Ok(vec![
                (0, "10.0.0.1".to_owned(), 30050, a),
                (1, "10.0.0.2".to_owned(), 30051, b),
            ])
        };
        let table = [
            ("10.0.0.1\n10.0.0.2 30051\n", two(1, 2)),
            ("10.0.0.1 30050\n10.0.0.2 30051", two(1, 2)),
            ("10.0.0.1\t30050\r\n10.0.0.2  \t 30051 \r\n", two(1, 2)),
            ("\u{feff}10.0.0.1\n\n  \n10.0.0.2 30051\n\n", two(1, 4)),
            (
                "# two hosts\n  10.0.0.1 # the first\n10.0.0.2 30051 #x\n",
                two(2, 3),
            ),
            ("10.0.0.1\r10.0.0.2 30051\r", two(1, 2)),
            ("10.0.0.1\r\n\r\n10.0.0.2 30051", two(1, 3)),
            (
                "\u{a0}10.0.0.1\u{a0}30050\u{2003}\n10.0.0.2\u{a0}30051\n",
                two(1, 2),
            ),
            (
                "10.0.0.1\t\t# a tab before\n\t10.0.0.2\u{b}30051\u{c}\n",
                two(1, 2),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(hosts(text), expected, "{text:?}");
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let table: [(&str, &[&str]); 20] = [
            ("", &["f: names no host"]),
            ("# nothing\n\n", &["f: names no host"]),
            ("10.0.0.1\nnode2\n", &["f:2: node2: was not looked up"]),
            ("fe80::1\n", &["f:1: fe80::1 is an IPv6 address"]),
            ("10.0.0.1 30050 16\n", &["f:1: a third column: \"16\""]),
            ("10.0.0.256\n", &["f:1: \"10.0.0.256\" is neither an IPv4"]),
            ("10.0.0.01\n", &["f:1: \"10.0.0.01\" is neither an IPv4"]),
            (
                "10.0.0.1:30050\n",
                &["f:1: \"10.0.0.1:30050\" is neither an IPv4"],
            ),
            (
                "10.0.0.1 0\n10.0.0.2 65536\n10.0.0.3 +5\n",
                &[
                    "f:1: \"0\" is not a port",
                    "f:2: \"65536\" is not a port",
                    "f:3: \"+5\" is not a port",
                ],
            ),
            (
                "10.0.0.1\n10.0.0.2\n10.0.0.1 30051\n",
                &["f:3: 10.0.0.1 stands in line 1 already"],
            ),
            (
                "127.0.0.1\n10.0.0.2\n",
                &["f:1: 127.0.0.1 is every machine's own address"],
            ),
            ("0.0.0.0\n", &["f:1: 0.0.0.0 is not a host's address"]),
            (
                "10.0.0.1 x y\n",
                &["f:1: \"x\" is not a port", "f:1: a third column: \"y\""],
            ),
            (
                "-oProxyCommand=x\n",
                &["f:1: \"-oProxyCommand=x\" is neither an IPv4"],
            ),
            (
                "10.0.0.1\u{200b}\n",
                &["f:1: \"10.0.0.1\\u{200b}\" is neither an IPv4"],
            ),
            (
                "[fe80::1]\n::ffff:10.0.0.1\n",
                &[
                    "f:1: [fe80::1] is an IPv6",
                    "f:2: ::ffff:10.0.0.1 is an IPv6",
                ],
            ),
            (
                "255.255.255.255\n224.0.0.1\n",
                &[
                    "f:1: 255.255.255.255 is not a host's",
                    "f:2: 224.0.0.1 is not a host's",
                ],
            ),
            ("1\x000\x00.\x00", &["f: is UTF-16 or no text at all"]),
            (
                "10.0.0.1, 10.0.0.2\n",
                &[
                    "f:1: \"10.0.0.1,\" is neither an IPv4",
                    "f:1: \"10.0.0.2\" is not a port",
                ],
            ),
            (
                "node1:30050\n",
                &["f:1: \"node1:30050\" is neither an IPv4"],
            ),
        ];
        for (text, expected) in table {
            let got = hosts(text).expect_err(text);
            assert_eq!(got.len(), expected.len(), "{text:?}: {got:?}");
            for (got, expected) in got.iter().zip(expected) {
                assert!(
                    got.starts_with(expected),
                    "{text:?}: {got} does not begin with {expected}"
                );
            }
        }
        for text in [
            &b"10.0.0.1\n\xff\xfe1\n"[..],
            b"\xff\xfe1\x000\x00",
            b"\xfe\xff\x001",
            &[b'1'; 5000],
        ] {
            assert!(lines("f", text).is_err());
        }
        let got = lines("f", "10.0.0\n".repeat(40_000).as_bytes()).and_then(|lines| {
            let options = PlanOptions {
                file: "f",
                default_port: 1,
                num_servers: 1,
                resolver: &|_| None,
            };
            plan(&lines, &options)
        });
        assert_eq!(got.expect_err("40,000 wrong lines").0.len(), MAX_FAULTS);
    }

    #[test]
    fn one_machine_alone_may_be_loopback() {
        assert_eq!(
            hosts("127.0.0.1 4000"),
            Ok(vec![(0, "127.0.0.1".into(), 4000, 1)])
        );
    }

    #[test]
    fn every_server_needs_its_port() {
        assert!(check("10.0.0.1 65532", 4, &[]).is_ok());
        assert_eq!(
            check("10.0.0.1 65533", 4, &[]),
            Err(vec![
                "f:1: 4 servers from port 65533 on go beyond 65535".into()
            ])
        );
    }

    #[test]
    fn names_have_one_address_that_others_reach() {
        let known: &[Known<'_>] = &[
            ("n1", "n1", "", Ok(&["10.0.0.7"])),
            ("ann@n2", "10.0.0.9", "", Ok(&["10.0.0.9"])),
            ("me", "me", "", Ok(&["127.0.1.1"])),
            (
                "also-me",
                "also-me",
                "",
                Ok(&["127.0.1.1", "10.0.0.8", "fe80::1", "10.0.0.8"]),
            ),
            ("vm", "127.0.0.1", "", Ok(&["127.0.0.1"])),
            ("six", "six", "", Ok(&["fe80::1"])),
            ("two", "two.org", "", Ok(&["10.0.0.1", "10.1.0.1"])),
            ("any", "any", "", Ok(&["0.0.0.0"])),
            ("gone", "gone", "", Err("no such host")),
            ("far", "far", "proxyjump gate", Err("no such host")),
            ("twin", "twin", "", Ok(&["10.0.0.7"])),
        ];
        assert_eq!(
            check("n1 4000\nann@n2\nalso-me\nbob@10.0.0.4\n", 1, known),
            Ok(vec![
                (0, "10.0.0.7".into(), 4000, 1),
                (1, "10.0.0.9".into(), 30050, 2),
                (2, "10.0.0.8".into(), 30050, 3),
                (3, "10.0.0.4".into(), 30050, 4),
            ])
        );
        let problems = check(
            "me\nvm\nsix\ntwo\nany\ngone\nfar\nn1\ntwin\n@n1\n",
            1,
            known,
        );
        assert_eq!(
            problems.unwrap_err(),
            [
                "f:1: me resolves to 127.0.1.1 here, which is every machine's own address",
                "f:2: vm (HostName 127.0.0.1 of ssh_config) is every machine's own address",
                "f:3: six has only an IPv6 address (fe80::1), which no version of DGL supports",
                "f:4: two (HostName two.org of ssh_config) has several addresses: 10.0.0.1, \
                 10.1.0.1",
                "f:5: 0.0.0.0 is not a host's address",
                "f:6: gone: no such host",
                "f:7: far: no such host; ssh reaches it by proxyjump gate, so only that may know \
                 the name",
                "f:9: twin has the address 10.0.0.7, as the host of line 8",
                "f:10: n1: was not looked up",
                "f:10: login \"@n1\" is neither a name nor an address",
            ]
        );
    }
}
