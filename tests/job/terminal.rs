//! Terminals: Ctrl-C in a real one, what fits one; ../cases/slow_every_tool.txt has other signals.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{Cluster, assert_has, command, partition, path, ran, read, scratch, sh, soon, write};

/// A terminal of tmux, with a server of its own.
struct Terminal {
    /// What leads to the machine that it is a terminal of: nothing, or `host-lab exec 1`.
    route: String,
    folder: PathBuf,
    socket: PathBuf,
}

impl Terminal {
    fn new(folder: &Path) -> Terminal {
        // a server that ends must not be taken for the next one
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "dgl-tools-test-{}-{}.tmux",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let socket = std::env::temp_dir().join(name);
        Terminal {
            route: String::new(),
            folder: folder.to_owned(),
            socket,
        }
    }

    fn tmux(&self, args: &[&str]) {
        let mut tmux = command("tmux");
        tmux.arg("-S")
            .arg(&self.socket)
            .args(["-f", "/dev/null"])
            .args(args)
            .env("PATH", path())
            .current_dir(&self.folder);
        ran(tmux.output().expect("tmux is missing")).ends(0);
    }

    /// A pipeline in the foreground of the terminal; its status is for [`Terminal::status`].
    fn run(&self, pipeline: &str) {
        // the trap lets this shell live on; the stages of the pipeline meet the signal as they
        // would anywhere
        let script = format!("trap : INT\n{pipeline}\necho $? >status.new; mv status.new status\n");
        write(&self.folder, "run.sh", script);
        let _ = std::fs::remove_file(self.folder.join("status"));
        self.tmux(&[
            "new-session",
            "-d",
            "-x",
            "200",
            "-y",
            "50",
            &format!("{} sh run.sh 2>err", self.route),
        ]);
    }

    fn ctrl_c(&self) {
        self.tmux(&["send-keys", "C-c"]);
    }

    fn ended(&self) -> bool {
        self.folder.join("status").exists()
    }

    fn status(&self) -> (String, String) {
        soon("the pipeline ends", || self.ended());
        let text = |name: &str| read(&self.folder, name);
        (text("status").trim().to_owned(), text("err"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .output();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn has(folder: &Path, file: &str, text: &str) -> bool {
    std::fs::read_to_string(folder.join(file)).is_ok_and(|all| all.contains(text))
}

#[test]
fn slow_ctrl_c_while_a_tool_still_reads() {
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1\n");
    let plan = "ipconf-check ip.txt | part-map --part-config out/g.json --workspace \"$PWD/ws\" | \
                dgl-env --role worker -- touch ran >all.jsonl";
    sh(&folder, plan).ends(0);
    let tools = [
        "ipconf-check -",
        "host-probe --connect local",
        "part-map --part-config out/g.json --workspace /nowhere/ws",
        "part-push --connect local",
        "dgl-env --role worker -- true",
        "dgl-spawn --connect local --no-push-check --log-dir logs",
        "dgl-reap --connect local --list",
    ];
    for tool in tools {
        let terminal = Terminal::new(&folder);
        // all has come but the end
        let name = tool.split(' ').next().unwrap();
        let feed = "sh -c 'cat all.jsonl; : >fed; exec sleep 300'";
        let _ = std::fs::remove_file(folder.join("fed"));
        let _ = std::fs::remove_file(folder.join("pid"));
        terminal.run(&format!("{feed} | sh -c 'echo $$ >pid; exec {tool} >said'"));
        let is_tool = || {
            let pid = std::fs::read_to_string(folder.join("pid")).unwrap_or_default();
            std::fs::read_link(format!("/proc/{}/exe", pid.trim()))
                .is_ok_and(|exe| exe.ends_with(name))
        };
        soon("the tool reads", || {
            folder.join("fed").exists() && is_tool()
        });
        terminal.ctrl_c();
        assert_eq!(
            terminal.status(),
            ("130".to_owned(), String::new()),
            "{tool}"
        );
        assert_eq!(read(&folder, "said"), "", "{tool}");
        assert!(
            !folder.join("ws").exists() && !folder.join("logs").exists(),
            "{tool}"
        );
    }
}

#[test]
fn ctrl_c_ends_a_job_on_real_hosts() {
    let (folder, cluster) = Cluster::listed(3);
    let script = support::root().join("tools/host-lab/host-lab");
    let route = format!(
        "LAB='{}' '{}' exec 1",
        cluster.lab.display(),
        script.display()
    );
    let terminal_of_host_1 = || {
        let mut terminal = Terminal::new(&folder);
        terminal.route.clone_from(&route);
        terminal
    };
    let begin = "ipconf-check ip.txt | host-probe | dgl-env --role worker --workspace /srv";
    let tree = "-- sh -c \"sleep 300 & setsid sleep 301 & sleep 302\"";
    let runs = |out: &str| {
        std::fs::read_to_string(folder.join(out))
            .is_ok_and(|all| all.matches(r#""type":"started""#).count() == 3)
    };
    // the reader of dgl-spawn gets the signal too, and is gone before the job is
    let terminal = terminal_of_host_1();
    terminal.run(&format!(
        "{begin} {tree} | dgl-spawn --format jsonl | tee one.jsonl >/dev/null"
    ));
    soon("the job runs", || runs("one.jsonl"));
    terminal.ctrl_c();
    let (_, err) = terminal.status();
    assert_has(&err, "was stopped by SIGINT");
    cluster.assert_clean();

    let terminal = terminal_of_host_1();
    terminal.run(&format!(
        "{begin} {tree} | dgl-spawn --format jsonl >two.jsonl"
    ));
    soon("the job runs", || runs("two.jsonl"));
    terminal.ctrl_c();
    let (status, err) = terminal.status();
    assert_eq!(status, "130", "{err}");
    assert_has(&err, "was stopped by SIGINT");
    assert!(has(&folder, "two.jsonl", r#""code":130,"cause":"signal""#));
    cluster.assert_clean();

    // what does not obey TERM gets its grace, until a second Ctrl-C
    let terminal = terminal_of_host_1();
    let deaf = "-- sh -c \"trap \\\"echo told\\\" TERM; echo deaf; while :; do sleep 0.1; done\"";
    terminal.run(&format!(
        "{begin} {deaf} | dgl-spawn --grace 10m --format human >out.txt"
    ));
    let message = |what: &str| {
        std::fs::read_to_string(folder.join("out.txt"))
            .is_ok_and(|all| all.matches(what).count() >= 3)
    };
    soon("the job runs", || message("deaf"));
    terminal.ctrl_c();
    soon("it is told to end", || message("told"));
    assert!(!terminal.ended(), "it has ten minutes");
    // two within 200 ms count as one
    std::thread::sleep(std::time::Duration::from_millis(300));
    terminal.ctrl_c();
    let (status, err) = terminal.status();
    assert_eq!(status, "130", "{err}");
    cluster.assert_clean();
}

#[test]
fn slow_what_people_read_fits_the_terminal() {
    let folder = scratch();
    write(&folder, "ip_config.txt", "127.0.0.1\n");
    let plan = "ipconf-check ip_config.txt | dgl-env --role worker --workspace \"$PWD\" -- \
                sh -c 'echo \"frame #0: c10\"; sleep 2' >job.jsonl";
    sh(&folder, plan).ends(0);
    let on_terminal = |command: &str| {
        let script = format!(
            "TERM=xterm script -qec 'stty cols 40 rows 20; {command}' /dev/null </dev/null"
        );
        sh(&folder, &script).out.replace('\r', "<")
    };
    let name = "a-job-with-a-name-that-is-longer-than-the-line";
    let spawn = format!("dgl-spawn --connect local --no-preflight --job {name} <job.jsonl");
    let shown = on_terminal(&spawn);
    let status: Vec<&str> = shown
        .split("\x1b[?7l")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("\x1b[?7h")?.0))
        .collect();
    assert!(!status.is_empty(), "{shown}");
    for line in status {
        assert!(
            line.chars().count() <= 40 && line.ends_with('…'),
            "{line:?}"
        );
    }
    let (_, end) = shown.rsplit_once("\x1b[?7h").unwrap();
    assert!(end.starts_with("<\x1b[K"), "it is cleared: {end:?}");

    // what has no log is not said to be in one
    let folded = "1 line hidden (C++ frames, output after the stop)";
    let complete = "; the logs in --log-dir are complete<\n";
    for (log, ending) in [("", "<\n"), ("--log-dir logs", complete)] {
        let shown = on_terminal(&spawn.replace("--job", &format!("{log} --job")));
        assert_has(&shown, &format!("{folded}{ending}"));
    }

    let wrong = "dgl-spawn --connect local --no-push-check <ip_config.txt";
    let shown = on_terminal(wrong);
    let (_, fix) = shown.split_once("  fix: ").unwrap();
    assert!(fix.contains("<\n       "), "{shown}");
    assert!(
        fix.lines().all(|line| line.chars().count() <= 41),
        "{shown}"
    );
    let piped = sh(&folder, wrong).err;
    assert_eq!(
        piped.lines().count(),
        2,
        "no line is broken in a pipe: {piped}"
    );
}
