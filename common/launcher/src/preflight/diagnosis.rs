//! Turns the findings of all hosts into faults with their locations. describe.rs words them.

use super::describe::{self, COPY_AGAIN, ONE_MTU, OPEN_PORTS, Problem, plain};
use super::reachability::{self, PairFailure, UnreachablePair};
use record::error::Report;
use record::majority::most_frequent;
use record::python;
use record::{DEFAULT_PORT, Graph, Host, unequal_parts};
use session::ANSWER_LIMIT;
use session::SessionEvent;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::Event;
use wire::preflight::{Claimant, Claimed, Finding, Script, Taken, Unreachable};

/// The findings of one host that are compared with those of others.
#[derive(Clone, Debug, Default)]
struct HostFindings {
    /// The ports on which it listens for other hosts: a port of the job, if possible, and an
    /// ephemeral one.
    listens: Option<(Option<u16>, u16)>,
    /// The hashes of files that must be the same on all hosts.
    contents: BTreeMap<ComparedFile, String>,
    /// The version of DGL that the job's own Python finds.
    dgl: Option<String>,
    /// Files in a directory where only DGL 0.5 looks for them.
    elsewhere: Vec<String>,
    /// Ports with connections in TIME_WAIT, and whether no process can listen there.
    lingers: Vec<(u16, bool)>,
}

/// A file that must be the same on all hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ComparedFile {
    Script(Script),
    PartitionConfig,
}

impl ComparedFile {
    fn name(&self) -> String {
        match self {
            ComparedFile::Script(Script { folder, path, .. }) => {
                describe::shown(&folder.path().join(path.path()).into())
            }
            ComparedFile::PartitionConfig => "the partition config".to_owned(),
        }
    }
}

/// What another job has claimed on a host.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The index of the host among those that have processes of the job.
    pub index: usize,
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
    /// Whether all processes run the same program.
    pub has_one_program: bool,
    findings: Vec<HostFindings>,
    /// Problems with the indices of their hosts.
    problems: Vec<(usize, Problem)>,
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
        Diagnosis {
            findings: vec![HostFindings::default(); busy.len()],
            busy,
            hosts,
            graph,
            job,
            has_one_program: false,
            problems: Vec::new(),
            unreached: Vec::new(),
        }
    }

    /// Whether no problem was found so far.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Handles an event of a host.
    pub fn note_event(&mut self, index: usize, event: SessionEvent) {
        match event {
            SessionEvent::Event(Event::Preflight(finding), body) => {
                self.note_finding(index, finding, &body);
            }
            SessionEvent::Event(Event::Failed(failure), _) => {
                let problem = Problem {
                    fix: None,
                    ..Problem::new(plain(&failure.problem), "")
                };
                self.push(index, problem);
            }
            SessionEvent::Event(..) => {}
            SessionEvent::Lost(why) => self.push(index, describe::lost(why)),
        }
    }

    /// Notes the hosts that have not answered in time.
    pub fn note_late(&mut self, late: &[usize]) {
        let seconds = ANSWER_LIMIT.as_secs();
        let problem = Problem::new(
            format!("checking it took more than {seconds} s"),
            "does a file system hang there? --no-preflight skips the checks",
        );
        late.iter()
            .for_each(|index| self.push(*index, problem.clone()));
    }

    fn push(&mut self, index: usize, problem: Problem) {
        let problem = (index, problem);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn note_finding(&mut self, index: usize, finding: Finding, body: &[u8]) {
        let findings = &mut self.findings[index];
        let problem = match finding {
            Finding::ScriptContent { script, hash } => {
                findings.contents.insert(ComparedFile::Script(script), hash);
                return;
            }
            Finding::Elsewhere { path } => return findings.elsewhere.push(describe::shown(&path)),
            Finding::Listens { port, ephemeral } => {
                findings.listens = Some((port, ephemeral));
                return;
            }
            Finding::PortLingers { port, blocks } => return findings.lingers.push((port, blocks)),
            Finding::IpConfig => return self.compare_ip_config(index, body),
            Finding::PartitionConfig {
                hash,
                num_parts,
                graph_name,
            } => return self.compare_partition_config(index, hash, num_parts, graph_name),
            Finding::Python {
                executable,
                version,
                missing,
                dgl,
            } => {
                findings.dgl = findings.dgl.take().or(dgl);
                let environment = self.busy[index].facts.prefix.is_some();
                for module in missing {
                    self.push(
                        index,
                        describe::missing_module(module, &executable, &version, environment),
                    );
                }
                return;
            }
            Finding::Unreached { target, why } => return self.note_unreached(index, target, why),
            Finding::LosesLargePackets { target, outward } => {
                return self.note_large_packets(index, target, outward);
            }
            Finding::NameInUse => describe::name_in_use(self.job, None),
            Finding::Problem { about, problem } => describe::problem(about, &problem),
            Finding::Abandoned { job, pids } => describe::abandoned(&job, &pids),
            Finding::SharedMemory {
                state,
                files,
                total_bytes,
            } => describe::shared_memory(&state, files, total_bytes),
            Finding::PortTaken { port, by } => describe::port_taken(port, &by),
        };
        self.push(index, problem);
    }

    /// Compares the ip_config in the workspace with the records. DGL uses that file, and with an
    /// old one the job hangs.
    fn compare_ip_config(&mut self, index: usize, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let read = |line: &str| -> Option<(String, u16)> {
            let mut words = line.split_whitespace();
            let ip = words.next()?.to_owned();
            let port = words.next().map_or(Ok(DEFAULT_PORT), str::parse);
            Some((ip, port.ok()?))
        };
        let found = text.lines().map(read);
        let hosts = self.hosts.iter();
        let wanted = hosts.map(|host| Some((host.ip.to_string(), host.port)));
        if self.hosts.len() == self.busy[index].of as usize && !found.eq(wanted) {
            let words = text
                .lines()
                .filter_map(|line| line.split_whitespace().next());
            let mut hosts = words.filter(|word| !word.starts_with('#'));
            let problem = match hosts.any(|word| word.parse::<Ipv4Addr>().is_err()) {
                true => "the ip_config there has names, but DGL needs addresses",
                false => "the ip_config there is not that of the records",
            };
            self.push(index, Problem::new(problem, COPY_AGAIN));
        }
    }

    fn compare_partition_config(
        &mut self,
        index: usize,
        hash: String,
        num_parts: Option<u64>,
        graph_name: Option<String>,
    ) {
        self.findings[index]
            .contents
            .insert(ComparedFile::PartitionConfig, hash);
        let hosts = self.busy[index].of as usize;
        if num_parts.is_none() {
            let problem = "this is not a partition config: num_parts is missing";
            self.push(index, Problem::new(problem, COPY_AGAIN));
        }
        if let Some(problem) = num_parts.and_then(|parts| unequal_parts(parts, hosts, 1)) {
            let problem = format!("the partition config there has {problem}");
            let fix = "partition again, or correct ip_config.txt";
            self.push(index, Problem::new(problem, fix));
        }
        let name = graph_name.map(|name| plain(&name)).unwrap_or_default();
        if let Some(graph) = self.graph.filter(|graph| graph.graph_name != name) {
            let problem = format!(
                "the partition config there is of graph {name:?}, not {:?}",
                graph.graph_name
            );
            self.push(index, Problem::new(problem, COPY_AGAIN));
        }
    }

    /// The hosts that listen, each with the addresses to which it will connect.
    pub fn targets(&self) -> Vec<(usize, Vec<SocketAddrV4>)> {
        let listeners: Vec<(usize, [Option<SocketAddrV4>; 2])> = (0..self.busy.len())
            .filter_map(|index| {
                let (port, ephemeral) = self.findings[index].listens?;
                let address = |port| SocketAddrV4::new(self.busy[index].ip.0, port);
                Some((index, [port.map(address), Some(address(ephemeral))]))
            })
            .collect();
        let to = |rank: usize| {
            reachability::peers(listeners.len(), rank)
                .flat_map(|peer| listeners[peer].1)
                .flatten()
                .collect()
        };
        let ranked = listeners.iter().enumerate();
        ranked
            .map(|(rank, (index, _))| (*index, to(rank)))
            .collect()
    }

    fn note_unreached(&mut self, index: usize, target: SocketAddrV4, why: Unreachable) {
        let Some((to, is_ephemeral)) = self.listener_at(target) else {
            return;
        };
        let why = match why {
            Unreachable::TimedOut => "Connection timed out".to_owned(),
            Unreachable::Refused => "Connection refused".to_owned(),
            Unreachable::Other(error) => plain(&error),
        };
        self.unreached.push(UnreachablePair {
            from: index,
            to,
            port: target.port(),
            failure: match is_ephemeral {
                true => PairFailure::EphemeralPort(why),
                false => PairFailure::Port(why),
            },
        });
    }

    /// Both of two hosts that connect to each other find this.
    fn note_large_packets(&mut self, index: usize, target: SocketAddrV4, outward: bool) {
        let Some((other, _)) = self.listener_at(target) else {
            return;
        };
        let (from, to) = if outward {
            (index, other)
        } else {
            (other, index)
        };
        let failure = PairFailure::LargePackets;
        let is_same =
            |pair: &UnreachablePair| (pair.from, pair.to, &pair.failure) == (from, to, &failure);
        if !self.unreached.iter().any(is_same) {
            let port = target.port();
            self.unreached.push(UnreachablePair {
                from,
                to,
                port,
                failure,
            });
        }
    }

    /// The index of the host that listens on this address, and whether the port is an ephemeral
    /// one. In a rehearsal on one machine, hosts may share an address.
    fn listener_at(&self, target: SocketAddrV4) -> Option<(usize, bool)> {
        (0..self.busy.len()).find_map(|index| {
            let (port, ephemeral) = self.findings[index].listens?;
            let is_ephemeral = ephemeral == target.port();
            let has_address = self.busy[index].ip.0 == *target.ip()
                && (is_ephemeral || port == Some(target.port()));
            has_address.then_some((index, is_ephemeral))
        })
    }

    /// Removes and returns the ports that connections of an ended job block: those on which no
    /// process can listen and, if the job's Python has DGL 0.5, which does not set SO_REUSEADDR,
    /// all ports in TIME_WAIT.
    pub fn take_lingering(&mut self) -> Vec<(usize, u16)> {
        let mut lingering = Vec::new();
        for (index, findings) in self.findings.iter_mut().enumerate() {
            let version = findings.dgl.as_deref().and_then(python::version);
            let is_old = version.is_some_and(|version| version < (0, 6, 0));
            for (port, blocks) in std::mem::take(&mut findings.lingers) {
                lingering.extend((blocks || is_old).then_some((index, port)));
            }
        }
        lingering
    }

    /// Notes that these ports were not released in time.
    pub fn still_linger(&mut self, lingering: &[(usize, u16)]) {
        for (index, port) in lingering {
            let problem =
                format!("the port {port} is still held by connections of a job that has ended");
            let fix = "wait a minute, or choose another port in ip_config.txt";
            self.push(*index, Problem::new(problem, fix));
        }
    }

    /// Notes the conflicts with claims of other jobs.
    pub fn conflicts(&mut self, conflicts: &[Conflict]) {
        let mut by_host: BTreeMap<(usize, Option<&str>, Option<&str>), (Vec<Claimed>, &Claimant)> =
            BTreeMap::new();
        for Conflict { index, taken } in conflicts {
            let key = (*index, taken.by.job.as_deref(), taken.by.user.as_deref());
            let entry = by_host.entry(key).or_insert((Vec::new(), &taken.by));
            entry.0.push(taken.claimed);
        }
        let is_alone = by_host.len() == 1;
        for ((index, ..), (taken, by)) in by_host {
            let problem = match taken.contains(&Claimed::Name) {
                true => describe::name_in_use(self.job, by.user.as_deref()),
                false => describe::claimed(&taken, by, is_alone),
            };
            self.push(index, problem);
        }
    }

    /// Whether the end of other jobs will solve all problems.
    pub fn passes(&self) -> bool {
        !self.problems.is_empty() && self.problems.iter().all(|(_, problem)| problem.passes)
    }

    /// All problems as a report; the same problem on several hosts is one fault.
    pub fn report(mut self) -> Report {
        self.note_files_elsewhere();
        self.compare_contents();
        self.note_blocked_hosts();
        self.problems.sort_by_key(|(index, _)| *index);
        let with_problems: BTreeSet<usize> =
            self.problems.iter().map(|(index, _)| *index).collect();
        let mut grouped: Vec<(Vec<usize>, Problem)> = Vec::new();
        for (index, problem) in std::mem::take(&mut self.problems) {
            let same =
                |other: &Problem| other.problem == problem.problem && other.fix == problem.fix;
            match grouped.iter_mut().find(|(_, other)| same(other)) {
                Some((hosts, _)) => hosts.push(index),
                None => grouped.push((vec![index], problem)),
            }
        }
        let faults = grouped.into_iter().map(|(hosts, mut problem)| {
            let others_are_well =
                hosts.len() == with_problems.len() && hosts.len() < self.busy.len();
            if let Some(others) = problem
                .others
                .filter(|_| others_are_well && self.has_one_program)
            {
                problem.problem += &format!("; {others}");
            }
            problem.fault(self.location(&hosts))
        });
        Report(faults.collect())
    }

    /// The names of hosts in a message.
    pub fn location(&self, host_indices: &[usize]) -> String {
        let hosts: Vec<&Host> = host_indices.iter().map(|index| self.busy[*index]).collect();
        describe::locations(&hosts)
    }

    fn note_files_elsewhere(&mut self) {
        let fix = "DGL looks for it from the directory of the partition config, as part-map writes \
            it: copy it again with part-map and part-push";
        for index in 0..self.busy.len() {
            let findings = &mut self.findings[index];
            let files = std::mem::take(&mut findings.elsewhere);
            let dgl = findings
                .dgl
                .as_ref()
                .or(self.busy[index].facts.dgl.as_ref());
            if dgl.is_none_or(|version| !version.starts_with("0.5")) {
                for file in files {
                    self.push(index, Problem::new(format!("no such file: {file}"), fix));
                }
            }
        }
    }

    /// Finds the hosts whose file differs from that of most hosts, or else of the first host.
    fn compare_contents(&mut self) {
        let mut hosts_of: BTreeMap<ComparedFile, Vec<(usize, String)>> = BTreeMap::new();
        for (index, findings) in self.findings.iter_mut().enumerate() {
            for (file, hash) in std::mem::take(&mut findings.contents) {
                hosts_of.entry(file).or_default().push((index, hash));
            }
        }
        for (file, hosts) in hosts_of {
            let usual = most_frequent(hosts.iter().map(|(_, hash)| hash));
            let differs = |hash| usual.is_none_or(|(usual, _)| usual != hash);
            for (index, _) in hosts.iter().filter(|(_, hash)| differs(hash)) {
                let problem = format!("{} differs from the other hosts'", file.name());
                self.push(*index, Problem::new(problem, COPY_AGAIN));
            }
        }
    }

    fn note_blocked_hosts(&mut self) {
        for blocked in reachability::blocked_hosts(std::mem::take(&mut self.unreached)) {
            let UnreachablePair { port, failure, .. } = &blocked.pairs[0];
            let other = |pair: &UnreachablePair| if blocked.inward { pair.from } else { pair.to };
            let others = self.location(&blocked.pairs.iter().map(other).collect::<Vec<_>>());
            let (ports, why) = match failure {
                PairFailure::Port(why) => (format!("port {port}"), why),
                PairFailure::EphemeralPort(why) => ("an ephemeral port".to_owned(), why),
                PairFailure::LargePackets => {
                    let problem = describe::large_packets(&others, blocked.inward);
                    self.push(blocked.index, Problem::new(problem, ONE_MTU));
                    continue;
                }
            };
            let problem = match blocked.inward {
                true => format!("cannot be reached on {ports} from {others}: {why}"),
                false => format!("cannot reach {others} on {ports}: {why}"),
            };
            self.push(blocked.index, Problem::new(problem, OPEN_PORTS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

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

    fn find(diagnosis: &mut Diagnosis<'_>, host_index: usize, found: &str, rest: &str, body: &str) {
        let mut finding: Value = serde_json::from_str(rest).unwrap();
        finding["found"] = found.into();
        let finding: Finding = serde_json::from_value(finding).unwrap();
        diagnosis.note_event(
            host_index,
            SessionEvent::Event(Event::Preflight(finding), body.as_bytes().to_vec()),
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
            .map(|fault| format!("{}: {}", fault.location, fault.problem))
            .collect()
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn what_was_found_is_judged() {
        let config = |parts: &str, name: &str| {
            format!(r#"{{"hash": "1", "num_parts": {parts}, "graph_name": "{name}"}}"#)
        };
        let table = [
            (
                0,
                "ip_config",
                "{}",
                "10.0.0.1\n10.0.0.2 30050\n10.0.0.3\n",
                None,
            ),
            (
                0,
                "ip_config",
                "{}",
                "10.0.0.1\n10.0.0.2\n",
                Some("the ip_config there is not that of the records"),
            ),
            (
                0,
                "ip_config",
                "{}",
                "# ours\ngpu1\n10.0.0.2\n10.0.0.3\n",
                Some("the ip_config there has names, but DGL needs addresses"),
            ),
            (1, "partition_config", &config("3", "g"), "", None),
            (
                1,
                "partition_config",
                &config("2", "g"),
                "",
                Some(
                    "the partition config there has 2 partitions for 3 hosts; DGL needs as many \
                     hosts as partitions",
                ),
            ),
            (
                1,
                "partition_config",
                &config("null", "g"),
                "",
                Some("this is not a partition config: num_parts is missing"),
            ),
            (
                1,
                "partition_config",
                &config("3", "h"),
                "",
                Some("the partition config there is of graph \"h\", not \"g\""),
            ),
            (
                2,
                "elsewhere",
                r#"{"path": "/w/d/part2/graph.dgl"}"#,
                "",
                Some("no such file: /w/d/part2/graph.dgl"),
            ),
            (
                2,
                "port_taken",
                r#"{"port": 30050, "by": {"pid": 7, "command": "x y", "job": "a"}}"#,
                "",
                Some("port 30050 is taken by process 7 (x y) of job a"),
            ),
            (
                2,
                "port_taken",
                r#"{"port": 1, "by": {"user": "bob"}}"#,
                "",
                Some("port 1 is taken by a process of user bob"),
            ),
            (
                2,
                "port_taken",
                r#"{"port": 1, "by": {"pid": 7}}"#,
                "",
                Some("port 1 is taken by process 7"),
            ),
            (
                2,
                "shared_memory",
                r#"{"state": {"stale": "/dev/shm/x"}, "files": 2, "total_bytes": 8192}"#,
                "",
                Some("a job of DGL has left 2 files, 8.2 kB in /dev/shm, such as /dev/shm/x"),
            ),
            (
                0,
                "problem",
                r#"{"about": "python", "problem": "its Python does not run: a\u001b[2Jb"}"#,
                "",
                Some("its Python does not run: a [2Jb"),
            ),
            (
                0,
                "abandoned",
                r#"{"job": "a", "pids": [1, 2]}"#,
                "",
                Some("job a was left there without a launcher: process 1 2"),
            ),
        ];
        let (hosts, graph) = (hosts(3), graph());
        for (host_index, found, rest, body, wanted) in table {
            let mut diagnosis =
                Diagnosis::new(hosts.iter().collect(), &hosts, Some(&graph), "mine");
            find(&mut diagnosis, host_index, found, rest, body);
            let wanted: Vec<String> = wanted
                .into_iter()
                .map(|text| format!("{}: {text}", hosts[host_index].location()))
                .collect();
            assert_eq!(report_lines(diagnosis), wanted, "{found} {rest}");
        }
    }

    #[test]
    fn a_program_that_only_some_hosts_lack_is_on_the_others() {
        let hosts = hosts(2);
        let lacking = r#"{"about": "command", "problem": "no such command: /b/p"}"#;
        for (has_one_program, lack_it, suffix) in [
            (true, 1, "; the other hosts have it"),
            (true, 2, ""),
            (false, 1, ""),
        ] {
            let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &hosts, None, "mine");
            diagnosis.has_one_program = has_one_program;
            for host_index in 0..lack_it {
                find(&mut diagnosis, host_index, "problem", lacking, "");
            }
            let lines = report_lines(diagnosis);
            let problem = format!(": no such command: /b/p{suffix}");
            assert!(lines[0].ends_with(&problem), "{lines:?}");
        }
    }

    #[test]
    fn the_same_on_several_hosts_is_one_fault_and_an_odd_config_is_named() {
        let hosts = hosts(3);
        let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &hosts, None, "mine");
        // the job's own Python has a DGL that looks from the working directory
        let python = r#"{"executable": "/p", "version": "3.8.1", "missing": [], "dgl": "0.5.3"}"#;
        find(&mut diagnosis, 2, "python", python, "");
        find(
            &mut diagnosis,
            2,
            "elsewhere",
            r#"{"path": "/w/d/part2/graph.dgl"}"#,
            "",
        );
        for (host_index, hash) in [(0, "1"), (1, "2"), (2, "1")] {
            find(
                &mut diagnosis,
                host_index,
                "partition_config",
                &format!(r#"{{"hash": "{hash}", "num_parts": 3, "graph_name": "g"}}"#),
                "",
            );
            let folder = r#"{"about": "file", "problem": "no such directory: /w"}"#;
            find(&mut diagnosis, host_index, "problem", folder, "");
            find(&mut diagnosis, host_index, "problem", folder, "");
        }
        let odd = "host 1 (10.0.0.2): the partition config differs from the other hosts'";
        assert_eq!(
            report_lines(diagnosis),
            ["hosts 0-2: no such directory: /w", odd]
        );
    }

    #[test]
    fn scripts_are_compared_by_program_folder_and_path() {
        let hosts = hosts(3);
        let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &hosts, None, "mine");
        for (host, program, folder, hash) in [
            (0, "store", "/a", "1"),
            (0, "train", "/b", "2"),
            (1, "train", "/b", "3"),
            (1, "store", "/a", "1"),
            (2, "train", "/b", "2"),
            // another program, which only this host runs
            (2, "other", "/a", "4"),
        ] {
            let script = format!(
                r#"{{"hash": "{hash}", "script": {{"program": "{program}", "folder": "{folder}",
                    "path": "main.py"}}}}"#
            );
            find(&mut diagnosis, host, "script_content", &script, "");
        }
        let odd = "host 1 (10.0.0.2): /b/main.py differs from the other hosts'";
        assert_eq!(report_lines(diagnosis), [odd]);
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
                &format!(r#"{{"port": 30050, "blocks": {blocks}}}"#),
                "",
            );
            find(
                &mut diagnosis,
                1,
                "python",
                &format!(
                    r#"{{"executable": "/p", "version": "3", "missing": [], "dgl": "{dgl}"}}"#
                ),
                "",
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
            r#"{"port": 30050, "ephemeral": 40000}"#,
            "",
        );
        find(&mut diagnosis, 2, "listens", r#"{"ephemeral": 41000}"#, "");
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
            r#"{"target": "10.0.0.1:40000", "why": "timed_out"}"#,
            "",
        );
        diagnosis.note_event(1, SessionEvent::Lost("gone".to_owned()));
        // both hosts report the same
        for (host_index, target, outward) in
            [(0, "10.0.0.3:41000", true), (2, "10.0.0.1:40000", false)]
        {
            let found = format!(r#"{{"target": "{target}", "outward": {outward}}}"#);
            find(
                &mut diagnosis,
                host_index,
                "loses_large_packets",
                &found,
                "",
            );
        }
        let large = "host 0 (10.0.0.1): cannot send 64 KiB to host 2 (10.0.0.3): small packets \
            pass and large ones do not";
        let blocked = "host 0 (10.0.0.1): cannot be reached on an ephemeral port from host 2 \
            (10.0.0.3): Connection timed out";
        assert_eq!(
            report_lines(diagnosis),
            [large, blocked, "host 1 (10.0.0.2): gone"]
        );
    }

    #[test]
    fn a_job_in_the_way_is_named_once_for_all_hosts() {
        let hosts = hosts(3);
        let conflict = |index: usize, claimed: &str, user: &str| {
            let record = format!(
                r#"{{"claimed": {claimed}, "by": {{"job": "a", "user": {user}, "pid": 10{index},
                "age_ms": 12000, "confirmed": true}}}}"#
            );
            let taken: Taken = serde_json::from_str(&record).unwrap();
            Conflict { index, taken }
        };
        let port = r#"{"port": 30050}"#;
        let (shared_memory, bob) = (r#""shared_memory""#, r#""bob""#);
        let table = [
            (
                vec![
                    conflict(0, port, "null"),
                    conflict(0, r#"{"port": 30051}"#, "null"),
                    conflict(2, port, "null"),
                ],
                vec![
                    "host 0 (10.0.0.1): ports 30050-30051 are taken by job a",
                    "host 2 (10.0.0.3): port 30050 is taken by job a",
                ],
            ),
            (
                vec![conflict(1, port, bob), conflict(1, shared_memory, bob)],
                vec![
                    "host 1 (10.0.0.2): port 30050, and /dev/shm, is taken by job a of user bob \
                     (process 101, for 12.0 s)",
                ],
            ),
            (
                vec![
                    conflict(0, shared_memory, "null"),
                    conflict(1, shared_memory, "null"),
                ],
                vec!["hosts 0-1: another job of DGL runs there: job a"],
            ),
            (
                vec![
                    conflict(0, r#""name""#, "null"),
                    conflict(0, r#"{"port": 1}"#, "null"),
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
