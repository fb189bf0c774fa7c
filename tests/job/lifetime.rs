//! Whatever ends a job, nothing of it is left on any host: every end, times every shape that the
//! processes of a job have. `make test` has each end with one shape, and each shape with several
//! ends; `make test-matrices` has every end with every shape.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::{
    Cluster, command, host_record, path, python_with_dgl, root, scratch, sh, soon, write,
};

const HOSTS: usize = 3;
const TREES: [&str; 3] = ["direct", "torchrun", "daemon"];
/// From the event to the end of the last process: a grace of 1 s, 8 s until a host is taken for
/// lost, and a machine that may be busy with much else.
const SOON: Duration = Duration::from_secs(40);
/// Somebody waits for the end of a job that was interrupted; no host has to be taken for lost.
const SOON_AFTER_A_SIGNAL: Duration = Duration::from_secs(15);

/// What ends a job, and what dgl-spawn makes of it: its status, a part of what it says.
const ENDS: [End; 8] = [
    (
        "trainer exits 1",
        1,
        "trainer 2 on host 2 (10.77.0.3) exited with status 1; its last line",
    ),
    (
        "server exits 1",
        1,
        "server 2 on host 2 (10.77.0.3) exited with status 1; its last line",
    ),
    (
        "trainer killed",
        137,
        "host 2 (10.77.0.3): trainer 2 ended by SIGKILL",
    ),
    (
        "server killed",
        137,
        "host 2 (10.77.0.3): server 2 ended by SIGKILL",
    ),
    ("INT", 130, "was stopped by SIGINT"),
    ("TERM", 143, "was stopped by SIGTERM"),
    ("HUP", 129, "was stopped by SIGHUP"),
    ("KILL", 137, ""),
];

/// The same for what happens to a host.
const LOSSES: [End; 4] = [
    ("sshd killed", 74, "host 2 (10.77.0.3) was lost: "),
    ("cable of a host cut", 74, "host 2 (10.77.0.3) was lost: "),
    ("cable of the launcher cut", 74, " lost: "),
    ("host powered off", 74, "host 2 (10.77.0.3) was lost: "),
];

/// How a job of a shape ends, and what dgl-spawn makes of it.
type End = (&'static str, i32, &'static str);

/// A job of each shape named, all at once on the same hosts as the same user, with an end for each.
type Round = Vec<(&'static str, End)>;

/// Rounds in which no host is lost. The first three have every end, and the others what is then
/// missing of every end times every shape.
fn rounds_of_ends(count: usize) -> impl Iterator<Item = Round> {
    let shapes = TREES.iter().enumerate();
    (0..count).map(move |round| {
        let end_of = |nth: usize| ENDS[(TREES.len() * round + nth) % ENDS.len()];
        shapes
            .clone()
            .map(|(nth, tree)| (*tree, end_of(nth)))
            .collect()
    })
}

#[test]
fn real_hosts_whatever_ends_a_job_nothing_is_left() {
    let losses = LOSSES.iter().zip(TREES.iter().cycle());
    let losses = losses.map(|(loss, tree)| vec![(*tree, *loss)]);
    nothing_is_left(rounds_of_ends(3), losses);
}

#[test]
#[ignore = "make test-matrices"]
fn the_whole_matrix_of_ends_of_jobs_on_real_hosts() {
    let losses = LOSSES.iter();
    let losses = losses.map(|loss| TREES.iter().map(|tree| (*tree, *loss)).collect());
    nothing_is_left(rounds_of_ends(ENDS.len()), losses);
}

fn nothing_is_left(ends: impl Iterator<Item = Round>, losses: impl Iterator<Item = Round>) {
    let (folder, cluster) = Cluster::listed(HOSTS as u32);
    for k in 1..=HOSTS {
        // what carries the same words on its command line, and is not part of any job
        cluster.call(&[
            "exec",
            &k.to_string(),
            "sh",
            "-c",
            "setsid sleep 100000 trainer direct </dev/null >/dev/null 2>&1 &",
        ]);
    }
    let mut other = Launched::start(&cluster, &folder, "direct", "other", 29000);
    other.wait_until_it_runs();
    for (nth, round) in ends.enumerate() {
        let port = 30000 + 100 * nth;
        one_round(&cluster, &folder, round, port, "other", |jobs| {
            for (job, (end, ..)) in jobs {
                happen(&cluster, job, end);
            }
        });
    }
    let all = left(&cluster, "nothing").join("\n");
    assert_eq!(
        (
            all.matches("tree.py").count(),
            all.matches(" shm other-").count()
        ),
        (2 * HOSTS, 2 * HOSTS),
        "the other job: {all}"
    );
    other.signal(&cluster, "TERM");
    assert_eq!(other.wait().0, 143);
    for (nth, round) in losses.enumerate() {
        let (port, loss) = (31000 + 100 * nth, round[0].1.0);
        one_round(&cluster, &folder, round, port, "nothing", |_| {
            lose(&cluster, loss);
        });
        recover(&cluster, loss);
    }
}

#[test]
fn real_hosts_a_loud_job_is_ended_though_nobody_takes_its_output() {
    let (folder, cluster) = Cluster::listed(HOSTS as u32);
    let mut job = Launched::start(&cluster, &folder, "loud", "loud", 30000);
    job.wait_until(|job| job.count("\"stdout\"") > 4_000);
    cluster.call(&["cut", "3"]);
    let begun = Instant::now();
    let (status, err) = job.wait();
    assert!(
        status == 74 && err.contains("host 2 (10.77.0.3) was lost: "),
        "{status}: {err}"
    );
    while begun.elapsed() < SOON && !left(&cluster, "nothing").is_empty() {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(
        left(&cluster, "nothing").is_empty(),
        "{:#?}",
        left(&cluster, "nothing")
    );
}

/// DGL makes its files in /dev/shm and may fail right after that: nobody is there any more who
/// could be asked for them.
#[test]
fn real_hosts_a_server_that_fails_while_it_loads_leaves_nothing() {
    let folder = scratch();
    let cluster = Cluster::up(1);
    let server = "import os, mmap, sys, time\nf = open('/dev/shm/g_node_meta', \
        'w+b')\nf.truncate(4096)\nm = mmap.mmap(f.fileno(), 4096)\n\
                  time.sleep(float(sys.argv[1]))\nos._exit(3)\n";
    write(&folder, "server.py", server);
    for pause in ["0", "0.05", "0.1", "0.2", "0.4"] {
        let command = format!(
            "exec python3 '{}' {pause}",
            folder.join("server.py").display()
        );
        let records = [
            host_record(0, 1, "10.77.0.1"),
            serde_json::json!({"type": "process", "id": 0, "of": 1, "host": 0, "ip": "10.77.0.1",
                "role": "server", "rank": 0, "port": 30050,
                "cwd": "/srv", "env": {}, "argv": ["sh", "-c", command]}),
        ];
        write(
            &folder,
            "job.jsonl",
            records.map(|record| format!("{record}\n")).concat(),
        );
        let ran = cluster.sh(
            &folder,
            "echo mine >/dev/shm/other-kvdata-; dgl-spawn \
            --no-preflight <job.jsonl; ls /dev/shm; rm /dev/shm/*",
        );
        assert!(
            ran.out.ends_with("}\nother-kvdata-\n") && ran.err.contains("exited with status 3"),
            "{pause}: {}{}",
            ran.out,
            ran.err
        );
    }
}

/// A process that was killed cannot be asked for its files, even if it was killed a moment after it
/// had made one.
#[test]
fn real_hosts_files_of_short_lived_processes_are_removed() {
    let folder = scratch();
    let cluster = Cluster::up(1);
    let trainer = "import os, mmap, time\n\
        time.sleep(2)\n\
        for nth in range(6):\n\
        \x20   if os.fork() == 0:\n\
        \x20       f = open(f'/dev/shm/short-{nth}', 'w+b')\n\
        \x20       f.truncate(4096)\n\
        \x20       m = mmap.mmap(f.fileno(), 4096)\n\
        \x20       time.sleep(0.4)\n\
        \x20       os.kill(os.getpid(), 9)\n\
        \x20   os.wait()\n";
    write(&folder, "trainer.py", trainer);
    let command = format!("exec python3 '{}'", folder.join("trainer.py").display());
    let records = [
        host_record(0, 1, "10.77.0.1"),
        serde_json::json!({"type": "process", "id": 0, "of": 1, "host": 0, "ip": "10.77.0.1",
            "role": "trainer", "rank": 0, "cwd": "/srv", "env": {}, "argv": ["sh", "-c", command]}),
    ];
    write(
        &folder,
        "job.jsonl",
        records.map(|record| format!("{record}\n")).concat(),
    );
    let ran = cluster.sh(
        &folder,
        "echo mine >/dev/shm/other; dgl-spawn --no-preflight <job.jsonl; \
            ls /dev/shm; rm /dev/shm/*",
    );
    ran.ends(0);
    assert!(ran.out.ends_with("}\nother\n"), "{}{}", ran.out, ran.err);
}

/// The same with real DGL, as far as DGL ends otherwise than other programs; a server of it exits
/// with 1 on TERM, or aborts on its way out.
const DGL_ENDS: [End; 5] = [
    (
        "trainer exits 1",
        1,
        "failed: trainer 1 on host 1 (10.77.0.2) raised RuntimeError: rank 1 fails in epoch 4",
    ),
    ("server exits 1", 1, "host 1 (10.77.0.2): server 1 "),
    (
        "trainer killed",
        137,
        "host 1 (10.77.0.2): trainer 1 ended by SIGKILL",
    ),
    (
        "server killed",
        137,
        "host 1 (10.77.0.2): server 1 ended by SIGKILL",
    ),
    ("KILL", 137, ""),
];

#[test]
fn real_dgl_whatever_ends_a_job_nothing_is_left() {
    end_jobs_of_dgl(&[DGL_ENDS[0], DGL_ENDS[3], DGL_ENDS[4]]);
}

#[test]
#[ignore = "minutes: make test-matrices"]
fn the_whole_matrix_of_ends_of_jobs_of_real_dgl() {
    end_jobs_of_dgl(&DGL_ENDS);
}

fn end_jobs_of_dgl(ends: &[End]) {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let (folder, cluster) = Cluster::listed(2);
    let scripts = root().join("tests/dgl");
    let scripts = scripts.display();
    sh(
        &folder,
        &format!("DGLBACKEND=pytorch '{python}' '{scripts}/partition.py' --out out --num-parts 2"),
    )
    .ends(0);
    let copy = format!(
        "ipconf-check ip.txt | host-probe --workspace /srv/job --python '{python}' |
         part-map --part-config out/g.json --workspace /srv/job --script-folder '{scripts}' | \
             part-push >pushed.jsonl"
    );
    let pushed = cluster.sh(&folder, &copy);
    pushed.ends(0);
    for &(end, status, message) in ends {
        let name = end.replace(' ', "-");
        let fails = if end == "trainer exits 1" {
            "--fail-rank 1 --fail-epoch 4"
        } else {
            ""
        };
        let plan = format!(
            "<pushed.jsonl dgl-env --num-trainers 1 --num-omp-threads 1 -- \
             '{python}' dgl/train.py
             --ip-config ip_config.txt --part-config data/g.json --num-epochs 100000 {fails} \
                 >{name}.jsonl"
        );
        cluster.sh(&folder, &plan.replace('\n', " ")).ends(0);
        let mut job = Launched::launch(&cluster, &folder, &name);
        job.wait_until(|job| job.count("epoch 3 loss") >= 2);
        let begun = Instant::now();
        let on_second = |script: &str| {
            cluster.on(2, script).ends(0);
        };
        match end {
            "trainer exits 1" => {}
            "server exits 1" => on_second(&format!("kill -TERM {}", job.pid(1, "server"))),
            "trainer killed" => on_second(&format!("kill -KILL {}", job.pid(1, "trainer"))),
            "server killed" => on_second(&format!("kill -KILL {}", job.pid(1, "server"))),
            signal => job.signal(&cluster, signal),
        }
        let (got, err) = job.wait();
        let aborted = end == "server exits 1" && got == 134;
        assert!(
            (got == status || aborted) && err.contains(message),
            "{end}: {got}: {err}"
        );
        cluster.assert_clean();
        println!(
            "real DGL: {end:<26} all clean after {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
}

fn one_round(
    cluster: &Cluster,
    folder: &Path,
    round: Round,
    port: usize,
    but: &str,
    happen: impl FnOnce(&[(Launched, End)]),
) {
    let start = |(nth, (tree, end)): (usize, (&str, End))| {
        let name = format!("{}-{tree}", end.0.replace(' ', "-"));
        (
            Launched::start(cluster, folder, tree, &name, port + 10 * nth),
            end,
        )
    };
    let mut jobs: Vec<(Launched, End)> = round.into_iter().enumerate().map(start).collect();
    for (job, _) in &mut jobs {
        job.wait_until_it_runs();
    }
    // shared memory that is not a second old when its last process is killed can have been
    // overlooked
    std::thread::sleep(Duration::from_millis(2500));
    let begun = Instant::now();
    happen(&jobs);
    let ends: Vec<&str> = jobs.iter().map(|(_, end)| end.0).collect();
    let ends = ends.join(", ");
    for (job, (end, status, message)) in jobs {
        let name = job.name.clone();
        let (got, err) = job.wait();
        assert_eq!(got, status, "{name}: {err}");
        assert!(err.contains(message), "{name}: {err}");
        if ["INT", "TERM", "HUP"].contains(&end) {
            let took = begun.elapsed();
            assert!(took < SOON_AFTER_A_SIGNAL, "{name}: {took:?}");
        }
    }
    let ended = begun.elapsed();
    while begun.elapsed() < SOON && !left(cluster, but).is_empty() {
        std::thread::sleep(Duration::from_millis(100));
    }
    let survivors = left(cluster, but);
    assert!(
        survivors.is_empty(),
        "{ends}: left on the hosts after {:.1?}: {survivors:#?}",
        begun.elapsed()
    );
    println!(
        "{ends:<26} dgl-spawn ended after {:.1} s, all clean after {:.1} s",
        ended.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    );
}

fn lose(cluster: &Cluster, loss: &str) {
    match loss {
        "cable of a host cut" => cluster.call(&["cut", "3"]),
        "cable of the launcher cut" => cluster.call(&["cut", "1"]),
        "host powered off" => cluster.call(&["stop", "3"]),
        _ => cluster.on(3, "pkill -9 sshd"),
    }
    .ends(0);
}

/// The hosts are as they were before a loss.
fn recover(cluster: &Cluster, loss: &str) {
    match loss {
        "host powered off" => drop(cluster.call(&["start", "3"])),
        "cable of a host cut" => drop(cluster.call(&["mend", "3"])),
        "cable of the launcher cut" => drop(cluster.call(&["mend", "1"])),
        _ => {
            cluster.call(&["stop", "3"]);
            cluster.call(&["start", "3"]);
        }
    }
    // a host that was not found is not looked for again for a moment
    let reached = |host: &str| {
        cluster
            .call(&["exec", "1", "ssh", "-o", "ConnectTimeout=5", host, "true"])
            .status
            == 0
    };
    soon("all hosts are reached again", || {
        reached("h2") && reached("h3")
    });
}

fn happen(cluster: &Cluster, job: &Launched, end: &str) {
    let on_third = |script: &str| {
        cluster.on(3, script).ends(0);
    };
    match end {
        "trainer exits 1" => on_third(&format!("touch /srv/{}-trainer", job.name)),
        "server exits 1" => on_third(&format!("touch /srv/{}-server", job.name)),
        "trainer killed" => on_third(&format!("kill -9 {}", job.pid(2, "trainer"))),
        "server killed" => on_third(&format!("kill -9 {}", job.pid(2, "server"))),
        signal => job.signal(cluster, signal),
    }
}

/// What is on the hosts and no part of the job `but`.
fn left(cluster: &Cluster, but: &str) -> Vec<String> {
    let left = cluster.call(&["left"]).out;
    // of its shells and logins one cannot see whose they are; those of other jobs are met when it
    // has gone
    let of_it = |line: &str| {
        but == "other"
            && (line.contains("other") || !(line.contains("tree.py") || line.contains(" shm ")))
    };
    // sshd keeps a login whose cable was cut until TCP gives it up: nothing of the job
    let of_others =
        |line: &str| line.contains(" sshd: ") || line.contains("sleep 100000 trainer direct");
    left.lines()
        .filter(|line| !of_others(line) && !of_it(line))
        .map(str::to_owned)
        .collect()
}

/// A job: a server and a trainer on each host, launched from the first.
struct Launched {
    name: String,
    out: PathBuf,
    launcher: Child,
}

impl Launched {
    fn start(cluster: &Cluster, folder: &Path, tree: &str, name: &str, port: usize) -> Launched {
        let mut records: Vec<String> = (0..HOSTS)
            .map(|k| {
                format!(
                    r#"{{"type":"host","id":{k},"of":{HOSTS},"ip":"10.77.0.{}","port":{port}}}"#,
                    k + 1
                )
            })
            .collect();
        let script = root().join("tests/tree.py");
        for id in 0..2 * HOSTS {
            let (k, role) = (id / 2, ["server", "trainer"][id % 2]);
            let port = if role == "server" {
                format!(r#","port":{port},"env":{{"PORT":"{port}"}}"#)
            } else {
                String::new()
            };
            records.push(format!(
                "{{\"type\":\"process\",\"id\":{id},\"of\":{},\"host\":{k},\
                     \"ip\":\"10.77.0.{}\",\"role\":\"{role}\",\"rank\":{k}{port},\
                     \"cwd\":\"/srv\",\"argv\":[\"{}\",\"{role}\",\"{tree}\",\"{name}\",\
                     \"/srv\"]}}",
                2 * HOSTS,
                k + 1,
                script.display()
            ));
        }
        write(folder, format!("{name}.jsonl"), records.join("\n"));
        Launched::launch(cluster, folder, name)
    }

    /// What is in NAME.jsonl.
    fn launch(cluster: &Cluster, folder: &Path, name: &str) -> Launched {
        let script = format!(
            "cd '{}'; PATH='{}'; echo $$ >{name}.pid; exec dgl-spawn --job {name} --grace 1s \
             --host-timeout 8s <{name}.jsonl >{name}.out 2>{name}.err",
            folder.display(),
            path()
        );
        let mut launch = command(root().join("tools/host-lab/host-lab"));
        launch
            .args(["exec", "1", "sh", "-c", &script])
            .env("LAB", &cluster.lab)
            .stdin(Stdio::null());
        Launched {
            name: name.to_owned(),
            out: folder.join(format!("{name}.out")),
            launcher: launch.spawn().unwrap(),
        }
    }

    fn wait_until_it_runs(&mut self) {
        self.wait_until(|job| {
            job.count(r#"{"type":"started""#) == 2 * HOSTS
                && job.count(r#"{"type":"listening""#) == HOSTS
        });
    }

    fn wait_until(&mut self, condition: impl Fn(&Launched) -> bool) {
        let begun = Instant::now();
        while !condition(self) {
            let over = self.launcher.try_wait().unwrap().is_some()
                || begun.elapsed() > Duration::from_secs(180);
            assert!(!over, "{} did not start: {}", self.name, self.err());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn err(&self) -> String {
        std::fs::read_to_string(self.out.with_extension("err")).unwrap_or_default()
    }

    fn count(&self, text: &str) -> usize {
        std::fs::read_to_string(&self.out)
            .unwrap_or_default()
            .matches(text)
            .count()
    }

    /// The process id on that host.
    fn pid(&self, host: u32, role: &str) -> String {
        let out = std::fs::read_to_string(&self.out).unwrap();
        let started = out
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut own = started.filter(|record| {
            record["type"] == "started" && record["host"] == host && record["role"] == role
        });
        own.next().unwrap()["pid"].to_string()
    }

    fn signal(&self, cluster: &Cluster, signal: &str) {
        let pid = std::fs::read_to_string(self.out.with_extension("pid")).unwrap();
        cluster
            .call(&["exec", "1", "kill", &format!("-{signal}"), pid.trim()])
            .ends(0);
    }

    fn wait(mut self) -> (i32, String) {
        let begun = Instant::now();
        while begun.elapsed() < SOON {
            if let Some(status) = self.launcher.try_wait().unwrap() {
                let code = status.code().or_else(|| Some(128 + status.signal()?));
                return (code.unwrap_or(-1), self.err());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{} goes on after {SOON:?}: {}", self.name, self.err());
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // a test that failed: the hosts go down with all that is on them
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}
