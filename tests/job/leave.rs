//! The recipes of "Leave a job running" in dgl-tools-jobs(7): each is started by ssh, the login
//! ends, and the job goes on to its end.

use std::path::Path;
use support::{Cluster, read, recipe_commands, recipes_of, soon, write};

/// The command of the recipe that begins with this word.
fn recipe(program: &str, folder: &Path) -> String {
    let recipes = recipes_of("dgl-tools-jobs", "EXAMPLES");
    let shown = recipes
        .iter()
        .find(|(name, _)| name.starts_with("Leave a job running"));
    let (_, shown) = shown.expect("the section");
    let commands = shown
        .split("$ ")
        .map(|shown| recipe_commands(shown, folder));
    let mut found = commands.filter(|command| command.starts_with(program));
    found.next().expect(program)
}

const SERVICES: &str = "XDG_RUNTIME_DIR=/tmp/services";

/// Starts the manager of a user's services on the second host, as a login does where systemd has
/// booted the host. Whether they can be had. The manager takes over all processes of the control
/// group that it finds as the root, so it sees one that has no others.
fn starts_user_services(cluster: &Cluster) -> bool {
    let manager = "mount -t cgroup2 none /sys/fs/cgroup && \
         for dir in /usr/lib /lib; do [ ! -x $dir/systemd/systemd ] || break; done && \
         exec $dir/systemd/systemd --user";
    let begin = format!(
        "mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && \
         mkdir /run/systemd/system && mkdir -m 700 /tmp/services && export {SERVICES} && \
         mkdir /tmp/groups && mount -t cgroup2 none /tmp/groups && \
         group=/tmp/groups/dgl-tools-test-{} && mkdir $group && \
         {{ (echo 0 >$group/cgroup.procs && exec setsid unshare --cgroup --mount sh -c \
           '{manager}') >/tmp/services.log 2>&1 & }} && \
         for n in $(seq 100); do \
           [ ! -e /tmp/services/systemd/private ] || break; sleep 0.1; \
         done && systemd-run --user --wait true",
        std::process::id()
    );
    let begun = cluster.on(2, &begin);
    if begun.status != 0 {
        support::skipped!("systemd has no services for users here: {}", begun.err);
    }
    begun.status == 0
}

fn stop_user_services(cluster: &Cluster) {
    let stop = format!(
        "{SERVICES} systemctl --user exit; group=/tmp/groups/dgl-tools-test-{}; \
         for n in $(seq 100); do \
           grep -q 'populated 0' $group/cgroup.events && break; sleep 0.1; \
         done; find $group -depth -type d -exec rmdir {{}} +",
        std::process::id()
    );
    cluster.on(2, &stop).ends(0);
}

#[test]
fn a_job_that_is_left_on_one_of_real_hosts_outlives_the_login() {
    let (folder, cluster) = Cluster::listed(2);
    let plan = format!(
        "ipconf-check ip.txt | dgl-env --role worker --workspace '{}' -- sh -c \
         'echo begins; until [ -e go ]; do sleep 0.2; done; echo ends; [ $RANK = 0 ] || \
         {{ sleep 1; exit 3; }}' \
         >job.jsonl",
        folder.display()
    );
    cluster.sh(&folder, &plan).ends(0);
    for program in ["tmux", "nohup", "systemd-run"] {
        if program == "systemd-run" && !starts_user_services(&cluster) {
            continue;
        }
        cluster.sh(&folder, "rm -rf go logs status").ends(0);
        let begin = format!(
            "cd '{}'; export PATH='{}' {SERVICES}; {}\n",
            folder.display(),
            support::path(),
            recipe(program, &folder)
        );
        write(&folder, "begin", begin);
        // the terminal of this login is gone when ssh returns
        let login = format!(
            "ssh -tt h2 'sh {}/begin; sleep 2' </dev/null",
            folder.display()
        );
        cluster.sh(&folder, &login).ends(0);
        soon("both workers run", || {
            let logs = ["logs/worker-0.log", "logs/worker-1.log"];
            logs.iter().all(|log| folder.join(log).exists())
        });
        cluster.sh(&folder, ": >go").ends(0);
        soon("the job has ended", || match program {
            "systemd-run" => {
                let show = format!("{SERVICES} systemctl --user show -p ExecMainStatus try8");
                cluster.on(2, &show).out.trim() == "ExecMainStatus=3"
            }
            _ => folder.join("status").exists() && read(&folder, "status") == "status 3\n",
        });
        for (rank, status) in [(0, 0), (1, 3)] {
            let log = read(&folder, format!("logs/worker-{rank}.log"));
            assert_eq!(log, "begins\nends\n", "{program}");
            let exited = format!("\"rank\":{rank},\"code\":{status}");
            assert!(
                read(&folder, "logs/run.jsonl").contains(&exited),
                "{program}"
            );
        }
        if program == "systemd-run" {
            stop_user_services(&cluster);
        }
        cluster.assert_clean();
    }
}
