//! `dgl-spawn --dry-run`: what it prints, put into a shell, runs the same processes.

use support::{Cluster, write};

/// Shows where it is, its environment without what ssh, a shell and dgl-spawn add to it, and its
/// words, to the byte.
const SHOW: &str = "{ pwd; env -0 | tr '\\0\\n' '\\n\\1' | grep -avE \
    '^(SSH_|DGL_TOOLS_|PWD=|OLDPWD=|SHLVL=|_=)' | sort; printf '<%s>' \"$@\"; echo; } | od -An -c";

#[test]
fn pasted_commands_run_the_same_on_real_hosts() {
    let (folder, cluster) = Cluster::listed(2);
    write(&folder, "show.sh", SHOW);
    let location = "/srv/a directory/it's";
    let copy = "ipconf-check ip.txt | part-map --workspace \"$W\" --extra show.sh | part-push \
        >pushed.jsonl";
    cluster
        .sh(&folder, &format!("W=\"{location}\"; {copy}"))
        .ends(0);

    let odd = "ODD=$(printf 'a  b\\n\"q\" '\\''s'\\'' $HOME `id` \\\\ \\377!');";
    let env = "--env \"ODD=$ODD\" --env EMPTY= --env 'TAB=a\tb' --env \"OMP_NUM_THREADS=3\"";
    let commands = [
        (
            "words",
            "-- sh show.sh 'a  b' \"it's\" '\"q\"' '$HOME' '`id`' 'back\\slash' '' '*' '!!' \
             \"$ODD\" '#' '~' 'a=b' '-n' '{a,b}'",
        ),
        (
            "words behind a setup",
            "--setup 'export FROM_SETUP=\"$ODD\"' -- sh show.sh 'a  b' \"it's\" '' \"$ODD\" \
             '$HOME'",
        ),
        (
            "a string",
            "'sh show.sh \"$ODD\" \"a  b\" | cat; echo \"<$RANK>\"'",
        ),
    ];
    for (how, command) in commands {
        let job = format!(
            "{odd} W=\"{location}\"; dgl-env --workspace \"$W\" --role worker {env} {command} \
             <pushed.jsonl >job.jsonl"
        );
        cluster.sh(&folder, &job).ends(0);
        let spawned = cluster.sh(
            &folder,
            "dgl-spawn --host 1 --format jsonl <job.jsonl | jq -r \
            'select(.type==\"output\") | .line'",
        );
        spawned.out_has(" 377 ");
        if how == "a string" {
            spawned.out_has("<1>\n");
        }
        let pasted = cluster.sh(
            &folder,
            "dgl-spawn --host 1 --dry-run <job.jsonl >pasted.sh && sh pasted.sh",
        );
        assert_eq!(
            (pasted.status, &pasted.out),
            (0, &spawned.out),
            "{how}: {}",
            pasted.err
        );
        // nothing was started by the dry run itself
        let whole = cluster.sh(&folder, "dgl-spawn --dry-run <job.jsonl | grep -c '^ssh '");
        assert_eq!(whole.out, "2\n", "{how}: {}", whole.err);
    }
    cluster.assert_clean();
}
