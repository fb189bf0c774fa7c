//! Engines that hosts belong to: kubectl and docker, by stand-ins with their calling convention
//! (tests/cluster/engine.py); the real nsenter. The tools run on this machine, from which no
//! network leads to the hosts: all goes through the engine.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{
    Cluster, Ran, assert_has, make_folder, partition, path, root, scratch, sh, shells, soon, write,
};

const KUBECTL: &str = "kubectl exec -i {name} --";

struct Engine {
    cluster: Cluster,
    folder: PathBuf,
}

impl Engine {
    fn up() -> Engine {
        let folder = scratch();
        let cluster = Cluster::up(2);
        make_folder(&folder, "bin");
        for engine in ["kubectl", "docker"] {
            symlink(
                root().join("tests/cluster/engine.py"),
                folder.join("bin").join(engine),
            )
            .unwrap();
        }
        let pods = "ip,name\n10.77.0.1,h1\n10.77.0.2,h2\n";
        write(&folder, "pods.csv", pods);
        sh(&folder, "ipconf-check pods.csv >hosts.jsonl").ends(0);
        Engine { cluster, folder }
    }

    /// What stands in front of a script.
    fn route(&self, template: &str) -> String {
        format!(
            "export LAB='{}' PATH=\"$PWD/bin:$PATH\" DGL_TOOLS_CONNECT='{template}'; ",
            self.cluster.lab.display()
        )
    }

    fn sh(&self, template: &str, script: &str) -> Ran {
        sh(&self.folder, &(self.route(template) + script))
    }

    /// dgl-spawn with a worker a host; its records in NAME.out.
    fn launch(&self, name: &str, template: &str, command: &str) -> Child {
        let script = format!(
            "{} dgl-env --workspace /srv --role worker -- {command} <hosts.jsonl >{name}.jsonl; \
             exec dgl-spawn --job {name} --grace 1s <{name}.jsonl >{name}.out 2>{name}.err",
            self.route(template)
        );
        let mut launch = support::command("sh");
        launch
            .args(["-c", &script])
            .current_dir(&self.folder)
            .env("PATH", path())
            .stdin(Stdio::null());
        let child = launch.spawn().unwrap();
        soon("both workers run", || {
            read(&self.folder.join(format!("{name}.out")))
                .matches(r#""type":"started""#)
                .count()
                == 2
        });
        child
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn kill(signal: &str, pid: u32) {
    assert!(
        Command::new("kill")
            .args([format!("-{signal}"), pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn real_hosts_the_whole_path_through_engines() {
    let engine = Engine::up();
    partition(&engine.folder, 2);
    // a process of each host; without root there is a user namespace around all hosts
    let pids =
        "mkdir pids; for host in h1 h2; do pgrep -P $(cat $LAB/$host/pid) >pids/$host; done; id -u";
    let root = engine.sh(KUBECTL, pids).out.trim() == "0";
    // not -a: nobody but root may enter a control group's namespace, the own one either
    let user = if root {
        ""
    } else {
        "-U --preserve-credentials "
    };
    let nsenter = format!("nsenter -t $(cat pids/{{name}}) {user}-n -m -p -u -i --");
    for (nth, template) in [KUBECTL, "docker exec -i {name}", &nsenter]
        .into_iter()
        .enumerate()
    {
        let script = format!(
            "host-probe --workspace /srv/job{nth} <hosts.jsonl | part-map --part-config \
             out/g.json --workspace /srv/job{nth} --script-folder code |
             part-push --verify >pushed.jsonl && part-pull --workspace /srv/job{nth} --to \
                 got{nth} 'data/*/graph.dgl' <pushed.jsonl >pulled.jsonl &&
             cmp out/part1/graph.dgl got{nth}/h1/data/part1/graph.dgl && dgl-env --role worker -- \
                 sh 'code/run it.sh' \"two  words, \\$HOME\" <pushed.jsonl | dgl-spawn --format \
                 human | sort &&
             dgl-reap --list --format human <hosts.jsonl"
        );
        let ran = engine.sh(template, &script);
        let lines: Vec<_> = ran.out.lines().collect();
        let expected = [
            "[h1 worker 0] graph of part 0",
            "[h1 worker 0] two  words, $HOME",
            "[h2 worker 1] graph of part 1",
            "[h2 worker 1] two  words, $HOME",
        ];
        assert_eq!(
            (ran.status, lines.as_slice()),
            (0, expected.as_slice()),
            "{template}: {}",
            ran.err
        );
        assert!(
            !ran.err.contains("Defaulted"),
            "what the engine writes before the agent runs is nobody's output: {}",
            ran.err
        );
    }
    engine.cluster.assert_clean();
}

#[test]
fn real_hosts_what_an_engine_says_is_not_what_the_job_says() {
    let engine = Engine::up();
    let run = |command: &str| {
        engine.sh(
            KUBECTL,
            &format!(
                "dgl-env --workspace /srv --role worker -- {command} \
                <hosts.jsonl | dgl-spawn --grace 1s --format human"
            ),
        )
    };
    // the job's, even in the engine's words
    run(
        "sh -c 'echo \"error: unable to upgrade connection\" >&2; [ $RANK = 0 ] || exit 3; sleep \
         60'",
    )
    .ends(3)
    .out_has("[h2 worker 1] error: unable to upgrade connection\n")
    .err_has("worker 1 on host 1 (h2, 10.77.0.2) exited with status 3; its last line: ")
    .err_lacks("kubectl")
    .out_lacks("Defaulted");

    // the engine's: what was there and is stopped, what is not there
    engine.cluster.call(&["stop", "2"]);
    let stopped = run("true");
    stopped.gives(74, "");
    let words = "dgl-spawn: host 1 (h2, 10.77.0.2): kubectl: error: unable to upgrade connection: \
        container not found (\"trainer\")\n";
    stopped.err_has(words).err_has("nothing was started");
    engine.cluster.call(&["start", "2"]);
    for (template, words) in [
        (
            "kubectl exec -i x{id} --",
            "host 1 (h2, 10.77.0.2): kubectl: Error from server (NotFound): pods \"x1\" not \
             found\n",
        ),
        (
            "docker exec -i x{id}",
            "host 1 (h2, 10.77.0.2): docker: Error response from daemon: No such container: x1\n",
        ),
    ] {
        for tool in [
            "host-probe",
            "dgl-reap --list",
            "part-pull --workspace /srv --to got x",
        ] {
            engine
                .sh(template, &format!("{tool} <hosts.jsonl"))
                .ends(74)
                .err_has(words);
        }
    }

    // the engine's program dies in the middle: its host is lost, the job is ended on the other, and
    // there by its own watch
    let mut lost = engine.launch("lost", KUBECTL, "sleep 300");
    let client = sh(
        &engine.folder,
        &format!("pgrep -P {} -f 'exec -i h2 '", lost.id()),
    );
    kill("KILL", client.out.trim().parse().unwrap());
    assert_eq!(lost.wait().unwrap().code(), Some(74));
    let err = read(&engine.folder.join("lost.err"));
    assert_has(
        &err,
        "host 1 (h2, 10.77.0.2) was lost: kubectl: the connection ended \
         unexpectedly; signal: 9 (SIGKILL)",
    );
    engine.cluster.assert_clean();
}

#[test]
fn real_hosts_nothing_is_left_behind_an_engine() {
    let engine = Engine::up();
    let daemon = format!("python3 {}/tests/tree.py trainer daemon", root().display());
    for (signal, status) in [("KILL", None), ("TERM", Some(143)), ("INT", Some(130))] {
        let mut job = engine.launch(signal, KUBECTL, &format!("{daemon} {signal} /srv"));
        // shared memory that is not a second old when its last process is killed can have been
        // overlooked
        std::thread::sleep(Duration::from_millis(1500));
        kill(signal, job.id());
        assert_eq!(job.wait().unwrap().code(), status, "{signal}");
        engine.cluster.assert_clean();
    }
}

/// As Slurm does at a time limit, or a node that goes down.
#[test]
fn real_hosts_a_signal_to_all_that_is_on_a_host_is_for_the_processes() {
    let engine = Engine::up();
    write(
        &engine.folder,
        "save.sh",
        "trap 'echo saved; exit 5' TERM; while :; do sleep 0.1; done\n",
    );
    for shell in shells() {
        let template = format!("{KUBECTL} sh -c \"shift; exec {shell} \\\"\\$@\\\"\" x");
        let name = shell.replace(' ', "-");
        let mut job = engine.launch(
            &name,
            &template,
            &format!("sh {}/save.sh", engine.folder.display()),
        );
        engine.cluster.on(2, "kill -TERM -1").ends(0);
        let status = job.wait().unwrap().code();
        let (out, err) = (
            read(&engine.folder.join(format!("{name}.out"))),
            read(&engine.folder.join(format!("{name}.err"))),
        );
        assert_eq!(status, Some(5), "{shell}: {err}");
        assert!(
            err.contains("worker 1 on host 1 (h2, 10.77.0.2) exited with status 5")
                && err.contains(" saved\n"),
            "{shell}: {err}"
        );
        assert!(out.contains(r#""line":"saved""#), "{shell}: {out}");
        engine.cluster.assert_clean();
    }
}
