//! Finds the jobs among the processes that launchers have numbered, by the variables with which
//! they run.

use record::stacks::{self, Member};
use record::term::{self, count};
use record::{Host, Process, Role};
use std::collections::{BTreeMap, BTreeSet};
use wire::job::JOB;
use wire::stacks::{ChosenProcess, RankProcess};

/// The most characters of a job's name.
const NAME_CHARS: usize = 64;
/// The most characters of a command in messages.
const COMMAND_CHARS: usize = 60;
/// The most missing ranks that are counted: a size may be any number.
const MAX_MISSING: usize = 10_000;
/// The most sizes of a job in messages: a host may claim any number of them.
const MAX_SIZES: usize = 4;

/// What a launcher gives the processes of a job: the first part of the job's name, and the
/// variables with the rank, with the number of ranks, and with the other parts of the name.
type Launcher = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

/// A process may have the variables of several launchers, such as mpirun in a job of Slurm. The
/// closest comes first. The script of a job of Slurm has a rank, but is no step.
const LAUNCHERS: [Launcher; 4] = [
    (
        "torch",
        "RANK",
        "WORLD_SIZE",
        // Kubeflow gives torchrun itself the other variables
        &["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"],
    ),
    (
        "mpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        &["PMIX_NAMESPACE"],
    ),
    (
        "mpi",
        "PMI_RANK",
        "PMI_SIZE",
        &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    ),
    (
        "slurm",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    ),
];

#[derive(Debug, PartialEq, Eq)]
struct Identity {
    job: String,
    role: Role,
    rank: u32,
    /// How many ranks the role has.
    size: Option<u32>,
}

impl Identity {
    /// `None` for a process that is not numbered.
    fn of(host: u32, process: &RankProcess) -> Option<Identity> {
        let text = |name: &str| {
            let text = process.variables.get(name).map(String::as_str);
            text.filter(|text| !text.is_empty())
        };
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        // torchrun in a job of these tools numbers its own processes
        let own = text(JOB).filter(|_| text("TORCHELASTIC_RUN_ID").is_none());
        let config = text("DGL_CONF_PATH").and_then(|path| path.rsplit('/').next());
        let of_dgl = || text("DGL_ROLE").map(|_| name(&[&["dgl"], config.as_slice()].concat()));
        if let Some(job) = own.map(|job| name(&[job])).or_else(of_dgl) {
            let role = process.role?;
            return Some(Identity {
                job,
                role,
                rank: process.rank?,
                size: number("WORLD_SIZE").filter(|_| role != Role::Server),
            });
        }
        let find = |(launcher, rank, size, job): &Launcher| {
            let (rank, size) = (number(rank)?, number(size)?);
            // each host may have a job of its own there
            let is_local = *launcher == "torch" && text("MASTER_ADDR").is_some_and(is_loopback);
            let own_host = format!("host{host}");
            let mut parts = vec![*launcher];
            parts.extend(job.iter().filter_map(|part| text(part)));
            parts.extend(is_local.then_some(own_host.as_str()));
            Some(Identity {
                job: name(&parts),
                role: Role::Worker,
                rank,
                size: Some(size),
            })
        };
        LAUNCHERS.iter().find_map(find)
    }
}

pub fn is_loopback(address: &str) -> bool {
    address == "localhost" || address == "::1" || address.starts_with("127.")
}

fn name(parts: &[&str]) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name = parts.join("-");
    let allowed = name.chars().map(|c| if allowed(c) { c } else { '-' });
    allowed.take(NAME_CHARS).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct FoundJob {
    pub name: String,
    /// By rank and host: the rank's own process, and then its data loaders and samplers.
    ranks: BTreeMap<(Member, u32), Vec<RankProcess>>,
    /// The hosts that claim each size.
    sizes: BTreeMap<Role, BTreeMap<u32, BTreeSet<u32>>>,
    /// The ranks that no host has, although the job's size includes them, and where they may be, in
    /// words; empty if no rank is missing. `find_missing` fills it in.
    pub missing: String,
    /// As many hosts claim one size as another, in words; empty if most hosts agree.
    pub disagreement: String,
}

/// The hosts that have a job, and those of them that make the same claim about it.
#[derive(Default)]
struct HostVotes {
    hosts: BTreeSet<u32>,
    in_favour: BTreeSet<u32>,
}

impl HostVotes {
    /// One of two hosts decides nothing.
    fn are_most(&self) -> bool {
        self.in_favour.len() * 2 > self.hosts.len()
    }
}

/// Of the processes with one number on a host, the first Python is the rank and other Pythons are
/// its children. Without Python, the rank is the program that shells have started.
fn family(mut processes: Vec<RankProcess>) -> Vec<RankProcess> {
    if processes.iter().any(|process| process.is_python) {
        processes.retain(|process| process.is_python);
        processes.sort_by_key(|process| (process.start_ticks, process.pid));
    } else {
        let parents: BTreeSet<i32> = processes.iter().map(|process| process.parent).collect();
        processes.retain(|process| !parents.contains(&process.pid));
        processes.truncate(1);
    }
    processes
}

/// The jobs in the order of their names. Launchers that another one has numbered are left out, such
/// as torchrun below srun.
pub fn jobs(found: Vec<(u32, RankProcess)>) -> Vec<FoundJob> {
    let identities = found.into_iter().filter_map(|(host, process)| {
        let identity = Identity::of(host, &process)?;
        Some((host, identity, process))
    });
    let identified: Vec<(u32, Identity, RankProcess)> = identities.collect();
    let of_pid: BTreeMap<(u32, i32), &str> = identified
        .iter()
        .map(|(host, identity, process)| ((*host, process.pid), identity.job.as_str()))
        .collect();
    // one host could name any process as the child of another; on some hosts, all ranks may have
    // ended
    let mut launchers: BTreeMap<&str, HostVotes> = BTreeMap::new();
    for (host, identity, process) in &identified {
        launchers
            .entry(&identity.job)
            .or_default()
            .hosts
            .insert(*host);
        let above = of_pid.get(&(*host, process.parent));
        if let Some(job) = above.filter(|job| **job != identity.job) {
            launchers.entry(job).or_default().in_favour.insert(*host);
        }
    }
    let launchers: BTreeSet<String> = launchers
        .into_iter()
        .filter(|(_, votes)| votes.are_most())
        .map(|(job, _)| job.to_owned())
        .collect();

    let mut jobs: BTreeMap<String, FoundJob> = BTreeMap::new();
    for (host, identity, process) in identified {
        let job = jobs.entry(identity.job.clone()).or_default();
        job.name = identity.job;
        if let Some(size) = identity.size {
            let of_role = job.sizes.entry(identity.role).or_default();
            of_role.entry(size).or_default().insert(host);
        }
        let member = (identity.role, identity.rank);
        let processes = job.ranks.entry((member, host)).or_default();
        processes.push(process);
    }
    for job in jobs.values_mut() {
        for processes in job.ranks.values_mut() {
            *processes = family(std::mem::take(processes));
        }
    }
    jobs.retain(|name, _| !launchers.contains(name));
    jobs.into_values().collect()
}

impl FoundJob {
    fn command(&self) -> &str {
        let first = self.ranks.values().flatten().next();
        first.map_or("", |process| &process.command)
    }

    pub fn is_matched(&self, text: &str) -> bool {
        let mut processes = self.ranks.values().flatten();
        processes.any(|process| process.command.contains(text))
    }

    pub fn has_process(&self, host: u32, pid: i32) -> bool {
        let mut ranks = self.ranks.iter();
        ranks.any(|((_, on), processes)| {
            *on == host && processes.iter().any(|process| process.pid == pid)
        })
    }

    pub fn has_variable(&self, name: &str, value: &str) -> bool {
        let mut processes = self.ranks.values().flatten();
        processes.any(|process| process.variables.get(name).is_some_and(|own| own == value))
    }

    /// `torch-10.0.0.1-29500: 8 processes on 4 hosts (python3 train.py)`
    pub fn words(&self) -> String {
        let hosts: BTreeSet<u32> = self.ranks.keys().map(|(_, host)| *host).collect();
        let (path, words) = self
            .command()
            .split_once(' ')
            .unwrap_or((self.command(), ""));
        let program = path.rsplit('/').next().unwrap_or_default();
        let command = format!("{program} {words}");
        format!(
            "{}: {} on {} ({})",
            self.name,
            count(self.ranks.len() as u64, "process"),
            count(hosts.len() as u64, "host"),
            term::cut(&term::plain(command.trim_end()), COMMAND_CHARS)
        )
    }

    /// The hosts must be those that were asked for the job's processes and answered, of `given`
    /// ones in the input.
    pub fn find_missing(&mut self, hosts: &[&Host], given: usize) {
        self.missing = self.missing_words(hosts, given);
        let disagree = |role: &Role| {
            let sizes: Vec<String> = self.sizes(*role).iter().map(u32::to_string).collect();
            let names = role.names();
            (sizes.len() > 1).then(|| format!("the number of {names}: {}", sizes.join(" or ")))
        };
        let disagree: Vec<String> = self.sizes.keys().filter_map(disagree).collect();
        if !disagree.is_empty() {
            self.disagreement = format!("hosts disagree about {}", disagree.join(", and about "));
        }
    }

    /// Whether all its ranks were found.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty() && self.disagreement.is_empty()
    }

    /// The sizes that most hosts claim, the smallest first.
    fn sizes(&self, role: Role) -> Vec<u32> {
        let claims = self.sizes.get(&role).into_iter().flatten();
        let most = claims.clone().map(|(_, hosts)| hosts.len()).max();
        let claims = claims.filter(|(_, hosts)| Some(hosts.len()) == most);
        claims.map(|(size, _)| *size).take(MAX_SIZES).collect()
    }

    fn size(&self, role: Role) -> u32 {
        self.sizes(role).first().copied().unwrap_or_default()
    }

    fn missing_ranks(&self) -> Vec<Member> {
        let found: BTreeSet<Member> = self.ranks.keys().map(|(member, _)| *member).collect();
        let roles = self.sizes.keys();
        let all = roles.flat_map(|role| (0..self.size(*role)).map(|rank| (*role, rank)));
        let missing = all.filter(|member| !found.contains(member));
        missing.take(MAX_MISSING).collect()
    }

    /// How many hosts the job needs at least; `None` if its ranks do not tell how many of them run
    /// on a host.
    fn needed_hosts(&self, role: Role) -> Option<usize> {
        let of_node = |process: &RankProcess| {
            let number = process.variables.get("LOCAL_WORLD_SIZE")?;
            number.parse::<usize>().ok().filter(|number| *number > 0)
        };
        let of_node = self.ranks.values().flatten().filter_map(of_node).max()?;
        let mut on_host: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, host) in self.ranks.keys() {
            *on_host.entry(*host).or_default() += 1;
        }
        // a host may have several nodes of torchrun
        let on_host = on_host.into_values().fold(of_node, usize::max);
        Some((self.size(role) as usize).div_ceil(on_host))
    }

    /// `worker 5 of 8 was not found, and host 2 (10.0.0.3) has no process of the job`
    fn missing_words(&self, hosts: &[&Host], given: usize) -> String {
        let missing = self.missing_ranks();
        let Some((role, _)) = missing.first() else {
            return String::new();
        };
        let size = self.size(*role);
        let verb = if missing.len() == 1 { "was" } else { "were" };
        let mut words = format!("{} of {size} {verb} not found", stacks::names(&missing));
        let is_empty = |host: &&&Host| self.ranks.keys().all(|(_, other)| *other != host.id);
        let empty: Vec<String> = hosts
            .iter()
            .filter(is_empty)
            .map(|host| host.location())
            .collect();
        if !empty.is_empty() {
            let verb = if empty.len() == 1 { "has" } else { "have" };
            words += &format!(
                ", and {} {verb} no process of the job",
                term::first_few(empty, 4)
            );
        }
        let needed = self.needed_hosts(*role);
        if let Some(needed) = needed.filter(|needed| *needed > given) {
            let (they, run) = if missing.len() == 1 {
                ("it", "runs")
            } else {
                ("they", "run")
            };
            words += &format!(
                "; {they} {run} on hosts that are not in the input ({given} of {needed} hosts \
                 given)"
            );
        }
        words
    }

    /// The processes to read on a host, children behind their rank.
    pub fn chosen(&self, host: u32) -> Vec<ChosenProcess> {
        let ranks = self.ranks.iter().filter(|((_, on), _)| *on == host);
        let of_rank = |(((role, rank), _), processes): (&(Member, u32), &Vec<RankProcess>)| {
            let own = processes.first().map(|own| own.pid.cast_unsigned());
            let chosen = |process: &RankProcess| ChosenProcess {
                job: self.name.clone(),
                pid: process.pid,
                start_ticks: process.start_ticks,
                role: Some(*role),
                rank: Some(*rank),
                parent: own.filter(|pid| *pid != process.pid.cast_unsigned()),
            };
            processes.iter().map(chosen).collect::<Vec<_>>()
        };
        ranks.flat_map(of_rank).collect()
    }

    /// Records without a command, so that nothing can start these processes again. The environment
    /// is what was found of it.
    pub fn processes(&self, hosts: &[Host]) -> Vec<Process> {
        let record = |(id, (((role, rank), host), processes)): (u32, (&(Member, u32), &Vec<_>))| {
            let ip = record::host_of(hosts, *host).map(|one| one.ip);
            let own: Option<&RankProcess> = processes.first();
            let variables = own.map(|own| own.variables.clone());
            Process {
                of: self.ranks.len() as u32,
                env: variables.into_iter().flatten().collect(),
                ..Process::new(id, *host, ip.unwrap_or_default(), *role, *rank)
            }
        };
        (0..).zip(&self.ranks).map(record).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Python with these variables, such as `RANK=0 WORLD_SIZE=2`.
    fn python(pid: i32, parent: i32, variables: &str) -> RankProcess {
        let pairs = variables.split(' ').filter_map(|word| word.split_once('='));
        RankProcess {
            pid,
            start_ticks: pid.unsigned_abs().into(),
            parent,
            is_python: true,
            command: format!("python3 train.py {pid}"),
            variables: pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            ..RankProcess::default()
        }
    }

    fn role(process: RankProcess, role: Role, rank: u32) -> RankProcess {
        RankProcess {
            role: Some(role),
            rank: Some(rank),
            ..process
        }
    }

    fn shell(pid: i32, parent: i32, variables: &str) -> RankProcess {
        RankProcess {
            is_python: false,
            ..python(pid, parent, variables)
        }
    }

    fn found(processes: &[(u32, RankProcess)]) -> Vec<FoundJob> {
        jobs(processes.to_vec())
    }

    #[test]
    fn the_job_and_the_rank_of_a_process() {
        let torch = "RANK=3 WORLD_SIZE=8 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500";
        let table: [(&str, Option<(&str, u32, u32)>); 13] = [
            (torch, Some(("torch-10.0.0.1-29500", 3, 8))),
            // each host may have such a job
            (
                "RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1",
                Some(("torch-localhost-1-host5", 0, 2)),
            ),
            ("RANK=0 WORLD_SIZE=2", Some(("torch", 0, 2))),
            ("RANK=0", None),
            ("RANK=x WORLD_SIZE=2", None),
            ("RANK= WORLD_SIZE=2", None),
            ("WORLD_SIZE=2 MASTER_ADDR=a", None),
            // torchrun below srun: the closest launcher counts
            (
                "RANK=3 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=1 SLURM_PROCID=1 \
                 SLURM_STEP_NUM_TASKS=4 SLURM_JOB_ID=7 SLURM_STEP_ID=0",
                Some(("torch-a-1", 3, 8)),
            ),
            (
                "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=31457281 PMIX_RANK=1",
                Some(("mpi-31457281", 1, 4)),
            ),
            (
                "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=prterun-a-7@1",
                Some(("mpi-prterun-a-7-1", 1, 4)),
            ),
            ("PMI_RANK=1 PMI_SIZE=4", Some(("mpi", 1, 4))),
            (
                "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_NTASKS=9 SLURM_JOB_ID=4711 \
                 SLURM_STEP_ID=2",
                Some(("slurm-4711-2", 5, 6)),
            ),
            // the shell of a batch script
            ("SLURM_PROCID=0 SLURM_NTASKS=6 SLURM_JOB_ID=4711", None),
        ];
        for (variables, expected) in table {
            let identity = Identity::of(5, &python(1, 0, variables));
            let expected = expected.map(|(job, rank, size)| Identity {
                job: job.to_owned(),
                role: Role::Worker,
                rank,
                size: Some(size),
            });
            assert_eq!(identity, expected, "{variables}");
        }
    }

    #[test]
    fn the_job_of_a_process_of_dgl_or_of_these_tools() {
        let dgl = "DGL_CONF_PATH=/data/ogb.json WORLD_SIZE=4 DGL_ROLE";
        let table = [
            (format!("{dgl}=server"), Role::Server, "dgl-ogb.json", None),
            (
                format!("{dgl}=client"),
                Role::Trainer,
                "dgl-ogb.json",
                Some(4),
            ),
            (
                "DGL_TOOLS_JOB=try7 WORLD_SIZE=2".to_owned(),
                Role::Worker,
                "try7",
                Some(2),
            ),
            (
                "DGL_TOOLS_JOB=a\u{1b}[2J".to_owned(),
                Role::Worker,
                "a--2J",
                None,
            ),
            // torchrun in a job of these tools
            (
                "DGL_TOOLS_JOB=try7 TORCHELASTIC_RUN_ID=none RANK=3 WORLD_SIZE=8 MASTER_ADDR=a"
                    .to_owned(),
                Role::Worker,
                "torch-a-none",
                Some(8),
            ),
        ];
        for (variables, of, job, size) in table {
            let process = role(python(1, 0, &variables), of, 3);
            let identity = Identity::of(0, &process).unwrap();
            let found = (
                identity.job.as_str(),
                identity.role,
                identity.rank,
                identity.size,
            );
            assert_eq!(found, (job, of, 3, size), "{variables}");
        }
        assert_eq!(
            Identity::of(0, &python(1, 0, &format!("{dgl}=client"))),
            None
        );
    }

    const TORCH: &str = "WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1 RANK=";

    fn rank(number: u32) -> String {
        format!("{TORCH}{number}")
    }

    #[test]
    fn the_first_python_is_the_rank_and_others_are_its_children() {
        let processes = [
            // a shell, the rank, its data loader, a program of that; a tracker of resources
            (0, shell(10, 1, &rank(0))),
            (0, python(11, 10, &rank(0))),
            (0, python(12, 11, &rank(0))),
            (0, shell(13, 12, &rank(0))),
            (0, python(14, 11, &rank(0))),
            (1, python(11, 1, &rank(2))),
        ];
        let jobs = found(&processes);
        assert_eq!(jobs.len(), 1);
        let chosen = |host| -> Vec<_> {
            let chosen = jobs[0].chosen(host).into_iter();
            chosen.map(|one| (one.pid, one.rank, one.parent)).collect()
        };
        let children = [
            (11, Some(0), None),
            (12, Some(0), Some(11)),
            (14, Some(0), Some(11)),
        ];
        assert_eq!(chosen(0), children);
        assert_eq!(chosen(1), [(11, Some(2), None)]);
        assert!(chosen(2).is_empty());
        assert_eq!(
            jobs[0].words(),
            "torch-a-1: 2 processes on 2 hosts (python3 train.py 11)"
        );
    }

    #[test]
    fn without_python_the_program_below_shells_is_the_rank() {
        let processes = [(0, shell(10, 1, &rank(0))), (0, shell(11, 10, &rank(0)))];
        let chosen = found(&processes)[0].chosen(0);
        assert_eq!((chosen.len(), chosen[0].pid), (1, 11));
    }

    #[test]
    fn a_launcher_that_another_one_has_numbered_is_no_rank() {
        let step = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=";
        let processes = [
            (0, python(10, 1, &format!("{step}0"))),
            (
                0,
                python(
                    11,
                    10,
                    &format!("{step}0 {} TORCHELASTIC_RUN_ID=x", rank(0)),
                ),
            ),
            (0, python(12, 10, &format!("{step}0"))),
            (1, python(10, 1, &format!("{step}1"))),
            (
                1,
                python(
                    11,
                    10,
                    &format!("{step}1 {} TORCHELASTIC_RUN_ID=x", rank(1)),
                ),
            ),
            // its ranks have ended
            (3, python(10, 1, &format!("{step}2"))),
            // Kubeflow's variables for torchrun, which gives others to its ranks
            (2, python(10, 1, &rank(0))),
            (
                2,
                python(11, 10, &format!("{} TORCHELASTIC_RUN_ID=k8s", rank(0))),
            ),
        ];
        let names: Vec<String> = found(&processes).into_iter().map(|job| job.name).collect();
        assert_eq!(names, ["torch-a-1-k8s", "torch-a-1-x"]);
    }

    #[test]
    fn ranks_that_are_missing_are_named_with_hosts_that_have_none() {
        let hosts: Vec<Host> = (0..3)
            .map(|id| Host {
                id,
                ..Host::default()
            })
            .collect();
        let hosts: Vec<&Host> = hosts.iter().collect();
        let none = "host 2 (0.0.0.0) has no process of the job";
        let table: [(&[u32], String); 4] = [
            (&[0, 1, 2, 3], String::new()),
            (
                &[0, 1, 3],
                format!("worker 2 of 4 was not found, and {none}"),
            ),
            (
                &[0],
                "workers 1, 2 and 3 of 4 were not found, and host 1 (0.0.0.0), host 2 (0.0.0.0) \
                    have no process of the job"
                    .to_owned(),
            ),
            (&[0, 1, 2, 3, 4], String::new()),
        ];
        for (ranks, expected) in table {
            let processes: Vec<_> = ranks
                .iter()
                .map(|number| (number % 2, python(10 + *number as i32, 1, &rank(*number))))
                .collect();
            let mut job = jobs(processes).remove(0);
            job.find_missing(&hosts, 3);
            assert_eq!(job.missing, expected, "{ranks:?}");
        }
        // servers have no number of theirs
        let server = python(1, 0, "DGL_ROLE=server WORLD_SIZE=9");
        let mut servers = found(&[(0, role(server, Role::Server, 3))]);
        servers[0].find_missing(&hosts, 3);
        assert_eq!(servers[0].missing, "");
    }

    #[test]
    fn ranks_on_hosts_that_were_not_given_are_not_said_to_be_lost() {
        // two ranks for each node, of eight
        let of_node = |host, first: u32| {
            let of = |rank| {
                let variables =
                    format!("MASTER_ADDR=a WORLD_SIZE=8 LOCAL_WORLD_SIZE=2 RANK={rank}");
                (host, python(10 + rank as i32, 1, &variables))
            };
            [of(first), of(first + 1)]
        };
        let missing = |nodes: &[[(u32, RankProcess); 2]], given| {
            let mut job = jobs(nodes.concat()).remove(0);
            job.find_missing(&[], given);
            job.missing
        };
        let lost = "workers 4, 5, 6 and 7 of 8 were not found".to_owned();
        let half = [of_node(0, 0), of_node(1, 2)];
        let elsewhere = "; they run on hosts that are not in the input (2 of 4 hosts given)";
        assert_eq!(missing(&half, 2), lost.clone() + elsewhere);
        assert_eq!(missing(&half, 4), lost);
        // two nodes on one host
        let one = [of_node(0, 0), of_node(0, 2)];
        assert_eq!(missing(&one, 2), lost);
    }

    #[test]
    fn a_record_has_what_was_found_and_no_command() {
        let jobs = found(&[(0, python(7, 1, &rank(0))), (0, python(8, 1, &rank(1)))]);
        let records = jobs[0].processes(&[]);
        assert_eq!((records[1].id, records[1].of, records[1].rank), (1, 2, 1));
        assert_eq!(records[1].env["MASTER_ADDR"], "a");
        assert!(records[1].command().is_err());
    }

    const SIZED: &str = "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 WORLD_SIZE";

    /// The job of these processes after a look for missing ranks.
    fn looked_at(processes: &[(u32, RankProcess)]) -> FoundJob {
        let mut jobs = found(processes).into_iter();
        let job = jobs.find(|job| job.name == "torch-10.0.0.1-29500");
        let mut job = job.unwrap_or_else(|| panic!("it is hidden: {processes:?}"));
        job.find_missing(&[], 0);
        job
    }

    #[test]
    fn one_host_hides_no_job_of_others_and_makes_it_no_larger() {
        // a rank of the job that is the parent of another job
        let hides = |host, size| {
            let parent = format!("{SIZED}={size} RANK={host}");
            let child = "RANK=0 WORLD_SIZE=1 MASTER_ADDR=x MASTER_PORT=1";
            [
                (host, python(10, 1, &parent)),
                (host, python(11, 10, child)),
            ]
        };
        for hosts in [2, 3] {
            let honest = (0..hosts - 1)
                .map(|rank| (rank, python(7, 1, &format!("{SIZED}={hosts} RANK={rank}"))));
            for claimed in [hosts, 1, 4_000_000_000] {
                let mut processes: Vec<_> = honest.clone().collect();
                processes.extend(hides(hosts - 1, claimed));
                let job = looked_at(&processes);
                assert_eq!(job.ranks.len() as u32, hosts, "{processes:?}");
                assert_eq!(job.missing, "", "{processes:?}");
                let are_equal = hosts == 2 && claimed != hosts;
                assert_eq!(!job.disagreement.is_empty(), are_equal, "{processes:?}");
            }
        }
    }

    #[test]
    fn one_of_two_hosts_does_not_hide_that_ranks_are_missing() {
        let of = |sizes: [&[u32]; 2]| {
            let claims = (0..).zip(sizes).flat_map(|(host, sizes)| {
                let claim = move |(pid, size): (i32, &u32)| {
                    (host, python(pid, 1, &format!("{SIZED}={size} RANK={host}")))
                };
                (7..).zip(sizes).map(claim)
            });
            let job = looked_at(&claims.collect::<Vec<_>>());
            (job.missing, job.disagreement)
        };
        let missing = "worker 2 of 3 was not found".to_owned();
        assert_eq!(of([&[3], &[3]]), (missing.clone(), String::new()));
        // a host that claims many sizes agrees with the other one about one of them
        assert_eq!(of([&[3], &[1, 2, 3]]), (missing, String::new()));
        let disagree = |sizes| {
            let words = format!("hosts disagree about the number of workers: {sizes}");
            (String::new(), words)
        };
        assert_eq!(of([&[3], &[2]]), disagree("2 or 3"));
        assert_eq!(
            of([&[9], &[1, 2, 3, 4, 5, 6]]),
            disagree("1 or 2 or 3 or 4")
        );
    }
}
