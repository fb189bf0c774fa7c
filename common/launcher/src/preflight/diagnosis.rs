//! Makes the problems that hosts find into faults with hosts and fixes, and finds those that only a
//! comparison of hosts shows.

use super::fixes;
use super::reachability::{self, PairFailure, UnreachablePair};
use record::error::{Fault, Report};
use record::majority::most_frequent;
use record::{Graph, Host, Process, Role, cpus, python, unequal_parts};
use session::ANSWER_LIMIT;
use session::SessionEvent;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::time::Duration;
use wire::files::Sum;
use wire::preflight::{Finding, Problem, Subject};
use wire::{Event, shown};

/// One host by its name, several by their numbers.
pub fn locations(hosts: &[&Host]) -> String {
    match hosts {
        [host] => host.location(),
        _ => format!("hosts {}", cpus::list(hosts.iter().map(|host| host.id))),
    }
}

pub fn lost(host: &Host, why: impl Into<String>) -> Fault {
    Fault {
        fix: fixes::fix(Subject::Host, "", false),
        ..Fault::unreachable(host.location(), why)
    }
}

pub struct JobUnderCheck<'a> {
    pub job: &'a str,
    /// All hosts of the stream.
    pub hosts: &'a [Host],
    /// Those of the job, into which the connected hosts have indices.
    pub processes: &'a [Process],
    pub graph: Option<&'a Graph>,
    pub private_shm: bool,
    /// Whether to check more than claims.
    pub examines: bool,
    /// How long it waits for other jobs to end that use what it needs.
    pub wait: Option<Duration>,
}

impl JobUnderCheck<'_> {
    fn has_one_program(&self) -> bool {
        let program = |process: &Process| Some(process.argv.as_ref()?.first()?.clone());
        let mut programs = self.processes.iter().map(program);
        let first = programs.next().flatten();
        first.is_some() && programs.all(|program| program == first)
    }
}

pub struct Diagnosis<'a> {
    /// The hosts with processes of the job.
    busy: Vec<&'a Host>,
    subject: &'a JobUnderCheck<'a>,
    /// For each host the ports on which it listens: one of the job, if possible, and an ephemeral
    /// one.
    listens: Vec<[Option<SocketAddrV4>; 2]>,
    /// For each host the DGL version of the job's Python.
    dgl: Vec<Option<String>>,
    /// Each host's hashes of files that must be the same on all, with the programs whose scripts
    /// they are.
    contents: BTreeMap<(Option<Role>, String), BTreeMap<usize, Sum>>,
    problems: Vec<(usize, Problem)>,
    unreached: Vec<UnreachablePair>,
}

impl<'a> Diagnosis<'a> {
    pub fn new(busy: Vec<&'a Host>, subject: &'a JobUnderCheck<'a>) -> Diagnosis<'a> {
        Diagnosis {
            listens: vec![[None; 2]; busy.len()],
            dgl: vec![None; busy.len()],
            contents: BTreeMap::new(),
            busy,
            subject,
            problems: Vec::new(),
            unreached: Vec::new(),
        }
    }

    pub fn is_clean(&self) -> bool {
        !self.problems.iter().any(|problem| self.counts(problem))
    }

    /// Whether a problem prevents the start. Only DGL 0.5 looks for files at old paths, and only it
    /// cannot listen on every port in TIME_WAIT.
    fn counts(&self, (index, problem): &(usize, Problem)) -> bool {
        match problem.about {
            Subject::OldPath => {
                let dgl = self.dgl[*index].as_ref();
                let dgl = dgl.or(self.busy[*index].facts.dgl.as_ref());
                dgl.is_none_or(|version| !version.starts_with("0.5"))
            }
            Subject::LingeringPort { blocks } => {
                let version = self.dgl[*index].as_deref().and_then(python::version);
                blocks || version.is_some_and(|version| version < (0, 6, 0))
            }
            _ => true,
        }
    }

    pub fn note_event(&mut self, index: usize, event: SessionEvent) {
        match event {
            SessionEvent::Event(Event::Preflight(finding), _) => self.note_finding(index, finding),
            SessionEvent::Event(Event::Failed(failure), _) => {
                self.push(index, Subject::Other, shown(&failure.problem));
            }
            SessionEvent::Event(..) => {}
            // before its findings, because a message may show only the first ones
            SessionEvent::Lost(why) => {
                let problem = Problem::new(Subject::Host, why);
                self.problems.insert(0, (index, problem));
            }
        }
    }

    pub fn note_late(&mut self, late: &[usize]) {
        let problem = format!("checking it took more than {} s", ANSWER_LIMIT.as_secs());
        late.iter()
            .for_each(|index| self.push(*index, Subject::Answer, problem.clone()));
    }

    pub fn note(&mut self, index: usize, problem: Problem) {
        let problem = (index, problem);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn push(&mut self, index: usize, about: Subject, problem: impl Into<String>) {
        self.note(index, Problem::new(about, problem));
    }

    fn note_finding(&mut self, index: usize, finding: Finding) {
        let ip = self.busy[index].ip.0;
        match finding {
            Finding::Problem(problem) => self.note(index, problem),
            Finding::Content {
                program,
                file,
                hash,
            } => {
                let hashes = self.contents.entry((program, file)).or_default();
                hashes.insert(index, hash);
            }
            Finding::Dgl { version } => self.dgl[index] = self.dgl[index].take().or(Some(version)),
            Finding::Listens { port, ephemeral } => {
                let ports = [port, Some(ephemeral)];
                self.listens[index] = ports.map(|port| Some(SocketAddrV4::new(ip, port?)));
            }
            Finding::IpConfig { hash } => {
                let hosts = self.subject.hosts;
                let wanted = transfer::content::sum(record::ip_config(hosts).as_bytes());
                if hosts.len() == self.busy[index].of as usize && hash != wanted {
                    let problem = "the ip_config differs from the records";
                    self.push(index, Subject::Copy, problem);
                }
            }
            Finding::Graph {
                num_parts,
                graph_name,
            } => self.compare_graph(index, num_parts, &graph_name),
            Finding::Unreached { target, why } => self.note_pair(index, target, true, Some(why)),
            Finding::LosesLargePackets { target, outward } => {
                self.note_pair(index, target, outward, None);
            }
        }
    }

    fn compare_graph(&mut self, index: usize, num_parts: u64, name: &str) {
        if let Some(problem) = unequal_parts(num_parts, self.busy[index].of as usize, 1) {
            let problem = format!("the partition config has {problem}");
            self.push(index, Subject::Partitions, problem);
        }
        if let Some(graph) = self.subject.graph.filter(|graph| graph.graph_name != name) {
            let wanted = &graph.graph_name;
            let problem = format!("the partition config is for graph {name:?}, not {wanted:?}");
            self.push(index, Subject::Copy, problem);
        }
    }

    /// The hosts that listen, each with the addresses to connect to.
    pub fn targets(&self) -> Vec<(usize, Vec<SocketAddrV4>)> {
        let all = self.listens.iter().enumerate();
        let listeners: Vec<_> = all.filter(|(_, ports)| ports[1].is_some()).collect();
        let to = |rank: usize| {
            let peers = reachability::peers(listeners.len(), rank);
            peers.flat_map(|peer| listeners[peer].1).flatten().copied()
        };
        let ranked = listeners.iter().enumerate();
        ranked
            .map(|(rank, (index, _))| (*index, to(rank).collect()))
            .collect()
    }

    /// Notes what failed between two hosts, from `index` to the other if `outward`: a connection,
    /// because of `why`, or else large packets. Both hosts find those.
    fn note_pair(
        &mut self,
        index: usize,
        target: SocketAddrV4,
        outward: bool,
        why: Option<String>,
    ) {
        // hosts of a rehearsal on one machine may share an address
        let mut all = self.listens.iter();
        let Some(other) = all.position(|ports| ports.contains(&Some(target))) else {
            return;
        };
        let (from, to) = if outward {
            (index, other)
        } else {
            (other, index)
        };
        let is_ephemeral = self.listens[other][1] == Some(target);
        let pair = UnreachablePair {
            from,
            to,
            port: target.port(),
            failure: match why {
                None => PairFailure::LargePackets,
                Some(why) if is_ephemeral => PairFailure::EphemeralPort(why),
                Some(why) => PairFailure::Port(why),
            },
        };
        let same = |other: &UnreachablePair| {
            (other.from, other.to, &other.failure) == (from, to, &pair.failure)
        };
        if !self.unreached.iter().any(same) {
            self.unreached.push(pair);
        }
    }

    /// Removes and returns ports that an ended job's connections block.
    pub fn take_lingering(&mut self) -> Vec<(usize, Problem)> {
        let is_about_port = |(_, problem): &(usize, Problem)| {
            matches!(problem.about, Subject::LingeringPort { .. })
        };
        let problems = std::mem::take(&mut self.problems);
        let (mut lingering, others): (Vec<_>, Vec<_>) =
            problems.into_iter().partition(is_about_port);
        self.problems = others;
        lingering.retain(|problem| self.counts(problem));
        lingering
    }

    /// Whether all problems will pass when other jobs end.
    pub fn passes(&self) -> bool {
        let passes = |about: Subject| match about {
            Subject::Name { .. } => true,
            Subject::Port(by) | Subject::SharedMemory(by) => by.is_job(),
            _ => false,
        };
        let mut problems = self.problems.iter();
        !problems.as_slice().is_empty() && problems.all(|(_, problem)| passes(problem.about))
    }

    /// The same problem on several hosts is one fault.
    pub fn report(mut self) -> Report {
        self.compare_contents();
        self.note_blocked_hosts();
        let mut problems = std::mem::take(&mut self.problems);
        problems.retain(|problem| self.counts(problem));
        problems.sort_by_key(|(index, _)| *index);
        let with_problems: BTreeSet<usize> = problems.iter().map(|(index, _)| *index).collect();
        let mut grouped: Vec<(BTreeSet<usize>, Problem)> = Vec::new();
        for (index, problem) in problems {
            let same = |(_, other): &&mut (_, Problem)| {
                (other.about, &other.problem) == (problem.about, &problem.problem)
            };
            match grouped.iter_mut().find(same) {
                Some((hosts, _)) => drop(hosts.insert(index)),
                None => grouped.push(([index].into(), problem)),
            }
        }
        let faults = grouped.into_iter().map(|(hosts, found)| {
            let hosts = Vec::from_iter(hosts);
            let mut problem = found.problem;
            if hosts.len() == 1 && !found.detail.is_empty() {
                problem += &format!(" ({})", found.detail);
            }
            let others_are_well =
                hosts.len() == with_problems.len() && hosts.len() < self.busy.len();
            let is_command = matches!(found.about, Subject::Command { .. });
            if is_command && others_are_well && self.subject.has_one_program() {
                problem += "; the other hosts have it";
            }
            let environment = self.busy[hosts[0]].facts.prefix.is_some();
            Fault {
                fix: fixes::fix(found.about, self.subject.job, environment),
                ..Fault::unreachable(self.location(&hosts), problem)
            }
        });
        Report(faults.collect())
    }

    pub fn location(&self, host_indices: &[usize]) -> String {
        let hosts: Vec<&Host> = host_indices.iter().map(|index| self.busy[*index]).collect();
        locations(&hosts)
    }

    /// Finds the hosts whose file differs from most hosts', or else from the first host's.
    fn compare_contents(&mut self) {
        for ((_, file), hashes) in std::mem::take(&mut self.contents) {
            let usual = most_frequent(hashes.values()).map(|(usual, _)| *usual);
            for (index, _) in hashes.iter().filter(|(_, hash)| Some(**hash) != usual) {
                let problem = format!("{file} differs from the other hosts'");
                self.push(*index, Subject::Copy, problem);
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
                    let transfer = if blocked.inward {
                        format!("cannot receive 64 KiB from {others}")
                    } else {
                        format!("cannot send 64 KiB to {others}")
                    };
                    let problem = format!("{transfer}: small packets pass and large ones do not");
                    self.push(blocked.index, Subject::LargePackets, problem);
                    continue;
                }
            };
            let problem = if blocked.inward {
                format!("cannot be reached on {ports} from {others}: {why}")
            } else {
                format!("cannot reach {others} on {ports}: {why}")
            };
            self.push(blocked.index, Subject::Reach, problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use wire::preflight::{Holder, Module};

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

    fn job<'a>(hosts: &'a [Host], processes: &'a [Process]) -> JobUnderCheck<'a> {
        JobUnderCheck {
            job: "mine",
            hosts,
            processes,
            graph: None,
            private_shm: false,
            examines: true,
            wait: None,
        }
    }

    fn find(diagnosis: &mut Diagnosis<'_>, host_index: usize, finding: Value) {
        let finding: Finding = serde_json::from_value(finding).unwrap();
        let event = Event::Preflight(finding);
        diagnosis.note_event(host_index, SessionEvent::Event(event, Vec::new()));
    }

    fn problem(about: Subject, problem: &str) -> Value {
        json!({"found": "problem", "about": about, "problem": problem})
    }

    fn content(program: Option<&str>, file: &str, digit: &str) -> Value {
        json!({"found": "content", "program": program, "file": file, "hash": digit.repeat(64)})
    }

    fn report_lines(diagnosis: Diagnosis<'_>) -> Vec<String> {
        let report = diagnosis.report();
        assert!(
            report.0.iter().all(|fault| fault.fix.is_some()),
            "{report:?}"
        );
        let faults = report.0.iter();
        faults
            .map(|fault| format!("{}: {}", fault.location, fault.problem))
            .collect()
    }

    #[test]
    fn what_is_on_a_host_is_compared_with_the_records() {
        let (hosts, graph) = (hosts(3), graph());
        let ip_config = |text: &str| {
            let hash = transfer::content::sum(text.as_bytes());
            json!({"found": "ip_config", "hash": hash})
        };
        let config = |parts: u64, name: &str| {
            let found = "graph";
            json!({"found": found, "num_parts": parts, "graph_name": name})
        };
        let table = [
            (
                ip_config("10.0.0.1 30050\n10.0.0.2 30050\n10.0.0.3 30050\n"),
                None,
            ),
            (
                ip_config("10.0.0.1 30050\n10.0.0.2 30050\n"),
                Some("the ip_config differs from the records"),
            ),
            (config(3, "g"), None),
            (
                config(2, "g"),
                Some(
                    "the partition config has 2 partitions for 3 hosts; DGL needs as many \
                     hosts as partitions",
                ),
            ),
            (
                config(3, "h"),
                Some("the partition config is for graph \"h\", not \"g\""),
            ),
            (
                problem(Subject::OldPath, "no such file: /w/d/part2/graph.dgl"),
                Some("no such file: /w/d/part2/graph.dgl"),
            ),
        ];
        for (finding, wanted) in table {
            let job = JobUnderCheck {
                graph: Some(&graph),
                ..job(&hosts, &[])
            };
            let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &job);
            find(&mut diagnosis, 1, finding.clone());
            let wanted = wanted.map(|text| format!("{}: {text}", hosts[1].location()));
            assert_eq!(report_lines(diagnosis), Vec::from_iter(wanted), "{finding}");
        }
    }

    #[test]
    fn words_of_hosts_are_cut_and_clean_and_stand_in_no_fix() {
        let hosts = hosts(1);
        let subjects = [
            Subject::Name { foreign: false },
            Subject::Abandoned,
            Subject::Port(Holder::Job),
            Subject::Port(Holder::Process),
            Subject::SharedMemory(Holder::ForeignJob),
            Subject::StaleSharedMemory { foreign: false },
            Subject::Module(Module::Torch),
            Subject::Command { path: true },
            Subject::Shell,
        ];
        let words = format!("evil\n  fix: rm\u{1b}[2J{}", "x".repeat(1000));
        for subject in subjects {
            let job = job(&hosts, &[]);
            let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &job);
            find(&mut diagnosis, 0, problem(subject, &words));
            let fault = diagnosis.report().0.pop().unwrap();
            assert!(
                fault.problem.starts_with("evil\\n  fix: rm\\x1b[2Jxxx")
                    && fault.problem.len() < 400,
                "{}",
                fault.problem
            );
            let fix = fault.fix.unwrap();
            assert!(!fix.contains("evil") && !fix.contains("fix:"), "{fix}");
        }
    }

    #[test]
    fn a_program_that_only_some_hosts_lack_is_on_the_others() {
        let hosts = hosts(2);
        let lacking = problem(Subject::Command { path: true }, "no such command: /b/p");
        let processes = ["/b/p", "/b/p", "/b/q"].map(|program| {
            let mut process = Process::new(0, 0, hosts[0].ip, Role::Worker, 0);
            process.set_words(&[program.into()]);
            process
        });
        for (count, lack_it, suffix) in
            [(2, 1, "; the other hosts have it"), (2, 2, ""), (3, 1, "")]
        {
            let job = job(&hosts, &processes[..count]);
            let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &job);
            for host_index in 0..lack_it {
                find(&mut diagnosis, host_index, lacking.clone());
            }
            let lines = report_lines(diagnosis);
            let problem = format!(": no such command: /b/p{suffix}");
            assert!(lines[0].ends_with(&problem), "{lines:?}");
        }
    }

    #[test]
    fn the_same_on_several_hosts_is_one_fault_and_an_odd_config_is_named() {
        let hosts = hosts(3);
        let job = job(&hosts, &[]);
        let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &job);
        // the job's own Python has a DGL that looks from the working directory
        find(
            &mut diagnosis,
            2,
            json!({"found": "dgl", "version": "0.5.3"}),
        );
        let old = problem(Subject::OldPath, "no such file: /w/d/part2/graph.dgl");
        find(&mut diagnosis, 2, old);
        let left = |job: &str, pid: usize| {
            let mut left = problem(Subject::Abandoned, &format!("job {job} was left"));
            left["detail"] = format!("process {pid}").into();
            left
        };
        for (host_index, digit) in [(0, "1"), (1, "2"), (2, "1")] {
            let config = content(None, "the partition config", digit);
            find(&mut diagnosis, host_index, config);
            let folder = problem(Subject::File, "no such directory: /w");
            find(&mut diagnosis, host_index, folder.clone());
            find(&mut diagnosis, host_index, folder);
            find(&mut diagnosis, host_index, left("a", host_index));
        }
        find(&mut diagnosis, 2, left("b", 7));
        let odd = "host 1 (10.0.0.2): the partition config differs from the other hosts'";
        let wanted = [
            "hosts 0-2: no such directory: /w",
            "hosts 0-2: job a was left",
            odd,
            "host 2 (10.0.0.3): job b was left (process 7)",
        ];
        assert_eq!(report_lines(diagnosis), wanted);
    }

    #[test]
    fn scripts_are_compared_by_program_and_path() {
        let hosts = hosts(3);
        let job = job(&hosts, &[]);
        let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &job);
        for (host, program, file, digit) in [
            (0, "store", "/a/main.py", "1"),
            (0, "train", "/b/main.py", "2"),
            (1, "train", "/b/main.py", "3"),
            (1, "store", "/a/main.py", "1"),
            (2, "train", "/b/main.py", "2"),
            // another program, which only this host runs
            (2, "other", "/a/main.py", "4"),
        ] {
            find(&mut diagnosis, host, content(Some(program), file, digit));
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
            let job = job(&hosts, &[]);
            let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &job);
            let lingering = problem(Subject::LingeringPort { blocks }, "port 30050 is held");
            find(&mut diagnosis, 1, lingering);
            find(&mut diagnosis, 1, json!({"found": "dgl", "version": dgl}));
            let lingering = diagnosis.take_lingering();
            assert_eq!(lingering.len(), usize::from(counts), "{dgl} {blocks}");
            assert!(diagnosis.is_clean());
        }
    }

    #[test]
    fn hosts_that_listen_connect_and_walls_are_reported() {
        let hosts = hosts(3);
        let job = job(&hosts, &[]);
        let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &job);
        let listens = json!({"found": "listens", "port": 30050, "ephemeral": 40000});
        find(&mut diagnosis, 0, listens);
        find(
            &mut diagnosis,
            2,
            json!({"found": "listens", "ephemeral": 41000}),
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
        let unreached = json!({"found": "unreached", "target": "10.0.0.1:40000",
            "why": "Connection timed out"});
        find(&mut diagnosis, 2, unreached);
        diagnosis.note_event(1, SessionEvent::Lost("gone".to_owned()));
        // both hosts report the same
        for (host_index, target, outward) in
            [(0, "10.0.0.3:41000", true), (2, "10.0.0.1:40000", false)]
        {
            let lost =
                json!({"found": "loses_large_packets", "target": target, "outward": outward});
            find(&mut diagnosis, host_index, lost);
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
}
