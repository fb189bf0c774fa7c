//! This version on a host where version 0.4.0 left its files: see tests/fixtures/left-by-0.4.0.

use support::{noise, root, scratch, sh, write};

/// Puts what was left below /srv, where it was; a directory there is the test's own meanwhile.
const PUT_BACK: &str = r#"
mount -t tmpfs none /srv || exit 99
cp -R "$fixture/files/." /srv
while read -r mode type size path; do
    if [ "$type" = d ]; then mkdir -p "/srv/$path"
    elif [ ! -e "/srv/$path" ]; then
        mkdir -p "/srv/${path%/*}"
        head -c "$size" large >"/srv/$path"
    fi
    chmod "$mode" "/srv/$path"
done <"$fixture/entries"
export HOME=/srv/home DGL_TOOLS_CONNECT='env HOST={name}'
unset XDG_CACHE_HOME XDG_STATE_HOME DGL_TOOLS_AGENT_DIR
mkdir /srv/src
cp ip.txt large /srv/src
echo 'by 0.4.0' >/srv/src/small
touch -d '2026-11-27 12:00:00.123456789 UTC' /srv/src/large /srv/src/small /srv/job/small
echo mine | tee /srv/job/mine >/srv/lost/mine
cd /srv/src
of_user() { (cd /srv && find home ! -path '*/.cache/*' -type f -exec sha256sum {} + | sort); }
of_user >before
ls "$HOME/.cache/dgl-tools" >agents
plan() { ipconf-check ip.txt | part-map --workspace "$1" --extra large --extra small; }
sent() { jq -s -c '[.[] | select(.type == "pushed") | .sent_bytes] | add'; }
"#;

#[test]
fn slow_a_host_on_which_version_0_4_0_left_its_files_and_an_unfinished_push_meets_this_version() {
    let folder = scratch();
    write(&folder, "large", noise(40, 8 << 20));
    write(&folder, "ip.txt", "127.0.0.1\n");
    // what is there is fetched, without the parts of files
    let pull = "ipconf-check ip.txt | part-pull --workspace /srv/job --to got '*' >pulled || exit
        (cd got && find . -type f | sort)\n";
    // of the push that was interrupted, what has arrived is not sent again
    let resume = "plan /srv/job | part-push >pushed || exit
        cmp large /srv/job/large && echo \"resumed: $(sent <pushed)\"; ls -A /srv/job\n";
    // what a host had of a file that has changed is discarded
    let discard = "tr 'a-m' 'n-z' <large >other && mv other large
        plan /srv/lost | part-push >other || exit
        cmp large /srv/lost/large && echo \"discarded: $(sent <other)\"; ls -A /srv/lost\n";
    let job = "<pushed dgl-env --role worker -- sh -c 'echo of this version; touch up; sleep 60' |
          dgl-spawn --job kept --log-dir /srv/logs >job.jsonl & launcher=$!
        for try in $(seq 600); do [ -e /srv/job/up ] && break; sleep 0.1; done
        ipconf-check ip.txt | dgl-stacks --job kept | jq -r 'select(.type == \"stack\").job' | uniq
        ipconf-check ip.txt | dgl-reap --job kept | jq -r 'select(.type == \"reaped\").job' | uniq
        wait $launcher; cat /srv/logs/worker-0.log\n";
    let after = "ipconf-check ip.txt | dgl-reap --list | jq -c 'select(.type == \"found\")'
        of_user >after; diff before after && echo 'the rest is as it was'
        ls \"$HOME/.cache/dgl-tools\" | diff agents - | sed -n 's/^\\([<>]\\).*/\\1 an agent/p'\n";
    let script = [PUT_BACK, pull, resume, discard, job, after].concat();
    write(&folder, "script", script);
    let fixture = root().join("tests/fixtures/left-by-0.4.0");
    let run = format!(
        "unshare -m true && fixture='{}' unshare -m sh script || exit $?",
        fixture.display()
    );
    let ran = sh(&folder, &run);
    if ran.status == 99 || ran.err.contains("unshare failed") {
        return support::skipped!("no right to mount");
    }
    let out = "./ip_config.txt\n./mine\n./small\n\
        resumed: 5242880\nip_config.txt\nlarge\nmine\nsmall\n\
        discarded: 8388617\nip_config.txt\nlarge\nmine\nsmall\n\
        kept\nkept\nof this version\n\
        the rest is as it was\n> an agent\n";
    ran.ends(0);
    assert_eq!(ran.out, out, "{}", ran.err);
}
