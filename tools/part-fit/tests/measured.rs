//! Compares the memory of graph servers and jobs of real DGL, as tests/bench/memory.sh measured it,
//! with the predictions of the model; part-fit(1) shows the figures, and measured.txt has them.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use part_fit::args::LoadedGraphForm;
use part_fit::model::{Files, ServersMemory, data, process};
use part_fit::plan::{self, JobProcesses, Part};
use record::python::version;
use record::{Facts, Host};

/// The rows of a form of the table, each from the version of DGL on.
fn measured(form: &str) -> Vec<Vec<&'static str>> {
    let rows = include_str!("measured.txt").lines();
    let rows = rows.map(|row| row.split_whitespace().collect::<Vec<&str>>());
    let rows: Vec<_> = rows
        .filter(|row| row.first() == Some(&form))
        .map(|row| row[1..].to_vec())
        .collect();
    assert!(rows.len() >= 8, "{form}");
    rows
}

fn number(cell: &str) -> u64 {
    cell.parse().unwrap()
}

/// The bytes that batches of the large graph take in a trainer, and in a sampler.
const LARGE_BATCHES: [u64; 2] = [20_000_000, 4_000_000];

/// The size of a graph's file as partition_graph writes it: the ids of both ends of each edge; for
/// each node its id, partition and whether it is the partition's own; for each edge its id and
/// whether it is; the types of both; and headers.
fn bytes_of_file(nodes: u64, edges: u64, has_types: bool) -> u64 {
    let type_bytes = if has_types { 4 } else { 0 };
    let headers = 5200;
    headers + (17 + type_bytes) * nodes + (16 + 9 + type_bytes) * edges
}

/// Compares the memory of a process with what was measured: DGL, torch and the graph; then, at the
/// end of the row, bytes in /dev/shm and the most resident memory.
fn check(row: &[&str], found: ServersMemory) {
    let [dgl, torch] = [row[0], row[1]].map(version);
    let [shm, peak] = [row[row.len() - 2], row[row.len() - 1]].map(number);
    let process = process(dgl, torch);
    let bytes = process.shared_bytes + process.own_bytes + found.peak_bytes;
    let error = bytes as f64 / peak as f64 - 1.0;
    assert!((-0.02..0.08).contains(&error), "{row:?}: {error}");
    let error = found.shm_bytes as f64 / shm as f64 - 1.0;
    let is_negligible = found.shm_bytes.abs_diff(shm) < 64 << 10;
    assert!(
        is_negligible || (-0.01..0.07).contains(&error),
        "{row:?}: {error} in /dev/shm"
    );
}

#[test]
fn servers_took_what_the_model_says() {
    for row in measured("servers") {
        let has_types = row[6] == "true";
        let files = Files {
            dgl: bytes_of_file(number(row[4]), number(row[5]), has_types),
            graphbolt: 0,
            node_features: number(row[7]),
            edge_features: number(row[8]),
        };
        let formats = row[3].split(',').count() as u64;
        let found = data(files, LoadedGraphForm::Auto, formats, version(row[0]));
        check(&row, found);
    }
    for row in measured("graphbolt") {
        let files = Files {
            dgl: 0,
            graphbolt: number(row[3]),
            node_features: number(row[4]),
            edge_features: number(row[5]),
        };
        let found = data(files, LoadedGraphForm::Auto, 1, version(row[0]));
        check(&row, found);
    }
}

#[test]
fn jobs_took_what_the_model_says() {
    for row in measured("job") {
        let [dgl, torch, graph] = [row[0], row[1], row[2]];
        let [trainers, num_samplers, shm, all] = [row[3], row[4], row[5], row[6]].map(number);
        let facts = Facts {
            dgl: Some(dgl.to_owned()),
            torch: Some(torch.to_owned()),
            mem_bytes: Some(1 << 40),
            shm_free_bytes: Some(1 << 40),
            ..Facts::default()
        };
        let host = Host {
            of: 1,
            facts,
            ..Host::default()
        };
        let part = Part {
            nodes: 1,
            edges: 1,
            files: Files {
                graphbolt: shm,
                ..Files::default()
            },
        };
        let run = |[trainer_bytes, sampler_bytes]: [u64; 2]| {
            let job = JobProcesses {
                num_servers: 1,
                num_trainers: vec![trainers as u32],
                num_samplers,
                form: LoadedGraphForm::Auto,
                num_formats: 1,
                trainer_bytes,
                sampler_bytes,
                shm_extra_bytes: 0,
                process_bytes: None,
            };
            let hosts = std::slice::from_ref(&host);
            let plans = plan::plan(&job, hosts, std::slice::from_ref(&part)).unwrap();
            plans[0].fits[0].run_bytes as f64 / all as f64 - 1.0
        };
        let (bare, error) = match graph {
            "large" => (run([0; 2]), run(LARGE_BATCHES)),
            _ => (run([0; 2]), run([0; 2])),
        };
        assert!((-0.05..0.05).contains(&error), "{row:?}: {error}");
        assert!(
            (-0.07..0.05).contains(&bare),
            "{row:?}, batches left out: {bare}"
        );
    }
}
