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
    let of_hosts = hosts.iter().zip(parts.chunks(per_host));
    let of_hosts = of_hosts.zip(&job.num_trainers);
    let plans = of_hosts
        .map(|((host, parts), trainers)| plan_of_host(job, host, parts, u64::from(*trainers)));
    let mut plans = Report::collect(plans)?;
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
    let hosts_with = format!("use hosts with {}", wanted.join(" and "));
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
            "{hosts_with}; more partitions will not help: the fixed memory is too large; use \
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
