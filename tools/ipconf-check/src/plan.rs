//! Turns the text of an ip_config into host records, or into all of its faults.

use crate::text::{HostLine, MAX_FAULTS, is_name};
use record::error::{Fault, Report};
use record::{Host, IpAddr};
use std::collections::{BTreeSet, HashMap};
use std::net::{self, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Debug)]
pub struct Resolution {
    /// HostName of ssh_config, or the name itself.
    pub host_name: String,
    /// The setting of ssh_config that connects through another host, such as a bastion.
    pub proxy: Option<String>,
    /// The addresses of `host_name`, or the resolver's message.
    pub addresses: Result<Vec<net::IpAddr>, String>,
}

/// The name may have a user.
pub type Resolver<'a> = &'a dyn Fn(&str) -> Option<Resolution>;

pub struct PlanOptions<'a> {
    /// For messages.
    pub file: &'a str,
    pub default_port: u16,
    pub num_servers: u16,
    pub resolver: Resolver<'a>,
}

const REACHABLE: &str = "write the address of the interface that the other hosts reach";
/// The fix if a name does not lead to the address that DGL needs; ssh can still log in by the name.
const BY_ADDRESS: &str = "list it by the address at which the other hosts reach it, and have ssh \
     log in by the name: a first line ip,login, then ADDRESS,NAME";

pub fn names(lines: &[HostLine]) -> Vec<&str> {
    let words = lines.iter().map(|line| line.address.as_str());
    let names = words.filter(|word| is_name(without_user(word)));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn without_user(word: &str) -> &str {
    word.split_once('@').map_or(word, |(_, host)| host)
}

pub fn plan(lines: &[HostLine], options: &PlanOptions<'_>) -> Result<Vec<Host>, Report> {
    if lines.is_empty() {
        return Err(Fault::data(options.file, "names no host")
            .fix("write one host per line: its name in ssh_config or DNS, or its IPv4 address")
            .report());
    }
    // lines() limits the count far below u32::MAX
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
    let login = login.and_then(|word| report.keep(parse_login(location, word)));
    if let Some(surplus) = &line.surplus {
        let fault = Fault::data(location, format!("a third column: {surplus:?}"));
        report.push(fault.fix("a line is an address and a port; put everything else after a #"));
    }
    let servers = options.num_servers;
    let last_port = 65535 - (servers - 1);
    if let Some(port) = port.filter(|port| *port > last_port) {
        let problem = format!("{servers} servers from port {port} on go beyond 65535");
        let fix = format!("use a port of at most {last_port}");
        report.push(Fault::data(location, problem).fix(fix));
    }
    report.check()?;
    let ip = ip.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let resolved = Some(without_user(&line.address)).filter(|word| is_name(word));
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

/// A name or an address, perhaps after a user.
fn parse_login(location: &str, word: &str) -> Result<String, Fault> {
    let (user, host) = word.split_once('@').unwrap_or(("u", word));
    let is_host = is_name(host) || host.parse::<net::IpAddr>().is_ok();
    if is_name(user) && user.len() <= 256 && is_host {
        return Ok(word.to_owned());
    }
    let problem = format!("login {word:?} is neither a name nor an address");
    Err(Fault::data(location, problem).fix(
        "write NAME, ADDRESS or USER@NAME; a port belongs in ssh_config or in DGL_TOOLS_SSH_PORT",
    ))
}

fn listed_twice(line: &HostLine, ip: Ipv4Addr, earlier: u64) -> Fault {
    let name = without_user(&line.address);
    if is_name(name) {
        let problem = format!("{name} has the address {ip}, as the host of line {earlier}");
        let fix = format!("list each host once; if they share a public address, {BY_ADDRESS}");
        return Fault::data(&line.location, problem).fix(fix);
    }
    let problem = format!("{ip} is already listed in line {earlier}");
    Fault::data(&line.location, problem).fix(
        "list each host once; dgl-env starts several processes on it (--num-workers, \
         --num-trainers)",
    )
}

fn address(line: &HostLine, resolve: Resolver<'_>) -> Result<Ipv4Addr, Fault> {
    let location = &line.location;
    let word = without_user(&line.address);
    let wrong = |problem: String, fix: &str| Err(Fault::data(location, problem).fix(fix));
    let ip = if let Ok(ip) = word.parse() {
        ip
    } else if is_ipv6(word) {
        let problem = format!("{word} is an IPv6 address; these tools use IPv4");
        return wrong(problem, "write the host's IPv4 address");
    } else if is_name(word) {
        resolved(line, resolve(&line.address))?
    } else {
        let fix = if word.contains([',', ';']) {
            "a file with separators needs a header in its first line: ip,port,name,login"
        } else if word.contains(':') {
            "put a blank before the port, instead of the colon"
        } else {
            "write four numbers from 0 to 255 with dots between them, or a name"
        };
        let problem = format!("{word:?} is neither an IPv4 address nor a name");
        return wrong(problem, fix);
    };
    if ip.is_unspecified() || ip.is_broadcast() || ip.is_multicast() {
        return wrong(format!("{ip} is not a host's address"), REACHABLE);
    }
    Ok(ip)
}

/// Also in brackets, perhaps with a port behind these, and with a zone: `[fe80::1%eth0]:22`.
fn is_ipv6(word: &str) -> bool {
    let inside = word.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let address = inside.map_or(word, |(address, _)| address);
    let address = address.split('%').next().unwrap_or_default();
    address.parse::<Ipv6Addr>().is_ok()
}

/// The address of a name, if other hosts can reach exactly one.
fn resolved(line: &HostLine, resolution: Option<Resolution>) -> Result<Ipv4Addr, Fault> {
    let location = &line.location;
    let name = without_user(&line.address);
    let Some(resolution) = resolution else {
        let problem = format!("{name}: was not looked up");
        return Err(Fault::unreachable(location, problem));
    };
    let is_renamed = !resolution.host_name.eq_ignore_ascii_case(name);
    let mut shown = name.to_owned();
    if is_renamed {
        shown += &format!(" (HostName {} of ssh_config)", resolution.host_name);
    }
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
    let problem = match ipv4_to_choose_from(&addresses)[..] {
        [ip] if !ip.is_loopback() || name == "localhost" => return Ok(ip),
        [ip] if !is_renamed => {
            let problem =
                format!("{name} resolves to {ip} here, which is every machine's own address");
            return Err(Fault::data(location, problem).fix(format!(
                "write its address instead of the name, or correct the line `{ip} {name}` of \
                 /etc/hosts (Debian writes 127.0.1.1 there)"
            )));
        }
        [_] => format!("{shown} is every machine's own address"),
        [] => {
            let ips: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let ips = ips.join(", ");
            format!("{shown} has only an IPv6 address ({ips}); these tools use IPv4")
        }
        ref ips => {
            let ips: Vec<String> = ips.iter().map(ToString::to_string).collect();
            format!("{shown} has several addresses: {}", ips.join(", "))
        }
    };
    Err(Fault::data(location, problem).fix(BY_ADDRESS))
}

/// Each once, without loopback if there are others.
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
