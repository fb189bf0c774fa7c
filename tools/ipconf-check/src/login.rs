//! The file of `--login`: the address or name by which a host is logged in to, if it is not the one
//! that DGL uses. That happens behind a bastion or a NAT, with InfiniBand for DGL alone, and in
//! pods.

use crate::text::{Line, MAX_FAULTS, is_name};
use record::Host;
use record::error::{Fault, Report};
use std::collections::HashMap;
use std::net::IpAddr;

/// Assigns the logins of the lines `HOST LOGIN`. HOST is the host's address or name in ip_config.
pub fn assign(hosts: &mut [Host], lines: &[Line]) -> Result<(), Report> {
    let mut indices: HashMap<String, usize> = HashMap::new();
    for (index, host) in hosts.iter().enumerate() {
        indices.insert(host.ip.to_string(), index);
        indices.extend(host.name.clone().map(|name| (name, index)));
    }
    let mut report = Report::default();
    for line in lines {
        if report.0.len() >= MAX_FAULTS {
            break;
        }
        report.0.extend(assign_one(hosts, &indices, line).err());
    }
    report.check()
}

fn assign_one(
    hosts: &mut [Host],
    indices: &HashMap<String, usize>,
    line: &Line,
) -> Result<(), Fault> {
    let wrong = |problem: String, fix: &str| Err(Fault::data(&line.location, problem).fix(fix));
    let [host, login] = &line.words[..] else {
        let count = record::term::count(line.words.len() as u64, "word");
        return wrong(
            format!("{count} where two are wanted"),
            "a line is a host of ip_config and the address or name to log in by",
        );
    };
    let Some(host) = indices.get(host).and_then(|index| hosts.get_mut(*index)) else {
        return wrong(
            format!("{host:?} is not a host of ip_config"),
            "name the host as it stands in ip_config",
        );
    };
    if !is_name(login) && login.parse::<IpAddr>().is_err() {
        return wrong(
            format!("{login:?} is neither a name nor an address"),
            "the user and the port stand in ssh_config, or in DGL_TOOLS_SSH_USERNAME and \
             DGL_TOOLS_SSH_PORT",
        );
    }
    match host.login.replace(login.clone()) {
        None => Ok(()),
        Some(other) => wrong(
            format!("{} has the login {other} already", host.location()),
            "leave one of the lines out",
        ),
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
            let got = lines("f", text.as_bytes()).and_then(|lines| assign(&mut hosts, &lines));
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
