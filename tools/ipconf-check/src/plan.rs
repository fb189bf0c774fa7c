//! Turns the text of an ip_config into host records, or into all of its faults.

use crate::text::{Line, MAX_FAULTS, at, is_name};
use record::error::{Fault, Report};
use record::{Host, IpAddr};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The result of looking up a name: its IPv4 addresses, or the resolver's message.
pub type Resolved = Result<Vec<Ipv4Addr>, String>;

/// The options of the command line.
pub struct Options<'a> {
    /// The name of the file, for messages.
    pub place: &'a str,
    /// The port of a host without one.
    pub default_port: u16,
    /// How many ports each host needs.
    pub num_servers: u16,
    /// Whether names are allowed.
    pub resolve: bool,
}

/// The words that must be looked up.
pub fn names(lines: &[Line]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line.words[0].as_str())
        .filter(|word| is_name(word))
        .collect()
}

/// Plans one host record for each line.
pub fn plan(
    lines: &[Line],
    names: &HashMap<&str, Resolved>,
    options: &Options<'_>,
) -> Result<Vec<Host>, Report> {
    let place = options.place;
    if lines.is_empty() {
        return Err(Fault::data(place, "names no host")
            .fix("write a line a host: its IPv4 address, then its port if it is not 30050")
            .report());
    }
    // far below, as lines() guarantees
    let of = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    let mut report = Report::default();
    let mut hosts = Vec::new();
    for (id, line) in (0..of).zip(lines) {
        if report.0.len() >= MAX_FAULTS {
            break;
        }
        if let Some(host) = report.keep(host(line, names, options)) {
            hosts.push(Host { id, of, ..host });
        }
    }
    report.extend(together(place, &hosts));
    report.check()?;
    Ok(hosts)
}

fn host(
    line: &Line,
    names: &HashMap<&str, Resolved>,
    options: &Options<'_>,
) -> Result<Host, Report> {
    let place = at(options.place, line.number);
    let mut report = Report::default();
    let ip =
        report.keep(address(&place, &line.words[0], names, options.resolve).map_err(Report::from));
    let port = match line.words.get(1) {
        None => Some(options.default_port),
        Some(word) => report.keep(port(&place, word).map_err(Report::from)),
    };
    if let Some(surplus) = line.words.get(2) {
        let fault = Fault::data(&place, format!("a third column: {surplus:?}"));
        report.push(fault.fix("a line is an address and a port; put all else behind a #"));
    }
    if let Some(port) =
        port.filter(|port| u32::from(*port) + u32::from(options.num_servers) - 1 > 65535)
    {
        let fault = Fault::data(
            &place,
            format!(
                "{} servers from port {port} on go beyond 65535",
                options.num_servers
            ),
        );
        report.push(fault.fix(format!(
            "take a port of at most {}",
            65536 - u32::from(options.num_servers)
        )));
    }
    let name = Some(&line.words[0]).filter(|word| is_name(word)).cloned();
    match (ip, port) {
        (Some(ip), Some(port)) if report.0.is_empty() => Ok(Host {
            ip: IpAddr(ip),
            port,
            line: Some(line.number),
            name,
            ..Host::default()
        }),
        _ => Err(report),
    }
}

fn address(
    place: &str,
    word: &str,
    names: &HashMap<&str, Resolved>,
    resolve: bool,
) -> Result<Ipv4Addr, Fault> {
    if let Ok(ip) = word.parse::<Ipv4Addr>() {
        return one_machine(place, ip);
    }
    if word.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok() {
        return Err(Fault::data(
            place,
            format!("{word} is an IPv6 address, which no version of DGL supports"),
        )
        .fix("write the host's IPv4 address"));
    }
    if !is_name(word) {
        return Err(
            Fault::data(place, format!("{word:?} is not an IPv4 address"))
                .fix("write four numbers from 0 to 255 with dots between them"),
        );
    }
    if !resolve {
        let fault = Fault::data(
            place,
            format!(
                "{word} is a name; DGL compares addresses, and would silently take the host for \
                 another"
            ),
        );
        return Err(fault.fix("write its IPv4 address, or let --resolve look it up"));
    }
    match names.get(word) {
        Some(Ok(ips)) => match ips.iter().find(|ip| !ip.is_loopback()).or(ips.first()) {
            Some(ip) if ip.is_loopback() && word != "localhost" => {
                let fault = Fault::data(
                    place,
                    format!("{word} resolves to {ip} here, which is every machine's own address"),
                );
                Err(fault.fix(format!(
                    "write its address in place of the name, or correct the \
                    line `{ip} {word}` of /etc/hosts (Debian writes 127.0.1.1 there)"
                )))
            }
            Some(ip) => one_machine(place, *ip),
            None => Err(Fault::data(place, format!("{word} has no IPv4 address"))
                .fix("write the host's IPv4 address")),
        },
        Some(Err(error)) => Err(Fault::unreachable(place, format!("{word}: {error}"))
            .fix("correct the name, or write the host's IPv4 address")),
        None => Err(
            Fault::unreachable(place, format!("{word} was not looked up"))
                .fix("write the host's IPv4 address"),
        ),
    }
}

/// Accepts only an address that a single machine can have.
fn one_machine(place: &str, ip: Ipv4Addr) -> Result<Ipv4Addr, Fault> {
    match ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast() {
        true => Err(Fault::data(place, format!("{ip} is not a host's address"))
            .fix("write the address of the interface that the other hosts reach")),
        false => Ok(ip),
    }
}

fn port(place: &str, word: &str) -> Result<u16, Fault> {
    match word.parse::<u16>() {
        Ok(port) if port > 0 && word.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
        _ => Err(Fault::data(place, format!("{word:?} is not a port"))
            .fix("write a number from 1 to 65535")),
    }
}

/// The faults that only several lines together show.
fn together(place: &str, hosts: &[Host]) -> Report {
    let mut report = Report::default();
    let mut first: HashMap<Ipv4Addr, u64> = HashMap::new();
    for host in hosts {
        let number = host.line.unwrap_or(0);
        if let Some(earlier) = first.insert(host.ip.0, number) {
            let fault = Fault::data(
                at(place, number),
                format!("{} stands in line {earlier} already", host.ip),
            );
            report.push(fault.fix(
                "a host holds one partition: list it once, and partition the \
                    graph into as many parts as there are hosts",
            ));
        }
        if host.ip.0.is_loopback() && hosts.len() > 1 {
            let fault = Fault::data(
                at(place, number),
                format!(
                    "{} is every machine's own address; other hosts cannot reach it",
                    host.ip
                ),
            );
            report.push(fault.fix("write the address of the interface that the other hosts reach"));
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    fn hosts(text: &str) -> Result<Vec<(u32, String, u16, u64)>, Vec<String>> {
        check(text, 1, None)
    }

    fn check(
        text: &str,
        num_servers: u16,
        names: Option<&[(&'static str, Resolved)]>,
    ) -> Result<Vec<(u32, String, u16, u64)>, Vec<String>> {
        let known = names.unwrap_or_default().iter().cloned().collect();
        let options = Options {
            place: "f",
            default_port: 30050,
            num_servers,
            resolve: names.is_some(),
        };
        let planned = lines("f", text.as_bytes()).and_then(|lines| plan(&lines, &known, &options));
        match planned {
            Ok(hosts) => Ok(hosts
                .into_iter()
                .map(|h| (h.id, h.ip.to_string(), h.port, h.line.unwrap()))
                .collect()),
            Err(report) => Err(report
                .0
                .into_iter()
                .map(|fault| format!("{}: {}", fault.place, fault.problem))
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
            ("10.0.0.1\nnode2\n", &["f:2: node2 is a name"]),
            ("fe80::1\n", &["f:1: fe80::1 is an IPv6 address"]),
            ("10.0.0.1 30050 16\n", &["f:1: a third column: \"16\""]),
            (
                "10.0.0.256\n",
                &["f:1: \"10.0.0.256\" is not an IPv4 address"],
            ),
            (
                "10.0.0.01\n",
                &["f:1: \"10.0.0.01\" is not an IPv4 address"],
            ),
            (
                "10.0.0.1:30050\n",
                &["f:1: \"10.0.0.1:30050\" is not an IPv4 address"],
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
                &["f:1: \"-oProxyCommand=x\" is not an IPv4 address"],
            ),
            (
                "10.0.0.1\u{200b}\n",
                &["f:1: \"10.0.0.1\\u{200b}\" is not an IPv4 address"],
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
                    "f:1: \"10.0.0.1,\" is not an IPv4 address",
                    "f:1: \"10.0.0.2\" is not a port",
                ],
            ),
            (
                "node1:30050\n",
                &["f:1: \"node1:30050\" is not an IPv4 address"],
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
            let options = Options {
                place: "f",
                default_port: 1,
                num_servers: 1,
                resolve: false,
            };
            plan(&lines, &HashMap::new(), &options)
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
        assert!(check("10.0.0.1 65532", 4, None).is_ok());
        assert_eq!(
            check("10.0.0.1 65533", 4, None),
            Err(vec![
                "f:1: 4 servers from port 65533 on go beyond 65535".into()
            ])
        );
    }

    #[test]
    fn names_are_looked_up_where_that_is_wanted() {
        let known: &[(&str, Resolved)] = &[
            ("n1", Ok(vec![Ipv4Addr::new(10, 0, 0, 7)])),
            ("me", Ok(vec![Ipv4Addr::new(127, 0, 1, 1)])),
            (
                "also-me",
                Ok(vec![
                    Ipv4Addr::new(127, 0, 1, 1),
                    Ipv4Addr::new(10, 0, 0, 8),
                ]),
            ),
            ("six", Ok(vec![])),
            ("any", Ok(vec![Ipv4Addr::UNSPECIFIED])),
            ("gone", Err("no such host".into())),
        ];
        assert_eq!(
            check("n1 4000\n", 1, Some(known)),
            Ok(vec![(0, "10.0.0.7".into(), 4000, 1)])
        );
        assert_eq!(
            check("also-me\n", 1, Some(known)),
            Ok(vec![(0, "10.0.0.8".into(), 30050, 1)])
        );
        let problems = check("me\nsix\ngone\nany\n", 1, Some(known)).unwrap_err();
        assert!(
            problems[0].contains("me resolves to 127.0.1.1"),
            "{problems:?}"
        );
        assert_eq!(
            problems[1..],
            [
                "f:2: six has no IPv4 address",
                "f:3: gone: no such host",
                "f:4: 0.0.0.0 is not a host's address"
            ]
        );
    }
}
