//! host-probe --venv and --conda: the environment is found on each host, and the job runs in it.
//! Its conda environments have what real ones have of what is looked at: conda-meta, condabin,
//! bin/python.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use support::{
    Cluster, PYTHON_WITH_STAND_IN, Ran, ip_config, make_folder, partition, scratch, sh, shells,
    takes_seconds, write,
};

/// This machine as a host, with a home of its own and nothing of its conda.
fn host() -> (PathBuf, String) {
    let folder = scratch();
    let home = folder.join("home");
    fs::create_dir_all(&home).unwrap();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let clean = "unset CONDA_EXE CONDA_ENVS_PATH CONDA_ENVS_DIRS CONDARC MAMBA_ROOT_PREFIX \
        CONDA_PREFIX CONDA_DEFAULT_ENV VIRTUAL_ENV";
    (
        folder,
        format!("export HOME='{}'; {clean}; ", home.display()),
    )
}

/// A conda environment with a Python of the machine's.
fn conda(prefix: &Path) {
    make_folder(prefix, "conda-meta");
    make_folder(prefix, "bin");
    let python = sh(
        Path::new("/"),
        "python3 -c 'import sys; print(sys.executable)'",
    )
    .out;
    symlink(python.trim(), prefix.join("bin/python3.99")).unwrap();
    symlink("python3.99", prefix.join("bin/python")).unwrap();
}

const FOUND: &str = "jq -r '[.prefix, .conda_env // \"-\", .python_path] | join(\" \")'";

#[test]
fn conda_is_found_as_people_have_it() {
    if takes_seconds() {
        return;
    }
    let (folder, env) = host();
    let home = folder.join("home");
    let f = folder.display();
    // how it is found; what makes it findable; the environment that is asked for, where it lies,
    // what conda calls it
    let table: [(&str, String, &str, String, &str); 13] = [
        (
            "installer's place",
            String::new(),
            "gnn",
            format!("{f}/home/miniforge3/envs/gnn"),
            "gnn",
        ),
        (
            "base",
            String::new(),
            "base",
            format!("{f}/home/anaconda3"),
            "base",
        ),
        (
            "CONDA_EXE",
            format!("export CONDA_EXE='{f}/c1/bin/conda'"),
            "gnn",
            format!("{f}/c1/envs/gnn"),
            "gnn",
        ),
        (
            "CONDA_EXE, base",
            format!("export CONDA_EXE='{f}/c1/bin/conda'"),
            "base",
            format!("{f}/c1"),
            "base",
        ),
        (
            "conda in PATH",
            format!(
                "mkdir bin; printf '#!/bin/sh\\n[ \"$*\" = \"info --base\" ] && echo {f}/c2\\n' \
                 >bin/conda; chmod +x bin/conda; PATH=$PWD/bin:$PATH"
            ),
            "gnn",
            format!("{f}/c2/envs/gnn"),
            "gnn",
        ),
        (
            "micromamba",
            format!("export MAMBA_ROOT_PREFIX='{f}/mamba'"),
            "gnn",
            format!("{f}/mamba/envs/gnn"),
            "gnn",
        ),
        (
            "condarc",
            format!(
                "printf 'channels:\\n  - x\\nenvs_dirs: # mine\\n  - \"{f}/d  1\"\\n  - /else\\n' \
                 >~/.condarc"
            ),
            "gnn",
            format!("{f}/d  1/gnn"),
            "-",
        ),
        (
            "condarc, brackets",
            "printf 'envs_dirs: [/else, ~/d2]\\n' >~/.condarc".into(),
            "gnn",
            format!("{f}/home/d2/gnn"),
            "-",
        ),
        (
            "condarc of the root",
            "mkdir -p ~/miniconda3; printf 'envs_dirs:\\n- $HOME/d3\\n' >~/miniconda3/.condarc"
                .into(),
            "gnn",
            format!("{f}/home/d3/gnn"),
            "-",
        ),
        (
            "CONDA_ENVS_DIRS",
            format!("export CONDA_ENVS_DIRS='/else:{f}/d4'"),
            "gnn",
            format!("{f}/d4/gnn"),
            "-",
        ),
        (
            "environments.txt",
            format!(
                "mkdir ~/.conda; printf '%s\\n' {f}/nognn '{f}/gone/gnn' '{f}/e/gnn' \
                 >~/.conda/environments.txt"
            ),
            "gnn",
            format!("{f}/e/gnn"),
            "-",
        ),
        (
            "a directory",
            String::new(),
            "~/x/envs/y/",
            format!("{f}/home/x/envs/y"),
            "y",
        ),
        (
            "a directory of a name alone",
            String::new(),
            "~",
            format!("{f}/home"),
            "-",
        ),
    ];
    for (how, prepare, asked, prefix, name) in table {
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).unwrap();
        let _ = fs::remove_dir_all(folder.join("bin"));
        conda(Path::new(&prefix));
        if name == "base" {
            fs::create_dir_all(format!("{prefix}/condabin")).unwrap();
        }
        let name = if name == "-" { prefix.as_str() } else { name };
        let probed = sh(
            &folder,
            &format!(
                "{env}{prepare}\nipconf-check ip.txt | host-probe --connect local --conda \
                 '{asked}' | {FOUND}"
            ),
        );
        assert_eq!(
            probed.out,
            format!("{prefix} {name} {prefix}/bin/python\n"),
            "{how}: {}",
            probed.err
        );
        fs::remove_dir_all(&prefix).unwrap();
        let gone = sh(
            &folder,
            &format!(
                "{env}mkdir -p ~; ipconf-check ip.txt | host-probe --connect local --conda \
                 '{asked}' | jq .ok"
            ),
        );
        assert_eq!(gone.out, "false\n", "{how}: found without it: {}", gone.err);
    }
}

/// A batch system may let a job have a few of them; OMP_NUM_THREADS is for one process.
#[test]
fn processors_are_those_that_a_job_may_use() {
    let (folder, env) = host();
    let all = sh(&folder, "env -u OMP_NUM_THREADS nproc").out;
    for (few, expected) in [("", all.as_str()), ("taskset -cp 0 $$ >/dev/null;", "1\n")] {
        let probe = "ipconf-check ip.txt | OMP_NUM_THREADS=1 host-probe --connect local | jq .cpus";
        let probed = sh(&folder, &format!("{env}{few} {probe}"));
        assert_eq!(probed.out, expected, "{few}: {}", probed.err);
    }
}

#[test]
fn what_is_no_environment_is_told() {
    if takes_seconds() {
        return;
    }
    let (folder, env) = host();
    let home = folder.join("home");
    conda(&home.join("miniconda3/envs/gnn"));
    make_folder(&home, "miniconda3/envs/empty/conda-meta");
    sh(
        &folder,
        &format!("{env}python3 -m venv --without-pip ~/v && mkdir ~/other"),
    )
    .ends(0);
    let table = [
        (
            "--venv '~/w'",
            74,
            "host 0 (127.0.0.1): no such directory: HOME/w\n  fix: make it there: python3 -m venv \
             ~/w; or say --conda",
        ),
        (
            "--venv HOME/other",
            74,
            "host 0 (127.0.0.1): no bin/python3 in HOME/other\n  fix: ",
        ),
        (
            "--venv HOME/miniconda3/envs/gnn",
            74,
            "HOME/miniconda3/envs/gnn is a conda environment\n  fix: make it there: python3 -m \
             venv HOME/miniconda3/envs/gnn; or say --conda if it is conda's\n",
        ),
        (
            "--conda HOME/v",
            74,
            "HOME/v is not a conda environment: it has no conda-meta\n  fix: conda env list tells \
             there which there are; --conda takes a directory too, and --venv that of a venv\n",
        ),
        (
            "--conda HOME/w",
            74,
            "host 0 (127.0.0.1): no such directory: HOME/w\n  fix: conda env list ",
        ),
        (
            "--conda empty",
            74,
            "no bin/python3 in HOME/miniconda3/envs/empty\n  fix: ",
        ),
        (
            "--conda gn",
            74,
            "no conda environment gn in HOME/miniconda3/envs\n  fix: conda env list tells there \
             which there are; --conda takes",
        ),
        ("--venv v", 2, "begin it with / or ~/"),
        ("--venv ''", 2, "is not a directory"),
        (
            "--venv /a:b",
            2,
            "PATH cannot have a directory of this name",
        ),
        ("--conda ./v", 2, "begin it with / or ~/"),
        ("--conda ..", 2, "is not a name of an environment"),
        ("--conda gnn --venv /v", 2, "cannot be used with"),
        ("--conda gnn --python python3", 2, "cannot be used with"),
        ("--venv /v --python python3", 2, "cannot be used with"),
        ("--venv '~/v'", 0, ""),
        ("--conda gnn --setup 'echo hello; cd /'", 0, ""),
        ("--python HOME/v/bin/python", 0, ""),
        (
            "--python no-python",
            0,
            "warning: host 0 (127.0.0.1): no-python does not run there: ",
        ),
        (
            "--setup 'echo no module dgl; exit 3'",
            0,
            "python3 does not run there: no module dgl\n  fix: name the job's Python",
        ),
    ];
    for (flags, status, report) in table {
        let here = |text: &str| text.replace("HOME", &home.display().to_string());
        let probed = sh(
            &folder,
            &format!(
                "{env}ipconf-check ip.txt >hosts; host-probe --connect local {} <hosts",
                here(flags)
            ),
        );
        assert!(
            probed.status == status
                && probed.err.contains(&here(report))
                && (!report.is_empty() || probed.err.is_empty()),
            "{flags}: {}\n{}",
            probed.status,
            probed.err
        );
    }
}

#[test]
fn every_shell_of_a_host_finds_it() {
    if takes_seconds() {
        return;
    }
    let (folder, env) = host();
    let home = folder.join("home");
    conda(&home.join("mambaforge/envs/gnn"));
    write(&home, ".condarc", "envs_dirs:\n  - ~/nothing\n");
    for shell in shells() {
        let connect = format!("--connect \"sh -c 'shift; exec {shell} \\\"\\$@\\\"' x\"");
        let probed = sh(
            &folder,
            &format!("{env}ipconf-check ip.txt | host-probe {connect} --conda gnn | {FOUND}"),
        );
        let prefix = format!("{}/mambaforge/envs/gnn", home.display());
        assert_eq!(
            probed.out,
            format!("{prefix} gnn {prefix}/bin/python\n"),
            "{shell}: {}",
            probed.err
        );
        let none = sh(
            &folder,
            &format!("{env}ipconf-check ip.txt | host-probe {connect} --conda no | jq -r .error"),
        );
        assert_eq!(
            none.out,
            format!(
                "no conda environment no in {}/mambaforge/envs\n",
                home.display()
            ),
            "{shell}: {}",
            none.err
        );
    }
}

#[test]
fn another_look_forgets_the_environment() {
    let (folder, env) = host();
    sh(&folder, &format!("{env}python3 -m venv --without-pip ~/v")).ends(0);
    let twice = "ipconf-check ip.txt | host-probe --connect local --venv ~/v | host-probe \
        --connect local | jq -c '[has(\"python_path\"), .prefix, .path]'";
    assert_eq!(
        sh(&folder, &format!("{env}{twice}")).out,
        "[true,null,null]\n"
    );
}

/// What a Python says of itself.
const WHERE: &str = "import os, shutil, sys; print(sys.prefix, shutil.which('python3'), \
    os.environ.get('VIRTUAL_ENV'), os.environ.get('CONDA_PREFIX'), \
    os.environ.get('CONDA_DEFAULT_ENV'))";

#[test]
fn without_dgl_on_any_host_nothing_is_copied() {
    if takes_seconds() {
        return;
    }
    let (folder, env) = host();
    partition(&folder, 1);
    sh(&folder, &format!("{env}python3 -m venv --without-pip ~/v")).ends(0);
    let push = |what: &str| {
        let probe = "export DGL_TOOLS_CONNECT=local; ipconf-check ip.txt | host-probe --venv ~/v";
        sh(
            &folder,
            &format!(
                "{env}{probe} | part-map {what} --workspace \"$PWD/ws\" | part-push >pushed.jsonl"
            ),
        )
    };
    let refused = push("--part-config out/g.json --script-folder code");
    refused.ends(65);
    let report = format!(
        "part-map: host 0 (127.0.0.1): no dgl in the job's environment, {}/home/v, and the graph",
        folder.display()
    );
    refused.err_has(&report).err_lacks("host-probe: ");
    assert!(!folder.join("ws").exists(), "something was copied");
    // scripts alone are for whatever runs there
    push("--script-folder code").ends(0);
    sh(
        &folder,
        "dgl-env --role worker --workspace \"$PWD/ws\" -- ls code <pushed.jsonl | dgl-spawn \
         --connect local",
    )
    .ends(0)
    .out_has("run it.sh");
    sh(
        &folder,
        &format!("{env}cd ~/v/lib/python3*/site-packages && mkdir dgl && touch dgl/__init__.py"),
    )
    .ends(0);
    push("--part-config out/g.json --script-folder code").ends(0);
    assert!(folder.join("ws/data/part0/graph.dgl").exists());
}

fn went_well(ran: &Ran, lines: &[&str]) {
    ran.ends(0);
    lines.iter().for_each(|line| {
        assert!(
            ran.out.lines().any(|other| other == *line),
            "no line {line}:\n{}{}",
            ran.out,
            ran.err
        );
    });
}

#[test]
fn the_job_runs_in_its_environment_on_real_hosts() {
    let (folder, cluster) = Cluster::listed(3);
    // a venv on each host, that of the third without dgl; on the second another one that conda
    // might have made
    let make = "for k in 1 2 3; do ssh h$k 'python3 -m venv --without-pip /srv/v && cd \
         /srv/v/lib/python3*/site-packages && mkdir dgl torch &&
          touch dgl/__init__.py torch/__init__.py' || exit; done
        ssh h2 'mkdir -p /srv/conda/envs && cp -a /srv/v /srv/conda/envs/gnn && mkdir \
            /srv/conda/envs/gnn/conda-meta' &&
        ssh h3 'rm -r /srv/v/lib/python3*/site-packages/dgl'";
    cluster.sh(&folder, make).ends(0);

    // a leading interpreter, one behind another program, and shell text
    write(&folder, "where.py", WHERE);
    let script = folder.join("where.py").display().to_string();
    let worker = |probe: &str, rest: &str| {
        cluster.sh(
            &folder,
            &format!(
                "ipconf-check ip.txt | {probe} | dgl-env --role worker \
            {rest} | dgl-spawn --format human"
            ),
        )
    };
    let all = [1, 2, 3].map(|k| {
        format!(
            "[10.77.0.{k} worker {}] /srv/v /srv/v/bin/python3 /srv/v None None",
            k - 1
        )
    });
    let all = all.each_ref().map(String::as_str);
    for command in [
        format!("-- python '{script}'"),
        format!("-- env python3 '{script}'"),
        format!("'cd / && python3 \"{script}\"'"),
    ] {
        went_well(&worker("host-probe --venv /srv/v", &command), &all);
    }
    let probes = "host-probe --host 0 --venv /srv/v | host-probe --host 1 --conda \
        /srv/conda/envs/gnn | host-probe --host 2";
    let each = worker(probes, &format!("--setup 'cd /' -- python3 '{script}'"));
    went_well(&each, &[all[0]]);
    let second = each
        .out
        .lines()
        .find(|line| line.starts_with("[10.77.0.2 "))
        .unwrap();
    assert!(
        second.ends_with(
            "] /srv/conda/envs/gnn /srv/conda/envs/gnn/bin/python3 None /srv/conda/envs/gnn gnn"
        ),
        "{second}"
    );
    let third = each
        .out
        .lines()
        .find(|line| line.starts_with("[10.77.0.3 "))
        .unwrap();
    assert!(
        third.ends_with(" None None None") && !third.contains("/srv/"),
        "{third}"
    );
    let own = worker(
        "host-probe --venv /srv/v",
        "--env PATH=/usr/bin:/bin -- python3 -c 'import shutil, sys; print(sys.prefix, \
         shutil.which(\"env\"))'",
    );
    went_well(&own, &["[10.77.0.1 worker 0] /srv/v /usr/bin/env"]);

    // a missing environment and a missing dgl are told of each host, before anything is copied
    let none = cluster.sh(
        &folder,
        "ipconf-check ip.txt >hosts.jsonl; host-probe --conda /srv/conda/envs/gnn <hosts.jsonl",
    );
    none.ends(74);
    let report = "host 0 (10.77.0.1): no such directory: /srv/conda/envs/gnn";
    none.err_has(report)
        .err_has("host 2 (10.77.0.3): no such")
        .err_lacks("host 1");
    let no_dgl = cluster.sh(
        &folder,
        "host-probe --venv /srv/v <hosts.jsonl >probed.jsonl",
    );
    no_dgl.ends(0);
    assert_eq!(no_dgl.err, "", "nobody has asked for dgl yet");

    // a graph has; then dgl-spawn asks the interpreter of the environment again
    partition(&folder, 3);
    write(
        &folder,
        "code/t.py",
        "import dgl, torch, sys; print(sys.executable)\n",
    );
    let plan = "part-map --part-config out/g.json --workspace /srv/job --script-folder code";
    let refused = cluster.sh(&folder, &format!("<probed.jsonl {plan}"));
    let report = "part-map: host 2 (10.77.0.3): no dgl in the job's environment, /srv/v, and";
    refused.ends(65).err_has(report);
    let packages = "cd /srv/v/lib/python3*/site-packages";
    let job = "<job.jsonl dgl-spawn --format human";
    let refused = cluster.sh(
        &folder,
        &format!(
            "ssh h3 '{packages} && cp -r torch dgl' && host-probe --venv /srv/v <hosts.jsonl |
             {plan} | part-push --format jsonl |
             dgl-env --num-trainers 1 -- python3 code/t.py >job.jsonl &&
             ssh h3 '{packages} && mv dgl no-dgl' && {job}"
        ),
    );
    refused.ends(74);
    let report = "host 2 (10.77.0.3): no module named dgl for /srv/v/bin/python3 (Python 3.";
    refused
        .err_has(report)
        .err_has_times("no module", 1)
        .err_has("fix: install dgl into that environment");
    let ran = cluster.sh(
        &folder,
        &format!("ssh h3 '{packages} && mv no-dgl dgl'; {job}"),
    );
    went_well(
        &ran,
        &[
            "[10.77.0.3 trainer 2] /srv/v/bin/python3",
            "[10.77.0.2 server 1] /srv/v/bin/python3",
        ],
    );
    cluster.assert_clean();
}

#[test]
fn real_hosts_with_other_versions_are_refused() {
    let folder = scratch();
    ip_config(&folder, 3);
    let cluster = Cluster::up(3);
    for (host, dgl) in [(1, "1.0.4"), (2, "2.1.0"), (3, "1.0.4")] {
        cluster.stand_in_for_dgl(host, dgl);
    }
    let probe = format!("ipconf-check ip.txt | host-probe --python {PYTHON_WITH_STAND_IN}");
    let refused = cluster.sh(&folder, &probe);
    let report =
        "host-probe: host 1 (10.77.0.2): has dgl 2.1.0, where host 0 (10.77.0.1) has 1.0.4";
    refused.ends(74).err_has(report);
    let later = format!("{probe} 2>/dev/null | dgl-env --role worker -- true");
    assert_ne!(cluster.sh(&folder, &later).status, 0);
    cluster
        .sh(&folder, &format!("{probe} --mixed-versions | jq -r .dgl"))
        .gives(0, "1.0.4\n2.1.0\n1.0.4\n")
        .err_has(", where host ");
}
