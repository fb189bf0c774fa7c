//! dgl-report: the records of real runs as a page, looked at by a real browser;
//! ../cases/slow_dgl_report.txt has what the page says.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use support::{
    host_record, partition, read, recipe_commands, recipes_of, root, scratch, sh, write,
};

/// A job of two trainers on this machine, of which the second fails with some words; its records in
/// job.jsonl. Two jobs of one name do not run at the same time.
fn failed_job(folder: &Path, job: &str) {
    partition(folder, 1);
    write(folder, "ip.txt", "127.0.0.1\n");
    let script = format!(
        "ipconf-check ip.txt | part-map --part-config out/g.json --workspace '{}' | part-push \
         --connect local 2>/dev/null |
         dgl-env --num-trainers 2 -- sh -c 'echo \"<b>loss\" 1; sleep 0.5; [ \"$RANK\" != 1 ] || \
             exit 7; sleep 60' | dgl-spawn --connect local --wait 2m --job {job} >job.jsonl",
        folder.join("ws").display()
    );
    sh(folder, &script).ends(7);
}

/// What a script says of a page on a screen so wide, as a real browser has drawn it; none where
/// there is no browser. The screen is a frame: no window of a browser is as narrow as a telephone.
fn drawn(folder: &Path, page: &str, width: u32, script: &str) -> Option<String> {
    if Command::new("chromium").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "no chromium");
        support::skipped!("no chromium here");
        return None;
    }
    let page = format!("{page}<script>parent.document.title = {script}</script>")
        .replace('&', "&amp;")
        .replace('"', "&quot;");
    let frame = format!(
        r#"<iframe width="{width}" height="900" style="border: 0" srcdoc="{page}"></iframe>"#
    );
    write(folder, "page.html", frame);
    let browser = "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking \
                   --disable-component-update --disable-sync --user-data-dir=browser";
    let command = format!(
        "{browser} --window-size=1400,1000 --dump-dom \"file://$PWD/page.html\" 2>/dev/null | \
         grep -o '<title>[^<]*'"
    );
    let dumped = sh(folder, &command);
    Some(
        dumped
            .out
            .trim()
            .strip_prefix("<title>")
            .unwrap_or_else(|| panic!("{}", dumped.err))
            .to_owned(),
    )
}

#[test]
fn slow_a_browser_draws_every_process() {
    let folder = scratch();
    failed_job(&folder, "drawn");
    // what the browser made of the page: the width of each bar, and where the first failure stands
    let script = r"[...document.querySelectorAll('.row .bar')].map(bar => bar.className + ' ' +
        Math.round(bar.getBoundingClientRect().width)).join(';') + '|' +
        document.documentElement.scrollWidth";
    let Some(message) = drawn(
        &folder,
        &sh(&folder, "dgl-report job.jsonl").out,
        1200,
        script,
    ) else {
        return;
    };
    let (bars, page_width) = message.split_once('|').expect(&message);
    let bars: Vec<(&str, u32)> = bars
        .split(';')
        .filter_map(|bar| bar.rsplit_once(' '))
        .map(|(class, width)| (class, width.parse().unwrap()))
        .collect();
    assert_eq!(bars.len(), 3, "a server and two trainers: {bars:?}");
    assert!(bars.iter().all(|(_, width)| *width > 100), "{bars:?}");
    assert_eq!(
        bars.iter()
            .filter(|(class, _)| class.contains("culprit"))
            .count(),
        1,
        "{bars:?}"
    );
    assert!(
        page_width.parse::<u32>().unwrap() <= 1200,
        "nothing sticks out: {page_width}"
    );
}

const HOSTS: u32 = 64;

/// The records of a run on many hosts that took over an hour, in which host K took 60 + K MB a
/// second.
fn large_run() -> String {
    let processes = (0..HOSTS).flat_map(|host| [(host, "server"), (host, "trainer")]);
    let hosts = (0..HOSTS).map(|host| host_record(host, HOSTS, &format!("10.0.0.{}", host + 1)));
    let pushed = (0..HOSTS).map(|host| {
        json!({"type": "pushed", "id": host, "of": HOSTS, "file": host, "host": host, "ok": true,
            "bytes": 5, "sent_bytes": (60 + host) * 1_000_000, "skipped": false,
            "elapsed_ms": 1000})
    });
    let ran = processes.enumerate().flat_map(|(id, (host, role))| {
        let of_it = json!({"id": id, "host": host, "role": role, "rank": host});
        let record = |rest: Value| {
            let mut record = of_it.as_object().unwrap().clone();
            record.extend(rest.as_object().unwrap().clone());
            Value::Object(record)
        };
        let ip = format!("10.0.0.{}", host + 1);
        [
            record(json!({"type": "process", "of": 2 * HOSTS, "ip": ip, "env": {}, "argv": ["x"]})),
            record(json!({"type": "started", "pid": id + 2, "time_ms": 1000})),
            record(json!({"type": "exited", "code": 1, "elapsed_ms": 5_000_000})),
        ]
    });
    let lines = hosts.chain(pushed).chain(ran);
    lines.map(|record| format!("{record}\n")).collect()
}

#[test]
fn slow_what_is_drawn_fits_wide_and_narrow_screens() {
    let folder = scratch();
    write(&folder, "run.jsonl", large_run());
    let page = sh(&folder, "dgl-report run.jsonl").out;
    // how wide the page is, where each label of the axis begins and ends, how long each bar of the
    // copies is
    let script = r"document.documentElement.scrollWidth + '|' +
        [...document.querySelectorAll('.axis span')]
        .map(label => label.getBoundingClientRect()).filter(label => label.width)
        .map(label => label.left + ' ' + label.right).join(';') + '|' +
        [...document.querySelectorAll('.bar.copy')]
        .map(bar => bar.getBoundingClientRect().width).join(';') + '|' +
        [...document.querySelectorAll('body *')]
        .filter(one => one.scrollWidth > one.clientWidth)
        .filter(one => getComputedStyle(one).overflowX == 'auto').length";
    for width in [320, 400, 700, 900, 1200] {
        let Some(message) = drawn(&folder, &page, width, script) else {
            return;
        };
        let [page_width, labels, bars, scrolled] = message.split('|').collect::<Vec<_>>()[..]
        else {
            panic!("{message}")
        };
        assert_eq!(scrolled, "0", "{width}: nothing is to be scrolled sideways");
        assert!(
            page_width.parse::<u32>().unwrap() <= width,
            "{width}: the page is {page_width} wide"
        );

        let number = |word: &str| word.parse::<f64>().unwrap();
        let labels: Vec<(f64, f64)> = labels
            .split(';')
            .map(|label| {
                label
                    .split_once(' ')
                    .map(|(left, right)| (number(left), number(right)))
                    .unwrap()
            })
            .collect();
        assert!(labels.len() >= 2, "{width}: {labels:?}");
        assert!(
            labels.windows(2).all(|two| two[0].1 + 4.0 <= two[1].0),
            "{width}: a label overprints the next: {labels:?}"
        );
        assert!(
            labels
                .iter()
                .all(|(left, right)| *left >= 0.0 && *right <= f64::from(width)),
            "{width}: {labels:?}"
        );

        let bars: Vec<f64> = bars.split(';').map(number).collect();
        let longest = bars[HOSTS as usize - 1];
        assert_eq!(bars.len(), HOSTS as usize);
        for (host, bar) in (0..HOSTS).zip(&bars) {
            let share = f64::from(60 + host) / f64::from(60 + HOSTS - 1);
            assert!(
                (bar / longest - share).abs() < 0.02,
                "{width}: host {host}: {bar} of {longest}, not {share}"
            );
        }
    }
}

#[test]
fn slow_the_page_is_dark_where_the_reader_wants_it_so() {
    let folder = scratch();
    write(&folder, "run.jsonl", large_run());
    let page = sh(&folder, "dgl-report run.jsonl").out;
    // a browser without a screen has no wish: the rule itself is asked, and the colours it sets
    let script = r"getComputedStyle(document.documentElement).colorScheme + '|' +
        [...document.styleSheets[0].cssRules]
            .filter(rule => rule.conditionText == '(prefers-color-scheme: dark)').length";
    if let Some(message) = drawn(&folder, &page, 1200, script) {
        assert_eq!(message, "light dark|1");
    }
}

/// Two trainers and a sampler, of whose frames one looks like the end of a script.
const PROFILES: &str = include_str!("profiles.jsonl");

#[test]
fn slow_flame_graphs_are_drawn_searched_and_followed_by_keyboard() {
    let folder = scratch();
    // as dgl-stacks writes it behind the records that dgl-spawn was given
    let process = r#"{"type":"process","id":0,"of":1,"host":0,"ip":"10.0.0.1","role":"trainer",
        "rank":0,"cwd":"/","env":{},"argv":["python3","t.py"]}"#;
    let records = PROFILES.to_owned() + &process.replace('\n', "") + "\n";
    write(&folder, "profile.jsonl", records);
    let page = sh(&folder, "dgl-report profile.jsonl");
    page.ends(0)
        .out_has("lag: where its time goes")
        .out_lacks("never started")
        .out_has("trainer 1 on host 0 (10.0.0.1) is in load&lt;/script&gt; (t.py:4) in 100 %");
    // each frame with its width in per cent: first as the page comes, the slow trainer beside all;
    // then with a search; then with the focus two frames down, and that one alone
    let script = r"(() => {
        const area = document.querySelector('.flame');
        const shown = () => [...document.querySelectorAll('.flame button')].map(button =>
            button.textContent + ' ' + Math.round(parseFloat(button.style.width))).join(', ');
        const told = [shown()];
        const search = document.querySelector('#flames input');
        search.value = 'ALL_reduce';
        search.dispatchEvent(new Event('input'));
        told.push(document.querySelectorAll('.found').length);
        told.push(document.querySelector('.graph p').textContent);
        const press = key => document.activeElement.dispatchEvent(
            new KeyboardEvent('keydown', {key, bubbles: true}));
        area.querySelector('button').focus();
        press('ArrowDown'); press('ArrowDown'); press('ArrowRight');
        told.push(document.activeElement.textContent);
        document.activeElement.click();
        told.push([...area.querySelectorAll('button')].map(one => one.style.width).join(' '));
        return told.join('|');
    })()";
    let Some(message) = drawn(&folder, &page.out, 1200, script) else {
        return;
    };
    let message = message.replace("&lt;", "<").replace("&gt;", ">");
    let report: Vec<&str> = message.split('|').collect();
    let both = "all 2 trainers 100, <module> (t.py:9) 100, load</script> (t.py:4) 55, all_reduce \
                (torch/distributed/c10d.py:7) 45, ";
    let slow = "trainer 1 100, <module> (t.py:9) 100, load</script> (t.py:4) 100";
    let found = "45.0 % of its time is in what was searched for.";
    let reduce = "all_reduce (torch/distributed/c10d.py:7)";
    let expected = [
        &format!("{both}{slow}"),
        "1",
        found,
        reduce,
        "100% 100% 100%",
    ];
    assert_eq!(report, expected);
}

/// The program of the recipe "Figures for Prometheus".
fn figures_program() -> String {
    read(&root(), "examples/prometheus/figures.jq")
}

/// The recipe as it stands in the manual, on a job that stalls and goes on.
#[test]
fn slow_figures_for_prometheus_of_a_job_that_runs() {
    let folder = scratch();
    write(&folder, "figures.jq", figures_program());
    let job = "echo 127.0.0.1 | ipconf-check | dgl-env --role worker --workspace \"$PWD\" -- \
               sh -c 'read line <go; echo goes on; sleep 2; exit 3' >job.jsonl";
    sh(&folder, job).ends(0);
    // it writes figures more often than in the manual, and keeps all of them
    let recipes = recipes_of("dgl-tools-jobs", "EXAMPLES");
    let mut shown = recipes
        .iter()
        .filter(|(name, _)| name == "Figures for Prometheus");
    let recipe = recipe_commands(&shown.next().unwrap().1, &folder)
        .replace("sleep 15", "sleep 0.2")
        .replace(
            "dgl-spawn",
            "dgl-spawn --connect local --no-preflight --stall-timeout 5s",
        )
        .replace("/var/lib/prometheus/node-exporter", "prom");
    assert!(recipe.contains("mv $folder/try7.new $folder/try7.prom\ndone"));
    // and the worker waits until they say that the job stalls
    let go_on = "cat prom/try7.prom >>all
        [ ! -e go ] || ! grep -q '^dgl_job_stalled.* 1$' all || { echo >go; rm go; }";
    let recipe = recipe.replace("\ndone", &format!("\n{go_on}\ndone"));
    let ran = sh(
        &folder,
        &format!("mkdir prom; mkfifo go; touch run.jsonl; {recipe}; ls prom"),
    );
    ran.ends(0);
    assert_eq!(ran.out, "try7.prom\n", "{}", ran.err);
    sh(&folder, "promtool check metrics <prom/try7.prom").ends(0);
    let stalled = sh(
        &folder,
        "grep '^dgl_job_stalled' all | uniq | cut -d ' ' -f 2",
    );
    assert_eq!(stalled.out, "0\n1\n0\n");
    let labels = r#"{dgl_job="try7",host="127.0.0.1",role="worker",rank="0"}"#;
    for (file, line) in [
        ("all", "dgl_process_up{} 1"),
        ("prom/try7.prom", "dgl_process_up{} 0"),
        ("prom/try7.prom", "dgl_process_failed{} 1"),
    ] {
        let line = line.replace("{}", labels);
        sh(&folder, &format!("grep -F '{line}' {file}")).ends(0);
    }
}
