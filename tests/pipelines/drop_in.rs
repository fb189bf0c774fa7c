//! dgl-copy and dgl-launch: the flags of DGL's own scripts, and the pipelines that they stand for.

use support::{Cluster, partition, read, scratch, sh, write};

#[test]
fn command_lines_of_every_generation() {
    let folder = scratch();
    let launch = "ipconf-check --num-servers 1 /w/ip.txt |\n  host-probe --workspace /w \
        --num-servers 1 --python python3 |\n  \
                  dgl-env --workspace /w --part-config d/g.json --ip-config ip.txt \\\n    \
                  --num-trainers 2 --num-servers 1";
    let table = [
        // 0.5
        (
            "--workspace /w --num_trainers 2 --num_samplers 4 --part_config d/g.json --ip_config \
             ip.txt --num_servers 1 'python3 t.py --lr 0.1'",
            format!("{launch} --num-samplers 4 'python3 t.py --lr 0.1' |\n  dgl-spawn\n"),
        ),
        // 0.6.1
        (
            "--num_omp_threads 8 --workspace=/w --num_trainers=2 --part_config=d/g.json \
             --ip_config=ip.txt --num_servers=1 'python3 t.py'",
            format!("{launch} --num-omp-threads 8 'python3 t.py' |\n  dgl-spawn\n"),
        ),
        // 0.7 and later
        (
            "--ssh_username bob --ssh_port 2222 --workspace /w/ --num_trainers 2 --part_config \
             d/g.json --ip_config ip.txt --num_servers 1 \
             --graph_format csc,coo --extra_envs A=1 'B=$X y' --num_server_threads 2 'python3 \
             t.py \"a b\"'",
            format!(
                "export DGL_TOOLS_SSH_USERNAME=bob DGL_TOOLS_SSH_PORT=2222\n\
                 {} --graph-format csc,coo --env A=1 --env 'B=$X y' --num-server-threads 2 \
                 'python3 t.py \"a b\"' |\n  dgl-spawn\n",
                launch.replace(" /w ", " /w/ ")
            ),
        ),
        // variables at the end: launch.py would have taken the command for one more
        (
            "--workspace /w --num_trainers 2 --part_config d/g.json --ip_config ip.txt \
             --num_servers 1 --extra_envs A=1 'python3 t.py --x=1'",
            format!("{launch} --env A=1 'python3 t.py --x=1' |\n  dgl-spawn\n"),
        ),
        // 0.8 to 1.1: persistent servers; without --keep_alive a name means nothing
        (
            "--keep_alive --server_name g --workspace /w --num_trainers 2 --part_config d/g.json \
             --ip_config ip.txt --num_servers 1 'python3 t.py'",
            format!(
                "# in the background, unless they run\n\
                 {launch} --role server --keep-alive --server-name g 'python3 t.py' |\n  \
                 dgl-spawn --job g --start-timeout 30m\n# afterwards\n\
                 {launch} --role trainer --server-name g 'python3 t.py' |\n  \
                 dgl-spawn --wait 30m\n"
            ),
        ),
        (
            "--server_name g --workspace /w --num_trainers 2 --part_config d/g.json --ip_config \
             ip.txt --num_servers 1 'python3 t.py'",
            format!("{launch} 'python3 t.py' |\n  dgl-spawn\n"),
        ),
    ];
    for (line, pipeline) in table {
        let printed = sh(&folder, &format!("dgl-launch --print {line}"));
        assert_eq!(
            (printed.status, printed.out),
            (0, pipeline),
            "{line}: {}",
            printed.err
        );
    }
    // a machine that is not a host of the job has no workspace
    write(&folder, "at-hand.txt", "10.0.0.1\n");
    let line = "dgl-launch --print --workspace /w --num_trainers 2 --part_config d/g.json \
        --ip_config at-hand.txt --job j --extra-envs='A=1 2' t";
    let printed = sh(&folder, line).out;
    assert!(
        printed.starts_with("ipconf-check --num-servers 1 at-hand.txt |")
            && printed.contains(" --env 'A=1 2' t |\n  dgl-spawn --job j"),
        "{printed}"
    );
    let copy = "dgl-copy --print --workspace /w --rel_data_path data --part_config out/g.json \
        --script_folder 'my code' --ip_config ../ip.txt";
    let printed = sh(&folder, copy);
    assert_eq!(
        printed.out,
        "ipconf-check ../ip.txt |\n  part-map --part-config out/g.json --workspace /w \
         --rel-data-path data \\\n    \
         --paths absolute --ip-config ip.txt --script-folder 'my code' |\n  part-push\n"
    );
}

#[test]
fn what_is_missing_is_named() {
    let folder = scratch();
    let table = [
        ("dgl-copy", "--workspace: is missing"),
        ("dgl-copy --workspace", "its value is missing"),
        (
            "dgl-copy --workspace /w --rel_data_path d --part_config g",
            "--ip_config: is missing",
        ),
        (
            "dgl-launch --keep_alive --workspace /w --part_config g --ip_config i --num_trainers \
             1 t",
            "--server_name: is missing",
        ),
        ("dgl-launch --frobnicate 3", "--frobnicate: no such flag"),
        (
            "dgl-launch --workspace /w --part_config g --ip_config i --num_trainers 1",
            "COMMAND: is missing",
        ),
        (
            "dgl-launch --workspace /w --part_config g --ip_config i --num_trainers 1 python3 t.py",
            "a second command",
        ),
    ];
    for (line, problem) in table {
        sh(&folder, line).ends(2).err_has(problem).err_has("fix: ");
    }
    for tool in ["dgl-copy", "dgl-launch"] {
        sh(&folder, &format!("{tool} --help && {tool} --version"))
            .ends(0)
            .out_has("Examples:");
    }
}

#[test]
fn copied_and_launched_on_real_hosts() {
    let (folder, cluster) = Cluster::listed(2);
    partition(&folder, 2);
    write(
        &folder,
        "code/job.py",
        "import os, sys\nprint(os.environ['DGL_ROLE'], os.environ.get('RANK', '-'), \
         os.environ['GREETING'], open('data/g.json').name, *sys.argv[1:])\n\
         sys.exit(3 if sys.argv[1:] == ['fail'] and os.environ.get('RANK') == '1' else 0)\n",
    );
    // stand-ins: the look before the start wants to find both
    for module in ["dgl.py", "torch.py"] {
        std::fs::write(folder.join("code").join(module), "").unwrap();
    }
    let copy = "dgl-copy --workspace /srv/job --rel_data_path data --part_config out/g.json \
        --script_folder code --ip_config ip.txt";
    cluster.sh(&folder, copy).ends(0);
    let launch = "dgl-launch --workspace /srv/job --num_trainers 1 --num_servers 1 --part_config \
        data/g.json --ip_config ip.txt \
                  --extra_envs GREETING='it is $5' ";
    let launched = cluster.sh(&folder, &format!("{launch} 'python3 code/job.py \"a  b\"'"));
    launched.ends(0);
    for line in [
        "trainer 0] client 0 it is $5 data/g.json a  b",
        "server 1] server - it is $5 data/g.json a  b",
    ] {
        launched.out_has(line);
    }
    cluster
        .sh(
            &folder,
            &format!("{launch} --log_dir logs 'python3 code/job.py fail'"),
        )
        .ends(3);
    assert_eq!(
        read(&folder, "logs/trainer-1.log"),
        "client 1 it is $5 data/g.json fail\n"
    );

    // a fix names what the user of dgl-launch can do
    cluster
        .sh(
            &folder,
            &format!(
                "python3 -m venv --without-pip venv; for k in $(cat ip.txt); do
               ssh $k rm /srv/job/code/dgl.py; done
             {launch} \"$PWD/venv/bin/python3 code/job.py\""
            ),
        )
        .ends(74)
        .err_has("hosts 0-1: no module named dgl for ")
        .err_has("fix: begin the command with the path of the Python that has dgl")
        .err_lacks("--")
        .err_lacks("host-probe");
    let no_python = cluster.sh(&folder, &format!("{launch} '/none/python3 code/job.py'"));
    for words in [
        "host-probe: warning: host 1 (10.77.0.2): /none/python3 does not run there: ",
        "host-probe: warning: dgl-launch --print … shows the pipeline into which such options go",
    ] {
        no_python.err_has(words);
    }
    no_python.err_has_times("name the job's Python", 1);
    cluster.assert_clean();
}
