//! What the process tests share: plain `sh` with the tools that were built, hosts of their own, a
//! graph to copy.

// a test that cannot go on fails
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Says that a test is skipped, and why: on its stdout and in the file that tests/run.sh shows at
/// the end.
#[macro_export]
macro_rules! skipped {
    ($($why:tt)*) => { $crate::note_skipped(&format!($($why)*)) };
}

pub fn note_skipped(why: &str) {
    println!("skipped: {why}");
    if let Some(path) = std::env::var_os("TESTS_SKIPPED") {
        let first = why.lines().next().unwrap_or_default();
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        file.write_all(format!("{first}\n").as_bytes()).unwrap();
    }
}

/// Ends a test that needs a program which this machine lacks; that is a failure in continuous
/// integration.
pub fn need(program: &str) {
    if is_here(program) {
        return;
    }
    // only nextest runs each test in a process
    let is_alone = std::env::var_os("NEXTEST").is_some();
    assert!(
        is_alone && std::env::var_os("CI").is_none(),
        "no {program} here: tests/need.sh test names its package"
    );
    skipped!("no {program} here");
    std::process::exit(0);
}

/// What scripts of tests need, beside what a build does.
fn need_programs_of(script: &str) {
    let words = script.split(|c: char| !c.is_ascii_alphanumeric() && !"-_./".contains(c));
    ["jq", "python3"]
        .into_iter()
        .filter(|program| words.clone().any(|word| word == *program))
        .for_each(need);
}

fn is_here(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// The repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of the tools that were built with this test.
pub fn tools() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test
        .ancestors()
        .find(|folder| folder.join("dgl-spawn").is_file());
    folder
        .expect("the tools are not built: run `make test`")
        .to_owned()
}

/// A directory of this test's own, empty; beside the tools, below target/. Its name begins like
/// that of the test, and is short, because sockets are made in it. Another call makes another
/// directory.
pub fn scratch() -> PathBuf {
    thread_local!(static CALLS: Cell<u32> = const { Cell::new(0) });
    let thread = std::thread::current();
    let test = thread
        .name()
        .expect("scratch() is for the thread of a test");
    let program = std::env::current_exe().unwrap();
    let mut hasher = DefaultHasher::new();
    (test, program.file_name(), CALLS.replace(CALLS.get() + 1)).hash(&mut hasher);
    let name = test.rsplit("::").next().unwrap();
    let name = format!("{name:.24}-{:08x}", hasher.finish() as u32);
    let folder = tools().with_file_name("tmp").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A file below a directory, in whose place there may be another.
pub fn write(folder: &Path, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

pub fn read(folder: &Path, name: impl AsRef<Path>) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// A directory below another, with those above it.
pub fn make_folder(folder: &Path, name: impl AsRef<Path>) {
    std::fs::create_dir_all(folder.join(name)).unwrap();
}

/// A program of a test's own.
pub fn executable(folder: &Path, name: impl AsRef<Path>, text: &str) {
    need_programs_of(text);
    write(folder, &name, text);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.join(name), mode).unwrap();
}

pub const TOOLS: [&str; 12] = [
    "ipconf-check",
    "part-map",
    "part-push",
    "dgl-env",
    "dgl-spawn",
    "host-probe",
    "host-swap",
    "dgl-stacks",
    "dgl-reap",
    "part-pull",
    "dgl-why",
    "dgl-report",
];
/// Shell scripts; the flags of the first two have the underscores of DGL's own.
pub const SCRIPTS: [&str; 5] = ["dgl-copy", "dgl-launch", "gs-copy", "gs-launch", "host-lab"];

/// All that is installed for users to run.
pub fn commands() -> impl Iterator<Item = &'static str> {
    TOOLS.into_iter().chain(SCRIPTS)
}

/// How a script ended and what it wrote.
pub struct Ran {
    /// What ran, as far as it is known.
    pub script: String,
    pub status: i32,
    pub out: String,
    pub err: String,
}

/// What a test expects of it; all that is known is shown where it is not so.
impl Ran {
    #[track_caller]
    fn expect(&self, holds: bool, what: &str) -> &Ran {
        let Ran {
            script,
            status,
            out,
            err,
        } = self;
        assert!(
            holds,
            "{script}\nexpected {what}\nstatus {status}\n{out}{err}"
        );
        self
    }

    /// The records of a type on stdout.
    pub fn records(&self, kind: &str) -> Vec<Value> {
        records(&self.out, kind)
    }

    #[track_caller]
    pub fn ends(&self, status: i32) -> &Ran {
        self.expect(self.status == status, &format!("status {status}"))
    }

    /// With exactly that on stdout.
    #[track_caller]
    pub fn gives(&self, status: i32, out: &str) -> &Ran {
        self.ends(status).expect(self.out == out, out)
    }

    #[track_caller]
    pub fn err_has(&self, text: &str) -> &Ran {
        self.expect(self.err.contains(text), text)
    }

    #[track_caller]
    pub fn out_has(&self, text: &str) -> &Ran {
        self.expect(self.out.contains(text), text)
    }

    #[track_caller]
    pub fn err_lacks(&self, text: &str) -> &Ran {
        self.expect(!self.err.contains(text), &format!("no {text}"))
    }

    #[track_caller]
    pub fn out_lacks(&self, text: &str) -> &Ran {
        self.expect(!self.out.contains(text), &format!("no {text}"))
    }

    #[track_caller]
    pub fn out_begins(&self, text: &str) -> &Ran {
        self.expect(self.out.starts_with(text), text)
    }

    #[track_caller]
    pub fn err_has_times(&self, text: &str, count: usize) -> &Ran {
        let holds = self.err.matches(text).count() == count;
        self.expect(holds, &format!("{count} times {text}"))
    }

    #[track_caller]
    pub fn out_has_times(&self, text: &str, count: usize) -> &Ran {
        let holds = self.out.matches(text).count() == count;
        self.expect(holds, &format!("{count} times {text}"))
    }
}

/// Shows the whole text where the part is missing.
#[track_caller]
pub fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "no {part} in\n{text}");
}

pub fn ran(output: Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran {
        script: String::new(),
        status: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Runs it to its end; failures quote its last argument.
fn run(command: &mut Command) -> Ran {
    let ran = ran(command.output().unwrap());
    let script = command.get_args().last().unwrap_or_default();
    Ran {
        script: script.to_string_lossy().into_owned(),
        ..ran
    }
}

/// Whether dgl-why advises something that only a job of dgl-spawn can do. Jobs of other launchers
/// can use `dgl-stacks --any`.
pub fn advises_these_tools(said: &str) -> bool {
    const TOOLS: [&str; 5] = ["dgl-", "part-", "host-probe", "host-swap", "--num-"];
    said.lines()
        .filter(|line| line.starts_with("  fix: "))
        .map(|line| line.replace("dgl-stacks --any", ""))
        .any(|fix| TOOLS.iter().any(|tool| fix.contains(tool)))
}

/// As ipconf-check writes it of a host with DGL's own port.
pub fn host_record(id: impl Into<Value>, of: impl Into<Value>, ip: &str) -> Value {
    serde_json::json!({"type": "host", "id": id.into(), "of": of.into(), "ip": ip,
        "port": 30050})
}

/// Writes a stream of records.
pub fn write_records(folder: &Path, name: &str, records: &[Value]) {
    let lines: Vec<String> = records.iter().map(Value::to_string).collect();
    write(folder, name, lines.join("\n"));
}

/// The records of a type among the lines of an output.
pub fn records(out: &str, kind: &str) -> Vec<Value> {
    let all = out
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|record| record["type"] == kind).collect()
}

/// The tools, and the scripts, which lie beside their sources.
pub fn path() -> String {
    let scripts = SCRIPTS.map(|script| format!("{}/tools/{script}:", root().display()));
    format!(
        "{}:{}{}",
        tools().display(),
        scripts.concat(),
        std::env::var("PATH").unwrap()
    )
}

/// A program that begins with the signals as they are by default. Started with nohup, or in the
/// background of a script, the tests themselves ignore HUP or INT, which a shell cannot undo.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(program);
    command
}

/// A script in plain `sh`, without pipefail, in a directory.
pub fn sh(folder: &Path, script: &str) -> Ran {
    need_programs_of(script);
    run(command("timeout")
        .args(["300", "sh", "-c", script])
        .current_dir(folder)
        .env("PATH", path()))
}

/// The same for a case of tests/cases.
pub fn sh_for_cases(folder: &Path, script: &str) -> Ran {
    // commands.sh uses it
    need("jq");
    let cases = root().join("tests/cases").display().to_string();
    let begin = format!("CASES={cases}; . {cases}/commands.sh; [ ! -e case.sh ] || . ./case.sh");
    sh(folder, &format!("{begin}\n{script}"))
}

/// Each fault has its fix below it, or shares that of the next; one that an earlier stage has told
/// stands alone.
pub fn in_form(tool: &str, err: &str) -> Result<(), String> {
    let begin = format!("{tool}: ");
    let mut open = None;
    for line in err.lines() {
        match line.strip_prefix(&begin) {
            Some(rest) if rest.contains("the previous tool failed") => {}
            Some(rest)
                if rest
                    .split(": ")
                    .nth(1)
                    .is_none_or(|problem| problem.trim().is_empty()) =>
            {
                return Err(format!("no place: {line}"));
            }
            Some(_) => open = Some(line.to_owned()),
            None if line
                .strip_prefix("  fix: ")
                .is_some_and(|fix| fix.len() > 5) =>
            {
                open = None;
            }
            None if line.starts_with("    ") => {}
            None => return Err(format!("no line of {tool}'s: {line}")),
        }
    }
    open.map_or(Ok(()), |line| Err(format!("no fix: {line}")))
}

/// The shells that a host may have, each as it is called, that are here to be tried.
pub fn shells() -> impl Iterator<Item = &'static str> {
    ["dash", "bash", "busybox sh", "mksh"]
        .into_iter()
        .filter(|shell| {
            let here = sh(&root(), &format!("command -v {shell}")).status == 0;
            if !here {
                skipped!("no {shell} here");
            }
            here
        })
}

/// Bytes that do not compress, the same for the same seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next)
        .take(length / 8 + 1)
        .flatten()
        .take(length)
        .collect()
}

/// Whether a test is left out because only root can do what it needs.
pub fn only_root_can(do_it: &str) -> bool {
    let is_root = sh(Path::new("/"), "id -u").out == "0\n";
    if !is_root {
        skipped!("only root can {do_it}");
    }
    !is_root
}

/// Waits until something is so, as long as a loaded machine may need.
pub fn soon(what: &str, is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(
            begun.elapsed().as_secs() < 60,
            "waited for a minute: {what}"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// The long flags in front of what `--help` says of them.
pub fn flags_of_help(tool: &str) -> BTreeSet<String> {
    // runs in the repository, because tests call this in parallel
    let help = sh(&root(), &format!("{tool} --help"));
    assert_eq!(help.status, 0, "{tool}: {}", help.err);
    let (options, examples) = help
        .out
        .split_once("Examples:")
        .unwrap_or_else(|| panic!("{tool}: no examples"));
    assert!(
        examples.contains(tool),
        "{tool}: its examples are another's"
    );
    // a description that goes on in a new line stands further in
    let begins = ["      --", "  -h, --", "  -V, --"];
    let flags = options
        .lines()
        .filter_map(|line| begins.iter().find_map(|begin| line.strip_prefix(begin)));
    flags
        .filter_map(|flag| flag.split([' ', '[']).next())
        .map(str::to_owned)
        .collect()
}

/// The other names that a tool's `--help` has for some of its flags, behind their descriptions.
pub fn aliases_of_help(tool: &str) -> BTreeSet<String> {
    let help = sh(&root(), &format!("{tool} --help")).out;
    let aliases = help.split("[alias:").skip(1);
    let aliases = aliases.filter_map(|name| name.trim_start().strip_prefix("--"));
    aliases
        .filter_map(|name| name.split(']').next())
        .map(str::to_owned)
        .collect()
}

/// A directory that every user of this machine reaches, gone with the test; the repository may lie
/// in one that is closed to others.
pub struct OpenFolder(pub PathBuf);

impl OpenFolder {
    pub fn new(name: &str) -> OpenFolder {
        let folder =
            OpenFolder(format!("/var/tmp/dgl-tools-test-{name}-{}", std::process::id()).into());
        std::fs::create_dir(&folder.0).unwrap();
        std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    /// With the tools in `bin`, for scripts in which other users run them.
    pub fn with_tools(name: &str) -> OpenFolder {
        let folder = OpenFolder::new(name);
        make_folder(&folder, "bin");
        for program in [
            "dgl-reap",
            "dgl-spawn",
            "part-pull",
            "part-push",
            "host-agent",
        ] {
            std::fs::copy(tools().join(program), folder.join("bin").join(program)).unwrap();
        }
        folder
    }
}

impl std::ops::Deref for OpenFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for OpenFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Simulated hosts, removed when dropped.
pub struct Cluster {
    /// Has a directory for each host: `h1`, `h2`, …
    pub lab: PathBuf,
    #[expect(dead_code, reason = "only held")]
    turn: Turn,
    /// The limit of [`Cluster::up_impatient`].
    silence: Option<u64>,
}

/// Held by a cluster that is up. Hosts with real work on them are hungry: beside too many of them,
/// what a test waits for comes too late. cargo-nextest keeps to the same numbers by itself (see
/// .config/nextest.toml); a second run of the tests on this machine waits here.
pub type Turn = Flock<File>;

fn await_turn() -> Turn {
    let thread = std::thread::current();
    let names: &[&str] = match thread.name() {
        Some(test) if test.contains("real_dgl") => &["dgl"],
        _ => &["hosts-1", "hosts-2", "hosts-3"],
    };
    first_free(names)
}

/// Waits until one of these names is not in use by another test, and has it until it is dropped.
pub fn first_free(names: &[&str]) -> Turn {
    let user = std::fs::metadata("/proc/self").unwrap().uid();
    loop {
        for name in names {
            let path = format!("/var/tmp/dgl-tools-test-{name}-{user}.lock");
            match Flock::lock(File::create(path).unwrap(), FlockArg::LockExclusiveNonblock) {
                Ok(turn) => return turn,
                Err((_, Errno::EWOULDBLOCK)) => {}
                Err((_, error)) => panic!("waiting for other tests: {error}"),
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

impl Cluster {
    pub fn up(hosts: u32) -> Cluster {
        Cluster::up_shaped(hosts, "")
    }

    /// Beside a directory whose ip_config lists all of its hosts.
    pub fn listed(hosts: u32) -> (PathBuf, Cluster) {
        let folder = scratch();
        ip_config(&folder, hosts);
        (folder, Cluster::up(hosts))
    }

    /// With links of that rate, as tc writes it.
    pub fn up_shaped(hosts: u32, rate: &str) -> Cluster {
        Cluster::start(hosts, rate, None)
    }

    /// Files are copied with that limit of silence, in seconds, on the hosts too.
    pub fn up_impatient(hosts: u32, rate: &str, silence: u64) -> Cluster {
        Cluster::start(hosts, rate, Some(silence))
    }

    fn start(hosts: u32, rate: &str, silence: Option<u64>) -> Cluster {
        // with cargo test, two tests may be in one process
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let lab = format!("/var/tmp/dgl-tools-test-{}-{count}", std::process::id());
        let cluster = Cluster {
            lab: lab.into(),
            turn: await_turn(),
            silence,
        };
        let up = cluster.call(&["up", &hosts.to_string(), "--rate", rate]);
        assert_eq!(up.status, 0, "the cluster did not start: {}", up.err);
        cluster
    }

    pub fn call(&self, args: &[&str]) -> Ran {
        self.call_script("tools/host-lab/host-lab", args)
    }

    /// Another script, by its path in the repository.
    pub fn call_script(&self, script: &str, args: &[&str]) -> Ran {
        let script = root().join(script);
        let mut call = command("timeout");
        // on a busy machine a login may take long, and hosts that are there are not what tests of
        // limits look for
        run(call
            .arg("600")
            .arg(script)
            .args(args)
            .env("LAB", &self.lab)
            .env("PATH", path())
            .env("DGL_TOOLS_CONNECT_TIMEOUT", "60s")
            .envs(
                self.silence
                    .map(|silence| ("DGL_TOOLS_TEST_SILENCE", silence.to_string())),
            ))
    }

    /// A script on host 1, the launching machine, in a directory.
    pub fn sh(&self, folder: &Path, script: &str) -> Ran {
        self.call(&[
            "exec",
            "1",
            "sh",
            "-c",
            &format!("cd '{}'; PATH='{}'; {script}", folder.display(), path()),
        ])
    }

    /// A script on any host.
    pub fn on(&self, host: u32, script: &str) -> Ran {
        self.call(&["exec", &host.to_string(), "sh", "-c", script])
    }

    /// A Python at [`PYTHON_WITH_STAND_IN`] of a host whose packages say that they are DGL of this
    /// version, as far as host-probe looks.
    pub fn stand_in_for_dgl(&self, host: u32, version: &str) {
        let script = format!(
            "mkdir -p /srv/lib/dgl /srv/lib/dgl-{version}.dist-info && touch \
                /srv/lib/dgl/__init__.py && \
             printf 'Metadata-Version: 2.1\\nName: dgl\\nVersion: {version}\\n' \
               >/srv/lib/dgl-{version}.dist-info/METADATA && \
             printf '#!/bin/sh\\nPYTHONPATH=/srv/lib exec python3 \"$@\"\\n' \
               >{PYTHON_WITH_STAND_IN} && chmod +x {PYTHON_WITH_STAND_IN}"
        );
        self.on(host, &script).ends(0);
    }

    /// On host 1, which must end well.
    pub fn run(&self, folder: &Path, script: &str) -> Ran {
        let ran = self.sh(folder, script);
        ran.ends(0);
        ran
    }

    /// Nothing is left on any host, soon.
    pub fn assert_clean(&self) {
        for _ in 0..240 {
            if self.call(&["left"]).status == 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(250));
        }
        panic!("left on the hosts:\n{}", self.call(&["left"]).out);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.call(&["down"]);
        let _ = std::fs::remove_dir_all(&self.lab);
    }
}

/// Where [`Cluster::stand_in_for_dgl`] puts its Python.
pub const PYTHON_WITH_STAND_IN: &str = "/srv/python3";

/// A Python with DGL and torch.
pub fn python_with_dgl() -> Option<String> {
    made_by("tests/dgl/python.sh", "DGL")
}

/// What a script has installed, by the path that it prints. Where that cannot be had here, which
/// its status 69 says, a test is skipped, except in continuous integration.
pub fn made_by(script: &str, what: &str) -> Option<String> {
    let made = ran(Command::new(root().join(script)).output().unwrap());
    if made.status == 0 {
        return Some(made.out.trim().to_owned());
    }
    assert!(
        made.status == 69 && std::env::var_os("CI").is_none(),
        "no {what}: status {}: {}",
        made.status,
        made.err
    );
    skipped!("no {what} here: {}", made.err);
    None
}

/// The beginning of a script for the first host of `ip.txt`: until the script ends, it has a server
/// of S3 at `$s3` with a bucket named `bucket`, and `$aws` is a client for it.
pub fn with_s3(bin: &str) -> String {
    format!(
        r#"s3=http://$(head -n 1 ip.txt | cut -d ' ' -f 1):5123
        export AWS_ACCESS_KEY_ID=me AWS_SECRET_ACCESS_KEY=s3cret AWS_DEFAULT_REGION=us-east-1 \
          AWS_EC2_METADATA_DISABLED=true
        {bin}/moto_server -H 0.0.0.0 -p 5123 >moto.log 2>&1 & server=$!
        trap 'kill $server' EXIT
        aws="{bin}/aws --endpoint-url $s3"
        for try in $(seq 100); do $aws s3 mb s3://bucket >mb.log 2>&1 && break; sleep 0.2; done"#
    )
}

/// A partitioned graph as far as the planners look into it: its files begin as DGL's do, with a
/// line of their own behind it.
pub fn partition(folder: &Path, parts: u32) {
    const GRAPH: &[u8] = b"\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd\n";
    const TENSORS: &[u8] = b"\x3f\x44\xa2\x3f\xbe\x9f\x5a\xdd\n";
    let ends: Vec<u32> = (1..=parts).collect();
    let mut config = format!(
        "{{\"graph_name\":\"g\",\"num_nodes\":{parts},\"num_edges\":{parts},\
             \"node_map\":{{\"_N\":{ends:?}}},\"edge_map\":{{\"_N:_E:_N\":{ends:?}}},\
             \"etypes\":{{\"_N:_E:_N\":0}}"
    );
    config += &format!(",\"num_parts\":{parts}");
    for k in 0..parts {
        std::fs::create_dir_all(folder.join(format!("out/part{k}"))).unwrap();
        for (name, magic) in [
            ("node_feat", TENSORS),
            ("edge_feat", TENSORS),
            ("graph", GRAPH),
        ] {
            let content = [magic, format!("{name} of part {k}").as_bytes()].concat();
            std::fs::write(folder.join(format!("out/part{k}/{name}.dgl")), content).unwrap();
        }
        config += &format!(
            ",\"part-{k}\":{{\"node_feats\":\"part{k}/node_feat.dgl\",\
                 \"edge_feats\":\"part{k}/edge_feat.dgl\",\
                 \"part_graph\":\"part{k}/graph.dgl\"}}"
        );
    }
    std::fs::write(folder.join("out/g.json"), config + "}").unwrap();
    std::fs::create_dir_all(folder.join("code")).unwrap();
    std::fs::write(
        folder.join("code/run it.sh"),
        "tail -n 1 \"data/part$RANK/graph.dgl\"; echo; echo \"$1\"\n",
    )
    .unwrap();
}

pub fn ip_config(folder: &Path, hosts: u32) {
    let text: String = (1..=hosts).map(|k| format!("10.77.0.{k}\n")).collect();
    std::fs::write(folder.join("ip.txt"), text).unwrap();
}

/// The recipes of a page, each with what its displays say.
pub fn recipes_of(page: &str, section: &str) -> Vec<(String, String)> {
    let manual = std::fs::read_to_string(root().join(format!("man/{page}.7"))).unwrap();
    let (_, examples) = manual.split_once(&format!("\n.Sh {section}\n")).unwrap();
    let (examples, _) = examples.split_once("\n.Sh ").unwrap();
    let recipe = |text: &str| {
        let (name, rest) = text.split_once('\n').unwrap();
        let shown: Vec<&str> = rest
            .split(".Bd -literal -offset indent\n")
            .skip(1)
            .filter_map(|shown| shown.split("\n.Ed").next())
            // what is fetched and built
            .filter(|shown| !shown.contains("git clone"))
            .collect();
        (name.to_owned(), shown.join("\n"))
    };
    let texts = examples.split(".Ss ").skip(1);
    texts.map(recipe).collect()
}

/// The commands of a display, on paths that are there; the output of one is left out.
pub fn recipe_commands(shown: &str, folder: &Path) -> String {
    let text = shown.replace("\\e", "\\").replace("\\(dq", "\"");
    let is_output = |line: &&str| line.starts_with("10.") || line.starts_with("ip,");
    let lines = text.lines().filter(|line| !is_output(line));
    let lines: Vec<&str> = lines
        .map(|line| line.strip_prefix("$ ").unwrap_or(line))
        .collect();
    let here = |path: &str| folder.join(path).display().to_string();
    lines
        .join("\n")
        .replace("/nfs/job", &here("nfs/job"))
        .replace("/data/job", &here("data/job"))
}
