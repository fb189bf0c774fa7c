//! Decides whether each partition fits its host, and what is missing if it does not.

use crate::model::{self, Data, Features, Graph, Process, Training};
use partition::dgl_file::Sparse;
use record::error::{Fault, Report};
use record::python::version;
use record::{Fit, Host, term};

/// A partition this many times larger than the mean is reported; smaller differences are normal
/// with METIS.
const SKEW: f64 = 1.25;

/// A partition, from its config and the headers of its files.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The numbers of nodes and edges that it owns.
    pub own: [u64; 2],
    /// The numbers of nodes and edges with those of the halo, if the files tell.
    pub all: Option<[u64; 2]>,
    /// The size of its files in bytes.
    pub disk_bytes: u64,
    /// The forms of its graph that the servers may load.
    pub graphs: Vec<Graph>,
    /// The sizes of its features.
    pub features: Features,
    /// Whether only .npy maps, and no ranges, tell which ids it owns.
    pub by_npy: bool,
}

/// The processes on the hosts.
#[derive(Clone, Debug)]
pub struct Job {
    /// Graph servers on each host.
    pub num_servers: u64,
    /// Trainers on each host.
    pub num_trainers: Vec<u32>,
    /// Samplers of each trainer.
    pub num_samplers: u64,
    /// The sparse formats that servers create.
    pub formats: Vec<Sparse>,
    /// The memory of a trainer beyond DGL and torch, in bytes.
    pub trainer_bytes: u64,
    /// The memory of a sampler beyond DGL and torch, in bytes.
    pub sampler_bytes: u64,
    /// Bytes that the script itself puts into /dev/shm.
    pub shm_extra_bytes: u64,
    /// The memory of any process before there is data, if the user knows it.
    pub process_bytes: Option<u64>,
    /// How much of the memory is to stay free, in percent.
    pub margin_percent: u64,
}

impl Job {
    /// The memory that DGL and torch need of any process on a host, before there is data.
    fn process(&self, host: &Host) -> Process {
        match self.process_bytes {
            Some(own_bytes) => Process {
                shared_bytes: 0,
                own_bytes,
            },
            None => {
                let of = |package: &Option<String>| package.as_deref().and_then(version);
                model::process(of(&host.facts.dgl), of(&host.facts.torch))
            }
        }
    }

    /// The memory of all processes of a host without data: servers, and what DGL makes of trainers.
    fn bare_bytes(&self, host: &Host, trainers: u64) -> u64 {
        let process = self.process(host);
        let count = self.num_servers + trainers * (1 + self.num_samplers);
        process.shared_bytes + count * process.own_bytes
    }

    /// What training takes beside that: torch, unless the user knows what processes take, and what
    /// the user knows of the script.
    fn training_bytes(&self, host: &Host, trainers: u64) -> u64 {
        let torch = host.facts.torch.as_deref().and_then(version);
        let training = match self.process_bytes {
            Some(_) => Training::default(),
            None => model::training(torch),
        };
        let sampler = training.sampler_bytes + self.sampler_bytes;
        let trainer = training.trainer_bytes + self.trainer_bytes + self.num_samplers * sampler;
        match trainers {
            0 => 0,
            _ => training.shared_bytes + trainers * trainer,
        }
    }

    /// How much of this memory may be used.
    fn usable(&self, mem_bytes: u64) -> u64 {
        mem_bytes - mem_bytes / 100 * self.margin_percent
    }
}

/// The facts about a host that a fit needs.
struct Room {
    mem_bytes: u64,
    shm_free_bytes: u64,
}

fn room(host: &Host) -> Result<Room, Fault> {
    let found = host.facts.usable_mem_bytes().zip(host.facts.shm_free_bytes);
    found
        .map(|(mem_bytes, shm_free_bytes)| Room {
            mem_bytes,
            shm_free_bytes,
        })
        .ok_or_else(|| {
            Fault::data(host.location(), "its memory size is unknown")
                .fix("put host-probe before part-fit")
        })
}

/// The fit record of each partition. A host has as many as any other; its processes need what all
/// of them take.
pub fn fits(job: &Job, hosts: &[Host], parts: &[Part]) -> Result<Vec<Fit>, Report> {
    let per_host = parts.len() / hosts.len().max(1);
    if per_host * hosts.len() != parts.len() || per_host == 0 {
        let problem = record::unequal_parts(parts.len() as u64, hosts.len(), 1);
        return Err(Fault::data("stdin", problem.unwrap_or_default())
            .fix("each host serves as many: name other hosts, or partition the graph again")
            .report());
    }
    let mean = |what: fn(&Part) -> u64| {
        let sum: u64 = parts.iter().map(what).sum();
        sum as f64 / parts.len().max(1) as f64
    };
    let means = [mean(|part| part.own[0]), mean(|part| part.own[1])];
    let mut report = Report::default();
    let of = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let mut fits = Vec::new();
    let of_hosts = parts.chunks(per_host);
    for ((host, own), trainers) in hosts.iter().zip(of_hosts).zip(&job.num_trainers) {
        let Some(room) = report.keep(room(host).map_err(Report::from)) else {
            continue;
        };
        let data = own.iter().map(|part| data(job, host, part));
        let data = data.fold(Data::default(), |all, one| Data {
            shm_bytes: all.shm_bytes + one.shm_bytes,
            peak_bytes: all.peak_bytes + one.peak_bytes,
        });
        fits.extend((fits.len() as u32..).zip(own).map(|(id, part)| Fit {
            id,
            of,
            node_skew: skew(part.own[0], means[0]),
            edge_skew: skew(part.own[1], means[1]),
            ..fit(job, host, part, &data, u64::from(*trainers), &room)
        }));
    }
    report.check().map(|()| fits)
}

/// Each host with its fits, and the number of its trainers.
fn by_host<'a>(
    job: &'a Job,
    hosts: &'a [Host],
    fits: &'a [Fit],
) -> impl Iterator<Item = (&'a Host, &'a [Fit], u64)> {
    let of_hosts = fits.chunk_by(|one, next| one.host == next.host);
    let each = hosts.iter().zip(of_hosts).zip(&job.num_trainers);
    each.map(|((host, fits), trainers)| (host, fits, u64::from(*trainers)))
}

/// A part divided by the mean, to three decimals.
fn skew(count: u64, mean: f64) -> f64 {
    match mean > 0.0 {
        true => (count as f64 / mean * 1000.0).round() / 1000.0,
        false => 1.0,
    }
}

fn fit(job: &Job, host: &Host, part: &Part, data: &Data, trainers: u64, room: &Room) -> Fit {
    let shm_bytes = data.shm_bytes + job.shm_extra_bytes;
    let process = job.process(host);
    let bare_bytes = job.bare_bytes(host, trainers);
    let load_bytes = bare_bytes + data.peak_bytes;
    let run_bytes = bare_bytes + shm_bytes + job.training_bytes(host, trainers);
    let missing = |needed: u64, there: u64| needed.checked_sub(there).filter(|bytes| *bytes > 0);
    let missing_mem_bytes = missing(load_bytes.max(run_bytes), job.usable(room.mem_bytes));
    let missing_shm_bytes = missing(shm_bytes, room.shm_free_bytes);
    let halo = |at: usize| Some(part.all?[at].saturating_sub(part.own[at]));
    Fit {
        host: host.id,
        nodes: part.own[0],
        edges: part.own[1],
        halo_nodes: halo(0),
        halo_edges: halo(1),
        disk_bytes: part.disk_bytes,
        shm_bytes,
        server_bytes: process.shared_bytes + process.own_bytes + data.peak_bytes,
        load_bytes,
        run_bytes,
        mem_bytes: room.mem_bytes,
        shm_free_bytes: room.shm_free_bytes,
        fits: missing_mem_bytes.is_none() && missing_shm_bytes.is_none(),
        missing_mem_bytes,
        missing_shm_bytes,
        ..Fit::default()
    }
}

/// The memory of the partition in the form of its graph that takes most.
fn data(job: &Job, host: &Host, part: &Part) -> Data {
    let deferred = model::defers_features(host.facts.dgl.as_deref().and_then(version));
    let each = part
        .graphs
        .iter()
        .map(|graph| model::data(graph, part.features, &job.formats, deferred));
    each.fold(Data::default(), |most, one| Data {
        shm_bytes: most.shm_bytes.max(one.shm_bytes),
        peak_bytes: most.peak_bytes.max(one.peak_bytes),
    })
}

/// A fault for each host whose partitions do not fit, with a fix.
pub fn faults(job: &Job, hosts: &[Host], fits: &[Fit]) -> Vec<Fault> {
    let fix = fix_for(job, hosts, fits);
    by_host(job, hosts, fits)
        .filter(|(_, fits, _)| !fits[0].fits)
        .map(|(host, fits, _)| fault(job, host, fits).fix(fix.clone()))
        .collect()
}

fn fault(job: &Job, host: &Host, fits: &[Fit]) -> Fault {
    let fit = &fits[0];
    let memory = fit.missing_mem_bytes.map(|missing| {
        let (needed, when) = match fit.load_bytes > fit.run_bytes {
            true => (fit.load_bytes, "while its servers load"),
            false => (fit.run_bytes, "while its trainers run"),
        };
        format!(
            "{} of memory are missing: it needs {} {when}, and the host has {} of which {} % stay \
             free",
            term::bytes(missing),
            term::bytes(needed),
            term::bytes(fit.mem_bytes),
            job.margin_percent
        )
    });
    let shm = fit.missing_shm_bytes.map(|missing| {
        format!(
            "{} of /dev/shm are missing: it needs {}, and {} are free",
            term::bytes(missing),
            term::bytes(fit.shm_bytes),
            term::bytes(fit.shm_free_bytes)
        )
    });
    let problem = match fits {
        [fit] => format!("partition {} does not fit", fit.id),
        _ => format!(
            "partitions {} to {} do not fit",
            fit.id,
            fits[fits.len() - 1].id
        ),
    };
    Fault::data(host.location(), problem).details(memory.into_iter().chain(shm).collect())
}

/// The number of parts, or the amount of memory, with which all would fit.
fn fix_for(job: &Job, hosts: &[Host], fits: &[Fit]) -> String {
    let memory = fits
        .iter()
        .filter(|fit| fit.missing_mem_bytes.is_some())
        .map(|fit| fit.load_bytes.max(fit.run_bytes))
        .max();
    let shm = fits
        .iter()
        .filter(|fit| fit.missing_shm_bytes.is_some())
        .map(|fit| fit.shm_bytes)
        .max();
    let wanted = [
        memory.map(|bytes| {
            let with_margin = bytes / (100 - job.margin_percent) * 100;
            format!("{} of memory", term::bytes(with_margin))
        }),
        shm.map(|bytes| format!("{} of /dev/shm", term::bytes(bytes))),
    ];
    let wanted: Vec<String> = wanted.into_iter().flatten().collect();
    let parts = by_host(job, hosts, fits)
        .map(|(host, fits, trainers)| parts_that_fit(job, host, &fits[0], trainers))
        .collect::<Option<Vec<u64>>>();
    let hosts_with = format!("take hosts with {}", wanted.join(" and "));
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

/// The number of partitions with which one would fit this host, if all of its data shrinks as they
/// become more.
fn parts_that_fit(job: &Job, host: &Host, fit: &Fit, trainers: u64) -> Option<u64> {
    let bare_bytes = job.bare_bytes(host, trainers);
    let running = bare_bytes + job.training_bytes(host, trainers) + job.shm_extra_bytes;
    let usable = job.usable(fit.mem_bytes);
    let needs = [
        (fit.load_bytes - bare_bytes, usable.checked_sub(bare_bytes)?),
        (fit.run_bytes - running, usable.checked_sub(running)?),
        (
            fit.shm_bytes - job.shm_extra_bytes,
            fit.shm_free_bytes.checked_sub(job.shm_extra_bytes)?,
        ),
    ];
    let parts = needs.into_iter().map(|(data, room)| match (data, room) {
        (0, _) => Some(1),
        (_, 0) => None,
        (data, room) => {
            let parts = u128::from(data) * u128::from(fit.of);
            u64::try_from(parts.div_ceil(room.into())).ok()
        }
    });
    let parts = parts.collect::<Option<Vec<u64>>>()?;
    parts
        .into_iter()
        .max()
        .map(|parts| parts.max(fit.of.into()))
}

/// Warnings about unequal partitions: the largest sets the pace.
pub fn warnings(fits: &[Fit]) -> Vec<String> {
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
    [
        largest("nodes", |fit| fit.node_skew),
        largest("edges", |fit| fit.edge_skew),
    ]
    .into_iter()
    .flatten()
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

    /// A part that is its features: 10 GB, which take twice as much while they are loaded.
    fn part(own: u64) -> Part {
        Part {
            own: [own, 10 * own],
            all: Some([own + 5, 10 * own + 7]),
            disk_bytes: 10 * GB,
            graphs: vec![Graph::Graphbolt { bytes: 0 }],
            features: Features {
                node_bytes: 10 * GB,
                edge_bytes: 0,
            },
            by_npy: false,
        }
    }

    fn job() -> Job {
        Job {
            num_servers: 1,
            num_trainers: vec![2, 2],
            num_samplers: 1,
            formats: model::formats("csc"),
            trainer_bytes: GB,
            sampler_bytes: GB / 2,
            shm_extra_bytes: GB,
            process_bytes: Some(GB),
            margin_percent: 10,
        }
    }

    #[test]
    fn what_a_host_needs() {
        let hosts = [host(0, 100 * GB, 50 * GB), host(1, 100 * GB, 50 * GB)];
        let found = fits(&job(), &hosts, &[part(30), part(10)]).unwrap();
        let first = &found[0];
        // a server, two trainers, two samplers; and the features twice, or once with what the
        // script has
        let in_gb = [
            first.load_bytes,
            first.run_bytes,
            first.shm_bytes,
            first.server_bytes,
        ];
        assert_eq!(in_gb.map(|bytes| bytes / GB), [25, 5 + 11 + 3, 11, 21]);
        assert_eq!((first.halo_nodes, first.halo_edges), (Some(5), Some(7)));
        assert_eq!((first.node_skew, found[1].edge_skew), (1.5, 0.5));
        assert!(found.iter().all(|fit| fit.fits));
        assert_eq!(faults(&job(), &hosts, &found), []);
        let message = warnings(&found);
        assert!(
            message.len() == 2 && message[0].contains("partition 0 has 1.50 times"),
            "{message:?}"
        );
        assert!(
            message[1].ends_with("up to 33 % of the time"),
            "{message:?}"
        );
        let alike = fits(&job(), &hosts, &[part(12), part(10)]).unwrap();
        assert!(warnings(&alike).is_empty());
    }

    #[test]
    fn what_is_missing_and_what_would_do() {
        // memory and /dev/shm of the second host; what is said of it
        let table = [
            (28, 50, "", ""),
            // 25 GB are needed, of 27 GB 24.3 GB may be had; 20.0 of them shrink to 19.3
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
            let found = fits(&job(), &hosts, &[part(10), part(10)]).unwrap();
            let faults = faults(&job(), &hosts, &found);
            assert_eq!(found[1].fits, problem.is_empty());
            let message = faults.first().map(ToString::to_string).unwrap_or_default();
            assert!(
                message.contains(problem) && message.contains(fix),
                "{message}"
            );
            assert!(faults.len() < 2 && found[0].fits);
        }
    }

    #[test]
    fn a_control_group_counts_where_it_allows_less() {
        for (limit, fits_there) in [(20 * GB, false), (200 * GB, true)] {
            let mut hosts = [host(0, 100 * GB, 50 * GB), host(1, 100 * GB, 50 * GB)];
            hosts[1].facts.mem_limit_bytes = Some(limit);
            let found = fits(&job(), &hosts, &[part(10), part(10)]).unwrap();
            assert_eq!(found[1].fits, fits_there);
            assert_eq!(found[1].mem_bytes, limit.min(100 * GB));
        }
    }

    #[test]
    fn of_two_forms_what_needs_more_counts() {
        let hosts = [host(0, 100 * GB, 50 * GB)];
        let both = Part {
            graphs: vec![
                Graph::Graphbolt { bytes: GB },
                Graph::Graphbolt { bytes: 2 * GB },
            ],
            ..part(1)
        };
        let job = Job {
            num_trainers: vec![1],
            ..job()
        };
        let found = fits(&job, &hosts, &[both]).unwrap();
        assert_eq!(found[0].shm_bytes / GB, 13);
    }

    #[test]
    fn several_partitions_on_each_host() {
        let hosts = [host(0, 100 * GB, 50 * GB), host(1, 30 * GB, 50 * GB)];
        let all = [part(10), part(10), part(10), part(10)];
        let alone = &fits(&job(), &hosts, &all[..2]).unwrap()[0];
        let found = fits(&job(), &hosts, &all).unwrap();
        let placed: Vec<(u32, u32)> = found.iter().map(|fit| (fit.id, fit.host)).collect();
        assert_eq!(placed, [(0, 0), (1, 0), (2, 1), (3, 1)]);
        let in_gb = [found[1].shm_bytes, found[1].load_bytes].map(|bytes| bytes / GB);
        let one_more = [alone.shm_bytes + 10 * GB, alone.load_bytes + 20 * GB];
        assert_eq!(in_gb, one_more.map(|bytes| bytes / GB));
        let faults = faults(&job(), &hosts, &found);
        assert_eq!(faults.len(), 1);
        assert_eq!(faults[0].problem, "partitions 2 to 3 do not fit");
    }

    #[test]
    fn what_nobody_knows_is_reported_of_all_hosts() {
        let hosts = [Host::default(), Host::default()];
        let report = fits(&job(), &hosts, &[part(1), part(1)]).unwrap_err();
        assert_eq!(report.0.len(), 2);
        let report = fits(&job(), &hosts, &[part(1)]).unwrap_err();
        assert_eq!(
            report.0[0].problem,
            "1 partitions for 2 hosts; DGL needs as many hosts as partitions"
        );
    }
}
