//! A real Slurm on real hosts: jobs by sbatch, what ends them, what Slurm refuses.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::{
    Cluster, Ran, ip_config, partition, python_with_dgl, read, root, scratch, sh, soon, write,
};

const SRUN: &str = "export DGL_TOOLS_CONNECT='srun --overlap --unbuffered -N1 -n1 -w {name}'; ";

/// One step for all hosts.
const DIAL: &str = "export DGL_TOOLS_CONNECT='dial srun --overlap -N{count} -w {names} \
    --ntasks-per-node=1'; ";

/// Hosts with Slurm.
struct Slurm(Cluster);

impl Slurm {
    /// Where there is none, a test is skipped, except in continuous integration.
    fn up(hosts: u32) -> Option<Slurm> {
        let cluster = Cluster::up(hosts);
        let up = cluster.call_script("tests/cluster/slurm.sh", &["up"]);
        if up.status == 69 && std::env::var_os("CI").is_none() {
            support::skipped!("{}", up.err);
            return None;
        }
        up.ends(0);
        Some(Slurm(cluster))
    }

    fn sh(&self, folder: &Path, script: &str) -> Ran {
        self.0.sh(folder, script)
    }

    /// A script in plain sh in an allocation of the first two hosts.
    fn within(&self, folder: &Path, script: &str) -> Ran {
        write(folder, "within.sh", script);
        self.sh(folder, "salloc -Q -N2 -w h1,h2 sh within.sh")
    }

    /// Until Slurm has no job any more, and then nothing else is left either.
    fn assert_clean(&self) {
        soon("Slurm has no job", || {
            self.0.call(&["exec", "1", "squeue", "-h"]).out.is_empty()
        });
        assert_eq!(
            self.0.call(&["exec", "1", "squeue", "-h", "-s"]).out,
            "",
            "a step without a job"
        );
        let mut left = self.0.call_script("tests/cluster/slurm.sh", &["left"]);
        for _ in 0..240 {
            if left.status == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(250));
            left = self.0.call_script("tests/cluster/slurm.sh", &["left"]);
        }
        panic!("left on the hosts:\n{}", left.out);
    }

    /// `FAILED 1:0`: its state, its exit status and the signal that ended it.
    fn state(&self, job: &str) -> String {
        let shown = self
            .0
            .call(&["exec", "1", "scontrol", "-o", "show", "job", job])
            .out;
        let word = |name: &str| {
            shown
                .split(' ')
                .find_map(|word| word.strip_prefix(name))
                .unwrap_or_else(|| panic!("{shown}"))
                .to_owned()
        };
        format!("{} {}", word("JobState="), word("ExitCode="))
    }
}

/// The lines of the manual are those of the file, which the next test runs.
#[test]
fn the_manual_shows_the_example() {
    let manual = std::fs::read_to_string(root().join("man/dgl-tools-clusters.7")).unwrap();
    let recipe = manual
        .split_once("\n.Ss A Slurm job\n")
        .unwrap()
        .1
        .split_once("\n.Bd -literal -offset indent\n")
        .unwrap()
        .1;
    let shown = recipe
        .split_once("\n.Ed")
        .unwrap()
        .0
        .replace("\\e", "\\")
        .replace("\\(dq", "\"");
    let script = read(&root(), "examples/torch/shared.sbatch");
    assert_eq!(shown.trim_end(), script.trim_end());
    let tutorial = read(&root(), "site/tutorials/slurm.md");
    assert!(
        tutorial.contains(&script),
        "the tutorial (left) shows another script (right)"
    );
}

#[test]
fn the_example_for_torch_by_sbatch_on_real_hosts() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let folder = scratch();
    let Some(slurm) = Slurm::up(2) else {
        return;
    };
    let made = format!(
        "cp -r '{0}/examples/torch/.' .; mkdir bin; printf '#!/bin/sh\\nexec %s \"$@\"\\n' \
         '{python}' >bin/python3; chmod +x bin/python3; make -I '{0}' 2>&1",
        root().display()
    );
    sh(&folder, &made).ends(0);
    let trained = slurm.sh(
        &folder,
        "PATH=$PWD/bin:$PATH; sbatch --wait train.sbatch --epochs 2; s=$?; cat slurm-1.out; \
         exit $s",
    );
    trained.ends(0).out_has("epoch 1: loss 0.0");
    sh(&folder, "find run-1 -name model.pt -size +0").out_has("model.pt");

    // nothing is copied where the nodes share the directory
    let shared = slurm.sh(
        &folder,
        "PATH=$PWD/bin:$PATH; sbatch --wait shared.sbatch --epochs 2; s=$?; cat slurm-2.out; \
         exit $s",
    );
    shared.ends(0).out_has("epoch 1: loss 0.0");
    sh(&folder, "test -s model.pt && test -e logs-2/worker-3.log").ends(0);

    // what a cancelled job leaves; its workspace stays, which may hold the only copy of results
    let epilog = root()
        .join("examples/slurm/epilog.sh")
        .display()
        .to_string();
    let user = sh(&folder, "id -un").out.trim().to_owned();
    let left = format!(
        "mkdir /tmp/{user}-7 /tmp/{user}-7-1 && : >/tmp/host-agent-7 && : >/tmp/host-agent-70 && \
         sed \"s,^PATH=,PATH=$PATH:,\" '{epilog}' >epilog.sh && \
         SLURM_JOB_ID=7 SLURM_JOB_USER={user} sh epilog.sh; echo $?; ls /tmp"
    );
    let cleaned = slurm.sh(&folder, &left);
    cleaned
        .out_has(&format!("0\nhost-agent-70\n{user}-7\n{user}-7-1\n"))
        .out_lacks("host-agent-7\n");
}

/// The batch scripts with stubs of all other programs.
#[test]
fn a_batch_job_fails_whose_results_cannot_be_fetched() {
    let folder = scratch();
    let stubs = "mkdir bin; for name in scontrol ipconf-check host-probe part-map part-push dgl-env
        do printf '#!/bin/sh\n' >bin/$name; done
        printf '#!/bin/sh\nexit $TRAINED\n' >bin/dgl-spawn
        printf '#!/bin/sh\nexit $FETCHED\n' >bin/part-pull
        printf '#!/bin/sh\necho \"$*\"\n' >bin/srun
        chmod +x bin/*";
    sh(&folder, stubs).ends(0);
    let removes = "--overlap --ntasks-per-node=1 rm -rf /tmp/ann-7\n";
    let stays = "/tmp/ann-7 stays on n[1-2]\n";
    for example in ["torch", "dgl"] {
        for (trained, fetched, status, out, err) in [
            (0, 0, 0, removes, ""),
            (0, 74, 74, "", stays),
            (3, 0, 3, removes, ""),
            (3, 74, 3, "", stays),
        ] {
            let script = format!(
                "export TRAINED={trained} FETCHED={fetched} SLURM_JOB_ID=7 SLURM_JOB_USER=ann \
                 SLURM_JOB_NODELIST='n[1-2]'; PATH=$PWD/bin:$PATH sh \
                 '{}/examples/{example}/train.sbatch'; s=$?; rm -r run-7; exit $s",
                root().display()
            );
            let ended = sh(&folder, &script);
            ended.gives(status, out);
            assert_eq!(ended.err, err, "{example}");
        }
    }
}

#[test]
fn real_dgl_by_sbatch_to_its_end_and_cancelled_in_its_middle() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let folder = scratch();
    let Some(slurm) = Slurm::up(2) else {
        return;
    };
    // the script says python3
    let wrapper = format!(
        "mkdir bin; printf '#!/bin/sh\\nexec %s \"$@\"\\n' '{python}' >bin/python3; chmod +x \
         bin/python3"
    );
    let made = format!(
        "cp -rL '{0}/examples/dgl/.' .; {wrapper}; make -I '{0}' PYTHON=bin/python3 2>&1",
        root().display()
    );
    sh(&folder, &made).ends(0);

    let trained = slurm.sh(
        &folder,
        "PATH=$PWD/bin:$PATH; sbatch --wait train.sbatch --num-epochs \
        3; s=$?; cat slurm-1.out; exit $s",
    );
    trained.ends(0).out_has("loss fell from");
    assert!(
        folder.join("run-1/logs/trainer-3.log").is_file()
            && folder.join("run-1/model.pt").is_file(),
        "{}",
        trained.out
    );
    assert_eq!(slurm.state("1"), "COMPLETED 0:0");
    slurm.assert_clean();

    let begun = slurm.sh(
        &folder,
        "PATH=$PWD/bin:$PATH; sbatch --parsable train.sbatch --num-epochs 100000",
    );
    assert_eq!((begun.status, begun.out.trim()), (0, "2"), "{}", begun.err);
    let output = || std::fs::read_to_string(folder.join("slurm-2.out")).unwrap_or_default();
    soon("the job trains", || {
        output().contains("trainer 3] epoch 2 ")
    });
    let cancelled = Instant::now();
    slurm.0.call(&["exec", "1", "scancel", "2"]).ends(0);
    slurm.assert_clean();
    println!(
        "real DGL: scancel: all clean after {:.1} s",
        cancelled.elapsed().as_secs_f64()
    );
    assert!(
        slurm.state("2").starts_with("CANCELLED "),
        "{}: {}",
        slurm.state("2"),
        output()
    );
}

/// What ends a job, what Slurm says of it then, and what dgl-spawn said, if it could.
const ENDS: [(&str, &str, &str); 6] = [
    ("scancel", "CANCELLED 143:0", "by SIGTERM"),
    (
        "steps signalled",
        "FAILED 143:0",
        " ended by SIGTERM; it wrote no output",
    ),
    ("INT", "FAILED 130:0", "was stopped by SIGINT"),
    ("TERM", "FAILED 143:0", "was stopped by SIGTERM"),
    ("KILL", "FAILED 0:9", ""),
    (
        "trainer exits 1",
        "FAILED 1:0",
        "trainer 1 on host 1 (h2, 10.77.0.2) exited with status 1; its last line: the last \
         words of",
    ),
];

#[test]
fn real_hosts_under_slurm_whatever_ends_a_job_nothing_is_left() {
    let folder = scratch();
    let Some(slurm) = Slurm::up(2) else {
        return;
    };
    let jobs: Vec<Job> = (0..)
        .zip(ENDS)
        .map(|(nth, (end, ..))| Job::submit(&slurm, &folder, end, 31000 + 10 * nth))
        .collect();
    for job in &jobs {
        soon(&format!("{} runs", job.name), || {
            job.output().matches(r#""type":"listening""#).count() == 2
        });
    }
    let list =
        format!("{SRUN} printf 'h1\\nh2\\n' | ipconf-check - | dgl-reap --list >found.jsonl");
    let listed = slurm.within(&folder, &list);
    let found = read(&folder, "found.jsonl");
    listed.ends(0);
    // a server, a trainer and its daemon on each of two hosts
    assert_eq!(
        found.matches(r#""type":"found""#).count(),
        6 * jobs.len(),
        "{found}"
    );

    let begun = Instant::now();
    for (job, (end, ..)) in jobs.iter().zip(ENDS) {
        let happens = match end {
            "scancel" => slurm.sh(&folder, &format!("scancel {}", job.id)),
            "steps signalled" => slurm.sh(&folder, &format!("scancel --signal=TERM {}", job.id)),
            "trainer exits 1" => {
                slurm
                    .0
                    .call(&["exec", "2", "touch", &format!("/srv/{}-trainer", job.name)])
            }
            signal => slurm.sh(&folder, &format!("kill -{signal} $(cat {}.pid)", job.name)),
        };
        assert_eq!(happens.status, 0, "{end}: {}", happens.err);
    }
    slurm.assert_clean();
    println!("all clean after {:.1} s", begun.elapsed().as_secs_f64());
    for (job, (end, state, message)) in jobs.iter().zip(ENDS) {
        assert_eq!(slurm.state(&job.id), state, "{end}: {}", job.output());
        assert!(job.output().contains(message), "{end}: {}", job.output());
    }
}

/// A job whose trainers have daemons that ignore TERM.
struct Job {
    name: String,
    id: String,
    out: PathBuf,
}

impl Job {
    fn submit(slurm: &Slurm, folder: &Path, end: &str, port: u16) -> Job {
        let name = end.replace(' ', "-");
        let script = root().join("tests/tree.py");
        let mut records = String::new();
        for k in 0..2 {
            records += &format!(
                "{{\"type\":\"host\",\"id\":{k},\"of\":2,\"ip\":\"10.77.0.{0}\",\
                     \"port\":{port},\"name\":\"h{0}\"}}\n",
                k + 1
            );
        }
        for id in 0..4 {
            let (k, role) = (id / 2, ["server", "trainer"][id % 2]);
            let port = if role == "server" {
                format!(r#","port":{port},"env":{{"PORT":"{port}"}}"#)
            } else {
                String::new()
            };
            records += &format!(
                "{{\"type\":\"process\",\"id\":{id},\"of\":4,\"host\":{k},\
                     \"ip\":\"10.77.0.{}\",\"role\":\"{role}\",\"rank\":{k}{port},\
                     \"cwd\":\"/srv\",\"argv\":[\"{}\",\"{role}\",\"daemon\",\"{name}\",\
                     \"/srv\"]}}",
                k + 1,
                script.display()
            );
            records.push('\n');
        }
        write(folder, format!("{name}.jsonl"), records);
        let launch = format!(
            "#!/bin/sh\n{SRUN}echo $$ >{name}.pid; exec dgl-spawn --job {name} --grace 1s \
             <{name}.jsonl\n"
        );
        write(folder, format!("{name}.sbatch"), launch);
        let submitted = slurm.sh(
            folder,
            &format!("sbatch --parsable -N2 -o {name}.out -e {name}.err {name}.sbatch"),
        );
        submitted.ends(0);
        Job {
            id: submitted.out.trim().to_owned(),
            out: folder.join(format!("{name}.out")),
            name,
        }
    }

    /// Its records, and behind them what it said.
    fn output(&self) -> String {
        ["out", "err"]
            .map(|end| std::fs::read_to_string(self.out.with_extension(end)).unwrap_or_default())
            .concat()
    }
}

#[test]
fn real_hosts_copies_through_slurm_and_what_it_refuses() {
    let folder = scratch();
    let Some(slurm) = Slurm::up(3) else {
        return;
    };
    partition(&folder, 2);
    ip_config(&folder, 2);
    let random = "head -c 20000000 /dev/urandom >code/large; for k in 1 2 3 4 5; do echo $k \
        >code/small$k; done";
    sh(&folder, random).ends(0);
    let copy = format!(
        "{SRUN} scontrol show hostnames \"$SLURM_JOB_NODELIST\" | ipconf-check - | \
         host-probe --workspace /srv/job |
         part-map --part-config out/g.json --workspace /srv/job --script-folder code | part-push \
             --verify >pushed.jsonl &&
         part-pull --workspace /srv/job --to got code/large 'code/small*' <pushed.jsonl \
             >pulled.jsonl &&
         for k in 0 1; do cmp code/large got/h$k/code/large && cmp code/small3 \
             got/h$k/code/small3 || exit; done
         dgl-env --role worker -- sh -c 'echo $RANK on $(hostname)' <pushed.jsonl | dgl-spawn \
             --format human | sort"
    );
    slurm
        .within(&folder, &copy)
        .gives(0, "[h1 worker 0] 0 on h1\n[h2 worker 1] 1 on h2\n");

    // Debian's line for a machine's own name: DGL would take the address for every host; each host
    // can be asked for its own
    let hosts = slurm.0.lab.join("hosts");
    let text = std::fs::read_to_string(&hosts).unwrap();
    std::fs::write(&hosts, text.replace("10.77.0.1 h1", "127.0.1.1 h1")).unwrap();
    slurm
        .within(&folder, "scontrol show hostnames | ipconf-check -")
        .gives(65, "")
        .err_has("h1 resolves to 127.0.1.1 here");
    let asked = "export DGL_TOOLS_CONNECT='srun --overlap --unbuffered -N1 -n1 -w {name}'
        srun sh -c 'echo $(ip -4 -o addr show dev eth0) $SLURMD_NODENAME' |
          sed -E 's/.* inet ([0-9.]+).* /\\1,/' | sort -t, -k2 | sed '1i ip,name' > nodes.csv
        ipconf-check nodes.csv | host-probe | jq -r '.name + \" \" + .ip + \" \" + .iface'";
    slurm
        .within(&folder, asked)
        .gives(0, "h1 10.77.0.1 eth0\nh2 10.77.0.2 eth0\n");
    std::fs::write(&hosts, text).unwrap();

    // each as Slurm itself says it, with the host in front of it
    let host = |k: u32| {
        format!(
            "echo '{{\"type\":\"host\",\"id\":0,\"of\":1,\"ip\":\"10.77.0.{k}\",\
                 \"port\":30050,\"name\":\"h{k}\"}}'"
        )
    };
    let refused = |got: Ran, message: &str| {
        got.ends(74).err_has(message);
    };
    let no_such = slurm.within(&folder, &format!("{SRUN} {} | host-probe", host(9)));
    refused(
        no_such,
        "host-probe: host 0 (h9, 10.77.0.9): srun: error: Unable to create step for job ",
    );
    let outside = slurm.within(&folder, &format!("{SRUN} {} | dgl-reap --list", host(3)));
    refused(
        outside,
        "dgl-reap: host 0 (h3, 10.77.0.3): srun: error: Unable to create step for job ",
    );
    let missing = format!(
        "mkdir bin; ln -s /bin/sh bin; {SRUN} {} | PATH=${{PATH%%:*}}:bin host-probe",
        host(1)
    );
    refused(
        slurm.within(&folder, &missing),
        "host-probe: host 0 (h1, 10.77.0.1): sh: 1: exec: srun: not found",
    );

    // the first allocation has ended
    let ended = format!("export SLURM_JOB_ID=1; {SRUN} {} | host-probe", host(1));
    let ended = slurm.sh(&folder, &ended);
    ended.err_has("\n  fix: this Slurm job has ended");
    refused(ended, "host-probe: host 0 (h1, 10.77.0.1): srun: error: ");

    // without an allocation srun waits for one, but no longer than we do, and leaves no
    // job in the queue
    slurm.sh(
        &folder,
        "scontrol update nodename=h3 state=drain reason=test",
    );
    let queued = slurm.sh(
        &folder,
        &format!(
            "{SRUN} {} | DGL_TOOLS_CONNECT_TIMEOUT=2s host-probe",
            host(3)
        ),
    );
    refused(
        queued,
        "host-probe: host 0 (h3, 10.77.0.3): no answer within 2 s: srun: ",
    );
    soon("the queue is empty", || {
        slurm.sh(&folder, "squeue -h").out.is_empty()
    });

    // a host without power: srun waits for longer than we do
    let script = format!(
        "{SRUN} : >allocated; while [ -e allocated ]; do sleep 0.1; done; {} | \
         DGL_TOOLS_CONNECT_TIMEOUT=3s host-probe",
        host(2)
    );
    let dark = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| slurm.within(&folder, &script));
        soon("there is an allocation", || {
            folder.join("allocated").exists()
        });
        slurm.0.call(&["stop", "2"]);
        let begun = Instant::now();
        std::fs::remove_file(folder.join("allocated")).unwrap();
        let ran = waiting.join().unwrap();
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?}",
            begun.elapsed()
        );
        ran
    });
    refused(dark, "host-probe: host 0 (h2, 10.77.0.2): ");

    slurm.sh(&folder, "kill $(cat /srv/slurm/munged.pid)");
    let unknown = slurm.sh(&folder, &format!("{SRUN} {} | host-probe", host(1)));
    refused(unknown, "host-probe: host 0 (h1, 10.77.0.1): srun: error: ");
}

#[test]
fn real_hosts_dial_in_from_one_step_of_slurm() {
    let folder = scratch();
    let Some(slurm) = Slurm::up(4) else {
        return;
    };
    partition(&folder, 4);
    let within = |script: &str| {
        write(&folder, "within.sh", format!("{DIAL} {script}"));
        slurm.sh(&folder, "salloc -Q -N4 sh within.sh")
    };
    let ran = within(
        "scontrol show hostnames | ipconf-check - | host-probe --workspace /srv/job |
         part-map --part-config out/g.json --workspace /srv/job --script-folder code |
         part-push --verify >pushed.jsonl &&
         dgl-env --role worker -- sh -c 'tail -n 1 \"data/part$RANK/graph.dgl\"; echo' \
             <pushed.jsonl | dgl-spawn --format human | sort",
    );
    let lines = (0..4).map(|k| format!("[h{} worker {k}] graph of part {k}\n", k + 1));
    assert_eq!(
        (ran.status, ran.out),
        (0, lines.collect::<String>()),
        "{}",
        ran.err
    );
    slurm.assert_clean();

    // a home that the nodes do not share: the agent by sbcast, the ticket by srun's stdin
    within(
        "sbcast -f \"$(command -v host-agent)\" /tmp/host-agent-$SLURM_JOB_ID || exit
         export DGL_TOOLS_CONNECT=\"dial srun --overlap -N{count} -w {names} --ntasks-per-node=1 \
             /tmp/host-agent-$SLURM_JOB_ID dial {stdin}\"
         trap 'srun --overlap --ntasks-per-node=1 rm -f /tmp/host-agent-$SLURM_JOB_ID' EXIT
         scontrol show hostnames | ipconf-check - | dgl-reap --list",
    )
    .ends(0);
    let left = slurm.sh(&folder, "srun -N4 ls /tmp");
    left.ends(0).out_lacks("host-agent-");

    // a process that fails, and a step that is ended from outside
    within(
        "dgl-env --role worker -- sh -c '[ $RANK != 2 ] || exit 7; sleep 60' <pushed.jsonl | \
         dgl-spawn --no-preflight --grace 1s",
    )
    .ends(7);
    let ended = within(
        "dgl-env --role worker -- sh -c 'sleep 3; scancel $SLURM_JOB_ID.0; sleep 60' \
         <pushed.jsonl | dgl-spawn --no-preflight --grace 1s --host-timeout 10s",
    );
    assert_ne!(ended.status, 0, "{}", ended.err);
    slurm.assert_clean();
}
