//! Agents that dial in: one command starts them on all hosts, and they connect to the tool. The
//! command is a stand-in for srun or mpirun, which starts agents under names of its own at once.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use support::{
    Cluster, Ran, assert_has, command, executable, ip_config, make_folder, partition, path, read,
    scratch, sh, soon, write,
};

/// `engine AGENT NAME...`: starts the agent under each name, and waits for all of them.
const ENGINE: &str = "#!/bin/sh\nagent=$1; shift\necho \"$agent $*\" >>engine.log\n\
    for name; do SLURMD_NODENAME=$name \"$agent\" & done\nwait\n";

struct Lab {
    folder: PathBuf,
}

impl Lab {
    /// A directory with the stand-in, and the records of this many hosts, which are known by their
    /// names alone.
    fn new(hosts: u32) -> Lab {
        let folder = scratch();
        executable(&folder, "engine", ENGINE);
        let record = |id: u32| {
            format!(
                "{{\"type\":\"host\",\"id\":{id},\"of\":{hosts},\"ip\":\"127.0.1.{0}\",\
                 \"port\":30050,\"name\":\"n{0}\"}}\n",
                id + 1
            )
        };
        let records: String = (0..hosts).map(record).collect();
        write(&folder, "hosts.jsonl", records);
        Lab { folder }
    }

    /// What stands in front of a script: nobody else's directories.
    fn route(&self) -> String {
        "export HOME=$PWD/home XDG_CACHE_HOME=$PWD/cache DGL_TOOLS_CONNECT_TIMEOUT=60s; unset \
         DGL_TOOLS_AGENT_DIR; "
            .to_owned()
    }

    fn sh(&self, script: &str) -> Ran {
        sh(&self.folder, &(self.route() + script))
    }

    /// A script that is not waited for.
    fn begin(&self, script: &str) -> Child {
        command("sh")
            .args(["-c", &(self.route() + script)])
            .current_dir(&self.folder)
            .env("PATH", path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// A job of a worker a host: shell text. By hand, because dgl-env refuses hosts that others
    /// cannot reach.
    fn plan(&self, text: &str) {
        let hosts = self.read("hosts.jsonl");
        let of = hosts.lines().count();
        let process = |id: usize| {
            let record = serde_json::json!({
                "type": "process", "id": id, "of": of, "host": id,
                "ip": format!("127.0.1.{}", id + 1), "role": "worker", "rank": id,
                "cwd": self.folder, "env": {"RANK": id.to_string()}, "argv": ["sh", "-c", text],
            });
            format!("{record}\n")
        };
        let processes: String = (0..of).map(process).collect();
        write(&self.folder, "job.jsonl", hosts + &processes);
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Processes of agents that lie in this test's own directory.
    fn agents(&self) -> String {
        let cache = self.folder.join("cache");
        sh(&self.folder, &format!("pgrep -af '^{}'", cache.display())).out
    }

    /// No agent, no command, no ticket.
    fn assert_clean(&self) {
        soon("no agent is left", || self.agents().is_empty());
        soon("no ticket is left", || self.tickets().is_empty());
    }

    fn tickets(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.folder.join("cache/dgl-tools"));
        let names = all
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        names
            .filter(|path| {
                path.file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with("dial-")
            })
            .collect()
    }
}

fn kill(signal: &str, pid: &str) {
    sh(Path::new("/"), &format!("kill -{signal} {pid}")).ends(0);
}

#[test]
fn slow_one_command_carries_the_whole_path() {
    let lab = Lab::new(1);
    partition(&lab.folder, 1);
    write(&lab.folder, "ip.txt", "127.0.0.1 31000\n");
    let script = "export DGL_TOOLS_CONNECT='dial ./engine {agent} any' \
        DGL_TOOLS_DIAL_ADDRESS=127.0.0.1
        ipconf-check ip.txt | host-probe --workspace \"$PWD/ws\" | part-map --part-config \
            out/g.json --workspace \"$PWD/ws\" | part-push --verify >pushed.jsonl &&
        part-pull --workspace \"$PWD/ws\" --to got data/part0/graph.dgl <pushed.jsonl >/dev/null &&
        cmp got/data/part0/graph.dgl out/part0/graph.dgl &&
        dgl-env --role worker -- sh -c 'tail -n 1 data/part0/graph.dgl; echo' <pushed.jsonl |
            dgl-spawn --format human && ipconf-check ip.txt | dgl-reap --list --format human \
                >list.txt";
    lab.sh(script)
        .gives(0, "[127.0.0.1 worker 0] graph of part 0\n");
    // host-probe, part-push, part-pull, dgl-spawn, dgl-reap
    assert_eq!(lab.read("engine.log").lines().count(), 5);
    lab.assert_clean();
}

#[test]
fn hosts_are_known_by_their_names_and_each_has_its_part() {
    let lab = Lab::new(3);
    lab.plan("echo $RANK on $SLURMD_NODENAME");
    let ran = lab.sh(
        "dgl-spawn --no-preflight --format human --connect 'dial ./engine {agent} n3 n1 n2' \
         <job.jsonl | sort",
    );
    let lines = "[n1 worker 0] 0 on n1\n[n2 worker 1] 1 on n2\n[n3 worker 2] 2 on n3\n";
    ran.gives(0, lines);
    lab.assert_clean();
}

#[test]
fn lists_of_hosts_stand_where_the_command_wants_them() {
    let lab = Lab::new(2);
    executable(
        &lab.folder,
        "lists",
        "#!/bin/sh\necho \"$1 $2 $3\" >lists.log; for name in $(echo \"$1\" | tr , ' '); do \
         SLURMD_NODENAME=$name \"$4\" & done; wait\n",
    );
    lab.sh(
        "dgl-reap --list --connect 'dial ./lists {names} {ips} {count}' <hosts.jsonl >/dev/null",
    )
    .ends(0);
    assert_eq!(lab.read("lists.log"), "n1,n2 127.0.1.1,127.0.1.2 2\n");
}

#[test]
fn slow_a_host_that_does_not_dial_in_is_named_and_others_are_not() {
    let lab = Lab::new(3);
    lab.sh(
        "DGL_TOOLS_CONNECT_TIMEOUT=3s dgl-reap --list --connect 'dial ./engine {agent} n1 n3' \
         <hosts.jsonl >/dev/null",
    )
    .ends(74)
    .err_has("host 1 (n2, 127.0.1.2): it did not dial in within 3 s")
    .err_lacks("host 0")
    .err_lacks("host 2");
    lab.assert_clean();
}

/// Such as the address of a router in front of it, which nobody has set up here.
#[test]
fn agents_dial_the_address_that_was_said() {
    let lab = Lab::new(1);
    executable(&lab.folder, "shows", "#!/bin/sh\ncat \"$1\" >ticket\n");
    lab.sh(
        "DGL_TOOLS_DIAL_ADDRESS=192.0.2.1 DGL_TOOLS_DIAL_PORT=31997 DGL_TOOLS_CONNECT_TIMEOUT=1s \
         dgl-reap --list --connect 'dial ./shows {ticket}' <hosts.jsonl",
    )
    .ends(74)
    .err_has("dials 192.0.2.1:31997 (");
    assert!(
        lab.read("ticket").contains("[\"192.0.2.1:31997\"]"),
        "{}",
        lab.read("ticket")
    );
    lab.assert_clean();
}

#[test]
fn slow_who_was_not_asked_for_or_comes_later_is_named_and_harms_nobody() {
    let lab = Lab::new(2);
    lab.plan(": >began; sleep 3; echo well");
    // the one nobody asked for is there before the last that is; the second of n1 when it serves
    executable(
        &lab.folder,
        "more",
        "#!/bin/sh\n./engine \"$1\" n1 n9 &\nuntil [ \"$(ss -Htn state established \
         'dport = :31998' | wc -l)\" -ge 2 ]; do sleep 0.1; done\n./engine \"$1\" n2 &\n\
         until [ -e began ]; do sleep 0.1; done\n./engine \"$1\" n1; wait\n",
    );
    let ran = lab.sh(
        "PATH=$PATH:/usr/sbin:/sbin; DGL_TOOLS_DIAL_PORT=31998 dgl-spawn --no-preflight \
         --format human --connect 'dial ./more {agent}' <job.jsonl | sort",
    );
    ran.gives(0, "[n1 worker 0] well\n[n2 worker 1] well\n");
    let message = |start: &str| {
        let mut lines = ran.err.lines().filter(|line| line.starts_with(start));
        assert!(
            lines.next().is_some() && lines.next().is_none(),
            "{start}: {}",
            ran.err
        );
    };
    message("dgl-spawn: dialed in twice: ");
    message("dgl-spawn: unexpected agents dialed in: ");
    lab.assert_clean();
}

/// Which of two is the host nobody can tell here: it may be the second that was taken over.
#[test]
fn slow_a_host_that_two_agents_claim_to_be_is_refused() {
    let lab = Lab::new(2);
    executable(
        &lab.folder,
        "more",
        "#!/bin/sh\nSLURM_NODEID=4 ./engine \"$1\" n1 &\nSLURM_NODEID=5 ./engine \"$1\" n1 &\n\
         until [ \"$(ss -Htn state established 'dport = :31996' | wc -l)\" -ge 2 ]; do sleep 0.1; \
         done\n./engine \"$1\" n2; wait\n",
    );
    let ran = lab.sh(
        "PATH=$PATH:/usr/sbin:/sbin; DGL_TOOLS_DIAL_PORT=31996 dgl-reap --list --connect \
         'dial ./more {agent}' <hosts.jsonl",
    );
    ran.ends(74);
    for message in [
        "host 0 (n1, 127.0.1.1): several agents dialed in as this host: n1 (127.0.0.1, SLURM_NO",
        "SLURM_NODEID 4)",
        "SLURM_NODEID 5)",
    ] {
        ran.err_has(message);
    }
    ran.err_lacks("host 1");
    lab.assert_clean();
}

/// The ticket is shared, so a host that was taken over has it too.
#[test]
fn slow_an_agent_that_connects_from_another_address_is_not_the_host_it_names() {
    let lab = Lab::new(1);
    // documentation addresses, of no machine
    let hosts = lab.read("hosts.jsonl").replace("127.0.1.1", "192.0.2.1");
    write(&lab.folder, "hosts.jsonl", hosts);
    let list = |how: &str| {
        lab.sh(&format!(
            "DGL_TOOLS_DIAL_ADDRESS=127.0.0.1 DGL_TOOLS_CONNECT_TIMEOUT=3s dgl-reap --list \
             --connect '{how} ./engine {{agent}} n1' <hosts.jsonl"
        ))
    };
    let refused = list("dial");
    refused.ends(74);
    for message in [
        "host 0 (n1, 192.0.2.1): n1 (127.0.0.1) reports that it is this host, which has \
         another address",
        "admit agents by the names that they report: --connect 'dial-by-name ...'",
    ] {
        refused.err_has(message);
    }
    list("dial-by-name").ends(0);
    lab.assert_clean();
}

/// As one that removes the pods it has made.
#[test]
fn the_command_may_do_more_after_its_agents_have_left() {
    let lab = Lab::new(2);
    let cleans = format!("{ENGINE}sleep 0.5\n: >cleaned\n");
    executable(&lab.folder, "engine", &cleans);
    lab.sh("dgl-reap --list --connect 'dial ./engine {agent} n1 n2' <hosts.jsonl")
        .ends(0);
    assert!(lab.folder.join("cleaned").exists(), "it was ended");
    lab.assert_clean();
}

/// What a script has started and does not wait for is of its process group.
#[test]
fn slow_all_that_the_command_has_started_ends_with_the_tool() {
    let lab = Lab::new(1);
    executable(
        &lab.folder,
        "starts",
        "#!/bin/sh\nsleep 600 & echo $! >pids\n(trap '' TERM; exec sleep 600) & echo $! >>pids\n",
    );
    lab.sh(
        "DGL_TOOLS_CONNECT_TIMEOUT=1s dgl-reap --list --connect 'dial ./starts {agent}' \
         <hosts.jsonl",
    )
    .ends(74);
    let pids = lab.read("pids");
    assert_eq!(pids.lines().count(), 2, "{pids}");
    for pid in pids.lines() {
        // one that nobody has waited for stays as a zombie
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
    lab.assert_clean();
}

#[test]
fn slow_a_command_that_fails_says_why() {
    let lab = Lab::new(2);
    executable(
        &lab.folder,
        "refuses",
        "#!/bin/sh\necho 'error: no such partition' >&2; exit 9\n",
    );
    let refusals = [
        (
            "outside",
            "Unable to create step for job 1: Requested nodes not in this allocation",
        ),
        (
            "ended",
            "Unable to confirm allocation for job 1: Invalid job",
        ),
    ];
    for (name, words) in refusals {
        let script = format!("#!/bin/sh\necho 'srun: error: {words}' >&2; exit 1\n");
        executable(&lab.folder, name, &script);
    }
    executable(&lab.folder, "orders", "#!/bin/sh\necho submitted >&2\n");
    executable(
        &lab.folder,
        "queues",
        "#!/bin/sh\necho waiting >&2; exec sleep 60\n",
    );
    let table = [
        (
            "dial ./refuses",
            74,
            "--connect: ./refuses ended with status 9 before a host dialed in: error: no such \
             partition\n  fix: the command failed, so mend what it reports; it must be able to \
             start the agent of ",
        ),
        (
            "dial ./refuses dial {stdin}",
            74,
            "it must be able to start `host-agent dial` on each host\n",
        ),
        (
            "dial ./outside",
            74,
            "\n  fix: this Slurm job has no such node, or not what the command requests of it",
        ),
        (
            "dial ./ended",
            74,
            "a new job on them (sbatch -w NODES) can fetch the files",
        ),
        (
            "dial ./missing",
            74,
            "ended with status 127 before a host dialed in: ",
        ),
        (
            "dial ./orders",
            74,
            "no host dialed in within 1 s; ./orders ended with status 0: submitted\n",
        ),
        (
            "dial ./queues",
            74,
            "no host dialed in within 1 s; ./queues said: waiting\n",
        ),
        ("dial", 2, "dial needs the command that starts the agents"),
        (
            "dial srun -w {name}",
            2,
            "{name} stands for one host, but dial runs its command once",
        ),
    ];
    for (command, status, message) in table {
        let ran = lab.sh(&format!(
            "DGL_TOOLS_CONNECT_TIMEOUT=1s dgl-reap --list --connect '{command}' <hosts.jsonl"
        ));
        ran.ends(status);
        // once, not for each host
        ran.err_has_times(message, 1);
        // nothing is waited for where no agent came
        ran.err_lacks("did not end");
        lab.assert_clean();
    }
}

/// One that has another run's secret, one that speaks no TLS, and more that say nothing than the
/// tool may have files open, up to its end.
#[test]
fn slow_strangers_get_nowhere_and_keep_nobody_out() {
    let lab = Lab::new(2);
    lab.plan("echo well");
    let strangers = "import json, os, socket, subprocess, sys\n\
        ticket = json.load(open(sys.argv[2]))\n\
        host, port = ticket['addresses'][0].split(':')\n\
        hold = 'import socket, sys, time\\nheld = []\\nfor _ in range(350): '\n\
        hold += 'held.append(socket.create_connection((sys.argv[1], int(sys.argv[2]))))\\n'\n\
        hold += 'held[0].sendall(b\"GET / HTTP/1.1\")\\nprint(flush=True)\\ntime.sleep(600)'\n\
        holders = [subprocess.Popen([sys.executable, '-c', hold, host, port],\n\
            stdout=subprocess.PIPE) for _ in range(3)]\n\
        for one in holders: one.stdout.readline()\n\
        old = json.load(open('old'))\n\
        ticket['secret'], ticket['patience_ms'] = old['secret'], 1\n\
        open('wrong', 'w').write(json.dumps(ticket))\n\
        wrong = subprocess.run([sys.argv[3], 'dial', 'wrong'], capture_output=True)\n\
        open('wrong.err', 'wb').write(wrong.stderr)\n\
        subprocess.run(['./engine', sys.argv[1], 'n1', 'n2'])\n\
        for one in holders: one.kill()\n";
    write(&lab.folder, "strangers.py", strangers);
    executable(
        &lab.folder,
        "first",
        "#!/bin/sh\ncp \"$2\" old; exec ./engine \"$1\" n1 n2\n",
    );
    let earlier =
        lab.sh("dgl-reap --list --connect 'dial ./first {agent} {ticket}' <hosts.jsonl >/dev/null");
    earlier.ends(0);
    lab.sh(
        "ulimit -n 400; agent=$(ls cache/dgl-tools/host-agent-*); export agent
         DGL_TOOLS_DIAL_PORT=31999 dgl-spawn --no-preflight --format human --connect \
         'dial python3 strangers.py {agent} {ticket} '\"$PWD/$agent\" <job.jsonl | sort",
    )
    .gives(0, "[n1 worker 0] well\n[n2 worker 1] well\n")
    .err_has("without the secret of this run refused, the last from 127.0.0.1");
    lab.assert_clean();
}

#[test]
fn slow_the_secret_is_in_a_file_of_the_users_alone() {
    let lab = Lab::new(1);
    lab.plan("env; sleep 3");
    executable(
        &lab.folder,
        "looks",
        "#!/bin/sh\ncp \"$2\" ticket; stat -c %a \"$2\" \"${2%/*}\" >modes; env >engine.env\n\
         SLURMD_NODENAME=n1 \"$1\" & sleep 1; tr '\\0' ' ' </proc/$!/cmdline >command; wait\n",
    );
    let ran = lab.sh(
        "dgl-spawn --no-preflight --format human --connect 'dial ./looks {agent} {ticket}' \
         <job.jsonl",
    );
    ran.ends(0);
    let ticket: serde_json::Value = serde_json::from_str(&lab.read("ticket")).unwrap();
    let secret = ticket["secret"].as_str().unwrap();
    assert!(secret.len() > 60 && lab.read("command").contains(" dial "));
    assert_eq!(lab.read("modes"), "600\n700\n");
    for location in ["command", "engine.env"] {
        assert!(!lab.read(location).contains(secret), "{location}");
    }
    ran.out_lacks(secret).out_has("RANK=0");
}

/// Where hosts share no directory, the ticket comes over stdin or in the environment.
#[test]
fn a_ticket_comes_over_stdin_or_in_the_environment_too() {
    let lab = Lab::new(2);
    lab.plan("env");
    let before = "a=$(dirname $(command -v dgl-spawn))/host-agent; export a; ";
    let spawn = "dgl-spawn --no-preflight --format human --connect";
    executable(
        &lab.folder,
        "by-stdin",
        "#!/bin/sh\nread -r t\nfor n in n1 n2; do echo \"$t\" | SLURMD_NODENAME=$n \"$a\" dial \
         \"$1\" & done; wait\n",
    );
    executable(
        &lab.folder,
        "by-env",
        "#!/bin/sh\nexport DGL_TOOLS_DIAL=\"$(cat \"$1\")\"\nfor n in n1 n2; do \
         SLURMD_NODENAME=$n \"$a\" dial & done; wait\n",
    );
    for command in ["./by-stdin {stdin}", "./by-env {ticket}"] {
        lab.sh(&format!("{before}{spawn} 'dial {command}' <job.jsonl"))
            .ends(0)
            .out_has_times("RANK=", 2)
            .out_lacks("DGL_TOOLS_DIAL=");
    }
}

/// As pods of a job do that share a volume with the tool.
#[test]
fn agents_that_wait_take_one_ticket_after_the_other() {
    let lab = Lab::new(2);
    lab.plan("echo well");
    let pod = "#!/bin/sh\n. ./own\nuntil [ -e stop ]; do [ ! -e volume/ticket ] || \
        SLURMD_NODENAME=$1 $a dial volume/ticket 2>>pod.err; sleep 0.1; done\n";
    executable(&lab.folder, "pod", pod);
    make_folder(&lab.folder, "volume");
    let mut pods = lab.begin(
        "echo a=$(dirname $(command -v dgl-spawn))/host-agent >own; ./pod n1 & ./pod n2 & wait",
    );
    let connect = "--connect 'dial cp {ticket} volume/ticket'";
    for _ in 0..2 {
        lab.sh(&format!(
            "dgl-spawn --no-preflight --format human {connect} <job.jsonl | sort"
        ))
        .gives(0, "[n1 worker 0] well\n[n2 worker 1] well\n");
    }
    write(&lab.folder, "stop", "");
    pods.wait().unwrap();
    lab.assert_clean();
}

#[test]
fn slow_an_agent_that_is_lost_is_a_lost_host_and_a_restart_starts_it_again() {
    let lab = Lab::new(2);
    lab.plan("[ -e again ] || exec sleep 600");
    let mut job = lab.begin(
        "exec dgl-spawn --no-preflight --restart 1 --grace 1s --host-timeout 6s --connect \
         'dial ./engine {agent} n1 n2' <job.jsonl >out.jsonl 2>err",
    );
    soon("both workers run", || {
        lab.read("out.jsonl").matches("\"started\"").count() == 2
    });
    let agents = lab.agents();
    let agent = agents.lines().find(|line| {
        let pid = line.split(' ').next().unwrap();
        fs::read_to_string(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.contains("SLURMD_NODENAME=n2\0"))
    });
    write(&lab.folder, "again", "");
    kill("KILL", agent.unwrap().split(' ').next().unwrap());
    let status = job.wait().unwrap();
    assert!(status.success(), "{}", lab.read("err"));
    let message =
        "host 1 (n2, 127.0.1.2) was lost: its agent had dialed in, but the connection was lost";
    assert!(lab.read("err").contains(message), "{}", lab.read("err"));
    assert_eq!(lab.read("engine.log").lines().count(), 2);
    lab.assert_clean();
}

#[test]
fn a_tool_that_is_killed_leaves_nothing() {
    let lab = Lab::new(2);
    lab.plan("echo $$ >worker-$RANK.pid; exec sleep 600");
    let mut job = lab.begin(
        "exec dgl-spawn --no-preflight --grace 1s --connect 'dial ./engine {agent} n1 n2' \
         <job.jsonl >out.jsonl 2>err",
    );
    soon("both workers run", || {
        ["worker-0.pid", "worker-1.pid"]
            .iter()
            .all(|name| !lab.read(name).is_empty())
    });
    kill("KILL", &job.id().to_string());
    job.wait().unwrap();
    for name in ["worker-0.pid", "worker-1.pid"] {
        let location = PathBuf::from("/proc").join(lab.read(name).trim());
        soon("the worker is gone", || !location.exists());
    }
    lab.assert_clean();
}

/// The stand-in for an engine on real hosts: an agent on each at once.
const BY_SSH: &str = "#!/bin/sh\nagent=$1; shift\nfor host; do ssh \"$host\" \"$agent\" & done; \
    wait\n";

#[test]
fn real_hosts_dial_in_from_the_cards_that_reach_the_tool() {
    let (folder, cluster) = Cluster::listed(3);
    partition(&folder, 3);
    executable(&folder, "engine", BY_SSH);
    let route = "export DGL_TOOLS_CONNECT='dial ./engine {agent} h1 h2 h3'; ";
    let script = format!(
        "{route} ipconf-check ip.txt | host-probe --workspace /srv/job | part-map --part-config \
             out/g.json --workspace /srv/job --script-folder code | part-push --verify \
             >pushed.jsonl && dgl-env --role worker -- sh 'code/run it.sh' 'two  words' \
             <pushed.jsonl | dgl-spawn --format human | sort &&
         part-pull --workspace /srv/job --to got 'data/*/graph.dgl' <pushed.jsonl >/dev/null &&
         cmp out/part2/graph.dgl got/h2/data/part2/graph.dgl"
    );
    let ran = cluster.sh(&folder, &script);
    ran.ends(0);
    for part in 0..3 {
        let line = format!(
            "[10.77.0.{} worker {part}] graph of part {part}\n",
            part + 1
        );
        ran.out_has(&line);
    }
    cluster.sh(
        &folder,
        "ipconf-check ip.txt | dgl-stacks --job none --connect 'dial ./engine {agent} h1 h2 h3'",
    ).err_has("no process of job none on any host");
    cluster.assert_clean();
}

/// Open MPI's own: a tool's whole life, and nothing of mpirun's stays.
#[test]
#[ignore = "needs Open MPI: make test-mpirun"]
fn real_hosts_dial_in_that_mpirun_starts() {
    let folder = scratch();
    sh(&folder, "command -v mpirun").ends(0);
    let cluster = Cluster::up(3);
    ip_config(&folder, 3);
    write(&folder, "src/file", "to all\n");
    // mpirun does not like root, and looks for the other hosts' answers on all of its cards
    let route = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
         DGL_TOOLS_CONNECT_TIMEOUT=60s \
         DGL_TOOLS_CONNECT='dial mpirun --mca plm_rsh_args -oConnectTimeout=5 --host {ips} \
         --map-by ppr:1:node --bind-to none {agent}'; ";
    let script = format!(
        "{route} ipconf-check ip.txt | host-probe >hosts.jsonl &&
         part-map --workspace /srv/job --extra src <hosts.jsonl | part-push >pushed.jsonl &&
         dgl-env --workspace /srv/job --role worker -- cat src/file <pushed.jsonl |
         dgl-spawn --format human | sort"
    );
    let ran = cluster.sh(&folder, &script);
    ran.ends(0);
    for host in 1..=3 {
        let line = format!("[10.77.0.{host} worker {}] to all\n", host - 1);
        ran.out_has(&line);
    }
    // a host that mpirun cannot reach
    cluster.call(&["stop", "3"]);
    let script = format!("{route} ipconf-check ip.txt | DGL_TOOLS_CONNECT_TIMEOUT=20s host-probe");
    cluster.sh(&folder, &script).ends(74).err_has("mpirun");
    cluster.assert_clean();
}

#[test]
fn real_hosts_that_are_cut_off_after_dialing_end_their_part() {
    let (folder, cluster) = Cluster::listed(2);
    executable(&folder, "engine", BY_SSH);
    let job = "ipconf-check ip.txt | dgl-env --workspace /srv --role worker -- sleep 600 \
        >job.jsonl";
    cluster.sh(&folder, job).ends(0);
    let spawn = "exec dgl-spawn --no-preflight --grace 1s --host-timeout 6s --connect \
        'dial ./engine {agent} h1 h2' <job.jsonl >out.jsonl 2>err";
    std::thread::scope(|scope| {
        let running = scope.spawn(|| cluster.sh(&folder, spawn));
        soon("both workers run", || {
            let out = fs::read_to_string(folder.join("out.jsonl")).unwrap_or_default();
            out.matches("\"started\"").count() == 2
        });
        cluster.call(&["cut", "2"]);
        let ran = running.join().unwrap();
        let err = read(&folder, "err");
        ran.ends(74);
        assert_has(&err, "host 1 (10.77.0.2)");
    });
    cluster.call(&["mend", "2"]);
    cluster.assert_clean();
}

#[test]
fn a_folder_of_tickets_is_seen_by_nobody_else() {
    let lab = Lab::new(1);
    lab.sh("dgl-reap --list --connect 'dial ./engine {agent} n1' <hosts.jsonl")
        .ends(0);
    let mode = fs::metadata(lab.folder.join("cache/dgl-tools"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

/// A directory that only looks like one of a run, whether it lies beside such directories or is
/// named on the command line of the process that watches the command.
#[test]
fn only_what_a_run_has_made_is_removed() {
    let lab = Lab::new(1);
    lab.sh(
        "mkdir -p cache/dgl-tools; chmod 700 cache/dgl-tools; cd cache/dgl-tools
         a=0123456789abcdef0123456789abcdef b=f123456789abcdef0123456789abcdef
         mkdir dial-dataset dial-$a dial-$b
         : >dial-dataset/ticket; : >dial-$a/ticket; : >dial-$a/agent; : >dial-$b/results
         touch -d '60 days ago' dial-*; cd ../..
         dgl-reap --list --connect 'dial ./engine {agent} n1' <hosts.jsonl || exit
         mkdir dial-mine; : >dial-mine/ticket
         $(dirname $(command -v dgl-spawn))/host-agent engine \"$PWD/dial-mine\" /dev/null true \
            </dev/null
         ls -d dial-mine/* cache/dgl-tools/dial-* cache/dgl-tools/dial-*/* >left",
    )
    .ends(0);
    assert_eq!(
        lab.read("left"),
        "cache/dgl-tools/dial-dataset\ncache/dgl-tools/dial-dataset/ticket\n\
         cache/dgl-tools/dial-f123456789abcdef0123456789abcdef\n\
         cache/dgl-tools/dial-f123456789abcdef0123456789abcdef/results\ndial-mine/ticket\n"
    );
}

fn can_be_changed(ran: &Ran, folder: &str) {
    ran.ends(74);
    let problem = format!("{folder}, where hosts find host-agent, can be changed by others");
    let is_named = ran.err.contains(&problem) && ran.err.contains("  fix: chmod go-w ");
    assert!(is_named, "{}", ran.err);
}

/// Who can write the directory above puts another in the place of this one.
#[test]
fn a_folder_that_others_can_replace_is_refused() {
    let lab = Lab::new(1);
    for folder in ["above", "elsewhere"] {
        let folder = lab.folder.join(folder);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    }
    std::os::unix::fs::symlink(lab.folder.join("elsewhere"), lab.folder.join("link")).unwrap();
    for (above, open) in [("above", "/above"), ("link", "/elsewhere")] {
        let list = format!(
            "DGL_TOOLS_AGENT_DIR=$PWD/{above}/shared dgl-reap --list --connect 'dial ./engine \
             {{agent}} n1' <hosts.jsonl"
        );
        can_be_changed(&lab.sh(&list), open);
    }
}

/// Others can rename what a link leads through, though it is above neither the given path nor the
/// one without links. A link that only the user can replace stays on the path, because hosts may
/// have a directory in its place.
#[test]
fn a_folder_behind_a_link_that_others_can_replace_is_refused() {
    let lab = Lab::new(1);
    let open = lab.folder.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let made = "mkdir -m 755 real open/way; ln -s ../real open/step; ln -s open/step entry
        ln -s \"$PWD/open/way\" first; ln -s \"$PWD/real\" open/way/second
        ln -s \"$PWD/real\" single; ln -s single two
        printf '#!/bin/sh\necho \"$1\" >where; exec ./engine \"$1\" n1\n' >shows; chmod 755 shows";
    lab.sh(made).ends(0);
    let list = |given: &str| {
        lab.sh(&format!(
            "DGL_TOOLS_AGENT_DIR=$PWD/{given}/shared dgl-reap --list --connect \
             'dial ./shows {{agent}}' <hosts.jsonl"
        ))
    };
    for given in ["entry", "first/second", "real/../open/../entry"] {
        can_be_changed(&list(given), "/open");
    }
    for given in ["single", "two"] {
        list(given).ends(0);
        let used = fs::read_to_string(lab.folder.join("where")).unwrap();
        assert!(used.contains(&format!("/{given}/shared/")), "{used}");
    }
}

/// Whoever can replace the agent that lies there runs what he likes on all hosts.
#[test]
fn slow_a_folder_in_which_others_can_change_the_agent_is_refused() {
    let lab = Lab::new(1);
    let shared = lab.folder.join("shared");
    fs::create_dir(&shared).unwrap();
    let list = "DGL_TOOLS_AGENT_DIR=$PWD/shared dgl-reap --list --connect \
        'dial ./engine {agent} n1' <hosts.jsonl";
    let with_mode = |mode: u32| {
        fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        lab.sh(list)
    };
    let agent = || {
        let agents = lab.sh("ls $PWD/shared/host-agent-*").out;
        PathBuf::from(agents.trim())
    };
    for mode in [0o777, 0o775] {
        can_be_changed(&with_mode(mode), "/shared");
    }
    // as /tmp, in which nobody removes what is another's
    with_mode(0o1777).ends(0);
    // what others could have written is written again
    fs::set_permissions(agent(), fs::Permissions::from_mode(0o777)).unwrap();
    with_mode(0o1777).ends(0);
    let mode = fs::metadata(agent()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let stranger = Some(12345);
    if chown(agent(), stranger, None).is_err() {
        support::skipped!("only root can give a file away");
        return;
    }
    with_mode(0o1777)
        .ends(74)
        .err_has(" belongs to another user")
        .err_has("  fix: set DGL_TOOLS_AGENT_DIR to a directory of your own");
    fs::remove_file(agent()).unwrap();
    chown(&shared, stranger, None).unwrap();
    with_mode(0o755)
        .ends(74)
        .err_has("/shared belongs to another user");
}

/// The directory belongs to root, who has put the agent there; the ticket is in the user's own.
#[test]
fn an_agent_in_a_directory_that_is_read_only_is_used() {
    if support::only_root_can("mount") {
        return;
    }
    let lab = Lab::new(1);
    let list = "dgl-reap --list --connect 'dial ./engine {agent} n1' <hosts.jsonl";
    let ran = lab.sh(&format!(
        "mkdir -m 755 shared; agent=$(dirname $(command -v dgl-spawn))/host-agent
         install \"$agent\" shared/host-agent-$(\"$agent\" hash)
         export DGL_TOOLS_AGENT_DIR=$PWD/shared
         unshare -m sh -c \"mount --bind shared shared && mount -o remount,ro,bind shared && \
         {list} && \
         ls shared cache/dgl-tools\""
    ));
    ran.ends(0).out_lacks("dial-");
    assert_eq!(ran.out.matches("host-agent-").count(), 1, "{}", ran.out);
}

/// The kernel takes no word of 128 KiB.
#[test]
fn slow_a_list_of_hosts_that_no_command_line_holds_is_refused_with_the_cure() {
    let lab = Lab::new(1);
    let of = 6000;
    let record = |id: usize| {
        format!(
            "{{\"type\":\"host\",\"id\":{id},\"of\":{of},\"ip\":\"127.1.{}.{}\",\"port\":30050,\
             \"name\":\"node-{id:05}.example.org\"}}\n",
            id / 200,
            id % 200 + 1
        )
    };
    let records: String = (0..of).map(record).collect();
    write(&lab.folder, "hosts.jsonl", records);
    executable(&lab.folder, "fails", "#!/bin/sh\necho it ran >&2; exit 9\n");
    let ran = lab.sh("dgl-reap --list --connect 'dial ./fails {names} {agent}' <hosts.jsonl");
    ran.ends(74)
        .err_has("the kernel accepts at most 128 KiB")
        .err_has("  fix: leave out {names}, {logins} and {ips}")
        .err_lacks("it ran");
    lab.sh("dgl-reap --list --connect 'dial ./fails {count} {agent}' <hosts.jsonl")
        .err_has("it ran");
}
