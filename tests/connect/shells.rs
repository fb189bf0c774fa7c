//! Login shells with start-up files that print, end the shell, empty PATH, or start another shell
//! in its place. Each is a user of a real sshd, with a home and a shell of its own.

use support::{Cluster, Ran, root, sh};

/// The user's shell, and the file that it reads at each login by ssh; some read none.
const SHELLS: [(&str, &str); 8] = [
    ("bash", ".bashrc"),
    ("zsh", ".zshenv"),
    ("fish", ".config/fish/config.fish"),
    ("tcsh", ".tcshrc"),
    ("csh", ".cshrc"),
    ("dash", ""),
    ("mksh", ""),
    ("busybox", ""),
];

/// What the file does; whether the host can be used then, or else what is told of it.
const STARTS: [(&str, &str, Result<(), &str>); 9] = [
    ("nothing", "", Ok(())),
    (
        "prints",
        "echo welcome; echo noise >&2; echo token need x plain",
        Ok(()),
    ),
    ("fails", "false", Ok(())),
    ("no-path", "PATH=", Ok(())),
    ("zsh", "exec zsh -l", Ok(())),
    ("mksh", "exec mksh", Ok(())),
    (
        "fish",
        "exec fish",
        Err("starts fish even for logins without a terminal"),
    ),
    (
        "tmux",
        "exec tmux",
        Err("starts tmux even for logins without a terminal"),
    ),
    (
        "exit",
        "exit 3",
        Err("its login shell ended before it ran a command"),
    ),
];

/// The program that a file starts.
fn program_of(start: &str) -> &str {
    match start {
        "zsh" | "mksh" | "fish" | "tmux" => start,
        _ => "sh",
    }
}

fn is_installed(program: &str) -> bool {
    let is_installed = sh(&root(), &format!("command -v {program}")).status == 0;
    if !is_installed {
        support::skipped!("no {program} here");
    }
    is_installed
}

/// How a shell of the C family or fish writes it.
fn spelled<'a>(shell: &str, text: &'a str) -> &'a str {
    match (shell, text) {
        ("fish", "PATH=") => "set PATH",
        ("csh" | "tcsh", "PATH=") => "set path = ()",
        ("csh" | "tcsh", "echo welcome; echo noise >&2; echo token need x plain") => {
            "echo welcome; echo token need x plain"
        }
        _ => text,
    }
}

/// Makes a user of host 2 and logs in as that user, for a job of one process.
fn log_in(cluster: &Cluster, folder: &std::path::Path, shell: &str, file: &str, row: usize) -> Ran {
    let (name, text, expected) = STARTS[row];
    // a host that does not answer is waited for this long
    let timeout_s = if expected.is_ok() { 20 } else { 4 };
    let user = format!("{shell}-{name}");
    let home = format!("/srv/{user}");
    // busybox has no name of its own as a shell, and sshd takes only a path
    let path = match shell {
        "busybox" => "/srv/ash".to_owned(),
        _ => format!("/bin/{shell}"),
    };
    let text = spelled(shell, text);
    cluster
        .on(
            2,
            &format!(
                "mkdir -p {home}/.ssh {home}/$(dirname '{file}x') && chmod 700 {home} && \
                 cp ~/.ssh/authorized_keys {home}/.ssh && ln -sf $(command -v busybox) /srv/ash &&
                 {{ [ -z '{file}' ] || printf '%s\\n' '{text}' >{home}/{file}; }} &&
                 {{ [ -e /srv/passwd ] || {{ cp /etc/passwd /srv/passwd && mount --bind \
                 /srv/passwd /etc/passwd; }}; }} &&
                 echo '{user}:x:0:0::{home}:{path}' >>/etc/passwd"
            ),
        )
        .ends(0);
    cluster.sh(
        folder,
        &format!(
            "export DGL_TOOLS_SSH_USERNAME={user} DGL_TOOLS_CONNECT_TIMEOUT={timeout_s}s; \
             echo 10.77.0.2 | ipconf-check | dgl-env --role worker -- printenv RANK 2>/dev/null | \
             dgl-spawn --no-preflight --format human"
        ),
    )
}

fn check(rows: impl Iterator<Item = (usize, usize)>) {
    if support::only_root_can("make users of a host") {
        return;
    }
    let (folder, cluster) = Cluster::listed(2);
    let mut wrong = Vec::new();
    for (shell, row) in rows {
        let (shell, file) = SHELLS[shell];
        let (name, _, expected) = STARTS[row];
        // it would start itself for ever, for any command
        if shell == name || !is_installed(shell) || !is_installed(program_of(name)) {
            continue;
        }
        let ran = log_in(&cluster, &folder, shell, file, row);
        let stays = file.is_empty() || (name == "exit" && !["bash", "zsh"].contains(&shell));
        let holds = match expected {
            // no such file is read, or `exit` ends only the file
            Err(problem) if !stays => ran.status == 74 && ran.err.contains(problem),
            _ => ran.status == 0 && ran.out == "[10.77.0.2 worker 0] 0\n",
        };
        if !holds {
            wrong.push(format!(
                "{shell} {name}: {} {}{}",
                ran.status, ran.out, ran.err
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn login_shells_of_real_hosts_whatever_their_files_start() {
    // bash with each file, and each shell with one
    let files = (0..STARTS.len()).map(|row| (0, row));
    let shells = (1..SHELLS.len()).map(|shell| (shell, 1 + shell % 3));
    check(files.chain(shells));
}

#[test]
#[ignore = "make test-matrices"]
fn the_whole_matrix_of_login_shells_of_real_hosts() {
    let all = (0..SHELLS.len()).flat_map(|shell| (0..STARTS.len()).map(move |row| (shell, row)));
    check(all);
}
