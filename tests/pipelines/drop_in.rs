//! dgl-copy and dgl-launch on real hosts; ../cases/dgl_launch.txt has the pipelines that they stand
//! for.

use support::{Cluster, partition, read, write};

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
        "host-probe: warning: host 1 (10.77.0.2): /none/python3 does not run: ",
        "host-probe: warning: dgl-launch --print … shows the pipeline into which such options go",
    ] {
        no_python.err_has(words);
    }
    no_python.err_has_times("name the job's Python", 1);
    cluster.assert_clean();
}
