//! What `make install` puts in place works from there, and `make uninstall` takes all of it away.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{TOOLS, commands, partition, root, scratch, sh, tools, write};

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

/// Runs it with the prefix `prefix`, in a directory that [`job`] made.
pub fn use_in(folder: &Path, prefix: &str) {
    let example = root().join("examples/dgl");
    let script = format!("P=$PWD/{prefix} EXAMPLE='{}'; {USE}", example.display());
    sh(folder, &script).ends(0).out_has("worker 0] installed");
}

/// A directory with what the pipeline needs.
pub fn job() -> PathBuf {
    let folder = scratch();
    partition(&folder, 1);
    write(&folder, "ip.txt", "127.0.0.1\n");
    folder
}

#[test]
fn slow_into_an_empty_prefix() {
    let folder = job();
    let make = |goal: &str| {
        let built = tools();
        let line = format!(
            "make -C '{}' {goal} BUILT='{}' DESTDIR=\"$PWD/root\" PREFIX=/opt/dgl",
            root().display(),
            built.display()
        );
        sh(&folder, &line).ends(0);
    };

    make("install");
    use_in(&folder, "root/opt/dgl");
    let places = [
        "bin/{}",
        "share/man/man1/{}.1",
        "share/bash-completion/completions/{}",
        "share/fish/vendor_completions.d/{}.fish",
    ];
    let of_repository = sh(&root(), "find man examples -type f ! -name .gitignore");
    let page = |path: &str| {
        let (_, section) = path.rsplit_once('.').unwrap();
        path.replace("man/", &format!("share/man/man{section}/"))
    };
    let pages_and_examples: Vec<String> = of_repository
        .out
        .lines()
        .map(|path| {
            if path.starts_with("man/") {
                page(path)
            } else {
                format!("share/dgl-tools/{path}")
            }
        })
        .collect();
    assert!(pages_and_examples.len() > 40, "{pages_and_examples:?}");
    for path in commands()
        .flat_map(|command| places.map(|location| location.replace("{}", command)))
        .chain(pages_and_examples)
        .chain(
            [
                "bin/dgl-tools",
                "include/dgl.mk",
                "share/dgl-tools/records.schema.json",
            ]
            .map(str::to_owned),
        )
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

/// As packages install the tools: all in one program, chosen by the name of a symbolic link, or by
/// the first word.
#[test]
fn slow_all_tools_in_one_program() {
    let folder = job();
    let built = tools();
    let line = format!(
        "mkdir built && ln -s '{built}/dgl-tools' '{built}/host-agent' built &&
         make -C '{root}' install BUILT=\"$PWD/built\" DESTDIR=\"$PWD/root\" PREFIX=/opt/dgl",
        built = built.display(),
        root = root().display()
    );
    sh(&folder, &line).ends(0);
    use_in(&folder, "root/opt/dgl");
    let program = "root/opt/dgl/libexec/dgl-tools/dgl-tools";
    for tool in TOOLS {
        let link = format!("root/opt/dgl/bin/{tool}");
        assert!(folder.join(&link).is_symlink(), "{tool}");
        let alone = sh(&folder, &format!("{tool} --help"));
        for call in [link, format!("{program} {tool}")] {
            sh(&folder, &format!("{call} --help")).gives(0, &alone.out);
        }
    }
    for none in ["", "part-pish"] {
        sh(&folder, &format!("{program} {none}"))
            .ends(2)
            .err_has("fix: name one of these: dgl-env");
    }
}

#[test]
fn a_build_needs_less_than_a_rehearsal() {
    let folder = scratch();
    let machine = "mkdir bin && ln -s /usr/bin/* bin && rm -f bin/jq bin/ssh bin/apt-get";
    sh(&folder, machine).ends(0);
    let table = [
        ("build", 0, ""),
        ("hosts", 69, "to simulate hosts: openssh-client"),
        ("", 69, "to read records in tests and scripts: jq"),
    ];
    for (purpose, status, missing) in table {
        let line = format!(
            "PATH=$PWD/bin:$(dirname \"$(command -v cargo)\") PYTHON=python3 '{}' {purpose}",
            root().join("tests/need.sh").display()
        );
        sh(&folder, &line).ends(status).err_has(missing);
    }
}

#[test]
fn contributing_lists_every_package_that_is_installed() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let (script, page) = (read("tests/need.sh"), read("CONTRIBUTING.md"));
    let listed: BTreeSet<&str> = page
        .split(|c: char| !c.is_ascii_alphanumeric() && !"-.".contains(c))
        .map(|word| word.trim_matches('.'))
        .collect();
    let mut packages = BTreeSet::new();
    for line in script.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["need", _, package] => packages.extend([package]),
            ["for", "package", "in", ..] => {
                packages.extend(words[3..].iter().map(|word| word.trim_matches(';')));
            }
            _ => {
                let added = line
                    .split_once("missing=\"$missing ")
                    .map_or("", |(_, added)| added);
                packages.extend(added.split('"').next().unwrap().split_whitespace());
            }
        }
    }
    packages.retain(|package| !["$2", "$1", "do", ""].contains(package));
    assert!(packages.len() > 40, "{packages:?}");
    let missing: Vec<_> = packages.difference(&listed).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
