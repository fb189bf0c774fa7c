//! What `make install` puts in place works from there, and `make uninstall` takes all of it away;
//! so does the wheel of `make wheel`.

use std::path::PathBuf;
use support::{TOOLS, commands, partition, root, scratch, sh, takes_seconds, tools};

/// A pipeline, a Makefile and the manual, with nothing but what lies in a prefix and the system.
/// The prefix is $P.
const USE: &str = r#"
    set -e
    PATH=$P/bin:/usr/bin:/bin; export PATH DGL_TOOLS_CONNECT=local
    dgl-copy --workspace "$PWD/ws" --rel_data_path data --part_config out/g.json \
      --ip_config ip.txt --script_folder code
    ipconf-check ip.txt | host-probe |
      dgl-env --workspace "$PWD/ws" --part-config data/g.json --ip-config ip.txt --role worker \
      -- sh 'code/run it.sh' installed | dgl-spawn --format human
    cp "$EXAMPLE/Makefile" .
    make probe HOSTS=ip.txt WORKSPACE="$PWD/ws" | grep 127.0.0.1
    printf '%s\n' 'include dgl.mk' | PATH=/usr/bin:/bin make -f - -I "$P/include" push \
      HOSTS=ip.txt WORKSPACE="$PWD/ws" PART_CONFIG=out/g.json
    ! command -v man >/dev/null || MANPATH=$P/share/man man dgl-copy | grep 'Differences from'"#;

/// A folder with what the pipeline needs.
fn job() -> PathBuf {
    let folder = scratch();
    partition(&folder, 1);
    std::fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    folder
}

#[test]
fn into_an_empty_prefix() {
    if takes_seconds() {
        return;
    }
    let folder = job();
    let make = |goal: &str| {
        let built = tools();
        let line = format!(
            "make -C '{}' {goal} BUILT='{}' DESTDIR=\"$PWD/root\" PREFIX=/opt/dgl",
            root().display(),
            built.display()
        );
        assert_eq!(sh(&folder, &line).status, 0, "{line}");
    };

    make("install");
    sh(
        &folder,
        &format!(
            "P=$PWD/root/opt/dgl EXAMPLE='{}/tests/example'; {USE}",
            root().display()
        ),
    )
    .ends(0)
    .out_has("worker 0] installed");
    let places = [
        "bin/{}",
        "share/man/man1/{}.1",
        "share/bash-completion/completions/{}",
        "share/fish/vendor_completions.d/{}.fish",
    ];
    let other_pages = [
        "man1/host-agent.1",
        "man5/dgl-tools-records.5",
        "man7/dgl-tools.7",
        "man7/dgl-tools-trouble.7",
    ]
    .map(|page| format!("share/man/{page}"));
    for path in commands()
        .flat_map(|command| places.map(|location| location.replace("{}", command)))
        .chain(other_pages)
        .chain(["share/dgl-tools/records.schema.json".to_owned()])
    {
        assert!(folder.join("root/opt/dgl").join(&path).is_file(), "{path}");
    }

    assert!(
        folder
            .join("root/opt/dgl/libexec/dgl-tools/host-agent")
            .is_file(),
        "what goes to the hosts is not a command"
    );

    make("uninstall");
    assert_eq!(sh(&folder, "find root ! -type d").out, "");
}

#[test]
fn what_cargo_built_elsewhere() {
    let elsewhere = "CARGO_TARGET_DIR=\"$PWD/elsewhere\"";
    let line = format!(
        "{elsewhere} make -n -C '{}' install PREFIX=/opt/dgl",
        root().display()
    );
    let folder = scratch();
    let message = sh(&folder, &line);
    message.ends(0);
    let built = folder.join("elsewhere/release");
    let installed = |tool: &str| {
        message
            .out
            .contains(&format!("{}/{tool} ", built.display()))
    };
    assert!(TOOLS.into_iter().all(installed), "{}", message.out);
    assert!(installed("host-agent"), "{}", message.out);
}

/// The wheel takes minutes to build: it is tried where `make wheel` has made one.
#[test]
fn wheel_in_a_clean_venv() {
    let wheels = tools().with_file_name("wheel");
    let found = sh(
        &scratch(),
        &format!("ls '{}'/dgl_tools-*.whl", wheels.display()),
    )
    .out;
    let Some(wheel) = found.lines().next() else {
        println!("skipped: no wheel in {}: make wheel", wheels.display());
        return;
    };
    let folder = job();
    sh(
        &folder,
        &format!("python3 -m venv venv && venv/bin/pip install --quiet --no-index '{wheel}'"),
    )
    .ends(0);
    sh(
        &folder,
        &format!(
            "P=$PWD/venv EXAMPLE='{}/tests/example'; {USE}",
            root().display()
        ),
    )
    .ends(0)
    .out_has("worker 0] installed");
    for command in commands() {
        assert_eq!(
            sh(&folder, &format!("venv/bin/{command} --version")).status,
            0,
            "{command}"
        );
    }
    let needed = sh(
        &folder,
        "cd venv/bin && readelf -V part-push dgl-spawn host-probe | grep -o \
            'GLIBC_[0-9.]*' | sort -uV | tail -n 1",
    )
    .out;
    let minor: u32 = needed
        .trim()
        .strip_prefix("GLIBC_2.")
        .and_then(|rest| rest.split('.').next())
        .unwrap_or("none")
        .parse()
        .unwrap();
    assert!(minor <= 17, "{needed}");
    let libraries = sh(
        &folder,
        "readelf -d venv/bin/part-push venv/bin/dgl-spawn | grep NEEDED",
    )
    .out;
    assert!(
        libraries.contains("libc.so") && !libraries.contains("ssl") && !libraries.contains("libz"),
        "{libraries}"
    );

    assert_eq!(
        sh(
            &folder,
            "venv/bin/pip uninstall --yes --quiet dgl-tools; find venv -name \
        'dgl*' -o -name 'part-*'"
        )
        .out,
        ""
    );
}

#[test]
fn a_build_needs_less_than_a_rehearsal() {
    let folder = scratch();
    let machine = "mkdir bin && ln -s /usr/bin/* bin && rm -f bin/jq bin/ssh bin/apt-get";
    sh(&folder, machine).ends(0);
    for (purpose, status, missing) in [("build", 0, ""), ("", 69, "openssh-client jq")] {
        let line = format!(
            "PATH=$PWD/bin:$(dirname \"$(command -v cargo)\") PYTHON=python3 '{}' {purpose}",
            root().join("tests/need.sh").display()
        );
        let ran = sh(&folder, &line);
        assert!(
            ran.status == status && ran.err.contains(missing),
            "{purpose}: {}",
            ran.err
        );
    }
}
