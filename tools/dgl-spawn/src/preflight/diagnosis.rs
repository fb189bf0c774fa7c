//! Turns the findings of all hosts into faults with their places. words.rs explains findings that
//! need no comparison.

use super::conversation::PreflightEvent;
use super::reachability::{self, UnreachablePair};
use super::words::{self, COPY_ANEW, Words, plain};
use record::error::{Fault, Report};
use record::python;
use record::term;
use record::{Graph, Host};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Duration;
use wire::Event;
use wire::preflight::{Claimant, Claimed, Finding, Taken, Unreachable};

const OPEN_PORTS: &str = "open to one another between the hosts the ports of ip_config.txt and \
    all of net.ipv4.ip_local_port_range: DGL's servers connect back to such ports of their \
    clients, and torch's processes to those of one another; without them the job hangs";
/// A problem on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostProblem {
    at: usize,
    words: Words,
}

/// The findings of one host that are compared with those of others.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The ports on which it listens for others: a port of the job, if it can, and an ephemeral
    /// one.
    listens: Option<(Option<u16>, u16)>,
    /// The hashes of files that must be the same on all hosts, by what they are.
    contents: BTreeMap<String, String>,
    /// Whether the job's Python uses torch or may; `None` before it has answered.
    may_use_torch: Option<bool>,
    /// The version of DGL that the job's own Python finds.
    dgl: Option<String>,
    /// Files that lie where only DGL 0.5 looks for them.
    elsewhere: Vec<String>,
    /// Ports with connections in TIME_WAIT, and whether nobody can listen there.
    lingers: Vec<(u16, bool)>,
}

/// What another job has claimed on a host.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The position of the host among those that have processes of the job.
    pub at: usize,
    /// What is claimed, and by which job.
    pub taken: Taken,
}

/// The findings of all hosts.
pub struct Diagnosis<'a> {
    /// The hosts that have processes of the job.
    busy: Vec<&'a Host>,
    hosts: &'a [Host],
    graph: Option<&'a Graph>,
    job: &'a str,
    seen: Vec<Seen>,
    problems: Vec<HostProblem>,
    unreached: Vec<UnreachablePair>,
}

impl<'a> Diagnosis<'a> {
    /// Starts without findings.
    pub fn new(
        busy: Vec<&'a Host>,
        hosts: &'a [Host],
        graph: Option<&'a Graph>,
        job: &'a str,
    ) -> Diagnosis<'a> {
        let seen = busy.iter().map(|_| Seen::default()).collect();
        Diagnosis {
            busy,
            hosts,
            graph,
            job,
            seen,
            problems: Vec::new(),
            unreached: Vec::new(),
        }
    }

    /// Whether nothing is wrong so far.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Takes an event of a host.
    pub fn note_event(&mut self, at: usize, said: PreflightEvent) {
        match said {
            PreflightEvent::Event(Event::Preflight(finding), body) => {
                self.found(at, finding, &body);
            }
            PreflightEvent::Event(..) => {}
            PreflightEvent::Failed(failure) => {
                self.push(at, plain(&failure.problem), None, false);
            }
            PreflightEvent::Lost(why) => {
                let Fault { problem, fix, .. } = super::faults::lost(self.busy[at], why);
                self.push(at, problem, fix.as_deref(), false);
            }
        }
    }

    /// Notes that a host has not answered within this time.
    pub fn note_late(&mut self, at: usize, limit: Duration) {
        let problem = format!("looking at it took more than {} s", limit.as_secs());
        self.push(
            at,
            problem,
            Some("is a file system hanging there? --no-preflight skips the look"),
            false,
        );
    }

    fn push(&mut self, at: usize, problem: impl Into<String>, fix: Option<&str>, passes: bool) {
        let words = Words {
            problem: problem.into(),
            fix: fix.map(str::to_owned),
            passes,
        };
        self.push_words(at, words);
    }

    fn push_words(&mut self, at: usize, words: Words) {
        let problem = HostProblem { at, words };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn found(&mut self, at: usize, finding: Finding, body: &[u8]) {
        match finding {
            Finding::IpConfig => self.ip_config(at, body),
            Finding::PartitionConfig {
                hash,
                num_parts,
                graph_name,
            } => self.partition_config(at, hash, num_parts, graph_name),
            Finding::Script { path, hash } => {
                self.seen[at].contents.insert(words::shown(&path), hash);
            }
            Finding::Elsewhere { path } => self.seen[at].elsewhere.push(words::shown(&path)),
            Finding::NameInUse => {
                let Fault { problem, fix, .. } =
                    super::faults::name_in_use(self.busy[at], self.job);
                self.push(at, problem, fix.as_deref(), true);
            }
            Finding::Python {
                executable,
                version,
                missing,
                imports,
                dgl,
            } => {
                let environment = self.busy[at].facts.prefix.is_some();
                for module in missing {
                    let words =
                        words::of_missing_module(&module, &executable, &version, environment);
                    self.push_words(at, words);
                }
                let seen = &mut self.seen[at];
                seen.dgl = seen.dgl.take().or(dgl);
                let torch = imports.is_none_or(|names| names.iter().any(|name| name == "torch"));
                seen.may_use_torch = Some(torch || seen.may_use_torch == Some(true));
            }
            Finding::Listens { port, ephemeral } => self.seen[at].listens = Some((port, ephemeral)),
            Finding::Unreached { target, why } => self.unreached(at, target, why),
            Finding::PortLingers { port, blocks } => self.seen[at].lingers.push((port, blocks)),
            other => {
                if let Some(words) = words::of(&other) {
                    self.push_words(at, words);
                }
            }
        }
    }

    /// Compares the ip_config in the workspace with the records. DGL believes it: an old one starts
    /// a job that hangs.
    fn ip_config(&mut self, at: usize, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let read = |line: &str| -> Option<(String, u16)> {
            let mut words = line.split_whitespace();
            Some((
                words.next()?.to_owned(),
                words.next().map_or(Some(30050), |word| word.parse().ok())?,
            ))
        };
        let there = text.lines().map(read);
        let wanted = self
            .hosts
            .iter()
            .map(|host| Some((host.ip.to_string(), host.port)));
        if self.hosts.len() == self.busy[at].of as usize && !there.eq(wanted) {
            self.push(
                at,
                "the ip_config there is not that of the records",
                Some(COPY_ANEW),
                false,
            );
        }
    }

    fn partition_config(
        &mut self,
        at: usize,
        hash: String,
        num_parts: Option<u64>,
        graph_name: Option<String>,
    ) {
        self.seen[at]
            .contents
            .insert("the partition config".to_owned(), hash);
        let hosts = self.busy[at].of;
        match num_parts {
            None => self.push(
                at,
                "this is not a partition config: num_parts is missing",
                Some(COPY_ANEW),
                false,
            ),
            Some(parts) if parts != u64::from(hosts) => {
                let hosts = term::count(hosts.into(), "host");
                let problem = format!(
                    "the partition config there has {parts} partitions, and the job {hosts}"
                );
                let fix = "DGL needs as many hosts as partitions: partition again, or correct \
                    ip_config.txt";
                self.push(at, problem, Some(fix), false);
            }
            Some(_) => {}
        }
        let name = graph_name.map(|name| plain(&name)).unwrap_or_default();
        if let Some(graph) = self.graph.filter(|graph| graph.graph_name != name) {
            let problem = format!(
                "the partition config there is of graph {name:?}, not {:?}",
                graph.graph_name
            );
            self.push(at, problem, Some(COPY_ANEW), false);
        }
    }

    /// Whether the processes of a host may use torch, as far as their Pythons have answered.
    pub fn may_use_torch(&self, at: usize) -> bool {
        self.seen[at].may_use_torch != Some(false)
    }

    /// The hosts that listen, in order, each with the addresses to which it is to connect.
    pub fn targets(&self) -> Vec<(usize, Vec<SocketAddrV4>)> {
        let listeners: Vec<usize> = (0..self.seen.len())
            .filter(|at| self.seen[*at].listens.is_some())
            .collect();
        let of_host = |at: usize| {
            let (port, ephemeral) = self.seen[at].listens.unwrap_or_default();
            let ports = port.into_iter().chain([ephemeral]);
            ports.map(move |port| SocketAddrV4::new(self.busy[at].ip.0, port))
        };
        let to = |rank: usize| {
            reachability::peers(listeners.len(), rank)
                .flat_map(|peer| of_host(listeners[peer]))
                .collect()
        };
        listeners
            .iter()
            .enumerate()
            .map(|(rank, at)| (*at, to(rank)))
            .collect()
    }

    fn unreached(&mut self, at: usize, target: SocketAddrV4, why: Unreachable) {
        // hosts may share an address when several are rehearsed on one machine
        let is_it = |to: &usize| {
            let (port, ephemeral) = self.seen[*to].listens.unwrap_or_default();
            self.busy[*to].ip.0 == *target.ip()
                && (port == Some(target.port()) || ephemeral == target.port())
        };
        let Some(to) = (0..self.seen.len()).find(is_it) else {
            return;
        };
        let ephemeral = self.seen[to]
            .listens
            .is_some_and(|(_, ephemeral)| ephemeral == target.port());
        let why = match why {
            Unreachable::TimedOut => "Connection timed out".to_owned(),
            Unreachable::Refused => "Connection refused".to_owned(),
            Unreachable::Other(error) => plain(&error),
        };
        self.unreached.push(UnreachablePair {
            from: at,
            to,
            port: target.port(),
            ephemeral,
            why,
        });
    }

    /// Takes out the ports that connections of an ended job still hold, on the hosts where that is
    /// in the way: always where nobody can listen; otherwise where the job's Python has DGL 0.5,
    /// which does not set SO_REUSEADDR.
    pub fn take_lingering(&mut self) -> Vec<(usize, u16)> {
        let mut lingering = Vec::new();
        for (at, seen) in self.seen.iter_mut().enumerate() {
            let old_dgl = seen
                .dgl
                .as_deref()
                .and_then(python::version)
                .is_some_and(|version| version < (0, 6, 0));
            let ports = std::mem::take(&mut seen.lingers).into_iter();
            lingering.extend(
                ports
                    .filter(|(_, blocks)| *blocks || old_dgl)
                    .map(|(port, _)| (at, port)),
            );
        }
        lingering
    }

    /// Notes that these ports were not released in time.
    pub fn still_linger(&mut self, lingering: &[(usize, u16)]) {
        for (at, port) in lingering {
            let problem =
                format!("the port {port} is still held by connections of a job that has ended");
            self.push(
                *at,
                problem,
                Some("wait a minute, or choose another port in ip_config.txt"),
                false,
            );
        }
    }

    /// Notes that another job has claimed what this one wants.
    pub fn conflicts(&mut self, conflicts: &[Conflict]) {
        let mut by_host: BTreeMap<(usize, Option<&str>, Option<&str>), (Vec<Claimed>, &Claimant)> =
            BTreeMap::new();
        for conflict in conflicts {
            let by = &conflict.taken.by;
            let key = (conflict.at, by.job.as_deref(), by.user.as_deref());
            by_host
                .entry(key)
                .or_insert((Vec::new(), by))
                .0
                .push(conflict.taken.what);
        }
        let is_alone = by_host.len() == 1;
        for ((at, ..), (what, by)) in by_host {
            if what.contains(&Claimed::Name) {
                let Fault { problem, fix, .. } =
                    super::faults::name_in_use(self.busy[at], self.job);
                let problem = by.user.as_deref().map_or(problem.clone(), |user| {
                    format!("{problem}, of user {}", plain(user))
                });
                self.push(at, problem, fix.as_deref(), true);
                continue;
            }
            self.push_words(at, words::of_claims(&what, by, is_alone));
        }
    }

    /// Whether all that is wrong will be gone when other jobs have ended.
    pub fn passes(&self) -> bool {
        !self.problems.is_empty() && self.problems.iter().all(|problem| problem.words.passes)
    }

    /// All that is wrong as a report; the same problem on several hosts is one fault.
    pub fn report(mut self) -> Report {
        self.files_elsewhere();
        self.contents_differ();
        self.blocked_hosts();
        self.problems.sort_by_key(|problem| problem.at);
        let mut grouped: Vec<(Vec<usize>, HostProblem)> = Vec::new();
        for problem in std::mem::take(&mut self.problems) {
            let same = |other: &HostProblem| {
                other.words.problem == problem.words.problem && other.words.fix == problem.words.fix
            };
            match grouped.iter_mut().find(|(_, other)| same(other)) {
                Some((all, _)) => all.push(problem.at),
                None => grouped.push((vec![problem.at], problem)),
            }
        }
        let fault = |(all, HostProblem { words, .. }): (Vec<usize>, _)| Fault {
            fix: words.fix,
            ..Fault::unreachable(self.place(&all), words.problem)
        };
        Report(grouped.into_iter().map(fault).collect())
    }

    /// The name of hosts in a message.
    pub fn place(&self, all: &[usize]) -> String {
        match all {
            [one] => self.busy[*one].place(),
            _ => format!(
                "hosts {}",
                reachability::ranges(&all.iter().map(|at| self.busy[*at].id).collect::<Vec<_>>())
            ),
        }
    }

    fn files_elsewhere(&mut self) {
        for at in 0..self.seen.len() {
            let dgl = self.seen[at]
                .dgl
                .as_deref()
                .or(self.busy[at].facts.dgl.as_deref());
            if dgl.is_some_and(|version| version.starts_with("0.5")) {
                continue;
            }
            for file in std::mem::take(&mut self.seen[at].elsewhere) {
                let fix = "DGL looks for it from the folder of the partition config, as part-map \
                    writes it: \
                           copy it anew with part-map and part-push";
                self.push(at, format!("no such file: {file}"), Some(fix), false);
            }
        }
    }

    /// Finds the hosts whose file differs from that of most, or of the first host.
    fn contents_differ(&mut self) {
        let mut hosts_of: BTreeMap<&String, Vec<(usize, &String)>> = BTreeMap::new();
        for (at, seen) in self.seen.iter().enumerate() {
            for (file, hash) in &seen.contents {
                hosts_of.entry(file).or_default().push((at, hash));
            }
        }
        let mut odd = Vec::new();
        for (file, hosts) in hosts_of {
            let count = |(_, hash): &(usize, &String)| {
                hosts.iter().filter(|(_, other)| other == hash).count()
            };
            let usual = hosts.iter().rev().max_by_key(|host| count(host));
            let differs = hosts
                .iter()
                .filter(|(_, hash)| usual.is_some_and(|(_, usual)| usual != hash));
            odd.extend(differs.map(|(at, _)| (*at, file.clone())));
        }
        for (at, file) in odd {
            let problem = format!("{file} differs from the other hosts'");
            self.push(at, problem, Some(COPY_ANEW), false);
        }
    }

    fn blocked_hosts(&mut self) {
        for blocked in reachability::blocked_hosts(std::mem::take(&mut self.unreached)) {
            let ports = match blocked.ephemeral {
                true => "an ephemeral port".to_owned(),
                false => format!("port {}", blocked.port),
            };
            let others = self.place(&blocked.others);
            let problem = match blocked.inward {
                true => format!(
                    "cannot be reached on {ports} from {others}: {}",
                    blocked.why
                ),
                false => format!("cannot reach {others} on {ports}: {}", blocked.why),
            };
            self.push(blocked.at, problem, Some(OPEN_PORTS), false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn hosts(count: u32) -> Vec<Host> {
        let ip = |id: u32| record::IpAddr(std::net::Ipv4Addr::new(10, 0, 0, id as u8 + 1));
        (0..count)
            .map(|id| Host {
                id,
                of: count,
                ip: ip(id),
                port: 30050,
                ..Host::default()
            })
            .collect()
    }

    fn graph() -> Graph {
        let text = |text: &str| text.to_owned();
        Graph {
            graph_name: text("g"),
            num_parts: 3,
            files: 0,
            workspace: text("/w"),
            part_config: text("g.json"),
            ip_config: text("ip"),
        }
    }

    fn find(diagnosis: &mut Diagnosis<'_>, at: usize, found: &str, rest: Value, body: &[u8]) {
        let mut finding = rest;
        finding["found"] = found.into();
        let finding: Finding = serde_json::from_value(finding).unwrap();
        diagnosis.note_event(
            at,
            PreflightEvent::Event(Event::Preflight(finding), body.to_vec()),
        );
    }

    fn report_lines(diagnosis: Diagnosis<'_>) -> Vec<String> {
        let report = diagnosis.report();
        assert!(
            report.0.iter().all(|fault| fault.fix.is_some()),
            "{report:?}"
        );
        report
            .0
            .iter()
            .map(|fault| format!("{}: {}", fault.place, fault.problem))
            .collect()
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn what_was_found_is_judged() {
        let config =
            |parts: Value, name: &str| json!({"hash": "1", "num_parts": parts, "graph_name": name});
        let table = [
            (
                0,
                "ip_config",
                json!({}),
                "10.0.0.1\n10.0.0.2 30050\n10.0.0.3\n",
                None,
            ),
            (
                0,
                "ip_config",
                json!({}),
                "10.0.0.1\n10.0.0.2\n",
                Some("the ip_config there is not that of the records"),
            ),
            (1, "partition_config", config(json!(3), "g"), "", None),
            (
                1,
                "partition_config",
                config(json!(2), "g"),
                "",
                Some("the partition config there has 2 partitions, and the job 3 hosts"),
            ),
            (
                1,
                "partition_config",
                config(Value::Null, "g"),
                "",
                Some("this is not a partition config: num_parts is missing"),
            ),
            (
                1,
                "partition_config",
                config(json!(3), "h"),
                "",
                Some("the partition config there is of graph \"h\", not \"g\""),
            ),
            (
                2,
                "elsewhere",
                json!({"path": "/w/d/part2/graph.dgl"}),
                "",
                Some("no such file: /w/d/part2/graph.dgl"),
            ),
            (
                2,
                "port_taken",
                json!({"port": 30050, "by": {"pid": 7, "command": "x y", "job": "a"}}),
                "",
                Some("port 30050 is taken by process 7 (x y) of job a"),
            ),
            (
                2,
                "port_taken",
                json!({"port": 1, "by": {"user": "bob"}}),
                "",
                Some("port 1 is taken by a process of user bob"),
            ),
            (
                2,
                "port_taken",
                json!({"port": 1, "by": {"pid": 7}}),
                "",
                Some("port 1 is taken by process 7"),
            ),
            (
                2,
                "shared_memory",
                json!({"state": {"stale": "/dev/shm/x"}, "files": 2, "total_bytes": 8192}),
                "",
                Some("a job of DGL has left 2 files, 8.2 kB in /dev/shm, such as /dev/shm/x"),
            ),
            (
                0,
                "no_python",
                json!({"said": "a\u{1b}[2Jb"}),
                "",
                Some("its Python does not run: a [2Jb"),
            ),
            (
                0,
                "abandoned",
                json!({"job": "a", "pids": [1, 2]}),
                "",
                Some("job a was left there without a launcher: process 1 2"),
            ),
        ];
        let (hosts, graph) = (hosts(3), graph());
        for (at, found, rest, body, wanted) in table {
            let mut diagnosis =
                Diagnosis::new(hosts.iter().collect(), &hosts, Some(&graph), "mine");
            find(&mut diagnosis, at, found, rest.clone(), body.as_bytes());
            let wanted: Vec<String> = wanted
                .into_iter()
                .map(|text| format!("{}: {text}", hosts[at].place()))
                .collect();
            assert_eq!(report_lines(diagnosis), wanted, "{found} {rest}");
        }
    }

    #[test]
    fn the_same_on_several_hosts_is_one_fault_and_an_odd_config_is_named() {
        let hosts = hosts(3);
        let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &hosts, None, "mine");
        // the job's own Python has a DGL that looks from the working directory
        let python = json!({"executable": "/p", "version": "3.8.1", "missing": [], "dgl": "0.5.3"});
        find(&mut diagnosis, 2, "python", python, b"");
        find(
            &mut diagnosis,
            2,
            "elsewhere",
            json!({"path": "/w/d/part2/graph.dgl"}),
            b"",
        );
        for (at, hash) in [(0, "1"), (1, "2"), (2, "1")] {
            find(
                &mut diagnosis,
                at,
                "partition_config",
                json!({"hash": hash, "num_parts": 3, "graph_name": "g"}),
                b"",
            );
            find(&mut diagnosis, at, "no_folder", json!({"path": "/w"}), b"");
            find(&mut diagnosis, at, "no_folder", json!({"path": "/w"}), b"");
        }
        let odd = "host 1 (10.0.0.2): the partition config differs from the other hosts'";
        assert_eq!(
            report_lines(diagnosis),
            ["hosts 0-2: no such folder: /w", odd]
        );
    }

    #[test]
    fn ports_in_time_wait_count_where_they_are_in_the_way() {
        let hosts = hosts(2);
        for (dgl, blocks, counts) in [
            ("0.5.3", false, true),
            ("1.0.4", false, false),
            ("1.0.4", true, true),
            ("unknown", false, false),
        ] {
            let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &hosts, None, "mine");
            find(
                &mut diagnosis,
                1,
                "port_lingers",
                json!({"port": 30050, "blocks": blocks}),
                b"",
            );
            find(
                &mut diagnosis,
                1,
                "python",
                json!({"executable": "/p", "version": "3", "missing": [], "dgl": dgl}),
                b"",
            );
            let lingering = diagnosis.take_lingering();
            assert_eq!(
                lingering,
                if counts { vec![(1, 30050)] } else { Vec::new() },
                "{dgl} {blocks}"
            );
        }
    }

    #[test]
    fn hosts_that_listen_connect_and_walls_are_reported() {
        let hosts = hosts(3);
        let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &hosts, None, "mine");
        find(
            &mut diagnosis,
            0,
            "listens",
            json!({"port": 30050, "ephemeral": 40000}),
            b"",
        );
        find(
            &mut diagnosis,
            2,
            "listens",
            json!({"ephemeral": 41000}),
            b"",
        );
        let address = |text: &str| text.parse::<SocketAddrV4>().unwrap();
        let wanted = [
            (0, vec![address("10.0.0.3:41000")]),
            (
                2,
                vec![address("10.0.0.1:30050"), address("10.0.0.1:40000")],
            ),
        ];
        assert_eq!(diagnosis.targets(), wanted);
        find(
            &mut diagnosis,
            2,
            "unreached",
            json!({"target": "10.0.0.1:40000", "why": "timed_out"}),
            b"",
        );
        diagnosis.note_event(1, PreflightEvent::Lost("gone".to_owned()));
        let blocked = "host 0 (10.0.0.1): cannot be reached on an ephemeral port from host 2 \
            (10.0.0.3): Connection timed out";
        assert_eq!(
            report_lines(diagnosis),
            [blocked, "host 1 (10.0.0.2): gone"]
        );
    }

    #[test]
    fn a_job_in_the_way_is_named_once_for_all_hosts() {
        let hosts = hosts(3);
        let conflict = |at: usize, what: Value, user: Value| {
            let by = json!({"job": "a", "user": user, "pid": 100 + at, "age_ms": 12000,
                "confirmed": true});
            let taken: Taken = serde_json::from_value(json!({"what": what, "by": by})).unwrap();
            Conflict { at, taken }
        };
        let port = |port: u16| json!({"port": port});
        let table = [
            (
                vec![
                    conflict(0, port(30050), Value::Null),
                    conflict(0, port(30051), Value::Null),
                    conflict(2, port(30050), Value::Null),
                ],
                vec![
                    "host 0 (10.0.0.1): ports 30050-30051 are taken by job a",
                    "host 2 (10.0.0.3): port 30050 is taken by job a",
                ],
            ),
            (
                vec![
                    conflict(1, port(30050), json!("bob")),
                    conflict(1, json!("shared_memory"), json!("bob")),
                ],
                vec![
                    "host 1 (10.0.0.2): port 30050, and /dev/shm, is taken by job a of user bob \
                     (process 101, for 12.0 s)",
                ],
            ),
            (
                vec![
                    conflict(0, json!("shared_memory"), Value::Null),
                    conflict(1, json!("shared_memory"), Value::Null),
                ],
                vec!["hosts 0-1: another job of DGL runs there: job a"],
            ),
            (
                vec![
                    conflict(0, json!("name"), Value::Null),
                    conflict(0, port(1), Value::Null),
                ],
                vec!["host 0 (10.0.0.1): a job named mine runs there"],
            ),
        ];
        for (conflicts, wanted) in table {
            let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &hosts, None, "mine");
            diagnosis.conflicts(&conflicts);
            assert!(diagnosis.passes());
            assert_eq!(report_lines(diagnosis), wanted, "{conflicts:?}");
        }
    }
}
