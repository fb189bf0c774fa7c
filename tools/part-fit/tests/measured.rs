//! Compares the memory of graph servers and jobs of real DGL, as tests/bench/memory.sh measured it,
//! with the predictions of the model; part-fit(1) shows the figures.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use part_fit::args::LoadedGraphForm;
use part_fit::model::{Files, ServersMemory, data, process};
use part_fit::plan::{self, JobProcesses, Part};
use record::python::{Version, version};
use record::{Facts, Host};

/// DGL's own form of a graph: its name and formats; nodes and edges in the file, whether they have
/// types; bytes of the files of their features; bytes in /dev/shm, and the most resident memory.
type OfDgl = (
    &'static str,
    &'static str,
    u64,
    u64,
    bool,
    u64,
    u64,
    u64,
    u64,
);

#[rustfmt::skip]
const DGL_1_0_4: [OfDgl; 14] = [
    ("tiny", "csc", 989, 3_023, false, 8_447, 24, 126_976, 294_539_264),
    ("graph", "csc", 399_999, 4_494_687, false, 24, 24, 119_197_696, 534_220_800),
    ("graph", "coo", 399_999, 4_494_687, false, 24, 24, 115_994_624, 527_474_688),
    ("graph", "csr", 399_999, 4_494_687, false, 24, 24, 119_197_696, 534_286_336),
    ("graph", "csc,coo", 399_999, 4_494_687, false, 24, 24, 191_115_264, 678_539_264),
    ("nodes", "csc", 326_661, 300_244, false, 200_208_095, 24, 213_303_296, 710_057_984),
    ("edges", "csc", 99_993, 749_600, false, 24, 120_031_781, 140_513_280, 562_061_312),
    ("both", "csc", 198_192, 598_107, false, 79_836_895, 79_759_701, 177_963_008, 556_851_200),
    ("both", "coo", 198_192, 598_107, false, 79_836_895, 79_759_701, 176_373_760, 554_434_560),
    ("all", "csc", 300_000, 2_998_305, false, 59_944_895, 79_942_381, 219_983_872, 611_766_272),
    ("all", "csc,coo", 300_000, 2_998_305, false, 59_944_895, 79_942_381, 267_964_416,
        659_709_952),
    ("types", "csc", 399_795, 3_748_326, true, 48_040_970, 24, 163_569_664, 528_969_728),
    ("types", "csc,coo,csr", 399_795, 3_748_326, true, 48_040_970, 24, 286_715_904,
        778_092_544),
    ("typed-edges", "csc", 199_682, 1_503_075, true, 24, 120_284_233, 167_301_120, 586_784_768),
];

#[rustfmt::skip]
const DGL_1_1_3: [OfDgl; 14] = [
    ("tiny", "csc", 989, 3_031, false, 8_127, 24, 122_880, 422_760_448),
    ("graph", "csc", 400_000, 4_497_691, false, 24, 24, 119_275_520, 662_949_888),
    ("graph", "coo", 400_000, 4_497_691, false, 24, 24, 116_072_448, 656_572_416),
    ("graph", "csr", 400_000, 4_497_691, false, 24, 24, 119_275_520, 662_646_784),
    ("graph", "csc,coo", 400_000, 4_497_691, false, 24, 24, 191_242_240, 807_034_880),
    ("nodes", "csc", 326_918, 300_604, false, 200_535_095, 24, 213_643_264, 838_717_440),
    ("edges", "csc", 99_999, 751_134, false, 24, 120_220_421, 140_738_560, 691_290_112),
    ("both", "csc", 198_132, 598_793, false, 79_799_295, 79_833_101, 178_003_968, 685_318_144),
    ("both", "coo", 198_132, 598_793, false, 79_799_295, 79_833_101, 176_418_816, 682_172_416),
    ("all", "csc", 300_000, 2_996_432, false, 59_937_695, 79_874_661, 219_856_896, 739_401_728),
    ("all", "csc,coo", 300_000, 2_996_432, false, 59_937_695, 79_874_661, 267_804_672,
        787_513_344),
    ("types", "csc", 399_796, 3_749_124, true, 48_018_890, 24, 163_573_760, 657_096_704),
    ("types", "csc,coo,csr", 399_796, 3_749_124, true, 48_018_890, 24, 286_752_768, 909_701_120),
    ("typed-edges", "csc", 199_649, 1_495_059, true, 24, 119_362_513, 166_154_240, 712_904_704),
];

#[rustfmt::skip]
const DGL_2_1_0: [OfDgl; 14] = [
    ("tiny", "csc", 987, 2_987, false, 8_095, 24, 122_880, 476_315_648),
    ("graph", "csc", 400_000, 4_498_904, false, 24, 24, 119_300_096, 716_406_784),
    ("graph", "coo", 400_000, 4_498_904, false, 24, 24, 116_097_024, 709_648_384),
    ("graph", "csr", 400_000, 4_498_904, false, 24, 24, 119_300_096, 716_214_272),
    ("graph", "csc,coo", 400_000, 4_498_904, false, 24, 24, 191_283_200, 859_926_528),
    ("nodes", "csc", 326_562, 300_037, false, 200_224_095, 24, 213_311_488, 891_244_544),
    ("edges", "csc", 99_998, 749_433, false, 24, 120_066_581, 140_533_760, 744_239_104),
    ("both", "csc", 198_167, 599_497, false, 79_909_695, 79_866_101, 178_167_808, 738_287_616),
    ("both", "coo", 198_167, 599_497, false, 79_909_695, 79_866_101, 176_578_560, 736_169_984),
    ("all", "csc", 299_999, 2_994_812, false, 59_844_095, 79_843_261, 219_693_056, 791_691_264),
    ("all", "csc,coo", 299_999, 2_994_812, false, 59_844_095, 79_843_261, 267_616_256, 840_396_800),
    ("types", "csc", 399_800, 3_748_233, true, 48_016_490, 24, 163_545_088, 709_423_104),
    ("types", "csc,coo,csr", 399_800, 3_748_233, true, 48_016_490, 24, 286_691_328, 962_240_512),
    ("typed-edges", "csc", 199_686, 1_506_481, true, 24, 120_703_393, 167_825_408, 772_820_992),
];

/// Graphbolt's form: the name, bytes of its file, of features of nodes and of edges; bytes in
/// /dev/shm, and the most resident memory.
#[rustfmt::skip]
const GRAPHBOLT_2_1_0: [(&str, u64, u64, u64, u64, u64); 8] = [
    ("tiny", 26_200, 8_095, 24, 61_440, 479_879_168),
    ("graph", 22_798_040, 24, 24, 22_827_008, 524_427_264),
    ("nodes", 5_121_304, 200_224_095, 24, 205_373_440, 886_439_936),
    ("edges", 4_200_152, 24, 120_066_581, 124_297_216, 728_854_528),
    ("both", 4_778_392, 79_909_695, 79_866_101, 164_589_568, 728_498_176),
    ("all", 15_581_720, 59_844_095, 79_843_261, 155_299_840, 731_062_272),
    ("types", 23_542_553, 48_016_490, 24, 71_598_080, 599_515_136),
    ("typed-edges", 9_932_505, 24, 120_703_393, 130_670_592, 739_680_256),
];

/// All processes of a job on one host that trained the small model of tests/dgl/train.py: DGL,
/// torch, and the name of the graph; trainers, samplers of each; bytes in /dev/shm, and bytes of
/// all processes including that, with libraries counted once. Batches of the tiny graph are tiny;
/// those of the large one have 1,000 nodes with up to 30 neighbours, of 50 numbers each.
#[rustfmt::skip]
const RUNS: [(&str, &str, &str, u32, u64, u64, u64); 24] = [
    ("1.0.4", "1.13.0", "tiny", 1, 0, 344_064, 471_810_048),
    ("1.0.4", "1.13.0", "tiny", 2, 0, 344_064, 644_378_624),
    ("1.0.4", "1.13.0", "tiny", 1, 2, 344_064, 803_139_584),
    ("1.0.4", "1.13.0", "tiny", 2, 1, 344_064, 972_296_192),
    ("1.0.4", "1.13.0", "large", 1, 0, 222_633_984, 738_189_312),
    ("1.0.4", "1.13.0", "large", 2, 0, 222_633_984, 926_732_288),
    ("1.0.4", "1.13.0", "large", 1, 2, 222_633_984, 1_078_829_056),
    ("1.0.4", "1.13.0", "large", 2, 1, 222_633_984, 1_267_707_904),
    ("1.1.3", "2.2.1", "tiny", 1, 0, 344_064, 720_551_936),
    ("1.1.3", "2.2.1", "tiny", 2, 0, 344_064, 1_002_692_608),
    ("1.1.3", "2.2.1", "tiny", 1, 2, 344_064, 1_218_187_264),
    ("1.1.3", "2.2.1", "tiny", 2, 1, 344_064, 1_532_350_464),
    ("1.1.3", "2.2.1", "large", 1, 0, 222_633_984, 977_559_552),
    ("1.1.3", "2.2.1", "large", 2, 0, 222_633_984, 1_272_516_608),
    ("1.1.3", "2.2.1", "large", 1, 2, 222_633_984, 1_520_492_544),
    ("1.1.3", "2.2.1", "large", 2, 1, 222_633_984, 1_820_958_720),
    ("2.1.0", "2.2.1", "tiny", 1, 0, 344_064, 807_788_544),
    ("2.1.0", "2.2.1", "tiny", 2, 0, 344_064, 1_124_749_312),
    ("2.1.0", "2.2.1", "tiny", 1, 2, 344_064, 1_377_095_680),
    ("2.1.0", "2.2.1", "tiny", 2, 1, 344_064, 1_732_513_792),
    ("2.1.0", "2.2.1", "large", 1, 0, 222_633_984, 1_063_591_936),
    ("2.1.0", "2.2.1", "large", 2, 0, 222_633_984, 1_387_847_680),
    ("2.1.0", "2.2.1", "large", 1, 2, 222_633_984, 1_679_880_192),
    ("2.1.0", "2.2.1", "large", 2, 1, 222_633_984, 2_021_052_416),
];

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

fn check(what: &str, found: ServersMemory, versions: [&str; 2], shm: u64, peak: u64) {
    let of = |text: &str| -> Option<Version> { version(text) };
    let process = process(of(versions[0]), of(versions[1]));
    let bytes = process.shared_bytes + process.own_bytes + found.peak_bytes;
    let error = bytes as f64 / peak as f64 - 1.0;
    assert!((-0.02..0.08).contains(&error), "{what}: {error}");
    let error = found.shm_bytes as f64 / shm as f64 - 1.0;
    let is_negligible = found.shm_bytes.abs_diff(shm) < 64 << 10;
    assert!(
        is_negligible || (-0.01..0.07).contains(&error),
        "{what}: {error} in /dev/shm"
    );
}

#[test]
fn servers_took_what_the_model_says() {
    for (table, versions) in [
        (DGL_1_0_4, ["1.0.4", "1.13.0"]),
        (DGL_1_1_3, ["1.1.3", "2.2.1"]),
        (DGL_2_1_0, ["2.1.0", "2.2.1"]),
    ] {
        for (name, list, nodes, edges, has_types, node_features, edge_features, shm, peak) in table
        {
            let files = Files {
                dgl: bytes_of_file(nodes, edges, has_types),
                graphbolt: 0,
                node_features,
                edge_features,
            };
            let formats = list.split(',').count() as u64;
            let found = data(files, LoadedGraphForm::Auto, formats, version(versions[0]));
            let what = format!("{} {name} {list}", versions[0]);
            check(&what, found, versions, shm, peak);
        }
    }
    for (name, graphbolt, node_features, edge_features, shm, peak) in GRAPHBOLT_2_1_0 {
        let files = Files {
            dgl: 0,
            graphbolt,
            node_features,
            edge_features,
        };
        let found = data(files, LoadedGraphForm::Auto, 1, version("2.1.0"));
        let what = format!("graphbolt {name}");
        check(&what, found, ["2.1.0", "2.2.1"], shm, peak);
    }
}

#[test]
fn jobs_took_what_the_model_says() {
    for (dgl, torch, name, trainers, num_samplers, shm, all) in RUNS {
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
                num_trainers: vec![trainers],
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
        let what = format!("{dgl} {name} {trainers} {num_samplers}");
        let (bare, error) = match name {
            "large" => (run([0; 2]), run(LARGE_BATCHES)),
            _ => (run([0; 2]), run([0; 2])),
        };
        assert!((-0.05..0.05).contains(&error), "{what}: {error}");
        assert!(
            (-0.07..0.05).contains(&bare),
            "{what}, batches left out: {bare}"
        );
    }
}
