//! What `make dist` makes, which takes minutes: each package is tried where there is one, as its
//! user would. tests/dist.sh tries them on systems that have nothing else.

use crate::prefix::{job, use_in};
use std::path::{Path, PathBuf};
use support::{commands, scratch, sh, tools};

/// The package whose name has both parts; `None`, with the reason on stdout, if there is none.
fn package(parts: [&str; 2]) -> Option<PathBuf> {
    let folder = tools().with_file_name("dist");
    let names = std::fs::read_dir(&folder).into_iter().flatten();
    let found = names.map(|entry| entry.unwrap().path()).find(|path| {
        parts
            .iter()
            .all(|part| path.to_str().unwrap().contains(part))
    });
    if found.is_none() {
        let [first, second] = parts;
        println!(
            "skipped: no {first}*{second} in {}: make dist",
            folder.display()
        );
    }
    found
}

/// The same, on a machine of the type for which packages are tried without an emulator.
fn package_for_x86_64(parts: [&str; 2]) -> Option<PathBuf> {
    let is_ours = std::env::consts::ARCH == "x86_64";
    if !is_ours {
        support::skipped!("this machine is no x86_64");
    }
    package(parts).filter(|_| is_ours)
}

/// The commands of a prefix all start, and its programs ask for no library of the system and name
/// no directory of the machine that built them.
fn is_whole(folder: &Path, prefix: &str) {
    for command in commands() {
        sh(folder, &format!("{prefix}/bin/{command} --version")).ends(0);
    }
    for program in ["dgl-tools", "host-agent", "host-agent-aarch64"] {
        let program = format!("{prefix}/libexec/dgl-tools/{program}");
        sh(folder, &format!("readelf -d {program} | grep -c NEEDED")).gives(1, "0\n");
        let home = std::env::var("HOME").unwrap();
        let names = format!("strings {program} | grep -F -e {home}/ -e /dist-work/ -e /target/");
        sh(folder, &names).gives(1, "");
    }
    let used = sh(folder, &format!("du -sm {prefix}/libexec/dgl-tools"));
    let megabytes: u32 = used.out.split_whitespace().next().unwrap().parse().unwrap();
    assert!(megabytes < 40, "{megabytes} MB");
}

#[test]
fn tarball_in_a_folder() {
    let Some(tarball) = package_for_x86_64(["dgl-tools-", "-x86_64-linux.tar.gz"]) else {
        return;
    };
    let folder = job();
    let unpack = format!(
        "mkdir opt && tar xf '{}' -C opt --strip 1",
        tarball.display()
    );
    sh(&folder, &unpack).ends(0);
    use_in(&folder, "opt");
    is_whole(&folder, "opt");
    let licences = "grep -q Apache opt/share/doc/dgl-tools/LICENSE &&
        test -s opt/share/doc/dgl-tools/README.md -a -s opt/share/doc/dgl-tools/SECURITY.md &&
        test -s opt/share/doc/dgl-tools/site/tutorials/hang.md &&
        grep '^openssl-src ' opt/share/doc/dgl-tools/THIRD-PARTY";
    sh(&folder, licences).ends(0);
}

#[test]
fn debian_package_in_a_folder() {
    let Some(package) = package_for_x86_64(["dgl-tools_", "_amd64.deb"]) else {
        return;
    };
    let folder = job();
    sh(
        &folder,
        &format!("dpkg-deb -x '{}' root", package.display()),
    )
    .ends(0);
    use_in(&folder, "root/usr");
    is_whole(&folder, "root/usr");
    let depends = format!("dpkg-deb -f '{}' | grep -c ^Depends", package.display());
    sh(&folder, &depends).gives(1, "0\n");
}

#[test]
fn wheel_in_a_clean_venv() {
    let Some(wheel) = package_for_x86_64(["dgl_tools-", "_x86_64.whl"]) else {
        return;
    };
    let folder = job();
    let install = format!(
        "python3 -m venv venv && venv/bin/pip install --quiet --no-index '{}'",
        wheel.display()
    );
    sh(&folder, &install).ends(0);
    use_in(&folder, "venv");
    is_whole(&folder, "venv");
    // as pipx and uv make commands of what a wheel brings
    let link = "ln -s venv/bin/part-map . && ./part-map --version";
    sh(&folder, link).ends(0).out_has("part-map ");
    let uninstall = "venv/bin/pip uninstall --yes --quiet dgl-tools;
        find venv -name 'dgl*' -o -name 'part-*'";
    sh(&folder, uninstall).gives(0, "");
}

/// The tools run under an emulator, and the host is this machine, of another type than theirs.
#[test]
fn tarball_for_aarch64_under_an_emulator() {
    let Some(tarball) = package(["dgl-tools-", "-aarch64-linux.tar.gz"]) else {
        return;
    };
    let folder = scratch();
    if sh(&folder, "command -v qemu-aarch64-static").status != 0 {
        support::skipped!("there is no qemu-aarch64-static (Debian: qemu-user-static)");
        return;
    }
    sh(
        &folder,
        &format!("tar xf '{}' --strip 1", tarball.display()),
    )
    .ends(0);
    let script = r#"
        set -e
        run() { tool=$1; shift; qemu-aarch64-static -0 "bin/$tool" bin/$tool "$@"; }
        echo content >file; echo 127.0.0.1 >ip.txt
        # the kernel does not know how to run its host-agent: the host is this machine as it is
        printf 'exec "$@"\n' >host
        export DGL_TOOLS_CONNECT='sh ./host' HOME="$PWD"
        run ipconf-check ip.txt | run host-probe |
          run part-map --workspace "$PWD/ws" --extra file | run part-push >/dev/null
        cat ws/file
        echo '{"do":"probe","python":{"command":"python3"}}' |
          qemu-aarch64-static libexec/dgl-tools/host-agent |
          jq -r '.event, .cpus // empty | tostring' | sed 's/[0-9].*/N/'"#;
    sh(&folder, script).gives(
        0,
        "content
probed
N
done
",
    );
}
