//! All tools in one program, for packages: what they have in common, such as OpenSSL, is there
//! once. The name by which it is called, that of a symbolic link, chooses the tool. So does its
//! first word, for a wheel, which cannot have symbolic links.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The allocator of static builds; the workspace's Cargo.toml says why.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Each tool with what its own main() does.
const TOOLS: [(&str, fn() -> ExitCode); 12] = [
    ("dgl-env", || cli::run("dgl-env", dgl_env::main)),
    ("dgl-reap", dgl_reap::run),
    ("dgl-report", || cli::run("dgl-report", dgl_report::main)),
    ("dgl-spawn", || cli::run("dgl-spawn", dgl_spawn::main)),
    ("dgl-stacks", || cli::run("dgl-stacks", dgl_stacks::main)),
    ("dgl-why", || cli::run("dgl-why", dgl_why::main)),
    ("host-probe", || cli::run("host-probe", host_probe::main)),
    ("host-swap", || cli::run("host-swap", host_swap::main)),
    ("ipconf-check", || {
        cli::run("ipconf-check", ipconf_check::main)
    }),
    ("part-map", || cli::run("part-map", part_map::main)),
    ("part-pull", || cli::run("part-pull", part_pull::main)),
    ("part-push", || cli::run("part-push", part_push::main)),
];

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let called = words.next().unwrap_or_default();
    if let Some(name) = Path::new(&called).file_name()
        && let Some((_, run)) = TOOLS.iter().find(|(tool, _)| OsStr::new(tool) == name)
    {
        return run();
    }
    let first = words.next().unwrap_or_default();
    let Some((tool, _)) = TOOLS.iter().find(|(tool, _)| OsStr::new(tool) == first) else {
        let names = TOOLS.map(|(tool, _)| tool).join(" ");
        record::tell!("dgl-tools: command line: no such tool\n  fix: name one of these: {names}");
        return ExitCode::from(2);
    };
    // a tool reads its command line again, so its name must be the first word there
    let error = match std::env::current_exe() {
        Ok(own) => Command::new(own).arg0(tool).args(words).exec(),
        Err(error) => error,
    };
    record::tell!("dgl-tools: {tool}: {error}");
    ExitCode::FAILURE
}
