//! How host-agent comes to a host: whatever shell is there, whatever the directories are like,
//! whatever breaks on the way. Each test is a login of its own by a command that starts a shell,
//! with a home of its own.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use support::{Ran, executable, make_folder, scratch, sh, shells, soon, tools, write};

/// A host with a home and a directory for temporary files.
struct Host {
    folder: PathBuf,
}

impl Host {
    fn new() -> Host {
        let folder = scratch();
        for part in ["home", "tmp"] {
            let mut own = std::fs::DirBuilder::new();
            own.mode(0o700).create(folder.join(part)).unwrap();
        }
        Host { folder }
    }

    /// Logs in; `login` is a script that gets the words `sh -c COMMAND` and runs them, in whatever
    /// surroundings.
    fn log_in(&self, login: &str) -> Ran {
        executable(&self.folder, "login", &format!("#!/bin/sh\n{login}\n"));
        self.log_in_again()
    }

    fn log_in_again(&self) -> Ran {
        self.log_in_within("60s")
    }

    /// Logs in again; `limit` is the longest silence.
    fn log_in_within(&self, limit: &str) -> Ran {
        self.run(limit, "dgl-reap --list")
    }

    /// Runs a tool, or a pipeline, on the host.
    fn run(&self, limit: &str, tool: &str) -> Ran {
        let own = "env -u XDG_CACHE_HOME -u DGL_TOOLS_AGENT_DIR HOME=$PWD/home TMPDIR=$PWD/tmp \
            USER=me LOGNAME=me";
        sh(
            &self.folder,
            &format!(
                "export DGL_TOOLS_CONNECT_TIMEOUT={limit}; \
                 echo 10.99.0.1 | ipconf-check | {tool} --connect \"{own} $PWD/login\""
            ),
        )
    }

    fn cache(&self) -> PathBuf {
        self.folder.join("home/.cache/dgl-tools")
    }

    /// The directory below $TMPDIR; it has the number of the user in its name, which may be another
    /// one in there.
    fn fallback(&self) -> PathBuf {
        let names = names_in(&self.folder.join("tmp"));
        let number = |name: &String| {
            name.strip_prefix("dgl-tools-")
                .is_some_and(|uid| uid.bytes().all(|byte| byte.is_ascii_digit()))
        };
        assert!(names.len() == 1 && number(&names[0]), "{names:?}");
        self.folder.join("tmp").join(&names[0])
    }

    /// The only agent in a directory, and nothing beside it.
    fn only_agent_in(&self, folder: &Path) -> PathBuf {
        let names = names_in(folder);
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(is_agent(&names[0]), "{names:?}");
        folder.join(&names[0])
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// `host-agent-` and a hash.
fn is_agent(name: &str) -> bool {
    name.strip_prefix("host-agent-")
        .is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn well(ran: &Ran) {
    ran.ends(0);
}

/// With root of a namespace of its own, where it may mount; runs `first` before the words.
fn with_mounts(first: &str) -> String {
    format!("exec unshare --user --map-root-user --mount sh -c '{first}; exec \"$@\"' sh \"$@\"")
}

/// Mounts an empty disk on each of the machine's own directories that are tried last. The working
/// directory may lie below one of them; `.` still is the directory that the mount hides, unless
/// mount(8) makes a path of it.
fn own_disks(options: &str) -> String {
    ["/dev/shm", "/var/tmp"]
        .map(|folder| format!("mount -t tmpfs -o {options} tmpfs {folder}"))
        .join(" && ")
        + " && mkdir -p $PWD && mount --no-canonicalize --bind . $PWD"
}

#[test]
fn slow_every_shell_takes_the_agent_once() {
    let umask = "dgl-env --role worker -- sh -c umask 2>/dev/null | \
        dgl-spawn --no-preflight --format human";
    for shell in shells() {
        let host = Host::new();
        let login = format!("shift; umask 027; exec {shell} \"$@\"");
        well(&host.log_in(&login));
        let agent = host.only_agent_in(&host.cache());
        let (first, folder) = (
            std::fs::metadata(&agent).unwrap(),
            std::fs::metadata(host.cache()).unwrap(),
        );
        assert_eq!(
            (first.mode() & 0o777, folder.mode() & 0o777),
            (0o700, 0o700),
            "{shell}"
        );
        // the agent's own files are private, but not what a job writes
        host.run("60s", umask)
            .gives(0, "[10.99.0.1 worker 0] 0027\n");
        assert_eq!(
            std::fs::metadata(host.only_agent_in(&host.cache()))
                .unwrap()
                .ino(),
            first.ino(),
            "{shell}: it was sent again"
        );
    }
}

#[test]
fn slow_below_any_login_shell_and_its_noise() {
    let shells = ["csh", "tcsh", "fish", "zsh", "bash -l", "dash", "mksh"];
    for shell in shells
        .into_iter()
        .filter(|shell| sh(&tools(), &format!("command -v {shell}")).status == 0)
    {
        let host = Host::new();
        // as sshd does: the user's shell gets one line
        let login = format!(
            "printf 'Welcome\\nno line end'; echo noise >&2; exec {shell} -c \"$1 $2 '$3'\""
        );
        well(&host.log_in(&login));
        host.only_agent_in(&host.cache());
    }
    let host = Host::new();
    host.log_in("exec yes")
        .ends(74)
        .err_has("prints more than")
        .err_has("~/.bashrc");
}

#[test]
fn slow_a_folder_that_does_not_allow_execution_is_passed_over() {
    let noexec = "mount -t tmpfs -o noexec,mode=0700 tmpfs $HOME";
    let host = Host::new();
    well(&host.log_in(&with_mounts(noexec)));
    host.only_agent_in(&host.fallback());
    // the agent is there already, brought by a host that shares the home and may execute
    let host = Host::new();
    well(&host.log_in("exec \"$@\""));
    host.only_agent_in(&host.cache());
    well(&host.log_in(&with_mounts(&format!(
        "cp -a home keep && {noexec} && cp -a keep/. home"
    ))));
    host.only_agent_in(&host.fallback());
}

#[test]
fn slow_a_full_folder_is_passed_over() {
    for size in ["4k", "64k"] {
        let host = Host::new();
        let full = format!(
            "mount -t tmpfs -o mode=0700,size={size} tmpfs $HOME && {{ [ {size} != 4k ] || mkdir \
             -p $HOME/.cache/dgl-tools; }}"
        );
        well(&host.log_in(&with_mounts(&full)));
        host.only_agent_in(&host.fallback());
    }
}

#[test]
fn slow_a_folder_that_is_a_link_or_somebody_elses_is_refused() {
    let host = Host::new();
    let elsewhere = host.folder.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    make_folder(&host.folder, "home/.cache");
    std::os::unix::fs::symlink(&elsewhere, host.cache()).unwrap();
    well(&host.log_in("exec \"$@\""));
    assert_eq!(names_in(&elsewhere), [""; 0]);
    host.only_agent_in(&host.fallback());

    // a file of that name in a directory of another user is not run either
    let host = Host::new();
    well(&host.log_in("exec \"$@\""));
    let agent = host.only_agent_in(&host.cache());
    executable(&host.cache(), &agent, "#!/bin/sh\n: >../../../was-run\n");
    let other = std::fs::metadata(&agent).unwrap().uid() + 1;
    if std::os::unix::fs::chown(host.cache(), Some(other), None).is_err() {
        support::skipped!("only root can give a directory away");
        return;
    }
    well(&host.log_in_again());
    assert!(!host.folder.join("was-run").exists());
    host.only_agent_in(&host.fallback());
}

/// Another user who can write the directory above the agent's puts theirs in its place, again and
/// again, while the script looks at it.
#[test]
fn slow_an_agent_that_others_can_replace_is_not_run() {
    let host = Host::new();
    well(&host.log_in("exec \"$@\""));
    let agent = host.only_agent_in(&host.cache());
    let name = agent.file_name().unwrap().to_str().unwrap();
    let theirs = host.folder.join("home/.cache/theirs");
    let evil = format!(
        "#!/bin/sh\n: >'{}/was-run'\necho {}\n",
        host.folder.display(),
        name.replace("host-agent-", "")
    );
    executable(&theirs, name, &evil);
    let stranger = Some(12345);
    let given =
        [&theirs, &theirs.join(name)].map(|path| std::os::unix::fs::chown(path, stranger, None));
    if given.iter().any(Result::is_err) {
        support::skipped!("only root can give a directory away");
        return;
    }
    let above = host.folder.join("home/.cache");
    std::fs::set_permissions(&above, std::fs::Permissions::from_mode(0o777)).unwrap();
    let is_over = AtomicBool::new(false);
    let logins = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let (here, cache) = (nix::fcntl::AT_FDCWD, host.cache());
                let flags = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
                nix::fcntl::renameat2(here, &theirs, here, &cache, flags).unwrap();
            }
        });
        let logins: Vec<Ran> = (0..15).map(|_| host.log_in_again()).collect();
        is_over.store(true, Ordering::Relaxed);
        logins
    });
    assert!(!host.folder.join("was-run").exists());
    logins.iter().for_each(well);
    host.only_agent_in(&host.fallback());
}

/// Where root is not mapped, root and all other users have one uid, and so does `/`.
#[test]
fn another_users_agent_is_not_roots_in_a_user_namespace() {
    if support::only_root_can("act as other users") {
        return;
    }
    let support::OpenFolder(folder) = &support::OpenFolder::with_tools("namespace");
    let [user, other] =
        [12345, 12346].map(|uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups"));
    let evil = "#!/bin/sh\n: >\"${0%/*/*}/ran/it\"\nn=${0##*/host-agent-}; echo $n\n";
    write(folder, "evil", evil);
    // the user's first agent, by its name; the other user has the next directory
    let script = format!(
        "PATH=\"$PWD/bin:$PATH\"
        install -d -o 12345 -g 12345 home; install -d -m 1777 tmp ran
        reap() {{ echo 127.0.0.1 | ipconf-check | {user} env -u XDG_CACHE_HOME HOME=\"$1\" \\
            TMPDIR=\"$PWD/tmp\" dgl-reap --list --connect \"unshare --user $2\" >/dev/null; }}
        reap \"$PWD/home\" --map-current-user; echo $?
        agent=$(ls home/.cache/dgl-tools)
        for uid in 12345 65534; do
            {other} mkdir -m 755 tmp/dgl-tools-$uid
            {other} install -m 755 evil tmp/dgl-tools-$uid/$agent
        done
        reap /nonexistent --map-current-user; echo $?
        reap /nonexistent --keep-caps; echo $?
        ls ran; rm -rf /dev/shm/dgl-tools-12345
        rmdir /dev/shm/dgl-tools-65534 /var/tmp/dgl-tools-65534"
    );
    let ran = sh(folder, &script);
    // without any mapping, even the user's own files cannot be told from those of others
    assert_eq!(ran.out, "0\n0\n74\n", "{}", ran.err);
}

#[test]
fn a_folder_of_which_nothing_is_known_is_not_trusted() {
    let host = Host::new();
    executable(&host.folder.join("bin"), "ls", "#!/bin/sh\nexit 0\n");
    host.log_in("PATH=$PWD/bin:$PATH; exec \"$@\"")
        .ends(74)
        .err_has("/home/.cache/dgl-tools (others can write it or a directory above it)");
    assert_eq!(names_in(&host.cache()), [""; 0]);
}

#[test]
fn where_no_folder_will_do_all_are_named_with_the_cure() {
    let host = Host::new();
    let mounts =
        ["$HOME", "$TMPDIR"].map(|folder| format!("mount -t tmpfs -o noexec tmpfs {folder}"));
    let mounts = format!("{} && {}", own_disks("noexec"), mounts.join(" && "));
    let refused = host.log_in(&with_mounts(&mounts));
    refused.ends(74);
    for words in [
        "no directory on the host can hold and run host-agent",
        "/home/.cache/dgl-tools (full, read-only or noexec)",
        "/var/tmp/dgl-tools-",
        "DGL_TOOLS_AGENT_DIR",
    ] {
        refused.err_has(words);
    }
    // the fix
    let cured = host.log_in(&format!(
        "export DGL_TOOLS_AGENT_DIR=$PWD/own\n{}",
        with_mounts(&mounts)
    ));
    well(&cured);
    host.only_agent_in(&host.folder.join("own"));
}

#[test]
fn slow_hosts_that_share_a_home_take_one_agent_at_the_same_time() {
    let host = Host::new();
    executable(&host.folder, "login", "#!/bin/sh\nexec \"$@\"\n");
    let reap = "echo 10.99.0.$n | ipconf-check | \
        DGL_TOOLS_CONNECT_TIMEOUT=60s dgl-reap --list --connect \
        \"env -u XDG_CACHE_HOME HOME=$PWD/home $PWD/login\" >out.$n 2>err.$n";
    let all = sh(
        &host.folder,
        &format!(
            "for n in $(seq 20); do ({reap}; echo $? >status.$n) & done; wait; cat status.* | \
             sort | uniq -c; cat err.*"
        ),
    );
    assert!(all.out.trim_start().starts_with("20 0\n"), "{}", all.out);
    host.only_agent_in(&host.cache());
}

#[test]
fn slow_what_a_cut_leaves_is_removed_later() {
    let host = Host::new();
    let cut = "#!/bin/sh\nhead -c 1000\nkill -s KILL 0\n";
    for program in ["gzip", "cat"] {
        executable(&host.folder.join("bin"), program, cut);
    }
    host.log_in("PATH=$PWD/bin:$PATH exec setsid --wait \"$@\"")
        .ends(74);
    let names = names_in(&host.cache());
    assert!(
        names.len() == 1 && names[0].len() == 33 && names[0].starts_with('.'),
        "half of an agent: {names:?}"
    );

    // the next one works, and leaves alone what may be another's that is under way
    well(&host.log_in("exec \"$@\""));
    assert_eq!(names_in(&host.cache()).len(), 2);
    let foreign = host.cache().join("venv-dgl-1.0.4-1");
    std::fs::write(&foreign, "").unwrap();
    sh(
        &host.cache(),
        "touch -d '2 days ago' .[0-9a-f]* host-agent-* venv*",
    )
    .ends(0);
    well(&host.log_in_again());
    let names = names_in(&host.cache());
    assert!(
        names.len() == 2 && is_agent(&names[0]) && names[1] == "venv-dgl-1.0.4-1",
        "{names:?}"
    );
}

/// A link that takes in whatever it is given at once, as the buffers of pipes, ssh and sockets do,
/// and lets a number of bytes a second through; after the last of them it stands still.
const LINK: &str = r#"
import os, sys, threading, time

rate, last = float(sys.argv[1]), float(sys.argv[2])
held, begun, before, through = bytearray(), time.monotonic(), 0, 0
lock, is_over = threading.Lock(), threading.Event()

def take_in():
    while some := os.read(0, 1 << 20):
        with lock:
            held.extend(some)
    is_over.set()

threading.Thread(target=take_in).start()
while not (is_over.is_set() and (not held or through >= last)):
    time.sleep(0.02)
    with lock:
        if not held:
            begun, before = time.monotonic(), through
            continue
        allowed = min(last, before + (time.monotonic() - begun) * rate)
        some = bytes(held[:max(0, int(allowed - through))])
        del held[:len(some)]
    through += len(some)
    while some:
        some = some[os.write(1, some):]
"#;

#[test]
fn slow_a_slow_link_may_take_its_time_and_one_that_stands_still_may_not() {
    let limit = 5;
    let packed = sh(&tools(), "gzip -1c host-agent | wc -c").out;
    let packed: u64 = packed.trim().parse().unwrap();
    let rate = packed / (limit * 5 / 2);
    for (last, is_whole) in [(packed * 2, true), (packed / 4, false)] {
        let host = Host::new();
        write(&host.folder, "link", LINK);
        let login = format!("#!/bin/sh\npython3 $PWD/link {rate} {last} | setsid --wait \"$@\"\n");
        executable(&host.folder, "login", &login);
        let begun = Instant::now();
        let ran = host.log_in_within(&format!("{limit}s"));
        let seconds = begun.elapsed().as_secs();
        if is_whole {
            well(&ran);
            assert!(seconds > 2 * limit, "it was no slow link: {seconds} s");
            host.only_agent_in(&host.cache());
        } else {
            ran.ends(74);
            let message = format!("no answer within {limit} s");
            ran.err_has(&message);
            soon("half of an agent is removed", || {
                names_in(&host.cache()).is_empty()
            });
        }
    }
}

#[test]
fn an_agent_that_was_not_used_for_a_month_is_removed() {
    let host = Host::new();
    well(&host.log_in("exec \"$@\""));
    let own = host.only_agent_in(&host.cache());
    for (age, name) in [(40, "1"), (20, "2")] {
        let other = host.cache().join(format!("host-agent-{}", name.repeat(64)));
        std::fs::write(&other, "").unwrap();
        sh(
            &host.cache(),
            &format!("touch -d '{age} days ago' {}", other.display()),
        )
        .ends(0);
    }
    sh(
        &host.cache(),
        &format!("touch -d '40 days ago' {}", own.display()),
    )
    .ends(0);
    well(&host.log_in_again());
    let left = names_in(&host.cache());
    assert!(
        left.contains(&own.file_name().unwrap().to_str().unwrap().to_owned()),
        "{left:?}"
    );
    assert!(
        left.contains(&format!("host-agent-{}", "2".repeat(64))) && left.len() == 2,
        "{left:?}"
    );
}

/// A machine that lost its power leaves empty files and cut ones.
#[test]
fn slow_an_agent_that_does_not_run_is_sent_again() {
    let host = Host::new();
    well(&host.log_in("exec \"$@\""));
    let agent = host.only_agent_in(&host.cache());
    let whole = std::fs::read(&agent).unwrap();
    for broken in [&b""[..], &whole[..whole.len() / 2], b"exit 0\n", &[0; 4096]] {
        std::fs::write(&agent, broken).unwrap();
        well(&host.log_in_again());
        assert!(
            std::fs::read(host.only_agent_in(&host.cache())).unwrap() == whole,
            "{} bytes",
            broken.len()
        );
    }
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o600)).unwrap();
    well(&host.log_in_again());
    assert_eq!(
        std::fs::metadata(host.only_agent_in(&host.cache()))
            .unwrap()
            .mode()
            & 0o777,
        0o700
    );
}

#[test]
fn another_machine_type_is_refused_with_the_cure() {
    let host = Host::new();
    let table = [
        (
            "Linux",
            "riscv64",
            "this machine has no host-agent for its machine type, riscv64",
            "make agent TARGET=riscv64gc-unknown-linux-gnu, then name its directory in \
             DGL_TOOLS_AGENTS",
        ),
        (
            "Darwin",
            "arm64",
            "the host runs Darwin, but jobs need Linux",
            "",
        ),
    ];
    for (system, machine, problem, fix) in table {
        let uname =
            format!("#!/bin/sh\ncase $1 in -s) echo {system} ;; -m) echo {machine} ;; esac\n");
        executable(&host.folder, "bin/uname", &uname);
        host.log_in("PATH=$PWD/bin:$PATH exec \"$@\"")
            .ends(74)
            .err_has(problem)
            .err_has(fix);
        assert!(!host.cache().exists());
    }
    // with its agent in a directory that is named, it is that which is sent
    let agents = "mkdir -p agents && printf '#!/bin/sh\necho never\n' >agents/host-agent-riscv64";
    executable(
        &host.folder,
        "bin/uname",
        "#!/bin/sh\ncase $1 in -s) echo Linux ;; -m) echo riscv64 ;; esac\n",
    );
    sh(&host.folder, agents).ends(0);
    // every directory is tried in turn, and those of the machine are not to keep a trace of it
    let login = format!(
        "#!/bin/sh\nexport PATH=\"$PWD/bin:$PATH\"\n{}\n",
        with_mounts(&own_disks("mode=1777"))
    );
    executable(&host.folder, "login", &login);
    let own = "env -u XDG_CACHE_HOME HOME=$PWD/home TMPDIR=$PWD/tmp USER=me LOGNAME=me \
        DGL_TOOLS_AGENT_DIR=$PWD/own";
    let reap = format!("dgl-reap --list --connect \"{own} $PWD/login\"");
    sh(
        &host.folder,
        &format!("echo 10.99.0.1 | ipconf-check | DGL_TOOLS_AGENTS=$PWD/agents {reap}"),
    )
    .ends(74)
    .err_has("/own (it did not arrive whole, or does not run)");
}

/// A busybox, a libc where the agent needs one, /proc, and nothing else: neither gzip nor base64,
/// dd, awk, tar or Python.
#[test]
fn a_host_that_has_next_to_nothing() {
    support::need("busybox");
    let folder = scratch();
    let make = r#"
        mkdir -p root/bin root/proc root/dev root/home
        : >root/dev/null && chmod 666 root/dev/null
        cp "$(command -v busybox)" root/bin/busybox
        for program in sh cat head chmod ls mkdir mv rm uname env; do
            ln -s busybox root/bin/$program
        done
        for file in root/bin/busybox "$AGENT"; do
            ldd "$file" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
                mkdir -p "root/${library%/*}" && cp -L "$library" "root/$library"; done
        done"#;
    let agent = tools().join("host-agent");
    sh(&folder, &format!("AGENT='{}'; {make}", agent.display())).ends(0);
    // chroot is not in the PATH of Debian's users
    let enter = "PATH=$PATH:/usr/sbin:/sbin
        exec unshare --user --map-root-user --pid --fork --kill-child \
        --mount-proc=$PWD/root/proc chroot $PWD/root \
                 /bin/env -i PATH=/bin HOME=/home \"$@\"\n";
    executable(&folder, "enter", &format!("#!/bin/sh\n{enter}"));
    let job = format!("env {}", folder.join("enter").display());
    let listed = sh(
        &folder,
        &format!(
            "echo 10.99.0.1 | ipconf-check >h && for n in 1 2; do dgl-reap --list --connect \
             '{job}' <h || exit; done"
        ),
    );
    well(&listed);
    assert!(is_agent(
        &names_in(&folder.join("root/home/.cache/dgl-tools"))[0]
    ));
}

/// Nothing but /proc.
#[test]
fn the_static_agent_runs_where_there_is_nothing_at_all() {
    let agents = ["static-host-agent", "../release/host-agent"].map(|agent| tools().join(agent));
    let is_static = |agent: &&PathBuf| {
        let asked = sh(&tools(), &format!("ldd '{}' 2>&1", agent.display()));
        asked.out.contains("statically linked")
    };
    let Some(agent) = agents.iter().find(is_static) else {
        support::skipped!("no static host-agent: packaging/agent.sh --dev");
        return;
    };
    let folder = scratch();
    std::fs::copy(agent, folder.join("host-agent")).unwrap();
    sh(
        &folder,
        "mkdir proc; echo '{\"do\":\"list_jobs\"}' | PATH=$PATH:/usr/sbin:/sbin unshare --user \
         --map-root-user --mount sh -c 'mount --rbind /proc proc && exec chroot . /host-agent'",
    )
    .gives(0, "{\"event\":\"done\"}\n");
}

/// A script in a workspace from which nothing may be executed.
#[test]
fn a_script_on_a_disk_that_is_mounted_noexec_is_named() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let ran = sh(
        &folder,
        "mkdir ws
         ipconf-check ip.txt | dgl-env --role worker --workspace \"$PWD/ws\" -- ./run.sh >job
         unshare -rm sh -c 'mount -t tmpfs -o noexec tmpfs ws &&
           printf \"#!/bin/sh\\n\" >ws/run.sh && chmod +x ws/run.sh &&
           dgl-spawn --connect local <job'",
    );
    ran.ends(74)
        .err_has("/ws/run.sh cannot be executed, because its file system is mounted with noexec")
        .err_has("begin the command with its interpreter");
}
