//! Finds the jobs among the processes that launchers have numbered, by the variables with which
//! they run.

use record::stacks::{self, Member};
use record::term::{self, count};
use record::{Host, IpAddr, Process, Role};
use std::collections::{BTreeMap, BTreeSet};
use wire::job::JOB;
use wire::stacks::{ChosenProcess, RankProcess};

/// The most characters of a job's name.
const NAME_CHARS: usize = 64;
/// The most characters of a command in messages.
const COMMAND_CHARS: usize = 60;
/// The most missing ranks that are counted: a size may be any number.
const MAX_MISSING: usize = 10_000;

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
        let of_dgl = || text("DGL_ROLE").map(|_| name(["dgl"].into_iter().chain(config)));
        if let Some(job) = own.map(|job| name([job].into_iter())).or_else(of_dgl) {
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
            let own_host = is_local.then(|| format!("host{host}"));
            let parts = job.iter().filter_map(|part| text(part));
            Some(Identity {
                job: name(
                    [*launcher]
                        .into_iter()
                        .chain(parts)
                        .chain(own_host.as_deref()),
                ),
                role: Role::Worker,
                rank,
                size: Some(size),
            })
        };
        LAUNCHERS.iter().find_map(find)
    }
}

fn is_loopback(address: &str) -> bool {
    address == "localhost" || address == "::1" || address.starts_with("127.")
}

fn name<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name = parts.collect::<Vec<_>>().join("-");
    let allowed = name.chars().map(|c| if allowed(c) { c } else { '-' });
    allowed.take(NAME_CHARS).collect()
}

#[derive(Debug, PartialEq, Eq)]
pub struct FoundJob {
    pub name: String,
    pub ranks: Vec<FoundRank>,
    sizes: BTreeMap<Role, u32>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct FoundRank {
    pub host: u32,
    pub member: Member,
    process: RankProcess,
    /// Data loaders and samplers.
    children: Vec<RankProcess>,
}

impl FoundRank {
    /// Of the processes with this number on a host: the first Python is the rank, and other Pythons
    /// are its children. Shells that started it are left out.
    fn of(host: u32, member: Member, processes: Vec<RankProcess>) -> Option<FoundRank> {
        let parent_of = |process: &&RankProcess| {
            let parent = process.parent;
            processes.iter().find(|other| other.pid == parent)
        };
        let is_python = |process: &&RankProcess| process.is_python;
        let has_parent = |process: &RankProcess| {
            let mut above = std::iter::successors(parent_of(&process), parent_of);
            above.any(|process| process.is_python)
        };
        let is_parent = |process: &RankProcess| {
            let pid = process.pid;
            processes.iter().any(|other| other.parent == pid)
        };
        let pythons = processes.iter().filter(is_python);
        let first = pythons.filter(|process| !has_parent(process));
        let first = first.min_by_key(|process| process.start_ticks);
        let last = || processes.iter().find(|process| !is_parent(process));
        let pid = first.or_else(last)?.pid;
        let (mut rank, mut children): (Vec<_>, Vec<_>) = processes
            .into_iter()
            .partition(|process| process.pid == pid);
        children.retain(|process| process.is_python);
        Some(FoundRank {
            host,
            member,
            process: rank.pop()?,
            children,
        })
    }
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
    let above = identified.iter().filter_map(|(host, identity, process)| {
        let job = of_pid.get(&(*host, process.parent))?;
        (*job != identity.job).then(|| (*job).to_owned())
    });
    let launchers: BTreeSet<String> = above.collect();

    let mut sizes: BTreeMap<String, BTreeMap<Role, u32>> = BTreeMap::new();
    let mut groups: BTreeMap<(String, Member, u32), Vec<RankProcess>> = BTreeMap::new();
    for (host, identity, process) in identified {
        let Identity {
            job,
            role,
            rank,
            size,
        } = identity;
        if let Some(size) = size {
            let of_role = sizes
                .entry(job.clone())
                .or_default()
                .entry(role)
                .or_default();
            *of_role = size.max(*of_role);
        }
        let group = groups.entry((job, (role, rank), host)).or_default();
        group.push(process);
    }
    let mut jobs: BTreeMap<String, FoundJob> = BTreeMap::new();
    for ((name, member, host), processes) in groups {
        let Some(rank) = FoundRank::of(host, member, processes) else {
            continue;
        };
        let job = jobs.entry(name).or_insert_with_key(|name| FoundJob {
            name: name.clone(),
            ranks: Vec::new(),
            sizes: sizes.remove(name).unwrap_or_default(),
        });
        job.ranks.push(rank);
    }
    // such as the shell of srun --pty
    let is_alone = |job: &FoundJob| {
        let size = job.sizes.values().sum::<u32>();
        size == 1 && job.ranks.iter().all(|rank| !rank.process.is_python)
    };
    jobs.retain(|name, job| !launchers.contains(name) && !is_alone(job));
    jobs.into_values().collect()
}

impl FoundJob {
    pub fn is_matched(&self, text: &str) -> bool {
        self.ranks
            .iter()
            .any(|rank| rank.process.command.contains(text))
    }

    /// `torch-10.0.0.1-29500: 8 processes on 4 hosts (python3 train.py)`
    pub fn words(&self) -> String {
        let hosts: BTreeSet<u32> = self.ranks.iter().map(|rank| rank.host).collect();
        let command = self.ranks.first().map(|rank| rank.process.command.as_str());
        format!(
            "{}: {} on {} ({})",
            self.name,
            count(self.ranks.len() as u64, "process"),
            count(hosts.len() as u64, "host"),
            term::cut(&term::plain(command.unwrap_or_default()), COMMAND_CHARS)
        )
    }

    /// The ranks that no host has, although the job's size includes them.
    pub fn missing(&self) -> Vec<Member> {
        let found: BTreeSet<Member> = self.ranks.iter().map(|rank| rank.member).collect();
        let sizes = self.sizes.iter();
        let all = sizes.flat_map(|(role, size)| (0..*size).map(|rank| (*role, rank)));
        let missing = all.filter(|member| !found.contains(member));
        missing.take(MAX_MISSING).collect()
    }

    /// `worker 5 of 8 was not found, and host 2 (10.0.0.3) has no process of the job`; empty if
    /// none is missing.
    pub fn missing_words(&self, hosts: &[&Host]) -> String {
        let missing = self.missing();
        let Some((role, _)) = missing.first() else {
            return String::new();
        };
        let size = self.sizes.get(role).copied().unwrap_or_default();
        let verb = if missing.len() == 1 { "was" } else { "were" };
        let mut words = format!("{} of {size} {verb} not found", stacks::names(&missing));
        let is_empty = |host: &&&Host| self.ranks.iter().all(|rank| rank.host != host.id);
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
        words
    }

    /// The processes to read on a host, children behind their rank.
    pub fn chosen(&self, host: u32) -> Vec<ChosenProcess> {
        let ranks = self.ranks.iter().filter(|rank| rank.host == host);
        let of_rank = |rank: &FoundRank| {
            let chosen = |process: &RankProcess, parent| ChosenProcess {
                job: self.name.clone(),
                pid: process.pid,
                start_ticks: process.start_ticks,
                role: Some(rank.member.0),
                rank: Some(rank.member.1),
                parent,
            };
            let parent = rank.process.pid.cast_unsigned();
            let children = rank.children.iter();
            let mut all = vec![chosen(&rank.process, None)];
            all.extend(children.map(|process| chosen(process, Some(parent))));
            all
        };
        ranks.flat_map(of_rank).collect()
    }

    /// Records without a command, so that nothing can start these processes again. The environment
    /// is what was found of it.
    pub fn processes(&self, hosts: &[Host]) -> Vec<Process> {
        let of = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        let ranks = self.ranks.iter().zip(0..);
        ranks
            .map(|(rank, id)| {
                let host = record::host_of(hosts, rank.host);
                let ip = host.map_or(IpAddr::default(), |host| host.ip);
                let (role, number) = rank.member;
                Process {
                    of,
                    env: rank.process.variables.clone().into_iter().collect(),
                    ..Process::new(id, rank.host, ip, role, number)
                }
            })
            .collect()
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
                "RANK=3 WORLD_SIZE=8 MASTER_ADDR=a MASTER_PORT=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 \
                 SLURM_JOB_ID=7 SLURM_STEP_ID=0",
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
            // its ranks have ended
            (1, python(10, 1, &format!("{step}1"))),
            // Kubeflow's variables for torchrun, which gives others to its ranks
            (2, python(10, 1, &rank(0))),
            (
                2,
                python(11, 10, &format!("{} TORCHELASTIC_RUN_ID=k8s", rank(0))),
            ),
            // a shell of srun --pty
            (
                1,
                shell(
                    20,
                    1,
                    "SLURM_JOB_ID=8 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
                ),
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
            let job = &found(&processes)[0];
            assert_eq!(job.missing_words(&hosts), expected, "{ranks:?}");
        }
        // servers have no number of theirs
        let server = python(1, 0, "DGL_ROLE=server WORLD_SIZE=9");
        let servers = [(0, role(server, Role::Server, 3))];
        assert_eq!(found(&servers)[0].missing(), []);
    }

    #[test]
    fn a_record_has_what_was_found_and_no_command() {
        let jobs = found(&[(0, python(7, 1, &rank(0))), (0, python(8, 1, &rank(1)))]);
        let records = jobs[0].processes(&[]);
        assert_eq!((records[1].id, records[1].of, records[1].rank), (1, 2, 1));
        assert_eq!(records[1].env["MASTER_ADDR"], "a");
        assert!(records[1].command().is_err());
    }
}
