//! What the process tests share: the real binaries, run in plain `sh`, and real hosts for them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// No command of a test may take longer: a test that hangs says less than one that fails.
const LIMIT_S: u32 = 120;

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Ran {
    /// The exit status, 128+n for a signal.
    pub status: i32,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Ran {
    /// Fails the test unless the status is this one.
    #[track_caller]
    pub fn expect(self, status: i32) -> Ran {
        assert_eq!(self.status, status, "status\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        self
    }

    /// Fails the test unless stderr has these words.
    #[track_caller]
    pub fn says(self, words: &str) -> Ran {
        assert!(self.stderr.contains(words), "no '{words}' in stderr\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        self
    }

    /// The records of stdout of this type.
    pub fn records(&self, kind: &str) -> Vec<serde_json::Value> {
        self.stdout
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|record| record["type"] == kind)
            .collect()
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().map_or_else(|| tests.to_path_buf(), Path::to_path_buf)
}

/// The folder of the built tools: DGL_TOOLS_BIN, or the one that this test was built into.
pub fn bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("DGL_TOOLS_BIN") {
        return PathBuf::from(dir);
    }
    let Ok(exe) = std::env::current_exe() else { return root().join("target/debug") };
    // target/debug/deps/NAME-HASH
    exe.ancestors().nth(2).map_or_else(|| root().join("target/debug"), Path::to_path_buf)
}

/// A built tool.
#[track_caller]
pub fn bin(tool: &str) -> PathBuf {
    let path = bin_dir().join(tool);
    assert!(path.exists(), "{}: is not built: cargo build --workspace", path.display());
    path
}

/// PATH with the tools first.
pub fn path_with_tools() -> String {
    format!("{}:{}", bin_dir().display(), std::env::var("PATH").unwrap_or_default())
}

/// Runs a script in plain `sh`, without pipefail, in this folder.
#[track_caller]
pub fn run_in(dir: &Path, script: &str) -> Ran {
    finish(limited("sh", LIMIT_S).args(["-c", script]).current_dir(dir))
}

/// Runs a script in plain `sh`, without pipefail.
#[track_caller]
pub fn run(script: &str) -> Ran {
    run_in(&root(), script)
}

/// `timeout` before the command. Without DGL_TOOLS_ variables of the user's, which would change what is tested.
fn limited(program: &str, limit_s: u32) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &limit_s.to_string(), program]).env("PATH", path_with_tools());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DGL_TOOLS_")) {
        command.env_remove(name);
    }
    command
}

#[track_caller]
fn finish(command: &mut Command) -> Ran {
    let output = command.stdin(Stdio::null()).output();
    let Ok(output) = output else { unreachable!("{command:?}: {output:?}") };
    Ran {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A folder of this test alone. Not in /tmp, which a host of the cluster has for itself.
#[track_caller]
pub fn fresh_dir(name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // CARGO_TARGET_TMPDIR may lie in /tmp, and an ssh client's paths have a short limit.
    let dir = PathBuf::from(format!("/var/tmp/dgl-tools-test-{}-{number}-{name}", std::process::id()));
    let made = std::fs::create_dir_all(&dir);
    assert!(made.is_ok(), "{}: {made:?}", dir.display());
    dir
}

/// A folder that goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    /// A new one.
    #[track_caller]
    pub fn new(name: &str) -> Folder {
        Folder(fresh_dir(name))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it.
    #[track_caller]
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        let made = path.parent().map(std::fs::create_dir_all);
        let written = std::fs::write(&path, content);
        assert!(written.is_ok(), "{}: {made:?} {written:?}", path.display());
        path
    }

    /// Runs a script in plain `sh` in it.
    #[track_caller]
    pub fn run(&self, script: &str) -> Ran {
        run_in(&self.0, script)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Says that this machine cannot run a test. Where CI=true that is a failure: there all tests run.
#[track_caller]
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot run here: {why}");
    println!("skipped: {why}");
}

/// Real hosts on this machine, at 10.77.0.1 and on; they go with the value.
pub struct Cluster {
    lab: PathBuf,
    hosts: u32,
}

impl Cluster {
    /// Starts hosts; nothing, and the reason on stdout, where this machine may not have them.
    #[track_caller]
    pub fn up(hosts: u32) -> Option<Cluster> {
        let cluster = Cluster { lab: fresh_dir("lab"), hosts };
        let ran = cluster.script(&["up", &hosts.to_string()], LIMIT_S);
        if ran.status == 69 {
            skip(ran.stderr.trim());
            return None;
        }
        ran.expect(0);
        Some(cluster)
    }

    /// An ip_config of all hosts.
    pub fn ip_config(&self) -> String {
        (1..=self.hosts).map(|host| format!("10.77.0.{host}\n")).collect()
    }

    /// The /srv of host `host` as this machine sees it.
    pub fn srv(&self, host: u32) -> PathBuf {
        self.lab.join(format!("h{host}/srv"))
    }

    /// Runs a script in plain `sh` on host `host`, in this folder, with the tools on PATH.
    #[track_caller]
    pub fn exec(&self, host: u32, dir: &Path, script: &str) -> Ran {
        self.exec_for(host, dir, script, LIMIT_S)
    }

    /// The same with a limit of its own, in seconds.
    #[track_caller]
    pub fn exec_for(&self, host: u32, dir: &Path, script: &str, limit_s: u32) -> Ran {
        let mut command = self.command(&["exec", &host.to_string(), "sh", "-c", script], limit_s);
        finish(command.current_dir(dir))
    }

    /// `cluster.sh` with these words: cut, mend, stop, start.
    #[track_caller]
    pub fn script(&self, words: &[&str], limit_s: u32) -> Ran {
        finish(&mut self.command(words, limit_s))
    }

    fn command(&self, words: &[&str], limit_s: u32) -> Command {
        let script = root().join("tests/cluster/cluster.sh");
        let mut command = limited(&script.to_string_lossy(), limit_s);
        command.args(words).env("LAB", &self.lab);
        command
    }

    /// What jobs have left on the hosts.
    #[track_caller]
    pub fn left(&self) -> String {
        let ran = self.script(&["left"], LIMIT_S);
        assert!(ran.status == 0 || ran.status == 1, "cluster.sh left: {ran:?}");
        ran.stdout
    }

    /// Fails the test unless the hosts are empty within this time.
    #[track_caller]
    pub fn expect_nothing_left(&self, within_s: u64) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(within_s);
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(std::time::Instant::now() < end, "left on the hosts after {within_s} s:\n{left}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.command(&["down"], LIMIT_S).stdin(Stdio::null()).output();
        let _ = std::fs::remove_dir_all(&self.lab);
    }
}
