//! The fix for each kind of problem. Users paste fixes, so they contain no text from a host.

use wire::preflight::{Holder, Module, Subject};

const OTHER_PORT: &str = "choose another port: without --master-port, dgl-env takes one that \
                          host-probe found free; the other ports are in ip_config.txt";
const OVERWRITE: &str = "jobs of DGL on one host overwrite each other's features without a warning";
const REAP: &str = "ipconf-check ip_config.txt | dgl-reap";

/// What to do about a problem, if known. `environment` is whether host-probe was given one for the
/// job.
pub fn fix(about: Subject, job: &str, environment: bool) -> Option<String> {
    Some(match about {
        Subject::Name { foreign: true } => "choose another --job".to_owned(),
        Subject::Name { foreign: false } => {
            format!("choose another --job, or end that job: {REAP} --job {job}")
        }
        Subject::Abandoned => format!("end it by its name: {REAP} --job NAME"),
        Subject::Port(by) => format!("{}; or {OTHER_PORT}", end_of(by)),
        Subject::SharedMemory(by) => {
            let end = match by {
                Holder::Process | Holder::Hidden => "wait for its end".to_owned(),
                Holder::Job | Holder::ForeignJob => end_of(by),
            };
            format!("{OVERWRITE}: {end}; or use --private-shm")
        }
        Subject::Module(module) => missing_module(module, environment),
        other => return constant(other).map(str::to_owned),
    })
}

fn end_of(holder: Holder) -> String {
    match holder {
        Holder::Job => {
            format!("wait for its end with --wait 1h, or end it by its name: {REAP} --job NAME")
        }
        Holder::ForeignJob => "wait for its end with --wait 1h".to_owned(),
        Holder::Process => "end that process".to_owned(),
        Holder::Hidden => "ask its user what it is".to_owned(),
    }
}

fn missing_module(module: Module, environment: bool) -> String {
    let module = module.name();
    if environment {
        format!("install {module} into that environment")
    } else {
        format!(
            "begin the command with the path of the Python that has {module}, or install it on the \
             host"
        )
    }
}

#[expect(clippy::too_many_lines, reason = "it is a table")]
fn constant(about: Subject) -> Option<&'static str> {
    Some(match about {
        Subject::UnusablePort => OTHER_PORT,
        Subject::LingeringPort { .. } => "wait a minute, or choose another port in ip_config.txt",
        Subject::Address => "write the address that the host has into ip_config.txt",
        Subject::Reach => {
            "open between all hosts the ports of ip_config.txt and those of \
             net.ipv4.ip_local_port_range, at which processes connect to each other; if they are \
             closed, the job hangs"
        }
        Subject::LargePackets => {
            "give all interfaces between them the same MTU: compare ip link on both hosts, and \
             check tunnels between them and jumbo frames in the switch; to try it, ip link set \
             dev INTERFACE mtu 1400 on both; otherwise the job hangs"
        }
        Subject::StaleSharedMemory { foreign: true } => {
            "use --private-shm, or ask the user to run dgl-reap --stale-shm"
        }
        Subject::StaleSharedMemory { foreign: false } => {
            "remove it: ipconf-check ip_config.txt | dgl-reap --stale-shm"
        }
        Subject::SharedMemoryRoom => {
            "make it larger: mount -o remount,size=… /dev/shm, or docker run --shm-size; or more \
             partitions and hosts"
        }
        Subject::PrivateSharedMemory => {
            "run as root on the host, or allow users to create namespaces: sysctl \
             kernel.unprivileged_userns_clone=1 (Debian), \
             kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), docker run --cap-add \
             SYS_ADMIN"
        }
        Subject::File => {
            "correct the command or --workspace, or copy the job with part-map and part-push"
        }
        Subject::OldPath => {
            "DGL looks for it from the directory of the partition config, as part-map writes it: \
             copy it again with part-map and part-push"
        }
        Subject::Permission => "give this user permission to read it on the host",
        Subject::Copy => "copy it again, to all hosts, with part-map and part-push",
        Subject::Partitions => "partition again, or correct ip_config.txt",
        Subject::OpenFiles => {
            "raise the hard limit on the host: LimitNOFILE= of its sshd, or \
             /etc/security/limits.conf"
        }
        Subject::Command { path: true } => {
            "install it on the host, or correct its path, which is relative to the workspace \
             unless it begins with /"
        }
        Subject::Command { path: false } => {
            "install it on the host, give its whole path, or set PATH with --env or --setup in \
             dgl-env"
        }
        Subject::LineEnds => {
            "convert it (sed -i 's/\\r$//' FILE, or git config core.autocrlf input before git \
             clone), and copy it again with part-map and part-push"
        }
        Subject::MountedNoexec => {
            "begin the command with its interpreter (sh, python3), or choose a --workspace on a \
             file system that allows execution; extension modules need one, too"
        }
        Subject::NotExecutable => {
            "run chmod +x on it here and copy it again with part-map and part-push, or begin the \
             command with its interpreter (sh, python3)"
        }
        Subject::Shell => {
            "have the file return before that if there is no terminal: in bash, `[[ $- == *i* ]] \
             || return`; or give the command as words after --"
        }
        Subject::ArgumentSizes => {
            "write long values to a file and read it in the program; ulimit -s unlimited before \
             sshd raises the limit of the sum, but not the 128 KiB for a single value"
        }
        Subject::Python => {
            "try it in a shell on that host; --env and --setup of dgl-env are in force"
        }
        Subject::Answer => {
            "check whether a file system of the host hangs; --no-preflight skips the checks"
        }
        Subject::Host => "check that the host is up, then run this again",
        _ => return None,
    })
}
