//! The file of `--login`: the address or name by which a host is logged in to, if it is not the one
//! that DGL uses. That happens behind a bastion or a NAT, with InfiniBand for DGL alone, and in
//! pods.

use crate::text::{Line, MAX_FAULTS, at, is_name};
use record::Host;
use record::error::{Fault, Report};
use std::collections::HashMap;
use std::net::IpAddr;

/// Assigns the logins of the lines `HOST LOGIN`. HOST is the host's address or name in ip_config.
pub fn assign(hosts: &mut [Host], place: &str, lines: &[Line]) -> Result<(), Report> {
    let mut known: HashMap<String, usize> = HashMap::new();
    for (at, host) in hosts.iter().enumerate() {
        known.insert(host.ip.to_string(), at);
        known.extend(host.name.clone().map(|name| (name, at)));
    }
    let mut report = Report::default();
    for line in lines {
        if report.0.len() >= MAX_FAULTS {
            break;
        }
        if let Err(fault) = one(hosts, &known, &at(place, line.number), &line.words) {
            report.push(fault);
        }
    }
    report.check()
}

fn one(
    hosts: &mut [Host],
    known: &HashMap<String, usize>,
    place: &str,
    words: &[String],
) -> Result<(), Fault> {
    let [host, login] = words else {
        let fault = Fault::data(
            place,
            format!(
                "{} where two are wanted",
                record::term::count(words.len() as u64, "word")
            ),
        );
        return Err(fault.fix("a line is a host of ip_config and the address or name to log in by"));
    };
    let Some(host) = known.get(host).and_then(|at| hosts.get_mut(*at)) else {
        return Err(
            Fault::data(place, format!("{host:?} is not a host of ip_config"))
                .fix("name the host as it stands in ip_config"),
        );
    };
    if !is_name(login) && login.parse::<IpAddr>().is_err() {
        let fault = Fault::data(place, format!("{login:?} is neither a name nor an address"));
        return Err(fault.fix(
            "the user and the port stand in ssh_config, or in DGL_TOOLS_SSH_USERNAME and \
             DGL_TOOLS_SSH_PORT",
        ));
    }
    match host.login.replace(login.clone()) {
        None => Ok(()),
        Some(other) => Err(Fault::data(
            place,
            format!("{} has the login {other} already", host.place()),
        )
        .fix("leave one of the lines out")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::lines;

    #[test]
    fn every_line_names_a_host_and_its_login() {
        let host = |id: u32, ip: &str, name: Option<&str>| Host {
            id,
            ip: record::IpAddr(ip.parse().unwrap()),
            name: name.map(str::to_owned),
            ..Host::default()
        };
        let table: [(&str, Result<[Option<&str>; 2], &str>); 10] = [
            ("", Ok([None, None])),
            ("10.0.0.1 bastion-a\n", Ok([Some("bastion-a"), None])),
            (
                "# public\nn2\t203.0.113.7 # n2's\n\n10.0.0.1  fd00::1\r\n",
                Ok([Some("fd00::1"), Some("203.0.113.7")]),
            ),
            (
                "10.0.0.2 trainer-1.pods",
                Ok([None, Some("trainer-1.pods")]),
            ),
            (
                "10.0.0.3 x",
                Err("f:1: \"10.0.0.3\" is not a host of ip_config"),
            ),
            ("10.0.0.1", Err("f:1: 1 word where two are wanted")),
            ("10.0.0.1 a b", Err("f:1: 3 words where two are wanted")),
            (
                "10.0.0.1 me@a",
                Err("f:1: \"me@a\" is neither a name nor an address"),
            ),
            (
                "10.0.0.1 -oProxyCommand=x",
                Err("f:1: \"-oProxyCommand=x\" is neither a name nor an address"),
            ),
            (
                "n2 a\n10.0.0.2 b",
                Err("f:2: host 1 (n2, 10.0.0.2) has the login a already"),
            ),
        ];
        for (text, expected) in table {
            let mut hosts = [host(0, "10.0.0.1", None), host(1, "10.0.0.2", Some("n2"))];
            let got = lines("f", text.as_bytes()).and_then(|lines| assign(&mut hosts, "f", &lines));
            match expected {
                Ok(logins) => assert_eq!(
                    (got, hosts.each_ref().map(|host| host.login.as_deref())),
                    (Ok(()), logins),
                    "{text:?}"
                ),
                Err(problem) => {
                    let got = got.expect_err(text);
                    assert!(
                        got.0.len() == 1 && got.0[0].to_string().starts_with(problem),
                        "{text:?}: {got:?}"
                    );
                }
            }
        }
    }
}
