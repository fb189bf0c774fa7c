//! The recipes of dgl-tools-partition(7) by which hosts download their parts, as they stand there,
//! with the real programs: from a server of S3, and from a web server. Downloads that break off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{
    Cluster, Ran, executable, ip_config, made_by, noise, partition, path, ran, read,
    recipe_commands, recipes_of, root, scratch, sh, soon, with_s3, write,
};

/// A login to a host by the real ssh, with the variables that `login.env` names and files of at
/// most the size that the file `limit` names.
const LOGIN: &str = r#"#!/bin/bash
host=$1; shift
mapfile -t env <login.env
exec ssh -T "$host" "$(printf '%q ' prlimit --fsize="$(cat limit)" env "${env[@]}" "$@")"
"#;

/// The script of a recipe, whose workspace is on the disk of each host. It trains without DGL,
/// which these hosts do not have.
fn recipe(name: &str, folder: &Path) -> String {
    let recipes = recipes_of("dgl-tools-partition", "EXAMPLES");
    let (_, shown) = recipes.iter().find(|(other, _)| other == name).expect(name);
    let shown = shown.replace("'~/job'", "/srv/job");
    recipe_commands(&shown.replace("--num-trainers 2", "--role worker"), folder)
}

/// Two hosts, and a directory for the machine that launches.
struct Bench {
    cluster: Cluster,
    folder: PathBuf,
}

impl Bench {
    fn up() -> Bench {
        let folder = scratch();
        partition(&folder, 2);
        ip_config(&folder, 2);
        let prepare = "mv ip.txt ip_config.txt; cp ip_config.txt ip.txt; echo unlimited >limit; \
            : >login.env; echo 'import os; print(os.environ.get(\"RANK\"))' >code/train.py";
        sh(&folder, prepare).ends(0);
        executable(&folder, "login", LOGIN);
        let cluster = Cluster::up(2);
        // host-agent is larger than the limit of some logins
        cluster.run(&folder, "ipconf-check ip.txt | host-probe >hosts.jsonl");
        Bench { cluster, folder }
    }

    fn limit(&self, bytes: &str) {
        write(&self.folder, "limit", bytes);
    }

    /// What a shell prints on both hosts.
    fn both(&self, script: &str) -> [String; 2] {
        [1, 2].map(|host| self.cluster.on(host, script).out)
    }

    /// A recipe behind a script, on the machine that launches. `set -e` is for readers who look at
    /// each command before they enter the next.
    fn run(&self, before: &str, name: &str) -> Ran {
        let script = format!(
            "{before}\nexport DGL_TOOLS_CONNECT='./login {{ip}}'\nset -e\n{}",
            recipe(name, &self.folder)
        );
        self.cluster.sh(&self.folder, &script)
    }

    /// Both hosts have their whole part and nothing beside it, and a missing file is named.
    fn have_their_parts(&self) {
        let store = self.folder.join("store").display().to_string();
        for host in 0..2 {
            let same = format!("cd /srv/job/data && diff -r {store}/part{host} part{host} && ls");
            self.cluster
                .on(host + 1, &same)
                .gives(0, &format!("g.json\npart{host}\n"));
        }
        self.cluster
            .on(2, "rm /srv/job/data/part1/graph.dgl")
            .ends(0);
        let check = "ipconf-check ip.txt | part-map --part-config g.json --parts remote \
            --workspace /srv/job | part-push >pushed.jsonl";
        self.cluster.sh(&self.folder, check).ends(1).err_has(
            "part-push: host 1 (10.77.0.2): /srv/job/data/part1/graph.dgl: it is missing on the \
             host, and this machine has no copy",
        );
    }

    /// A recipe with a store in which each part has a file of 3 MB: first where no file may become
    /// larger than 1 MB, then without this limit, then once more.
    fn downloads(&self, before: &str, name: &str) {
        self.limit("1000000");
        let broken = self.run(before, name);
        assert_ne!(broken.status, 0, "{name}: {}", broken.out);
        broken.err_has("10.77.0.");
        // the job ends with the first download that fails, perhaps before the other one began
        let made = self.both("ls /srv/job/data");
        for (host, names) in made.iter().enumerate() {
            let unfinished = format!("part{host}.new\n");
            assert!(
                names.is_empty() || *names == unfinished,
                "{name}: {names}{}",
                broken.err
            );
        }
        assert_ne!(made.concat(), "", "{name}: {}", broken.err);
        self.limit("unlimited");
        for time in ["second", "third"] {
            let whole = self.run(before, name);
            assert_eq!(
                whole.status, 0,
                "{name}, {time}: {}{}",
                whole.out, whole.err
            );
            let large = self.both("stat -c '%i %Z' /srv/job/data/part*/large");
            let earlier = fs::read_to_string(self.folder.join("large")).unwrap_or_default();
            write(&self.folder, "large", large.concat());
            if time == "third" {
                assert_eq!(
                    large.concat(),
                    earlier,
                    "{name}: nothing is downloaded again"
                );
            }
        }
        self.have_their_parts();
    }
}

/// A server of S3 on host 1, with the directory `store` in it; it ends when its stdin does.
fn serve_s3(bench: &Bench, bin: &str) -> Child {
    let script = format!(
        "cd '{}'; PATH='{}'; {}\n$aws s3 cp --recursive --only-show-errors store s3://bucket/g/ \
         && : >filled; cat",
        bench.folder.display(),
        path(),
        with_s3(bin)
    );
    let server = Command::new(root().join("tools/host-lab/host-lab"))
        .args(["exec", "1", "sh", "-c", &script])
        .env("LAB", &bench.cluster.lab)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    soon("the store is filled", || {
        bench.folder.join("filled").exists()
    });
    server
}

#[test]
fn real_hosts_download_their_parts_from_an_object_store_by_the_recipes() {
    let Some(bin) = made_by("tests/s3.sh", "server of S3") else {
        return;
    };
    let bench = Bench::up();
    let store = bench.folder.join("store");
    fs::rename(bench.folder.join("out"), &store).unwrap();
    for part in 0..2 {
        let large = store.join(format!("part{part}/large"));
        fs::write(large, noise(part, 3 << 20)).unwrap();
    }
    // part10 begins as part1 does
    let more = "mkdir store/part10 && echo x >store/part10/graph.dgl";
    sh(&bench.folder, more).ends(0);
    let mut server = serve_s3(&bench, &bin);
    let address = "http://10.77.0.1:5123";
    let to_aws = format!(
        "PATH={bin}:/usr/bin:/bin\nAWS_ENDPOINT_URL={address}\nAWS_DEFAULT_REGION=us-east-1\n"
    );
    write(&bench.folder, "login.env", to_aws);
    let credentials = "export AWS_ACCESS_KEY_ID=me AWS_SECRET_ACCESS_KEY=s3cret \
        AWS_DEFAULT_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true";
    let before = format!("{credentials} AWS_ENDPOINT_URL={address} PATH={bin}:$PATH");
    bench.downloads(&before, "A graph in S3");

    if sh(&bench.folder, "command -v rclone").status == 0 {
        download_by_rclone(&bench, credentials, address);
    } else {
        assert!(std::env::var_os("CI").is_none(), "no rclone");
        support::skipped!("no rclone here");
    }
    drop(server.stdin.take());
    let _ = server.wait();
    bench.cluster.assert_clean();
}

fn download_by_rclone(bench: &Bench, credentials: &str, address: &str) {
    bench.both("rm -r /srv/job");
    sh(&bench.folder, "rm g.json large").ends(0);
    let remote = format!(
        "RCLONE_CONFIG_STORE_TYPE=s3\nRCLONE_CONFIG_STORE_PROVIDER=Other\n\
         RCLONE_CONFIG_STORE_ENDPOINT={address}\n"
    );
    write(&bench.folder, "login.env", &remote);
    let before = format!(
        "{credentials}\nunset AWS_CA_BUNDLE
        export RCLONE_CONFIG_STORE_ACCESS_KEY_ID=me
        export RCLONE_CONFIG_STORE_SECRET_ACCESS_KEY=s3cret {}",
        remote.replace('\n', " ")
    );
    bench.downloads(&before, "A graph in another object store");
}

/// The server of tests/http_server.py on host 1, with a directory `store`.
fn serve(bench: &Bench) -> Child {
    let server = format!(
        "cd '{}' && exec python3 '{}' store 10.77.0.1 port",
        bench.folder.display(),
        root().join("tests/http_server.py").display()
    );
    let mut call = Command::new(root().join("tools/host-lab/host-lab"));
    call.args(["exec", "1", "sh", "-c", &server])
        .env("LAB", &bench.cluster.lab)
        .env("PATH", path());
    let server = call.spawn().unwrap();
    soon("the server", || bench.folder.join("port").exists());
    server
}

#[test]
fn real_hosts_download_their_parts_from_a_web_server_by_the_recipe() {
    let bench = Bench::up();
    let folder = &bench.folder;
    for part in 0..2 {
        let graph = folder.join(format!("store/products/part{part}/graph"));
        fs::create_dir_all(&graph).unwrap();
        write(&graph, "[rows].pt", noise(part, 1 << 20));
        write(&graph, "ids.pt", format!("ids of {part}"));
    }
    let list = "echo meta >store/products/META; cd store/products && find part* -type f \
        >../../files.txt; echo part10/x >>../../files.txt";
    sh(folder, list).ends(0);
    write(folder, "token", "s3cret");
    write(folder, "login.env", "NO_PROXY=*\n");
    let mut server = serve(&bench);
    let port = read(folder, "port");
    let address = format!("http://10.77.0.1:{}/products", port.trim());
    let name = "Partitions on a web server";
    let script = recipe(name, folder).replace("https://data.example/products", &address);
    // META is for everybody who may read it
    let script = script.replacen("curl -fsS ", "curl -fsS --oauth2-bearer s3cret ", 1);
    assert!(
        script.contains("s3cret") && script.contains(&address),
        "{script}"
    );
    let run = |token: &str| {
        let script = format!(
            "export DGL_TOOLS_CONNECT='./login {{ip}}' TOKEN={token} NO_PROXY='*'; set -e\n{script}"
        );
        write(folder, "run.sh", &script);
        bench.cluster.sh(folder, &script)
    };
    let has_no_part = || {
        let parts = bench.both("ls -d /srv/job/products/part* 2>/dev/null");
        assert_eq!(parts, ["", ""]);
    };
    let refused = run("wrong");
    assert_ne!(refused.status, 0);
    refused.out_has("error: 403");
    has_no_part();
    // a server that breaks off
    write(folder, "break", "");
    let broken = run("s3cret");
    assert_ne!(broken.status, 0);
    broken.err_has("curl: (18)");
    has_no_part();
    fs::remove_file(folder.join("break")).unwrap();
    // an end in the middle; meanwhile no command line shows the token
    bench.both("rm -r /srv/job/products/new");
    write(folder, "slow", "");
    let launch = Command::new(root().join("tools/host-lab/host-lab"))
        .args(["exec", "1", "sh", "-c"])
        .arg(format!(
            "cd '{}'; PATH='{}'; . ./run.sh",
            folder.display(),
            path()
        ))
        .env("LAB", &bench.cluster.lab)
        .env("PATH", path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    soon("downloads under way", || {
        let half = "find /srv/job/products/new -name '*rows*' -size +100k";
        bench.both(half).iter().all(|found| found.contains("rows"))
    });
    let shown = "for pid in $(pgrep -x curl); do tr '\\0' ' ' </proc/$pid/cmdline; done";
    let shown = bench.both(shown);
    assert!(
        shown.iter().all(|line| line.contains("--fail-early")),
        "{shown:?}"
    );
    assert!(!shown.concat().contains("s3cret"), "{shown:?}");
    bench
        .cluster
        .on(1, "kill -INT $(pgrep -x dgl-spawn)")
        .ends(0);
    let ended = ran(launch.wait_with_output().unwrap());
    assert_ne!(ended.status, 0);
    has_no_part();
    soon("the end of the downloads", || {
        bench.both("pgrep -x 'curl|host-agent'") == ["", ""]
    });
    fs::remove_file(folder.join("slow")).unwrap();

    run("s3cret").ends(0);
    for host in 0..2 {
        let store = folder.join("store/products").display().to_string();
        let same = format!(
            "cd /srv/job/products && diff -r {store}/part{host} part{host} && cat META && ls"
        );
        bench
            .cluster
            .on(host + 1, &same)
            .gives(0, &format!("meta\nMETA\nnew\npart{host}\n"));
    }
    bench.cluster.on(1, "kill $(pgrep -f http_server.py)");
    let _ = server.wait();
    bench.cluster.assert_clean();
}
