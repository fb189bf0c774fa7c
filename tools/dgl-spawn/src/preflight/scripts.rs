//! Before the start: what is looked at on each host, and what its answers mean. All hosts look at once; all that is wrong comes in one
//! report, and then nothing is started.

use super::reachability::{self as reach, Unreached};
use crate::plan::Text;
use crate::run::outcome::Stopped;
use crate::site::{Event, Site};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::error::{Fault, Report};
use common::python::is_interpreter;
use common::quote;
use common::record::{Command, Graph, Host, Process, Role};
use common::remote::Heard;
use common::term;
use job::ExitStatus;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// The checks themselves, for the host's script.
pub const SH: &str = include_str!("preflight.sh");
const PY: &str = include_str!("preflight.py");

/// Looking at a host takes well under a second; a file system that hangs must not hold the job up for ever.
const PREFLIGHT_LIMIT: Duration = Duration::from_secs(60);
/// What a server opens beside two sockets a client: Python's own files, and those of its partition.
const FILES_BESIDE: u32 = 100;

const COPY_ANEW: &str = "copy it anew, to all hosts, with part-map and part-push";

/// The calls that make up one host's look.
pub fn checks(text: &mut Text, host: &Host, processes: &[&Process]) -> Result<(), Fault> {
    let mut calls: Vec<Vec<u8>> = Vec::new();
    let servers = || processes.iter().filter(|process| process.role == Role::Server);
    let part = servers().next().map_or(String::new(), |_| host.id.to_string());
    for process in processes {
        let cwd = folder_of(process);
        calls.push(quote::sh_words([b"check_folder", cwd]));
        let mut add = |name: &str, words: &[&[u8]]| calls.push(in_folder(cwd, name, &quote::sh_words(words)));
        if let Some(config) = process.env.get("DGL_CONF_PATH") {
            add("check_file", &[cwd, config.as_bytes()]);
            add("check_config", &[cwd, config.as_bytes(), part.as_bytes()]);
        }
        if let Some(ip_config) = process.env.get("DGL_IP_CONFIG") {
            add("check_file", &[cwd, ip_config.as_bytes()]);
            add("check_ip_config", &[cwd, ip_config.as_bytes()]);
        }
    }
    let clients = servers().filter_map(|server| server.env.get("DGL_NUM_CLIENT")?.parse::<u32>().ok()).max();
    if let Some(clients) = clients {
        calls.push(format!("check_nofile {}", clients.saturating_mul(2).saturating_add(FILES_BESIDE)).into_bytes());
    }
    let ports = Ports::of(host, processes);
    calls.push(ports.call(host));
    calls.push(b"check_jobs".to_vec());
    if !part.is_empty() {
        calls.push(b"check_shm".to_vec());
    }
    command_checks(&mut calls, host, processes, &ports)?;
    for (at, call) in calls.iter().enumerate() {
        if !calls[..at].contains(call) {
            text.words([call]);
        }
    }
    Ok(())
}

fn folder_of(process: &Process) -> &[u8] {
    process.cwd.as_deref().unwrap_or(".").as_bytes()
}

/// Nothing else is worth saying of a folder that is not there.
fn in_folder(cwd: &[u8], name: &str, words: &[u8]) -> Vec<u8> {
    [b"check_folder ", &*quote::sh(cwd), b" && ", name.as_bytes(), b" ", words].concat()
}

/// What is to be bound on a host: the graph servers' ports on its own address, torch's rendezvous on any.
struct Ports {
    own: Vec<u16>,
    any: Vec<u16>,
}

impl Ports {
    fn of(host: &Host, processes: &[&Process]) -> Ports {
        let own = processes.iter().filter_map(|process| process.port).collect();
        let clients = processes.iter().filter(|process| host.id == 0 && process.role != Role::Server);
        Ports { own, any: clients.take(1).filter_map(|process| master_port(process)).collect() }
    }

    fn call(&self, host: &Host) -> Vec<u8> {
        // as /proc/net/tcp has it: the bytes of the address as they lie in memory, read as one number
        let address = format!("{:08X}", u32::from_le_bytes(host.ip.0.octets()));
        let mut call = "check_ports".to_owned();
        self.own.iter().for_each(|port| call += &format!(" {port}/{port:04X}/{address}"));
        self.any.iter().for_each(|port| call += &format!(" {port}/{port:04X}/any"));
        call.into_bytes()
    }
}

/// Trainers have it in their environment, torch's launcher among its arguments.
fn master_port(process: &Process) -> Option<u16> {
    let option = |word: &str| word.strip_prefix("--master_port=")?.parse().ok();
    let argument = || match process.command() {
        Ok(Command::Words(words)) => words.iter().filter_map(|word| word.to_str()).find_map(option),
        Ok(Command::Shell(text)) => text.split_whitespace().find_map(option),
        Err(_) => None,
    };
    process.env.get("MASTER_PORT").and_then(|port| port.parse().ok()).or_else(argument)
}

/// The commands, each once; the first that is Python also binds the ports and tries to reach the other hosts.
fn command_checks(calls: &mut Vec<Vec<u8>>, host: &Host, processes: &[&Process], ports: &Ports) -> Result<(), Fault> {
    let mut seen = Vec::new();
    let mut binds = true;
    for (id, process) in processes.iter().enumerate() {
        let command = process.command()?;
        let words: Vec<&OsStr> = match &command {
            Command::Words(words) => words.iter().map(|word| word.as_os_str()).collect(),
            Command::Shell(text) => text.split_whitespace().map(OsStr::new).collect(),
        };
        let Some(first) = words.first().map(|word| word.as_bytes()) else { continue };
        let python = std::str::from_utf8(first).is_ok_and(is_interpreter);
        let key = (first.to_vec(), process.setup.clone(), process.role == Role::Worker);
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let id = id.to_string();
        let shell_text = |words: &[u8]| [process.setup.as_deref().unwrap_or_default().as_bytes(), b"\n", words].concat();
        let own_words = matches!(command, Command::Words(_));
        let mut call = Vec::new();
        if own_words && (process.setup.is_none() || !python) {
            call.extend(quote::sh_words([id.as_bytes(), first]));
            if process.setup.is_some() {
                call.push(b' ');
                call.extend(quote::sh(shell_text(&[b"command -v -- ", &*quote::sh(first)].concat())));
            }
            call = in_folder(folder_of(process), "check_command", &call);
        }
        if python {
            let look = python_look(host, process, &words, binds.then_some(ports));
            binds = false;
            let run = match own_words && process.setup.is_none() {
                true => look,
                false => [b"\"${SHELL:-/bin/sh}\" -c ", &*quote::sh(shell_text(&[b"exec ", &*look].concat()))].concat(),
            };
            call = match call.is_empty() {
                true => in_folder(folder_of(process), "check_python", &[id.as_bytes(), b" ", &run].concat()),
                false => [&call, &b" && check_python "[..], id.as_bytes(), b" ", &run].concat(),
            };
        }
        if !call.is_empty() {
            calls.push(call);
        }
    }
    Ok(())
}

/// The interpreter with preflight.py.
fn python_look(host: &Host, process: &Process, words: &[&OsStr], ports: Option<&Ports>) -> Vec<u8> {
    let listed = |ports: &[u16]| ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let of_dgl = process.role != Role::Worker;
    // the script is the first word that looks like one; a module (-m) has none
    let script = words[1..].iter().take_while(|word| **word != "-c").find(|word| word.as_bytes().ends_with(b".py"));
    let others = of_dgl && host.of > 1 && ports.is_some();
    quote::sh_words([
        words[0].as_bytes(),
        b"-c",
        PY.as_bytes(),
        script.map_or(b"-", |word| word.as_bytes()),
        if of_dgl { b"dgl,torch" } else { b"" },
        host.ip.to_string().as_bytes(),
        listed(ports.map_or(&[], |ports| &ports.own)).as_bytes(),
        listed(ports.map_or(&[], |ports| &ports.any)).as_bytes(),
        if others { b"1" } else { b"0" },
    ])
}

/// The graph servers that stay and that a job uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// It uses none, or all of them listen.
    Ready,
    /// They were started a moment ago.
    Starting,
    /// They are not there; why, in words.
    Missing(String),
}

/// One name, one job.
pub fn named(host: &Host, name: &str) -> Fault {
    let fix = format!("give this one another --job, or end that one: {}", end_of(name));
    Fault::unreachable(host.place(), format!("a job named {name} runs there")).fix(fix)
}

/// Lets every host look; all that is wrong anywhere comes in one report.
pub fn look(sites: &[Site<'_>], hosts: &[Host], graph: Option<&Graph>, happening: &Receiver<Event>) -> Result<Servers, Stopped> {
    let until = Instant::now() + PREFLIGHT_LIMIT;
    let mut look = Look::new(sites.iter().map(|site| site.host).collect(), hosts, graph);
    while !look.is_over() {
        match happening.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(number)) => return Err(Stopped::Signal(number)),
            Ok(Event::Aside(_)) => {}
            Ok(Event::Host(at, heard)) => {
                for (to, order) in look.heard(at, heard) {
                    sites[to].say(&order);
                }
            }
            Err(_) => {
                look.late();
                break;
            }
        }
    }
    let (untried, servers) = (look.untried(), look.servers());
    look.report().check().map_err(Stopped::Preflight)?;
    if untried {
        let problem = "whether the hosts reach one another was not tried: that needs a command that begins with Python";
        Fault::data("warning", problem).fix("say --no-preflight if that is meant").report().print("dgl-spawn");
    }
    Ok(servers)
}

/// A host as its look goes.
#[derive(Default)]
struct Seen {
    /// Where it can be reached: the last is an ephemeral port.
    listens: Vec<u16>,
    reached: bool,
    /// It said all, or will say nothing more.
    over: bool,
    /// The partition config's checksum.
    config: Option<String>,
    /// What it knows of the graph servers that the job uses: none, starting, alive, dead CAUSE.
    servers: Option<String>,
}

/// What the hosts see, from line to line.
struct Look<'a> {
    sites: Vec<&'a Host>,
    hosts: &'a [Host],
    graph: Option<&'a Graph>,
    seen: Vec<Seen>,
    faults: Vec<(usize, String, Option<String>)>,
    unreached: Vec<Unreached>,
    /// All have been told whom to reach; all have been told that it is enough.
    told: [bool; 2],
}

impl<'a> Look<'a> {
    fn new(sites: Vec<&'a Host>, hosts: &'a [Host], graph: Option<&'a Graph>) -> Look<'a> {
        let seen = sites.iter().map(|_| Seen::default()).collect();
        Look { sites, hosts, graph, seen, faults: Vec::new(), unreached: Vec::new(), told: [false; 2] }
    }

    fn is_over(&self) -> bool {
        self.seen.iter().all(|seen| seen.over)
    }

    fn fault(&mut self, at: usize, problem: impl Into<String>, fix: Option<&str>) {
        let fault = (at, problem.into(), fix.map(str::to_owned));
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// What is to be said to which hosts now.
    fn heard(&mut self, at: usize, heard: Heard) -> Vec<(usize, String)> {
        match heard {
            Heard::Line(line) => self.line(at, &String::from_utf8_lossy(&line)),
            Heard::Lost(why) => {
                self.seen[at].over = true;
                self.fault(at, why, Some("look whether the host is up, and run it again"));
            }
            Heard::Ended(status) => {
                self.seen[at].over = true;
                let fix = "it must be a POSIX shell, with base64, grep, sed and awk in its PATH";
                self.fault(at, format!("its shell ended with status {status}"), Some(fix));
            }
        }
        self.orders()
    }

    /// Connecting begins when every host that will listen does, and is over when all have tried.
    fn orders(&mut self) -> Vec<(usize, String)> {
        let listeners: Vec<usize> = (0..self.seen.len()).filter(|at| !self.seen[*at].listens.is_empty()).collect();
        let all = |done: fn(&Seen) -> bool| self.seen.iter().all(|seen| seen.over || done(seen));
        if !self.told[0] && all(|seen| !seen.listens.is_empty()) {
            self.told[0] = true;
            let order = |(rank, at): (usize, &usize)| {
                let targets = reach::peers(listeners.len(), rank).flat_map(|peer| {
                    let (ip, ports) = (self.sites[listeners[peer]].ip, &self.seen[listeners[peer]].listens);
                    ports.iter().map(move |port| format!(" {ip}:{port}"))
                });
                (*at, format!("reach{}", targets.collect::<String>()))
            };
            return listeners.iter().enumerate().map(order).collect();
        }
        if self.told[0] && !self.told[1] && all(|seen| seen.reached) {
            self.told[1] = true;
            return listeners.iter().map(|at| (*at, "enough".to_owned())).collect();
        }
        Vec::new()
    }

    fn line(&mut self, at: usize, line: &str) {
        let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
        match what {
            "ready" => self.seen[at].over = true,
            "fault" => self.fault(at, rest, fix_of(rest)),
            "config" => self.ip_config(at, rest),
            "part_config" => self.part_config(at, first, more),
            "elsewhere" => self.elsewhere(at, rest),
            "holds" => {
                // one that has just ended has no command line any more
                let holder = more.replacen(" ()", ", which ended while it was looked at", 1);
                self.fault(at, format!("port {first} is taken by {holder}"), Some(&holder_fix(more)));
            }
            "left" => {
                let fix = format!("end it: {}", end_of(first));
                self.fault(at, format!("job {first} was left there without a launcher: {more}"), Some(&fix));
            }
            "named" => {
                let Fault { problem, fix, .. } = named(self.sites[at], rest);
                self.fault(at, problem, fix.as_deref());
            }
            "shm" => self.shm(at, first, more),
            "listens" => self.seen[at].listens = rest.split(' ').filter_map(|port| port.parse().ok()).collect(),
            "unreached" => self.unreached(at, first, more),
            "reached" => self.seen[at].reached = true,
            "servers" => self.seen[at].servers = Some(rest.to_owned()),
            "differs" => self.differs(at, first, more),
            _ => {}
        }
    }

    /// DGL believes the ip_config in the workspace: an old one there starts a job that hangs.
    fn ip_config(&mut self, at: usize, encoded: &str) {
        let text = BASE64.decode(encoded).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let read = |line: &str| -> Option<(String, u16)> {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next().map_or(Some(30050), |word| word.parse().ok())?))
        };
        let there = text.lines().map(read);
        let wanted = self.hosts.iter().map(|host| Some((host.ip.to_string(), host.port)));
        if self.hosts.len() == self.sites[at].of as usize && !there.eq(wanted) {
            self.fault(at, "the ip_config there is not that of the records", Some(COPY_ANEW));
        }
    }

    fn part_config(&mut self, at: usize, sum: &str, facts: &str) {
        self.seen[at].config = Some(sum.to_owned());
        let (parts, name) = facts.split_once(" :").unwrap_or((facts, ""));
        let name = BASE64.decode(name).unwrap_or_default();
        let hosts = self.sites[at].of;
        match parts.parse::<u32>() {
            Err(_) => self.fault(at, "the partition config there is none: it has no num_parts", Some(COPY_ANEW)),
            Ok(parts) if parts != hosts => {
                let problem =
                    format!("the partition config there has {parts} partitions, and the job {}", term::count(hosts.into(), "host"));
                self.fault(at, problem, Some("DGL needs as many hosts as partitions: partition again, or correct ip_config.txt"));
            }
            Ok(_) => {}
        }
        if let Some(graph) = self.graph.filter(|graph| graph.graph_name.as_bytes() != name) {
            let name = String::from_utf8_lossy(&name).into_owned();
            self.fault(at, format!("the partition config there is of graph {name:?}, not {:?}", graph.graph_name), Some(COPY_ANEW));
        }
    }

    /// Graph servers that were started for something else.
    fn differs(&mut self, at: usize, key: &str, values: &str) {
        let (theirs, ours) = values.split_once(' ').unwrap_or((values, ""));
        let problem = match key {
            "clients" => format!("its graph servers wait for {theirs} trainers and samplers, and this job has {ours}"),
            "servers" => format!("it has {theirs} of the graph servers, and this job wants {ours} a host"),
            "samplers" => format!("its graph servers were started for {theirs} samplers a trainer, and this job has {ours}"),
            "ip_config" => "its ip_config is not the one that its graph servers were started with".to_owned(),
            _ => "its partition config is not the one that its graph servers have loaded".to_owned(),
        };
        let fix = "give dgl-env the same numbers and files, or end the servers with dgl-reap --server-name NAME and start them anew";
        self.fault(at, problem, Some(fix));
    }

    /// All hosts must have them, or they are of no use.
    fn servers(&self) -> Servers {
        let told: Vec<(usize, &str)> = (0..).zip(&self.seen).filter_map(|(at, seen)| Some((at, seen.servers.as_deref()?))).collect();
        if let Some((at, cause)) = told.iter().find_map(|(at, said)| Some((*at, said.strip_prefix("dead ")?))) {
            return Servers::Missing(format!("they have ended: {}", self.end_of_servers(at, cause)));
        }
        let found = |word: &str| told.iter().find(|(_, said)| *said == word);
        match (found("none"), found("starting")) {
            (Some(_), _) if told.iter().all(|(_, said)| *said == "none") => Servers::Missing("there are none on these hosts".to_owned()),
            (Some((at, _)), None) => Servers::Missing(format!("{} has none", self.sites[*at].place())),
            (_, Some(_)) => Servers::Starting,
            (None, None) => Servers::Ready,
        }
    }

    /// A cause as guard.py has written it.
    fn end_of_servers(&self, at: usize, cause: &str) -> String {
        let place = |id: &str| self.hosts.iter().find(|host| host.id.to_string() == id).map_or_else(|| format!("host {id}"), Host::place);
        match cause.split(' ').collect::<Vec<_>>()[..] {
            ["process", host, _, status] => match ExitStatus::from_shell_code(status.parse().unwrap_or(1)) {
                ExitStatus::Signal(number) => format!("{}: one was ended by SIG{}", place(host), common::signal::name(number)),
                ExitStatus::Code(code) => format!("{}: one exited with status {code}", place(host)),
            },
            ["host", host, ..] => format!("{} was lost", place(host)),
            ["signal", ..] | ["done"] => "by order".to_owned(),
            ["time", ..] => "a time limit was over".to_owned(),
            _ => format!("{}: nobody keeps them there any more", self.sites[at].place()),
        }
    }

    fn elsewhere(&mut self, at: usize, file: &str) {
        if !self.sites[at].facts.dgl.as_deref().is_some_and(|version| version.starts_with("0.5")) {
            let fix =
                "DGL looks for it from the folder of the partition config, as part-map writes it: copy it anew with part-map and part-push";
            self.fault(at, format!("no such file: {file}"), Some(fix));
        }
    }

    fn shm(&mut self, at: usize, kind: &str, rest: &str) {
        let mut words = rest.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let what = format!("{}, {}", term::count(number(), "file"), term::bytes(number()));
        let which = words.next().unwrap_or_default();
        let other = "jobs of DGL on one host overwrite each other's features without a word: wait for its end, or say --private-shm";
        match kind {
            "used" => self.fault(at, format!("another job of DGL runs there: {what} in /dev/shm, mapped by {which}"), Some(other)),
            "stale" => {
                let fix = "remove it: ipconf-check ip_config.txt | dgl-reap --stale-shm";
                self.fault(at, format!("a job of DGL has left {what} in /dev/shm, such as {which}"), Some(fix));
            }
            _ => {
                let problem = format!("/dev/shm has {what} of a job of DGL of user {which}, and only that user can see whether it runs");
                self.fault(at, problem, Some("say --private-shm, or ask the user for dgl-reap --stale-shm"));
            }
        }
    }

    fn unreached(&mut self, at: usize, target: &str, why: &str) {
        let Some((ip, port)) = target.rsplit_once(':').and_then(|(ip, port)| Some((ip, port.parse().ok()?))) else { return };
        // hosts may share an address, when several are rehearsed on one machine
        let of = |seen: &(usize, &&Host)| seen.1.ip.to_string() == ip && self.seen[seen.0].listens.contains(&port);
        if let Some((to, _)) = self.sites.iter().enumerate().find(of) {
            let ephemeral = self.seen[to].listens.last() == Some(&port);
            self.unreached.push(Unreached { from: at, to, port, ephemeral, why: why.to_owned() });
        }
    }

    /// A job of DGL on several hosts, some of which could not listen to the others.
    fn untried(&self) -> bool {
        self.seen.len() > 1 && self.seen.iter().any(|seen| seen.config.is_some()) && self.seen.iter().any(|seen| seen.listens.is_empty())
    }

    /// The time is over.
    fn late(&mut self) {
        for at in (0..self.seen.len()).filter(|at| !self.seen[*at].over).collect::<Vec<_>>() {
            let problem = format!("looking at it took more than {} s", PREFLIGHT_LIMIT.as_secs());
            self.fault(at, problem, Some("is a file system hanging there? --no-preflight skips the look"));
        }
    }

    /// All that is wrong; the same on several hosts is one fault.
    fn report(mut self) -> Report {
        self.configs_differ();
        self.walls();
        self.faults.sort_by_key(|(at, ..)| *at);
        let mut grouped: Vec<(Vec<usize>, String, Option<String>)> = Vec::new();
        for (at, problem, fix) in std::mem::take(&mut self.faults) {
            match grouped.iter_mut().find(|(_, other, other_fix)| *other == problem && *other_fix == fix) {
                Some((all, ..)) => all.push(at),
                None => grouped.push((vec![at], problem, fix)),
            }
        }
        let fault = |(all, problem, fix): (Vec<usize>, String, _)| Fault { fix, ..Fault::unreachable(self.place(&all), problem) };
        Report(grouped.into_iter().map(fault).collect())
    }

    fn place(&self, all: &[usize]) -> String {
        match all {
            [one] => self.sites[*one].place(),
            _ => format!("hosts {}", reach::ranges(&all.iter().map(|at| self.sites[*at].id).collect::<Vec<_>>())),
        }
    }

    fn configs_differ(&mut self) {
        let sums: Vec<(usize, &String)> = self.seen.iter().enumerate().filter_map(|(at, seen)| Some((at, seen.config.as_ref()?))).collect();
        let count = |sum: &String| sums.iter().filter(|(_, other)| *other == sum).count();
        // the one that most hosts have, or of several the first host's
        let Some(usual) = sums.iter().rev().map(|(_, sum)| *sum).max_by_key(|sum| count(sum)) else { return };
        let odd: Vec<usize> = sums.iter().filter(|(_, sum)| *sum != usual).map(|(at, _)| *at).collect();
        odd.into_iter().for_each(|at| self.fault(at, "the partition config there is another than on the other hosts", Some(COPY_ANEW)));
    }

    fn walls(&mut self) {
        let fix = "open to one another between the hosts the ports of ip_config.txt and all of net.ipv4.ip_local_port_range: \
                   DGL's servers connect back to such ports of their clients, and without them the job hangs";
        for wall in reach::walls(std::mem::take(&mut self.unreached)) {
            let ports = match wall.ephemeral {
                true => "an ephemeral port".to_owned(),
                false => format!("port {}", wall.port),
            };
            let others = self.place(&wall.others);
            let problem = match wall.inward {
                true => format!("cannot be reached on {ports} from {others}: {}", wall.why),
                false => format!("cannot reach {others} on {ports}: {}", wall.why),
            };
            self.fault(wall.at, problem, Some(fix));
        }
    }
}

const PRIVATE_SHM: &str = "be root there, or allow namespaces to users: sysctl kernel.unprivileged_userns_clone=1 (Debian), \
                           kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), docker run --cap-add SYS_ADMIN; an old unshare \
                           lacks --map-current-user";

fn fix_of(problem: &str) -> Option<&'static str> {
    let table: [(&str, &'static str); 10] = [
        ("no such file", "copy the job there with part-map and part-push, or correct --workspace"),
        ("no such folder", "copy the job there with part-map and part-push, or correct --workspace"),
        ("no such command", "install it there, give its whole path, or set PATH with --env or --setup in dgl-env"),
        ("no module named", "name the Python that has it, by its path, by host-probe --conda or --venv, or by --setup in dgl-env"),
        ("its Python does not run", "try it in a shell on that host; --env and --setup of dgl-env are in force"),
        (
            "its part of the graph",
            "make it larger: mount -o remount,size=… /dev/shm, or docker run --shm-size; or more partitions and hosts",
        ),
        ("a process may have", "raise the hard limit there: LimitNOFILE= of its sshd, or /etc/security/limits.conf"),
        ("no /dev/shm of its own", PRIVATE_SHM),
        ("the port", "wait a minute, or choose another port in ip_config.txt: DGL 0.5 does not share it with them"),
        ("port", "choose another port in ip_config.txt, or --master-port in dgl-env"),
    ];
    table.iter().find(|(beginning, _)| problem.starts_with(beginning)).map(|(_, fix)| *fix)
}

/// How to end a job that a host has named. People paste it, so it holds only what can be a job's name.
fn end_of(job: &str) -> String {
    match common::cli::job_name(job) {
        Ok(job) => format!("ipconf-check ip_config.txt | dgl-reap --job {job}"),
        Err(_) => "its name is none that dgl-spawn gives; look with ipconf-check ip_config.txt | dgl-reap --list".to_owned(),
    }
}

fn holder_fix(holder: &str) -> String {
    let job = holder.split_once(" of job ").and_then(|(_, rest)| rest.split(' ').next());
    match job.filter(|_| !holder.contains(" of user ")) {
        Some(job) => format!("end that job: {}; or choose another port in ip_config.txt", end_of(job)),
        None => "end that process, or choose another port in ip_config.txt, or --master-port in dgl-env".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(count: u32) -> Vec<Host> {
        let ip = |id: u32| common::record::IpAddr(std::net::Ipv4Addr::new(10, 0, 0, id as u8 + 1));
        (0..count).map(|id| Host { id, of: count, ip: ip(id), port: 30050, ..Host::default() }).collect()
    }

    fn process(rest: &str) -> Process {
        serde_json::from_str(&format!(r#"{{"id":0,"of":2,"host":0,"ip":"10.0.0.1","rank":0,{rest}}}"#)).unwrap()
    }

    fn script(processes: &[Process]) -> String {
        let mut text = Text::default();
        checks(&mut text, &hosts(2)[0], &processes.iter().collect::<Vec<_>>()).unwrap();
        String::from_utf8_lossy(&text.0).replace(&String::from_utf8_lossy(&quote::sh(PY)).into_owned(), "PY")
    }

    #[test]
    fn each_thing_is_looked_at_once() {
        let env = r#""cwd":"/w","env":{"DGL_CONF_PATH":"d/g.json","DGL_IP_CONFIG":"ip","DGL_NUM_CLIENT":"8","MASTER_PORT":"29500"}"#;
        let argv = r#""argv":["python3","-u","code/train.py","--x"]"#;
        let server = process(&format!(r#""role":"server","port":30050,{env},{argv}"#));
        let trainer = process(&format!(r#""role":"trainer",{env},{argv}"#));
        let wanted = "check_folder /w
check_folder /w && check_file /w d/g.json
check_folder /w && check_config /w d/g.json 0
check_folder /w && check_file /w ip
check_folder /w && check_ip_config /w ip
check_nofile 116
check_ports 30050/7562/0100000A 29500/733C/any
check_jobs
check_shm
check_folder /w && check_command 0 python3 && check_python 0 python3 -c PY code/train.py dgl,torch 10.0.0.1 30050 29500 1
";
        assert_eq!(script(&[server, trainer]), wanted);
    }

    #[test]
    fn commands() {
        let table = [
            (r#""argv":["run","x"]"#, "check_folder . && check_command 0 run\n"),
            (r#""setup":"s","argv":["run"]"#, "check_folder . && check_command 0 run 's\ncommand -v -- run'\n"),
            (
                r#""argv":["/v/bin/python3.11","-m","pkg"]"#,
                "check_command 0 /v/bin/python3.11 && check_python 0 /v/bin/python3.11 -c PY - '' 10.0.0.1 '' '' 0\n",
            ),
            (r#""shell":"sleep 1; x""#, "check_jobs\n"),
        ];
        for (command, wanted) in table {
            let got = script(&[process(&format!(r#""role":"worker",{command}"#))]);
            assert!(got.ends_with(wanted), "{command}: {got}");
        }
        let shell = script(&[process(r#""role":"trainer","setup":"s","shell":"python3 t.py --master_port=29777""#)]);
        assert!(shell.contains("check_ports 29777/7451/any\n"), "{shell}");
        assert!(shell.contains("&& check_python 0 \"${SHELL:-/bin/sh}\" -c 's\nexec python3 -c "), "{shell}");
    }

    fn said(look: &mut Look<'_>, at: usize, line: &str) -> Vec<(usize, String)> {
        look.heard(at, Heard::Line(line.as_bytes().to_vec()))
    }

    #[test]
    fn hosts_connect_when_all_listen_and_stop_when_all_have_tried() {
        let hosts = hosts(3);
        let mut look = Look::new(hosts.iter().collect(), &hosts, None);
        assert_eq!(said(&mut look, 0, "listens 30050 40000"), []);
        // one that has no Python is not waited for
        assert_eq!(said(&mut look, 1, "ready"), []);
        let told = said(&mut look, 2, "listens 41000");
        assert_eq!(told, [(0, "reach 10.0.0.3:41000".to_owned()), (2, "reach 10.0.0.1:30050 10.0.0.1:40000".to_owned())]);
        assert_eq!(said(&mut look, 2, "unreached 10.0.0.1:40000 Connection timed out"), []);
        assert_eq!(said(&mut look, 2, "reached"), []);
        assert_eq!(said(&mut look, 0, "reached"), [(0, "enough".to_owned()), (2, "enough".to_owned())]);
        assert!(!look.is_over());
        said(&mut look, 0, "ready");
        look.heard(2, Heard::Lost("gone".into()));
        assert!(look.is_over());
        let report: Vec<String> = look.report().0.iter().map(|fault| format!("{}: {}", fault.place, fault.problem)).collect();
        let wall = "host 0 (10.0.0.1): cannot be reached on an ephemeral port from host 2 (10.0.0.3): Connection timed out";
        assert_eq!(report, [wall, "host 2 (10.0.0.3): gone"]);
    }

    #[test]
    fn what_is_said_is_judged() {
        let graph = Graph {
            graph_name: "g".into(),
            num_parts: 3,
            files: 0,
            workspace: "/w".into(),
            part_config: "g.json".into(),
            ip_config: "ip".into(),
        };
        let ip_config = |text: &str| format!("config {}", BASE64.encode(text));
        let config = |sum: &str, parts: &str, name: &str| format!("part_config {sum} {parts} :{}", BASE64.encode(name));
        let table = [
            (0, ip_config("10.0.0.1\n10.0.0.2 30050\n10.0.0.3\n"), None),
            (0, ip_config("10.0.0.1\n10.0.0.2\n"), Some("host 0 (10.0.0.1): the ip_config there is not that of the records")),
            (1, config("1:9", "3", "g"), None),
            (1, config("1:9", "2", "g"), Some("host 1 (10.0.0.2): the partition config there has 2 partitions, and the job 3 hosts")),
            (1, config("1:9", "-", "g"), Some("host 1 (10.0.0.2): the partition config there is none: it has no num_parts")),
            (1, config("1:9", "3", "h"), Some("host 1 (10.0.0.2): the partition config there is of graph \"h\", not \"g\"")),
            (2, "elsewhere /w/d/part2/graph.dgl".into(), Some("host 2 (10.0.0.3): no such file: /w/d/part2/graph.dgl")),
            (
                2,
                "holds 30050 process 1158 ()".into(),
                Some("host 2 (10.0.0.3): port 30050 is taken by process 1158, which ended while it was looked at"),
            ),
            (2, "holds 30050 process 7 (x) of job a".into(), Some("host 2 (10.0.0.3): port 30050 is taken by process 7 (x) of job a")),
            (
                2,
                "shm stale 2 8192 /dev/shm/x".into(),
                Some("host 2 (10.0.0.3): a job of DGL has left 2 files, 8.2 kB in /dev/shm, such as /dev/shm/x"),
            ),
            (2, "motd".into(), None),
        ];
        let mut hosts = hosts(3);
        for (at, line, wanted) in table {
            let mut look = Look::new(hosts.iter().collect(), &hosts, Some(&graph));
            said(&mut look, at, &line);
            let report = look.report();
            let got: Vec<String> = report.0.iter().map(|fault| format!("{}: {}", fault.place, fault.problem)).collect();
            assert_eq!(got, wanted.into_iter().collect::<Vec<_>>(), "{line}");
            assert!(report.0.iter().all(|fault| fault.fix.is_some()), "{line}");
        }
        // DGL 0.5 looks from the working directory
        hosts[2].facts.dgl = Some("0.5.3".into());
        let mut look = Look::new(hosts.iter().collect(), &hosts, None);
        said(&mut look, 2, "elsewhere /w/d/part2/graph.dgl");
        // the same on several hosts is one fault; of different configs the odd one is named
        for (at, sum) in [(0, "1:9"), (1, "2:9"), (2, "1:9")] {
            said(&mut look, at, &config(sum, "3", "g"));
            said(&mut look, at, "fault no such folder: /w");
            said(&mut look, at, "fault no such folder: /w");
        }
        let got: Vec<String> = look.report().0.iter().map(|fault| format!("{}: {}", fault.place, fault.problem)).collect();
        let odd = "host 1 (10.0.0.2): the partition config there is another than on the other hosts";
        assert_eq!(got, ["hosts 0-2: no such folder: /w", odd]);
    }
}
