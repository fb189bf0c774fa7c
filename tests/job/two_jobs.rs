//! Two jobs on the same hosts: one starts and is not harmed, the other is told by whom, or waits.

use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use support::{
    Cluster, Ran, assert_has, host_record, partition, python_with_dgl, read, root, scratch, sh,
    write, write_records,
};

/// A graph server that loads for two seconds before it listens, as real ones do, and then stays for
/// three.
const SERVER: &str = "import socket, sys, time
time.sleep(2)
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen()
time.sleep(3)
print('served')
";

/// The records of a job with a graph server and a trainer on each of three addresses of this
/// machine.
fn job(folder: &Path, file: &str, port: u16) {
    write(folder, "server.py", SERVER);
    let ip = |host: u32| format!("127.0.0.{}", host + 1);
    let hosts = (0..3)
        .map(|host| json!({"type": "host", "id": host, "of": 3, "ip": ip(host), "port": port}));
    let process = |id: u32, host: u32, role: &str, command: String| {
        json!({"type": "process", "id": id, "of": 6, "host": host, "ip": ip(host), "role": role,
            "rank": host,
            "cwd": folder, "env": {}, "argv": ["sh", "-c", command]})
    };
    let server = |host: u32| {
        let mut record = process(
            host,
            host,
            "server",
            format!("exec python3 server.py {} {port}", ip(host)),
        );
        record["port"] = port.into();
        record
    };
    let trainers = (0..3).map(|host| process(3 + host, host, "trainer", "sleep 4".to_owned()));
    let records: Vec<Value> = hosts.chain((0..3).map(server)).chain(trainers).collect();
    write_records(folder, file, &records);
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap().display().to_string()
}

/// Two launchers, the second some seconds behind the first; their statuses are in `out`, what they
/// said in a.err and b.err. The jobs' names are a and b and that of the test: tests run side by
/// side.
fn both(folder: &Path, apart: &str, options: &str, second: &str) -> (Ran, String, String) {
    let name = name(folder);
    let script = format!(
        "dgl-spawn --connect local --job a-{name} {options} <job.jsonl >a.out 2>a.err & a=$!
         sleep {apart}
         dgl-spawn --connect local --job b-{name} {options} {second} >b.out 2>b.err & b=$!
         wait $a; echo a $?; wait $b; echo b $?"
    );
    let ran = sh(folder, &script);
    let text = |file: &str| read(folder, file);
    (ran, text("a.err"), text("b.err"))
}

#[test]
fn slow_of_two_launchers_one_starts_and_the_other_is_told_by_whom() {
    let folder = scratch();
    job(&folder, "job.jsonl", 30750);
    let name = name(&folder);
    for apart in ["0", "0", "0.05", "0.5", "3"] {
        let (ran, a, b) = both(&folder, apart, "", "<job.jsonl");
        let (winner, loser, report) = if ran.out == "a 0\nb 74\n" {
            ("a", "b", &b)
        } else {
            ("b", "a", &a)
        };
        assert!(
            ran.out
                == format!(
                    "a {}\nb {}\n",
                    [74, 0][usize::from(winner == "a")],
                    [74, 0][usize::from(winner == "b")]
                ),
            "{apart}: {}{a}{b}",
            ran.out
        );
        assert!(
            report.contains(&format!("taken by job {winner}-{name}"))
                && report.contains("nothing was started"),
            "{apart}: {report}"
        );
        assert!(
            report.contains("dgl-reap --job NAME") && report.contains("--wait"),
            "{apart}: {report}"
        );
        let out = read(&folder, format!("{winner}.out"));
        assert!(
            out.contains(r#""ok":true,"code":0"#) && out.matches("served").count() == 3,
            "{apart}: {out}"
        );
        let none = read(&folder, format!("{loser}.out"));
        assert!(!none.contains(r#""type":"started""#), "{apart}: {none}");
    }
}

#[test]
fn slow_one_that_waits_starts_when_the_other_has_ended() {
    let folder = scratch();
    job(&folder, "job.jsonl", 30760);
    for apart in ["0", "1"] {
        let (ran, a, b) = both(&folder, apart, "--wait 1m", "<job.jsonl");
        assert_eq!(ran.out, "a 0\nb 0\n", "{apart}: {a}{b}");
        assert!(
            format!("{a}{b}").contains("waiting for 1 min"),
            "{apart}: {a}{b}"
        );
    }
    // not for ever
    let (ran, _, b) = both(&folder, "1", "", "--wait 1s <job.jsonl");
    assert_eq!(ran.out, "a 0\nb 74\n", "{b}");
    assert_has(&b, &format!("taken by job a-{}", name(&folder)));
}

/// An agent that says to the first claims that another job has the name. `held` is Python that
/// returns what it sends to such a claim, `release` what it does when it releases one. Its job ends
/// well at once.
fn claimed_agent(folder: &Path, hosts: u32, held: &str, release: &str) {
    let taken = json!({"event": "taken", "about": {"name": {"foreign": false}},
        "problem": "its name is taken", "confirmed": true});
    let ends = [
        r#"{"event":"started","index":0,"pid":1}"#,
        r#"{"event":"drained","index":0,"stream":"stdout"}"#,
        r#"{"event":"drained","index":0,"stream":"stderr"}"#,
        r#"{"event":"exited","index":0,"code":0,"cpu_s":0,"max_rss_bytes":0}"#,
        r#"{"event":"over","survivors":0}"#,
    ];
    let ends: String = ends.iter().map(|event| format!("{event}\\n")).collect();
    let script = format!(
        "import os, sys
host = sys.argv[1]
def say(text):
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
token = sys.stdin.buffer.readline().split()[-1]
sys.stdin.buffer.readline() # the script that a real host runs
say(b'\\n' + token + b' runs\\n')
taken, done, claims = b'{taken}\\n', b'{{\"event\":\"done\"}}\\n', 0
for line in sys.stdin.buffer:
    if b'\"do\":\"start\"' in line: break
    if b'\"do\":\"alive\"' in line: continue
    if b'\"do\":\"claim\"' in line:
        claims += 1
        if claims < 5: say({held})
    if b'\"do\":\"release\"' in line: {release}
    say(done)
say(b'{ends}')
sys.stdin.buffer.read()
"
    );
    write(folder, "agent.py", script);
    let ip = |host: u32| format!("127.0.0.{}", host + 1);
    let host = |host: u32| host_record(host, hosts, &ip(host));
    let process = |id: u32| {
        json!({"type": "process", "id": id, "of": hosts, "host": id, "ip": ip(id),
            "role": "trainer", "rank": id, "argv": ["true"]})
    };
    let records: Vec<Value> = (0..hosts)
        .map(host)
        .chain((0..hosts).map(process))
        .collect();
    write_records(folder, "job.jsonl", &records);
}

/// All answers together are larger than one may be.
#[test]
fn slow_one_that_waits_long_starts_however_much_the_hosts_have_said() {
    let folder = scratch();
    // more than 8 MB in all
    let held = "taken.replace(b'its name', b'its name ' * 2500) * 120";
    claimed_agent(&folder, 1, held, "pass");
    let spawn = "timeout 60 dgl-spawn --no-preflight --connect 'python3 agent.py {name}' \
        --wait 50s <job.jsonl";
    sh(&folder, spawn)
        .ends(0)
        .err_has("waiting for 50.0 s at most")
        .out_has(r#""ok":true"#);
}

#[test]
fn a_host_that_is_lost_while_others_hold_the_name_is_not_forgotten() {
    let folder = scratch();
    let held = "taken if host == '127.0.0.1' else b''";
    let release = "host == '127.0.0.1' or os._exit(1)";
    claimed_agent(&folder, 2, held, release);
    let spawn = "timeout 20 dgl-spawn --no-preflight --connect 'python3 agent.py {name}' \
        --wait 50s <job.jsonl";
    let ran = sh(&folder, spawn);
    ran.ends(74)
        .err_has("host 1 (127.0.0.2): ")
        .err_has("fix: check that the host is up")
        .err_has("nothing was started")
        .out_lacks(r#""type":"started""#);
}

/// Servers of two jobs of DGL overwrite each other's features in /dev/shm, whatever their ports.
#[test]
fn slow_jobs_of_dgl_on_other_ports_are_in_each_others_way_until_they_have_a_shm_of_their_own() {
    let folder = scratch();
    partition(&folder, 3);
    for (file, port) in [("job.jsonl", 30770), ("other.jsonl", 30780)] {
        job(&folder, file, port);
        let text = read(&folder, file);
        write(
            &folder,
            file,
            text.replace(r#""env":{}"#, r#""env":{"DGL_CONF_PATH":"out/g.json"}"#),
        );
    }
    let (ran, _, b) = both(&folder, "0.5", "", "<other.jsonl");
    assert_eq!(ran.out, "a 0\nb 74\n", "{b}");
    assert_has(
        &b,
        &format!("another job of DGL is running: job a-{}", name(&folder)),
    );
    assert_has(&b, "--private-shm");
    let (ran, a, b) = both(&folder, "0.5", "--private-shm", "<other.jsonl");
    assert_eq!(ran.out, "a 0\nb 0\n", "{a}{b}");
}

/// A job whose launcher was killed leaves neither its name nor its ports behind.
#[test]
fn slow_what_a_job_has_claimed_is_free_when_it_is_gone() {
    let folder = scratch();
    job(&folder, "job.jsonl", 30790);
    let script =
        "dgl-spawn --connect local --job killed --grace 1s <job.jsonl >a.out 2>/dev/null & a=$!
                  until [ $(grep -c started a.out) = 6 ] || ! kill -0 $a; do sleep 0.1; done
                  kill -9 $a; wait $a
                  dgl-spawn --connect local --job killed --wait 20s <job.jsonl >b.out; echo b $?";
    let ran = sh(&folder, script);
    assert_eq!(ran.out, "b 0\n", "{}", ran.err);
}

/// What became of a job that met another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It trained to its end.
    Trained,
    /// It was refused before anything of it was started.
    Refused,
}

/// Anything else harmed it: it hung, lost a process or ended without a result.
fn fate(job: &Ran, other: &str) -> Option<Fate> {
    let is_refused = job.err.contains(&format!("taken by job {other}"))
        && job.err.contains("nothing was started")
        && !job.out.contains(r#""type":"started""#);
    match job.status {
        0 if job.out.contains("loss fell from") => Some(Fate::Trained),
        74 if is_refused => Some(Fate::Refused),
        _ => None,
    }
}

/// The second job comes 0 to 30 s after the first, spread evenly over the rounds: while the first
/// one's hosts are looked at, while its processes load torch, while they train. Each second one
/// comes from another machine. `make two-jobs` runs 20 rounds, TWO_JOBS_ROUNDS says how many.
#[test]
fn real_dgl_is_not_harmed_by_a_second_job_whenever_it_comes() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let rounds = std::env::var("TWO_JOBS_ROUNDS").map_or(3, |text| text.parse().unwrap());
    let (folder, cluster) = Cluster::listed(2);
    let scripts = root().join("tests/dgl");
    let copy = format!(
        "DGLBACKEND=pytorch '{python}' '{0}/partition.py' --out out --num-parts 2 &&
         ipconf-check ip.txt | host-probe --python '{python}' --workspace /srv/job |
         part-map --part-config out/g.json --workspace /srv/job --script-folder '{0}' | part-push |
         dgl-env --num-trainers 1 --num-omp-threads 1 -- '{python}' dgl/train.py \
             --ip-config ip_config.txt --part-config data/g.json --num-epochs 30 >job.jsonl",
        scripts.display()
    );
    cluster.sh(&folder, &copy).ends(0);
    let run = |launcher: &str, name: &str| {
        let script = format!(
            "cd '{}'; PATH='{}' exec dgl-spawn --job {name} --timeout 5m <job.jsonl",
            folder.display(),
            support::path()
        );
        let begun = Instant::now();
        let ran = cluster.call(&["exec", launcher, "sh", "-c", &script]);
        (ran, begun.elapsed())
    };

    println!("round  B after  from   A        A took  B        B took");
    for round in 0..rounds {
        let apart = Duration::from_millis(30_000 * round / (rounds - 1).max(1));
        let (a_name, b_name) = (format!("a{round}"), format!("b{round}"));
        let launcher = ["1", "2"][usize::from(round % 2 == 1)];
        let (a, b) = std::thread::scope(|scope| {
            let a = scope.spawn(|| run("1", &a_name));
            std::thread::sleep(apart);
            let b = run(launcher, &b_name);
            (a.join().unwrap(), b)
        });
        let fates = (fate(&a.0, &b_name), fate(&b.0, &a_name));
        println!(
            "{round:5}  {:5.1} s  h{launcher}     {:7}  {:4.1} s  {:7}  {:4.1} s",
            apart.as_secs_f64(),
            fates
                .0
                .map_or("harmed".to_owned(), |fate| format!("{fate:?}")),
            a.1.as_secs_f64(),
            fates
                .1
                .map_or("harmed".to_owned(), |fate| format!("{fate:?}")),
            b.1.as_secs_f64(),
        );
        // which of two that start at once is first, nobody knows
        let is_well = match fates {
            (Some(Fate::Trained), Some(_)) => true,
            (Some(Fate::Refused), Some(Fate::Trained)) => apart.is_zero(),
            _ => false,
        };
        assert!(
            is_well,
            "{apart:?}: {fates:?}\n{}{}\n{}{}",
            a.0.out, a.0.err, b.0.out, b.0.err
        );
        cluster.assert_clean();
    }
}
