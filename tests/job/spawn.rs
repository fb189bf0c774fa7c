//! dgl-spawn on this machine alone: secrets, loud processes;
//! ../cases/slow_jobs.txt has what commands can show.

use std::path::Path;
use support::{Ran, host_record, read, scratch, sh, write, write_records};

/// The records of a job of workers on this machine, each a command for sh. One with a port is a
/// server.
pub fn job(folder: &Path, commands: &[(Option<u16>, &str)]) {
    let mut records = vec![host_record(0, 1, "127.0.0.1")];
    for (id, (port, command)) in commands.iter().enumerate() {
        let role = if port.is_some() { "server" } else { "trainer" };
        let mut record = serde_json::json!({"type": "process", "id": id, "of": commands.len(),
            "host": 0, "ip": "127.0.0.1", "role": role, "rank": id,
            "cwd": folder, "env": {"PYTHONFAULTHANDLER": "1"}, "argv": ["sh", "-c", command]});
        if let Some(port) = port {
            record["port"] = (*port).into();
        }
        records.push(record);
    }
    write_records(folder, "job.jsonl", &records);
}

pub fn spawn(folder: &Path, options: &str) -> Ran {
    sh(
        folder,
        &format!("dgl-spawn --connect local {options} <job.jsonl"),
    )
}

/// Starts a job with a secret in every form that a command can have, in every shell whose start-up
/// files set another value, and looks at each command line that the job begins.
#[test]
fn slow_no_value_of_the_environment_is_on_a_command_line() {
    let folder = scratch();
    let secret = "it's a s3cr3t-k3y \\ $HOME";
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("secret", secret);
    write("ip.txt", "127.0.0.1\n");
    // in one write, because the pieces of a slow line become lines of their own
    let show = "import os, sys, time
sys.stdout.write(f\"{os.environ['KEY']} {os.environ.get('DGL_TOOLS_EXPORTS')}\\n\")
while not os.path.exists('looked'): time.sleep(0.1)";
    write("show.py", show);
    write("torch/__init__.py", "__version__ = '2.2.1'");
    write("torch/distributed/__init__.py", "");
    let run = "import runpy, sys; runpy.run_path(sys.argv[-1], run_name='__main__')";
    write("torch/distributed/run.py", run);
    for (file, text) in [
        (".zshenv", "export KEY=other"),
        (".cshrc", "setenv KEY other"),
        (".config/fish/config.fish", "set -gx KEY other"),
    ] {
        write(file, &format!("{text}\n"));
    }
    let forms = [
        ("sh", "-- python3 show.py"),
        ("sh", "-- python3 -m torch.distributed.run show.py"),
        ("sh", "--setup 'OTHER=1' -- python3 show.py"),
    ];
    let shells = "sh dash bash mksh ksh zsh fish csh tcsh";
    let strings = shells
        .split(' ')
        .map(|shell| (shell, "'python3 show.py; true'"));
    if sh(&folder, "strace -o /dev/null true").status != 0 {
        return support::skipped!("no strace here");
    }
    for (shell, command) in forms.into_iter().chain(strings) {
        if sh(&folder, &format!("command -v {shell}")).status != 0 {
            support::skipped!("no {shell} here");
            continue;
        }
        let form = format!("{shell} {command}");
        let ran = sh(
            &folder,
            &format!(
                "export SHELL=$(command -v {shell}) HOME=$PWD PYTHONPATH=$PWD \
                 DGL_TOOLS_CONNECT=local; rm -f looked out
                 ipconf-check ip.txt >hosts; KEY=$(cat secret) dgl-env --role worker \
                 --workspace $PWD --env KEY --env PYTHONPATH {command} <hosts >job.jsonl
                 strace -f --seccomp-bpf -e trace=execve -s 9999 -o started \
                   dgl-spawn --job secret --format jsonl <job.jsonl >out & p=$!
                 until grep -qs '\"started\"' out; do kill -0 $p || break; sleep 0.1; done
                 dgl-reap --list --format jsonl <hosts >listed
                 dgl-stacks --job secret --format jsonl <hosts >>listed; touch looked
                 wait $p && jq -r 'select(.type == \"output\").line' out"
            ),
        );
        let is_shown = ran.status == 0 && ran.out == format!("{secret} None\n");
        assert!(is_shown, "{form}: {}{}", ran.out, ran.err);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        for (what, command_lines) in [("listed", read("listed")), ("started", read("started"))] {
            let is_there = command_lines.contains("show.py");
            let is_secret = !command_lines.contains("s3cr3t-k3y");
            assert!(is_there && is_secret, "{form}: {what}: {command_lines}");
        }
    }
}

/// Lines of 2 kB, between them empty ones and a long one, and a last one without an end.
fn loud(lines: u32) -> String {
    let format = format!("%.0f {}", "x".repeat(2000));
    format!(
        "printf '\\n\\n'; head -c 300000 /dev/zero | tr '\\0' y; printf '\\n\\n'; seq -f \
         '{format}' {lines}; printf 'the end'"
    )
}

#[test]
fn slow_loud_processes_lose_nothing_in_their_files_whatever_stdout_does() {
    let folder = scratch();
    let lines = 18_000;
    let command = loud(lines);
    job(
        &folder,
        &[
            (None, &command),
            (None, &format!("{{ {command}; }} >&2")),
            (None, "sleep 1; echo quiet"),
        ],
    );
    let wanted = sh(
        &folder,
        &format!("{{ {command}; echo; }} >wanted; cksum <wanted"),
    );
    // the reader of stdout takes nothing until all else is done
    let slow = "(sh -c 'echo $$ >pid; exec dgl-spawn --connect local --log-dir logs' <job.jsonl) \
        | { while [ ! -e ended ]; do sleep 0.1; done; cat >records; } & p=$!
        size=$(stat -c %s wanted); short() { [ \"$(stat -c %s logs/trainer-$1.log 2>&1)\" != \
            $size ]; }
        while short 0 || short 1; do sleep 0.2; done
        grep VmHWM /proc/$(cat pid)/status; touch ended; wait $p
        for k in 0 1; do cksum <logs/trainer-$k.log; done; cat logs/trainer-2.log";
    let ran = sh(&folder, slow);
    let (memory, sums) = ran.out.split_once('\n').unwrap();
    assert_eq!(sums, format!("{0}{0}quiet\n", wanted.out), "{}", ran.err);
    let kilobytes: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 200_000, "{memory}");
    // every line is there or counted
    let (mut shown, mut dropped, mut last) = (0, 0, String::new());
    for record in read(&folder, "records").lines() {
        let record: serde_json::Value = serde_json::from_str(record).unwrap();
        match record["type"].as_str().unwrap() {
            "output" if record.get("partial").is_none() => shown += 1,
            "dropped" => dropped += record["lines"].as_u64().unwrap(),
            _ => {}
        }
        last = record["type"].to_string();
    }
    assert!(dropped > 0, "stdout was not slow enough for this test");
    assert_eq!(
        shown + dropped,
        2 * (2 + 1 + 1 + u64::from(lines) + 1) + 1,
        "{dropped} dropped"
    );
    assert_eq!(last, "\"summary\"");
}

#[test]
fn slow_output_arrives_as_it_is_and_what_ignores_term_is_killed() {
    let folder = scratch();
    let tree = "(trap '' TERM; exec setsid sleep 94321) & printf '%s\\n' 'a  b\\c'; printf 'no \
        end'; printf 'x%.0s' $(seq 9000) >&2; while [ ! -e said ]; do sleep 0.1; done; exit 6";
    job(
        &folder,
        &[
            (None, tree),
            (None, "sleep 94322"),
            (None, &format!("{}; touch said", loud(400))),
        ],
    );
    let wanted = sh(&folder, &format!("{{ {}; echo; }} | cksum", loud(400)));
    let ran = sh(
        &folder,
        "dgl-spawn --connect local --grace 500ms --job as-it-is --log-dir logs <job.jsonl >out; s=$?
         cat logs/trainer-0.log; cksum <logs/trainer-2.log >&2; exit $s",
    );
    ran.ends(6).err_has(&wanted.out);
    let long = "x".repeat(9000);
    for line in ["a  b\\c", "no end", long.as_str()] {
        assert!(ran.out.lines().any(|other| other == line), "no line {line}");
    }
    let left = sh(&folder, "pgrep -f 'sleep 9432[12]' | wc -l");
    assert_eq!(left.out.trim(), "0");
}

/// A port that connections of an earlier run of the tests do not hold for the minute that TCP keeps
/// them.
fn lingering_port(number: u16) -> u16 {
    20_000 + number * 5_000 + u16::try_from(std::process::id() % 5_000).unwrap()
}

#[test]
fn a_port_that_connections_of_an_ended_job_hold_is_told_from_one_that_is_taken() {
    let folder = scratch();
    let port = lingering_port(0);
    // as DGL 0.5: without SO_REUSEADDR, and the server closes first
    let ended = "import socket
s = socket.socket(); s.bind(('127.0.0.1', PORT)); s.listen()
c = socket.create_connection(('127.0.0.1', PORT)); a, _ = s.accept(); a.close(); c.recv(1); \
    c.close()";
    write(
        &folder,
        "ended.py",
        ended.replace("PORT", &port.to_string()),
    );
    job(&folder, &[(Some(port), "true")]);
    let text = read(&folder, "job.jsonl");
    let text = text
        .replace(r#"["sh","-c","true"]"#, r#"["python3","-c","pass"]"#)
        .replace(r#""server""#, r#""worker""#);
    write(&folder, "job.jsonl", text);
    let ran = sh(
        &folder,
        "python3 ended.py && dgl-spawn --connect local <job.jsonl",
    );
    ran.ends(74);
    let report = format!(
        "port {port} is still held by connections of a job that has ended\n  fix: wait a \
         minute, or choose another port"
    );
    ran.err_has(&report);
}

/// The kernel's 60 s of TIME_WAIT cannot be made shorter.
#[test]
fn slow_a_port_that_connections_of_an_ended_job_hold_is_waited_for_to_the_end() {
    let folder = scratch();
    let port = lingering_port(1);
    let with_port = |script: &str| script.replace("PORT", &port.to_string());
    let ended = "import socket
s = socket.socket(); s.bind(('127.0.0.1', PORT)); s.listen()
c = socket.create_connection(('127.0.0.1', PORT)); a, _ = s.accept(); a.close(); c.recv(1); \
    c.close()";
    write(&folder, "ended.py", with_port(ended));
    // it cannot listen, too, as long as they are there
    let server = "import socket
s = socket.socket(); s.bind(('127.0.0.1', PORT)); s.listen(); print('served')";
    write(&folder, "server.py", with_port(server));
    job(&folder, &[(Some(port), "exec python3 server.py")]);
    // with processes of its own: nothing is waited for where jobs of other tests are in the way
    let ran = sh(
        &folder,
        "python3 ended.py && ! python3 server.py 2>refused &&
         unshare --user --map-root-user --pid --fork --kill-child --mount-proc \
             dgl-spawn --connect local <job.jsonl",
    );
    ran.ends(0).out_has("served");
    let report = format!(
        "waiting up to a minute: port {port} is still held by connections of a job that has ended"
    );
    ran.err_has_times(&report, 1);
}

#[test]
fn files_of_others_in_the_log_dir_stay_where_they_are() {
    let folder = scratch();
    job(&folder, &[(None, "echo one"), (None, "echo two")]);
    spawn(&folder, "--log-dir .").ends(0);
    sh(&folder, "echo mine | tee slurm-12345.log trainer-7.log");
    job(&folder, &[(None, "echo three")]);
    spawn(&folder, "--log-dir .").ends(0);
    let names = sh(&folder, "echo *.log; cd run-1; echo *").out;
    assert_eq!(
        names,
        "slurm-12345.log trainer-0.log trainer-7.log\nrun.jsonl trainer-0.log trainer-1.log\n"
    );
}

#[test]
fn the_log_dir_of_a_running_job_is_refused() {
    let folder = scratch();
    job(&folder, &[(None, "until [ -e go ]; do sleep 0.1; done")]);
    let script = "dgl-spawn --connect local --log-dir logs <job.jsonl >out & p=$!
        until grep -q started logs/run.jsonl; do sleep 0.1; done
        dgl-spawn --connect local --log-dir logs <job.jsonl; echo $?
        dgl-spawn --connect local --log-dir logs </dev/null; echo $?
        : >go; wait $p; echo $?; ls logs; cmp out logs/run.jsonl";
    let ran = sh(&folder, script);
    ran.err_has(
        "--log-dir: a running job writes its logs there\n  fix: name another directory, or wait",
    );
    assert_eq!(
        ran.out, "74\n65\n0\nrun.jsonl\ntrainer-0.log\n",
        "{}",
        ran.err
    );
}
