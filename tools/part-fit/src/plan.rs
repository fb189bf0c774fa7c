//! Decides whether each partition fits its host, and how much memory is missing if it does not.

use crate::args::LoadedGraphForm;
use crate::model::{self, Files, ProcessMemory};
use record::error::{Fault, Report};
use record::python::version;
use record::{Fit, Host, term};

/// The part of a host's memory that must stay free, for the system and for what the model does not
/// include.
const MARGIN_PERCENT: u64 = 10;

/// A partition this many times larger than the mean is reported; smaller differences are normal
/// with METIS.
const SKEW: f64 = 1.25;

/// A partition, from its config and the sizes of its files.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// How many nodes it owns.
    pub nodes: u64,
    /// How many edges it owns.
    pub edges: u64,
    /// Its files.
    pub files: Files,
}

/// The processes on the hosts.
#[derive(Clone, Debug)]
pub struct JobProcesses {
    /// Graph servers on each host.
    pub num_servers: u64,
    /// Trainers on each host.
    pub num_trainers: Vec<u32>,
    /// Samplers of each trainer.
    pub num_samplers: u64,
    /// The form of the graph that the servers load.
    pub form: LoadedGraphForm,
    /// How many sparse formats the servers create.
    pub num_formats: u64,
    /// The memory of a trainer beyond DGL and torch, in bytes.
    pub trainer_bytes: u64,
    /// The memory of a sampler beyond DGL and torch, in bytes.
    pub sampler_bytes: u64,
    /// Bytes that the script itself puts into /dev/shm.
    pub shm_extra_bytes: u64,
    /// The memory of any process before there is data, if the user knows it.
    pub process_bytes: Option<u64>,
}

/// What a host needs of one kind of memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryNeed {
    /// The part that does not depend on the partition.
    fixed: u64,
    /// The part that shrinks with the partition.
    data: u64,
    /// The amount that the host has.
    room: u64,
}

impl MemoryNeed {
    fn bytes(self) -> u64 {
        self.fixed + self.data
    }

    fn missing(self) -> Option<u64> {
        self.bytes()
            .checked_sub(self.room)
            .filter(|bytes| *bytes > 0)
    }

    /// The number of partitions with which this would fit; there are `now`.
    fn parts(self, now: u64) -> Option<u64> {
        let room = self.room.checked_sub(self.fixed)?;
        match (self.data, room) {
            (0, _) => Some(now),
            (_, 0) => None,
            (data, room) => {
                let parts = u128::from(data) * u128::from(now);
                let parts = u64::try_from(parts.div_ceil(room.into())).ok()?;
                Some(parts.max(now))
            }
        }
    }
}

/// A host with its partitions.
#[derive(Debug)]
pub struct HostPlan<'a> {
    pub host: &'a Host,
    pub fits: Vec<Fit>,
    loading: MemoryNeed,
    running: MemoryNeed,
    shm: MemoryNeed,
}

impl HostPlan<'_> {
    /// The larger need of loading and running.
    fn memory(&self) -> MemoryNeed {
        match self.loading.bytes() > self.running.bytes() {
            true => self.loading,
            false => self.running,
        }
    }
}

/// Plans all hosts. All hosts have the same number of partitions; the processes of a host need the
/// memory of all of its partitions.
pub fn plan<'a>(
    job: &JobProcesses,
    hosts: &'a [Host],
    parts: &[Part],
) -> Result<Vec<HostPlan<'a>>, Report> {
    let per_host = parts.len() / hosts.len().max(1);
    if per_host * hosts.len() != parts.len() || per_host == 0 {
        let problem = record::unequal_parts(parts.len() as u64, hosts.len(), 1);
        return Err(Fault::data("stdin", problem.unwrap_or_default())
            .fix("each host serves as many: name other hosts, or partition the graph again")
            .report());
    }
    let mut report = Report::default();
    let of_hosts = hosts.iter().zip(parts.chunks(per_host));
    let plans = of_hosts
        .zip(&job.num_trainers)
        .filter_map(|((host, parts), trainers)| {
            report.keep(plan_of_host(job, host, parts, u64::from(*trainers)))
        });
    let mut plans: Vec<HostPlan<'_>> = plans.collect();
    report.check()?;
    let mean =
        |count: fn(&Part) -> u64| parts.iter().map(count).sum::<u64>() as f64 / parts.len() as f64;
    let means = [mean(|part| part.nodes), mean(|part| part.edges)];
    let of = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let fits = plans.iter_mut().flat_map(|plan| &mut plan.fits);
    for (id, fit) in (0..of).zip(fits) {
        (fit.id, fit.of) = (id, of);
        fit.node_skew = skew(fit.nodes, means[0]);
        fit.edge_skew = skew(fit.edges, means[1]);
    }
    Ok(plans)
}

/// A part divided by the mean, to three decimals.
fn skew(count: u64, mean: f64) -> f64 {
    match mean > 0.0 {
        true => (count as f64 / mean * 1000.0).round() / 1000.0,
        false => 1.0,
    }
}

fn plan_of_host<'a>(
    job: &JobProcesses,
    host: &'a Host,
    parts: &[Part],
    trainers: u64,
) -> Result<HostPlan<'a>, Fault> {
    let room = host.facts.usable_mem_bytes().zip(host.facts.shm_free_bytes);
    let Some((mem_bytes, shm_free_bytes)) = room else {
        return Err(Fault::data(host.location(), "its memory size is unknown")
            .fix("put host-probe before part-fit"));
    };
    let of = |package: &Option<String>| package.as_deref().and_then(version);
    let (dgl, torch) = (of(&host.facts.dgl), of(&host.facts.torch));
    let process = match job.process_bytes {
        Some(own_bytes) => ProcessMemory {
            shared_bytes: 0,
            own_bytes,
        },
        None => model::process(dgl, torch),
    };
    let sum = |size: fn(&Files) -> u64| parts.iter().map(|part| size(&part.files)).sum();
    let files = Files {
        dgl: sum(|files| files.dgl),
        graphbolt: sum(|files| files.graphbolt),
        node_features: sum(|files| files.node_features),
        edge_features: sum(|files| files.edge_features),
    };
    let data = model::data(files, job.form, job.num_formats, dgl);
    let processes = job.num_servers + trainers * (1 + job.num_samplers);
    let bare_bytes = process.shared_bytes + processes * process.own_bytes;
    let script_bytes = trainers * (job.trainer_bytes + job.num_samplers * job.sampler_bytes);
    let usable = mem_bytes - mem_bytes / 100 * MARGIN_PERCENT;
    let need = |fixed, data, room| MemoryNeed { fixed, data, room };
    let mut plan = HostPlan {
        host,
        fits: Vec::new(),
        loading: need(bare_bytes, data.peak_bytes, usable),
        running: need(
            bare_bytes + script_bytes + job.shm_extra_bytes,
            data.shm_bytes,
            usable,
        ),
        shm: need(job.shm_extra_bytes, data.shm_bytes, shm_free_bytes),
    };
    let (missing_mem_bytes, missing_shm_bytes) = (plan.memory().missing(), plan.shm.missing());
    let fit = |part: &Part| Fit {
        host: host.id,
        nodes: part.nodes,
        edges: part.edges,
        disk_bytes: part.files.sum(),
        shm_bytes: plan.shm.bytes(),
        server_bytes: process.shared_bytes + process.own_bytes + data.peak_bytes,
        load_bytes: plan.loading.bytes(),
        run_bytes: plan.running.bytes(),
        mem_bytes,
        shm_free_bytes,
        fits: missing_mem_bytes.is_none() && missing_shm_bytes.is_none(),
        missing_mem_bytes,
        missing_shm_bytes,
        ..Fit::default()
    };
    plan.fits = parts.iter().map(fit).collect();
    Ok(plan)
}

/// A fault for each host whose partitions do not fit, with a fix.
pub fn faults(plans: &[HostPlan<'_>]) -> Vec<Fault> {
    let fix = fix_for(plans);
    let wrong = plans.iter().filter(|plan| !plan.fits[0].fits);
    wrong.map(|plan| fault(plan).fix(fix.clone())).collect()
}

fn fault(plan: &HostPlan<'_>) -> Fault {
    let memory = plan.memory();
    let when = match memory == plan.loading {
        true => "while its servers load",
        false => "while its trainers run",
    };
    let memory_missing = memory.missing().map(|missing| {
        format!(
            "{} of memory are missing: it needs {} {when}, and the host has {} of which \
             {MARGIN_PERCENT} % stay free",
            term::bytes(missing),
            term::bytes(memory.bytes()),
            term::bytes(plan.fits[0].mem_bytes),
        )
    });
    let shm_missing = plan.shm.missing().map(|missing| {
        format!(
            "{} of /dev/shm are missing: it needs {}, and {} are free",
            term::bytes(missing),
            term::bytes(plan.shm.bytes()),
            term::bytes(plan.shm.room)
        )
    });
    let problem = match &plan.fits[..] {
        [first, .., last] => format!("partitions {} to {} do not fit", first.id, last.id),
        fits => format!("partition {} does not fit", fits[0].id),
    };
    let details = memory_missing.into_iter().chain(shm_missing).collect();
    Fault::data(plan.host.location(), problem).details(details)
}

/// The number of parts, or the amount of memory, with which all would fit.
fn fix_for(plans: &[HostPlan<'_>]) -> String {
    let most = |need: fn(&HostPlan<'_>) -> MemoryNeed| {
        let needs = plans.iter().map(need);
        let missing = needs.filter(|need| need.missing().is_some());
        missing.map(MemoryNeed::bytes).max()
    };
    let memory = most(|plan| plan.memory()).map(|bytes| {
        let with_margin = bytes / (100 - MARGIN_PERCENT) * 100;
        format!("{} of memory", term::bytes(with_margin))
    });
    let shm = most(|plan| plan.shm).map(|bytes| format!("{} of /dev/shm", term::bytes(bytes)));
    let wanted: Vec<String> = memory.into_iter().chain(shm).collect();
    let hosts_with = format!("take hosts with {}", wanted.join(" and "));
    let now: usize = plans.iter().map(|plan| plan.fits.len()).sum();
    let needs = plans
        .iter()
        .flat_map(|plan| [plan.loading, plan.running, plan.shm]);
    let parts: Option<Vec<u64>> = needs.map(|need| need.parts(now as u64)).collect();
    match parts.and_then(|parts| parts.into_iter().max()) {
        Some(parts) => format!(
            "{hosts_with}; or partition into some {parts} parts, if the halo shrinks as they do"
        ),
        None => format!(
            "{hosts_with}; more partitions will not help: the fixed memory is too large; take \
             fewer trainers or samplers"
        ),
    }
}

/// Warnings about unequal partitions: the largest sets the pace.
pub fn warnings(fits: &[&Fit]) -> Vec<String> {
    let largest = |what: &str, skew: fn(&Fit) -> f64| {
        let largest = fits.iter().max_by(|a, b| skew(a).total_cmp(&skew(b)))?;
        let factor = skew(largest);
        (factor > SKEW).then(|| {
            format!(
                "partition {} has {factor:.2} times the mean of {what}: where all hosts are equal, \
                 the others wait for it, up to {:.0} % of the time",
                largest.id,
                100.0 * (1.0 - 1.0 / factor)
            )
        })
    };
    let nodes = largest("nodes", |fit| fit.node_skew);
    nodes
        .into_iter()
        .chain(largest("edges", |fit| fit.edge_skew))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Facts;

    const GB: u64 = 1_000_000_000;

    fn host(id: u32, mem_bytes: u64, shm_free_bytes: u64) -> Host {
        Host {
            id,
            of: 2,
            facts: Facts {
                mem_bytes: Some(mem_bytes),
                shm_free_bytes: Some(shm_free_bytes),
                dgl: Some("1.0.4".to_owned()),
                ..Facts::default()
            },
            ..Host::default()
        }
    }

    /// A part with only features: 10 GB, and twice as much while they are loaded.
    fn part(nodes: u64) -> Part {
        Part {
            nodes,
            edges: 10 * nodes,
            files: Files {
                node_features: 10 * GB,
                ..Files::default()
            },
        }
    }

    fn job() -> JobProcesses {
        JobProcesses {
            num_servers: 1,
            num_trainers: vec![2, 2],
            num_samplers: 1,
            form: LoadedGraphForm::Auto,
            num_formats: 1,
            trainer_bytes: GB,
            sampler_bytes: GB / 2,
            shm_extra_bytes: GB,
            process_bytes: Some(GB),
        }
    }

    fn fits(plans: &[HostPlan<'_>]) -> Vec<Fit> {
        plans.iter().flat_map(|plan| plan.fits.clone()).collect()
    }

    #[test]
    fn what_a_host_needs() {
        let hosts = [host(0, 100 * GB, 50 * GB), host(1, 100 * GB, 50 * GB)];
        let plans = plan(&job(), &hosts, &[part(30), part(10)]).unwrap();
        let found = fits(&plans);
        let first = &found[0];
        // a server, two trainers, two samplers; and the features twice, or once with the memory of
        // the script
        let in_gb = [
            first.load_bytes,
            first.run_bytes,
            first.shm_bytes,
            first.server_bytes,
        ];
        assert_eq!(in_gb.map(|bytes| bytes / GB), [25, 5 + 11 + 3, 11, 21]);
        assert_eq!((first.node_skew, found[1].edge_skew), (1.5, 0.5));
        assert_eq!((found[1].id, found[1].of, found[1].host), (1, 2, 1));
        assert!(found.iter().all(|fit| fit.fits));
        assert_eq!(faults(&plans), []);
        let message = warnings(&found.iter().collect::<Vec<&Fit>>());
        assert!(
            message.len() == 2 && message[0].contains("partition 0 has 1.50 times"),
            "{message:?}"
        );
        assert!(
            message[1].ends_with("up to 33 % of the time"),
            "{message:?}"
        );
        let alike = fits(&plan(&job(), &hosts, &[part(12), part(10)]).unwrap());
        assert!(warnings(&alike.iter().collect::<Vec<&Fit>>()).is_empty());
    }

    #[test]
    fn what_is_missing_and_what_would_do() {
        // memory and /dev/shm of the second host, and the message about it
        let table = [
            (28, 50, "", ""),
            // 25 GB are needed, and 24.3 of 27 GB are available; 20.0 of them shrink to 19.3
            (
                27,
                50,
                "700 MB of memory are missing: it needs 25 GB while its servers load, and the host \
                 has 27 GB of which 10 % stay free",
                "take hosts with 28 GB of memory; or partition into some 3 parts",
            ),
            (
                100,
                7,
                "4.0 GB of /dev/shm are missing: it needs 11 GB, and 7.0 GB are free",
                "take hosts with 11 GB of /dev/shm; or partition into some 4 parts",
            ),
            (
                5,
                50,
                "of memory are missing",
                "more partitions will not help: the fixed memory is too large",
            ),
        ];
        for (memory, shm, problem, fix) in table {
            let hosts = [host(0, 100 * GB, 50 * GB), host(1, memory * GB, shm * GB)];
            let plans = plan(&job(), &hosts, &[part(10), part(10)]).unwrap();
            let faults = faults(&plans);
            assert_eq!(plans[1].fits[0].fits, problem.is_empty());
            let message = faults.first().map(ToString::to_string).unwrap_or_default();
            assert!(
                message.contains(problem) && message.contains(fix),
                "{message}"
            );
            assert!(faults.len() < 2 && plans[0].fits[0].fits);
        }
    }

    #[test]
    fn a_control_group_counts_where_it_allows_less() {
        for (limit, fits_there) in [(20 * GB, false), (200 * GB, true)] {
            let mut hosts = [host(0, 100 * GB, 50 * GB), host(1, 100 * GB, 50 * GB)];
            hosts[1].facts.mem_limit_bytes = Some(limit);
            let found = fits(&plan(&job(), &hosts, &[part(10), part(10)]).unwrap());
            assert_eq!(found[1].fits, fits_there);
            assert_eq!(found[1].mem_bytes, limit.min(100 * GB));
        }
    }

    #[test]
    fn several_partitions_on_each_host() {
        let hosts = [host(0, 100 * GB, 50 * GB), host(1, 30 * GB, 50 * GB)];
        let all = [part(10), part(10), part(10), part(10)];
        let alone = &fits(&plan(&job(), &hosts, &all[..2]).unwrap())[0];
        let plans = plan(&job(), &hosts, &all).unwrap();
        let found = fits(&plans);
        let placed: Vec<(u32, u32)> = found.iter().map(|fit| (fit.id, fit.host)).collect();
        assert_eq!(placed, [(0, 0), (1, 0), (2, 1), (3, 1)]);
        let in_gb = [found[1].shm_bytes, found[1].load_bytes].map(|bytes| bytes / GB);
        let one_more = [alone.shm_bytes + 10 * GB, alone.load_bytes + 20 * GB];
        assert_eq!(in_gb, one_more.map(|bytes| bytes / GB));
        let faults = faults(&plans);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].problem, "partitions 2 to 3 do not fit");
    }

    #[test]
    fn what_nobody_knows_is_reported_of_all_hosts() {
        let hosts = [Host::default(), Host::default()];
        let report = plan(&job(), &hosts, &[part(1), part(1)]).unwrap_err();
        assert_eq!(report.0.len(), 2);
        let report = plan(&job(), &hosts, &[part(1)]).unwrap_err();
        assert_eq!(
            report.0[0].problem,
            "1 partitions for 2 hosts; DGL needs as many hosts as partitions"
        );
    }
}
