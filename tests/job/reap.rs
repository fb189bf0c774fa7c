//! dgl-reap on real hosts: what it shows, signals, ends and removes, and what it leaves alone.

use support::{Cluster, assert_has, read, root, scratch, sh, write};

/// Waits for USR1 and says so; the server listens.
const JOB_PY: &str = "
import os, signal, socket, sys, time
signal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))
s = socket.socket()
if os.environ['DGL_ROLE'] == 'server':
    s.bind(('0.0.0.0', 30050))
    s.listen()
print('up', flush=True)
while True:
    time.sleep(1)
";

/// A process that stays, until `kill` gets what is returned.
fn start(cluster: &Cluster, command: &str) -> String {
    cluster
        .on(
            1,
            &format!("{command} >/dev/null 2>&1 </dev/null & echo $!"),
        )
        .out
        .trim()
        .to_owned()
}

#[test]
fn jobs_on_real_hosts_are_shown_and_signalled() {
    let (folder, cluster) = Cluster::listed(2);
    write(&folder, "job.py", JOB_PY);
    let start = format!(
        "ipconf-check ip.txt | dgl-env --num-trainers 2 --workspace '{0}' --part-config g.json -- \
         python3 job.py >job.jsonl 2>/dev/null
         dgl-spawn --no-preflight --job try7 --format human <job.jsonl \
             >out.txt 2>err.txt & p=$!
         until [ $(grep -c '] up' out.txt) = 6 ] || ! kill -0 $p; do sleep 0.2; done",
        folder.display()
    );
    let reap = "ipconf-check ip.txt | dgl-reap";
    let script = format!(
        "{start}
         {reap} --list --format human >table.txt; {reap} --list | grep '\"found\"' >found.jsonl
         {reap} --job try7 --role trainer --rank 3 --signal usr1 --format human
         until grep -q 'got it' out.txt || ! kill -0 $p; do sleep 0.2; done
         {reap} --job try7 --role trainer --rank 9 --signal USR1 2>none.txt >/dev/null; echo \
             \"none $?\"
         {reap} --job try7 --signal NONE 2>/dev/null; echo \"wrong $?\"; {reap} --list --signal \
             USR1 2>/dev/null; echo \"alone $?\"
         {reap} --job try7 | tail -n 1; wait $p"
    );
    let got = cluster.sh(&folder, &script);
    let text = |file: &str| read(&folder, file);
    got.out_has("1 process got SIGUSR1");
    for status in ["none 1", "wrong 2", "alone 2", r#""ok":true,"code":0"#] {
        got.out_has(status);
    }
    assert!(
        text("none.txt").contains("no such process of job try7 on any host"),
        "{}",
        text("none.txt")
    );
    let report = text("out.txt");
    assert_eq!(report.matches("got it").count(), 1, "{report}");
    assert_has(&report, "trainer 3] got it");

    let table = text("table.txt");
    let head = table.lines().next().unwrap();
    assert!(
        head.starts_with("job try7: ") && head.contains(" s, 2 hosts, 2 servers, 4 trainers, "),
        "{table}"
    );
    assert!(
        head.ends_with("MB, ports 30050") && table.lines().count() == 2 + 6,
        "{table}"
    );
    let found = text("found.jsonl");
    assert_eq!(found.matches(r#""ports":[30050]"#).count(), 2, "{found}");
    assert_has(&found, r#""role":"server","rank":1"#);
    assert_has(&found, r#""role":"trainer","rank":3"#);
    cluster.assert_clean();
}

/// The last record of a run.
fn summary(out: &str) -> serde_json::Value {
    serde_json::from_str(out.lines().last().unwrap_or_default()).unwrap_or_default()
}

#[test]
fn on_real_hosts_a_job_tells_what_dgl_reap_did() {
    let (folder, cluster) = Cluster::listed(3);
    write(&folder, "job.py", JOB_PY);
    let plan = format!(
        "ipconf-check ip.txt | dgl-env --num-trainers 2 --workspace '{}' --part-config g.json -- \
         python3 job.py >job.jsonl",
        folder.display()
    );
    cluster.sh(&folder, &plan).ends(0);
    for (reap, name, number) in [
        ("--signal ABRT", "ABRT", 134),
        ("--role trainer --signal KILL", "KILL", 137),
        ("", "TERM", 143),
    ] {
        let script = format!(
            ": >out; dgl-spawn --no-preflight --job hangs <job.jsonl >out 2>err & p=$!
             until [ $(grep -c '\"line\":\"up' out) = 9 ] || ! kill -0 $p; do sleep 0.2; done
             ipconf-check ip.txt | dgl-reap --job hangs {reap} >reaped 2>reap.err; r=$?; \
             echo reap $r; [ $r = 0 ] || kill $p; wait $p; echo job $?"
        );
        let ran = cluster.sh(&folder, &script);
        let text = |file: &str| read(&folder, file);
        let (out, err, reaped) = (text("out"), text("err"), text("reaped"));
        assert_eq!(
            ran.out,
            format!("reap 0\njob {number}\n"),
            "{out}{err}{reaped}{}",
            text("reap.err")
        );
        for host in 0..3 {
            let named = format!(r#"{{"type":"reaped","host":{host},"job":"hangs""#);
            // what the end on one host makes dgl-spawn end on the others was looked for before
            assert!(reaped.contains(&named), "{reaped}");
        }
        assert_has(&reaped, r#""type":"reaped""#);
        let first = &summary(&out)["first_failure"];
        assert_eq!(
            (&first["reaped"], &first["signal"]),
            (&true.into(), &name.into()),
            "{out}"
        );
        let message = format!("ended by a signal of dgl-reap, SIG{name}");
        assert!(err.contains(&message), "{err}");
        if name == "ABRT" {
            // of each process, on each host
            let stacks = out
                .matches(r#""line":"Fatal Python error: Aborted""#)
                .count();
            let ended = out.matches(r#""signal":"ABRT""#).count();
            assert_eq!((stacks, ended), (9, 9 + 1), "{out}");
        }
        cluster.assert_clean();
    }
}

#[test]
fn on_real_hosts_only_what_is_meant_ends() {
    let (folder, cluster) = Cluster::listed(1);
    let reap = "ipconf-check ip.txt | dgl-reap";

    // a process of a job that looks at the job and ends it does not meet itself
    let inside = "echo 10.77.0.1 | ipconf-check | dgl-reap --connect local --list | grep -c found; \
                  echo 10.77.0.1 | ipconf-check | dgl-reap --connect local --job own --format \
                  human >/srv/ended 2>&1";
    write(
        &folder,
        "inside.sh",
        format!("setsid sleep 300 &\nsleep 0.5\n{inside}\n"),
    );
    let run = format!(
        "ipconf-check ip.txt | dgl-env --role worker --workspace '{}' -- sh inside.sh 2>/dev/null \
         | dgl-spawn --job own --format human; \
         for i in 1 2 3 4 5 6 7 8 9 10; do grep ended /srv/ended && break; sleep 0.5; done",
        folder.display()
    );
    let got = cluster.sh(&folder, &run);
    // sh, sleep, and the sh, grep and ipconf-check of the pipeline in which dgl-reap stands; never
    // dgl-reap and its own
    got.out_has("processes ended").out_has("nothing is left");
    let listed: u32 = got
        .out
        .split("worker 0] ")
        .nth(1)
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap();
    assert!((2..=5).contains(&listed), "{}", got.out);
    cluster.assert_clean();

    // of the files in /dev/shm only those of DGL that nobody maps
    let maps = "import mmap, time; f = open('/dev/shm/dgl.graphbolt.h_data.lock', 'w+b'); \
        f.truncate(9); m = mmap.mmap(f.fileno(), 0); time.sleep(99)";
    let files = "cd /dev/shm && touch psm_mine x_node_count 'edge~a:b:c~w-kvdata-' g g_node_meta \
        g_edge__ID g_node_more gg_0_csc_indptr h hh_0_csc_data";
    cluster.on(1, files);
    let mapper = start(&cluster, &format!("python3 -c \"{maps}\""));
    cluster.on(
        1,
        &format!(
            "until grep -q graphbolt /proc/{mapper}/maps || ! kill -0 {mapper}; do sleep 0.1; done"
        ),
    );
    cluster
        .sh(&folder, &format!("{reap} --stale-shm --format human"))
        .out_has("6 files removed from /dev/shm");
    let kept = cluster.on(1, &format!("ls /dev/shm; rm /dev/shm/*; kill {mapper}"));
    assert_eq!(
        kept.out,
        "dgl.graphbolt.h_data.lock\nh\nhh_0_csc_data\npsm_mine\nx_node_count\n"
    );

    // root sees everybody's processes, and means its own
    if cluster.on(1, "id -u").out.trim() == "0" {
        let theirs = "setpriv --reuid 65534 --regid 65534 --clear-groups \
                      env DGL_TOOLS_TOKEN=0123456789abcdef0123456789abcdef DGL_TOOLS_JOB=theirs \
                      sleep 300";
        let stranger = start(&cluster, theirs);
        cluster
            .sh(
                &folder,
                &format!(
                    "sleep 0.5; {reap} --list; {reap} --job theirs; {reap} --all; kill {stranger}"
                ),
            )
            .ends(0)
            .out_lacks("found")
            .out_lacks("reaped");
    }
    cluster.assert_clean();
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A process of a job `NAME` on this machine, ended with the test.
struct Carrier(std::process::Child);

impl Carrier {
    fn start(job: &str, token: &str, folder: &std::path::Path, command: &[&str]) -> Carrier {
        let mut start = std::process::Command::new("setsid");
        start
            .args(command)
            .current_dir(folder)
            .env("DGL_TOOLS_TOKEN", token)
            .env("DGL_TOOLS_JOB", job)
            .env("RANK", "3");
        Carrier(start.stdin(std::process::Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // it leads its group, in which its children are
        sh(&root(), &format!("kill -s KILL -- -{}", self.0.id()));
        let _ = self.0.wait();
    }
}

/// A token of a test's own.
fn token(nth: u32) -> String {
    format!("{:08x}{:08x}{}", std::process::id(), nth, &TOKEN[16..])
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn a_process_of_a_job_may_ask_as_the_leader_of_a_session() {
    let folder = scratch();
    let reap = "export DGL_TOOLS_JOB=reap-session; echo 127.0.0.1 | ipconf-check | \
        setsid -w dgl-reap --connect local --list";
    sh(&folder, reap).ends(0);
}

#[test]
fn what_threw_its_environment_away_is_found_by_its_place() {
    let folder = scratch();
    let daemon = "env -i setsid sh -c 'echo $$ >daemon; exec sleep 300' & env -i sleep 300 & echo \
        $! >child; wait";
    let _carrier = Carrier::start("reap-cleared", &token(1), &folder, &["sh", "-c", daemon]);
    support::soon("both run", || {
        folder.join("daemon").exists() && folder.join("child").exists()
    });
    let pids = ["daemon", "child"].map(|name| read(&folder, name));
    let reap = "echo 127.0.0.1 | ipconf-check | dgl-reap --connect local";
    let listed = sh(&folder, &format!("{reap} --list"));
    for pid in &pids {
        let line = listed
            .out
            .lines()
            .find(|line| line.contains(&format!("\"pid\":{},", pid.trim())));
        assert!(
            line.is_some_and(
                |line| line.contains("\"job\":\"reap-cleared\",") && line.contains("\"rank\":3")
            ),
            "{}",
            listed.out
        );
    }
    sh(&folder, &format!("{reap} --job reap-cleared")).out_has(r#""ok":true,"processes":3"#);
    assert!(!pids.iter().any(|pid| is_alive(pid)));
}

#[test]
fn slow_one_that_was_there_before_the_job_is_no_part_of_it() {
    let folder = scratch();
    // the stranger is put into the group of a process of the job, as a shell does with a pipeline
    let script = "
import os, subprocess, sys, time
clean = {k: v for k, v in os.environ.items() if not k.startswith('DGL_TOOLS')}
reader, writer = os.pipe()
stranger = os.fork()
if stranger == 0:
    os.setpgid(0, int(os.read(reader, 20)))
    os.execvpe('sleep', ['sleep', '300'], clean)
time.sleep(0.1)
member = subprocess.Popen(['sleep', '300'], env=dict(clean, DGL_TOOLS_JOB=sys.argv[1], \
    DGL_TOOLS_TOKEN=sys.argv[2]), process_group=0)
os.write(writer, b'%d' % member.pid)
while os.getpgid(stranger) != member.pid:
    time.sleep(0.01)
open('pids', 'w').write('%d %d\\n' % (stranger, member.pid))
member.wait()
";
    let mut group = std::process::Command::new("python3");
    group
        .args(["-c", script, "reap-stranger", &token(2)])
        .current_dir(&folder);
    let mut group = group.spawn().unwrap();
    support::soon("they run", || folder.join("pids").exists());
    let pids = read(&folder, "pids");
    let (stranger, member) = pids.split_once(' ').unwrap();
    let ended = sh(
        &folder,
        "echo 127.0.0.1 | ipconf-check | dgl-reap --connect local --job reap-stranger",
    );
    let survived = is_alive(stranger);
    sh(&folder, &format!("kill {stranger} {member}"));
    group.wait().unwrap();
    ended.out_has(r#""processes":1"#);
    assert!(!is_alive(member));
    assert!(survived, "the stranger was ended");
}

#[test]
fn slow_shared_memory_below_a_folder_of_dev_shm_is_left_alone() {
    let folder = scratch();
    let name = format!("reap-{}", std::process::id());
    let script = format!(
        "import mmap, os, time
os.mkdir('/dev/shm/{name}.d')
maps = []
for path in '/dev/shm/{name}', '/dev/shm/{name}.d/file':
    f = open(path, 'w+b'); f.truncate(9); maps.append(mmap.mmap(f.fileno(), 0))
os.rename('/dev/shm/{name}.d', '/dev/shm/{name}.gone'); os.mkdir('/dev/shm/{name}.d')
os.link('/dev/shm/{name}.gone/file', '/dev/shm/{name}.d/file')
open('up', 'w')
time.sleep(300)"
    );
    let _carrier = Carrier::start("reap-shm", &token(3), &folder, &["python3", "-c", &script]);
    support::soon("it maps its files", || folder.join("up").exists());
    let ended = sh(
        &folder,
        "echo 127.0.0.1 | ipconf-check | dgl-reap --connect local --job reap-shm",
    );
    let left = sh(
        &folder,
        &format!(
            "cd /dev/shm && ls -d {name} {name}.d/file 2>/dev/null; rm -r {name}.d {name}.gone"
        ),
    );
    ended.out_has(r#""shm_files":1"#);
    assert_eq!(left.out, format!("{name}.d/file\n"));
}

#[test]
fn the_token_stands_on_no_command_line() {
    let folder = scratch();
    let tokens = [token(4)];
    for program in ["grep", "awk", "sed"] {
        support::executable(
            &folder.join("bin"),
            program,
            &format!("#!/bin/sh\necho \"$*\" >>log\nexec /usr/bin/{program} \"$@\"\n"),
        );
    }
    let _carrier = Carrier::start("reap-token", &tokens[0], &folder, &["sleep", "300"]);
    let reap = "echo 127.0.0.1 | ipconf-check | dgl-reap --connect \"env PATH=$PWD/bin:$PATH\"";
    sh(
        &folder,
        &format!("{reap} --list | grep -c '\"reap-token\"'; {reap} --job reap-token"),
    )
    .out_begins("1\n")
    .out_has(r#""ok":true,"processes":1"#);
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    assert!(!log.contains(&tokens[0]), "{log}");
}

#[test]
fn a_signal_reaches_all_hosts_before_anything_ends() {
    let folder = scratch();
    // both hosts are this machine; the second takes longer, and by then the first signal would have
    // ended the process
    support::executable(
        &folder,
        "way",
        "#!/bin/sh\n[ \"$1\" = 0 ] || sleep 1\nshift\nexec \"$@\"\n",
    );
    let ends = "trap 'sleep 0.3; exit' USR1; : >up; while :; do sleep 0.1; done";
    let _carrier = Carrier::start("reap-signal", &token(5), &folder, &["sh", "-c", ends]);
    support::soon("it runs", || folder.join("up").exists());
    let signal = "printf '10.99.0.1\\n10.99.0.2\\n' | ipconf-check | dgl-reap --connect './way \
        {id}' --job reap-signal --signal USR1";
    let ran = sh(&folder, signal);
    let hosts: Vec<_> = ran
        .out
        .lines()
        .filter(|line| line.contains("\"reaped\""))
        .collect();
    assert_eq!((ran.status, hosts.len()), (0, 2), "{}{}", ran.out, ran.err);
}

#[test]
fn hosts_without_a_process_for_a_signal_are_named() {
    let folder = scratch();
    // the second host has processes of its own
    let own = "exec unshare --user --map-root-user --pid --fork --kill-child --mount-proc";
    support::executable(
        &folder,
        "way",
        &format!("#!/bin/sh\nid=$1; shift\n[ \"$id\" = 1 ] || exec \"$@\"\n{own} \"$@\"\n"),
    );
    let _carrier = Carrier::start(
        "reap-named",
        &token(6),
        &folder,
        &[
            "sh",
            "-c",
            "trap : USR1; : >up; while :; do sleep 0.1; done",
        ],
    );
    support::soon("it runs", || folder.join("up").exists());
    let reap = "printf '10.99.0.1\\n10.99.0.2\\n' | ipconf-check | dgl-reap --connect './way \
        {id}' --job reap-named --signal USR1";
    let ran = sh(&folder, reap);
    ran.ends(0);
    assert_eq!(
        ran.err,
        "dgl-reap: no such process of job reap-named on host 1 (10.99.0.2)\n"
    );
    // one rank is on one host
    assert_eq!(
        sh(&folder, &format!("{reap} --role worker --rank 3")).err,
        ""
    );
}

#[test]
fn slow_what_answers_dgl_reap_with_a_status_of_its_own_is_told_as_ended_by_it() {
    let folder = scratch();
    let spawn = "dgl-spawn --connect local --no-preflight";
    // who succeeds at ending has not done its work
    for (code, status) in [(3, 3), (0, 143)] {
        let command = format!("trap 'exit {code}' TERM; : >up; while :; do sleep 0.1; done");
        let record = serde_json::json!({"type": "process", "id": 0, "of": 1, "host": 0,
            "ip": "127.0.0.1", "role": "worker", "rank": 0, "cwd": folder,
            "argv": ["sh", "-c", command]});
        write(&folder, "process", record.to_string());
        let script = format!(
            "rm -f up; echo 127.0.0.1 | ipconf-check >hosts; cat hosts process >job.jsonl
             {spawn} --job reap-answer <job.jsonl >out & p=$!
             until [ -e up ] || ! kill -0 $p; do sleep 0.1; done
             dgl-reap --connect local --job reap-answer <hosts >reaped; wait $p; echo $?; cat out"
        );
        let ran = sh(&folder, &script);
        let first = &summary(&ran.out)["first_failure"];
        assert!(
            ran.out.starts_with(&format!("{status}\n"))
                && first["code"] == code
                && first["reaped"] == true,
            "{code}: {}{}",
            ran.out,
            ran.err
        );
        let message = format!("exited with status {code} because of dgl-reap");
        let is_told = ran.err.contains(&format!("worker 0 {message}"));
        assert!(is_told, "{code}: {}", ran.err);
        let page = sh(&folder, "dgl-report out").out;
        assert!(page.contains(&message), "{code}: {page}");
        let why = sh(&folder, "dgl-why out").out;
        let message =
            "The job was stopped: worker 0 on host 0 (127.0.0.1) was ended by dgl-reap.\n";
        assert!(why.starts_with(message), "{code}: {why}");
    }
}

/// Containers may share /dev/shm but not see each other's processes.
#[test]
fn shared_memory_whose_users_cannot_be_seen_is_kept() {
    let folder = scratch();
    let script = "import mmap, os, time
os.makedirs('dev/shm')
f = open('dev/shm/a-kvdata-', 'w+b')
f.truncate(9)
m = mmap.mmap(f.fileno(), 0)
open('mapped', 'w').close()
time.sleep(300)";
    let _carrier = Carrier::start(
        "reap-shared",
        &token(7),
        &folder,
        &["python3", "-c", script],
    );
    support::soon("it maps the file", || folder.join("mapped").exists());
    let container = "unshare --user --map-root-user --mount --pid --fork --kill-child \
        --mount-proc sh -ec '
            for file in null zero urandom; do
                : >dev/$file
                mount --bind /dev/$file dev/$file
            done
            ln -s /proc/self/fd dev/fd
            mount --rbind dev /dev
            echo 127.0.0.1 | ipconf-check | dgl-reap --connect local --stale-shm'";
    let ran = sh(&folder, container);
    assert!(
        folder.join("dev/shm/a-kvdata-").exists(),
        "{}{}",
        ran.out,
        ran.err
    );
    ran.ends(1)
        .out_has(r#""ok":false"#)
        .err_has("only outside this container");
}
