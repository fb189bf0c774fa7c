//! dgl-report: the records of real runs as a page, looked at by a real browser.

use std::path::Path;
use std::process::Command;
use support::{assert_has, partition, root, scratch, sh, write};

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

#[test]
fn a_page_that_needs_nothing_beside_it() {
    let folder = scratch();
    failed_job(&folder, "try");
    let page = sh(&folder, "dgl-report job.jsonl");
    page.ends(0);
    for part in [
        "try: failed",
        "exit status 7",
        "trainer 1: exited with status 7",
        "&lt;b&gt;loss 1",
        "there already",
    ] {
        page.out_has(part);
    }
    for (role, is_there) in [("server", true), ("trainer", true), ("worker", false)] {
        let legend = format!("<span class=\"{role}\">{role}</span>");
        assert_eq!(page.out.contains(&legend), is_there, "{role}");
    }
    page.out_has("ended: trainer 1 failed");
    for outside in ["http", "src=", "url(", "@import"] {
        page.out_lacks(outside);
    }
    let links = page.out.matches("href=").count();
    assert_eq!(
        links,
        page.out.matches("href=\"#").count(),
        "each link leads to a place on the page"
    );
    sh(
        &folder,
        "head -n 7 job.jsonl | dgl-report | grep -c 'the records break off'",
    )
    .ends(0);
    sh(&folder, "dgl-report --lines 0 job.jsonl").out_lacks("its last lines");
    sh(&folder, "dgl-report </dev/null").ends(65);
    sh(&folder, "dgl-report none.jsonl").ends(74);
}

/// What a script says of a page on a screen so wide, as a real browser has drawn it; none where
/// there is no browser. The screen is a frame: no window of a browser is as narrow as a telephone.
fn drawn(folder: &Path, page: &str, width: u32, script: &str) -> Option<String> {
    if Command::new("chromium").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "no chromium");
        println!("skipped: no chromium here");
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

/// Records are edited, cut, joined, or come from a host whose clock is anywhere: there is a page
/// all the same.
#[test]
fn slow_any_record_gets_a_page() {
    let folder = scratch();
    failed_job(&folder, "any");
    let largest = u64::MAX;
    let edits = [
        "if .time_ms then .time_ms = 9007199254740992 else . end".to_owned(),
        "if .time_ms then .time_ms = 253402300800000 else . end".to_owned(),
        "if .type == \"started\" then .time_ms = 0 else . end".to_owned(),
        "if .type == \"exited\" then .time_ms = 0 | .elapsed_ms = 9007199254740992 else . \
         end"
        .to_owned(),
        "if .type == \"pushed\" then .sent_bytes = 9007199254740992 | .elapsed_ms = 0 else . \
         end"
        .to_owned(),
        "if .type == \"summary\" then .elapsed_ms = 9007199254740992 | .first_failure = {host: \
         99, id: 99} else . end"
            .to_owned(),
        "if .type == \"process\" then .host = 99 else . end".to_owned(),
        "select(.type != \"host\")".to_owned(),
        "select(.type != \"started\")".to_owned(),
        "., if .type == \"started\" or .type == \"exited\" or .type == \"summary\" then . else \
         empty end"
            .to_owned(),
    ];
    for edit in edits {
        write(&folder, "edit.jq", &edit);
        let page = sh(&folder, "jq -c -f edit.jq job.jsonl | dgl-report");
        assert!(
            page.status == 0 && page.out.ends_with("</html>"),
            "{edit}: {} {}",
            page.status,
            page.err
        );
    }
    // jq would change it
    let page = sh(
        &folder,
        &format!("sed -E 's/(_ms|_bytes)\":[0-9]+/\\1\":{largest}/' job.jsonl | dgl-report"),
    );
    page.ends(0);
    assert!(
        page.out.ends_with("</html>"),
        "{} {}",
        page.status,
        page.err
    );
}

const HOSTS: u32 = 64;

/// The records of a run on many hosts that took over an hour: the trainer of host 41 fails first,
/// that of host 5 then, host 7 lacks a file, and host K has taken 60 + K MB a second.
fn large_run() -> String {
    let mut records = Vec::new();
    let processes: Vec<(u32, &str)> = (0..HOSTS)
        .flat_map(|host| [(host, "server"), (host, "trainer")])
        .collect();
    let of = processes.len();
    for host in 0..HOSTS {
        records.push(format!(
            r#"{{"type":"host","id":{host},"of":{HOSTS},"ip":"10.0.0.{}","port":30050}}"#,
            host + 1
        ));
    }
    for host in 0..HOSTS {
        let end = if host == 7 {
            r#""ok":false,"error":"No space left on device""#
        } else {
            r#""ok":true"#
        };
        records.push(format!(
            "{{\"type\":\"pushed\",\"id\":{host},\"of\":{HOSTS},\"file\":{host},\
                 \"host\":{host},\"bytes\":5,\"sent_bytes\":{},\"skipped\":false,\
                 \"elapsed_ms\":1000,{end}}}",
            (60 + host) * 1_000_000
        ));
    }
    for (id, (host, role)) in processes.iter().enumerate() {
        let rest = r#""env":{},"argv":["x"]"#;
        records.push(format!(
            "{{\"type\":\"process\",\"id\":{id},\"of\":{of},\"host\":{host},\
                 \"ip\":\"10.0.0.{}\",\"role\":\"{role}\",\"rank\":{host},{rest}}}",
            host + 1
        ));
    }
    for (id, (host, role)) in processes.iter().enumerate() {
        let of_it = format!(r#""id":{id},"host":{host},"role":"{role}","rank":{host}"#);
        let end = if *role == "trainer" && [5, 41].contains(host) {
            r#""code":1"#
        } else {
            r#""signal":"TERM""#
        };
        records.push(format!(
            r#"{{"type":"started",{of_it},"pid":{},"time_ms":1000}}"#,
            id + 2
        ));
        records.push(format!(
            r#"{{"type":"exited",{of_it},{end},"elapsed_ms":5000000}}"#
        ));
    }
    let first = r#"{"host":41,"id":83,"role":"trainer","rank":41,"code":1}"#;
    records.push(format!(
        "{{\"type\":\"summary\",\"ok\":false,\"code\":1,\"cause\":\"process\",\
         \"first_failure\":{first},\"elapsed_ms\":5000000}}"
    ));
    records.join("\n") + "\n"
}

#[test]
fn failures_of_many_hosts_are_led_to_from_the_top() {
    let folder = scratch();
    write(&folder, "run.jsonl", large_run());
    let page = sh(&folder, "dgl-report run.jsonl").out;
    let top = page.split("<h2>Processes</h2>").next().unwrap();
    for (link, location) in [
        (
            r##"<a href="#process-83">host 41 10.0.0.42</a>, trainer 41: exited with status 1"##,
            r#"id="process-83""#,
        ),
        (
            r##"<a href="#process-11">host 5 10.0.0.6</a>, trainer 5: status 1"##,
            r#"id="process-11""#,
        ),
        (
            concat!(
                r##"<a href="#copied-7">host 7 10.0.0.8</a>: 1 file not copied: No "##,
                r##"space left on device"##
            ),
            r#"id="copied-7""#,
        ),
    ] {
        assert!(top.contains(link), "{link}: {top}");
        assert_eq!(page.matches(location).count(), 1, "{location}");
    }
    assert_eq!(
        top.matches("href=").count(),
        3,
        "what dgl-spawn ended is not a failure: {top}"
    );

    // what fails everywhere is counted
    let everywhere = large_run().replace(r#""signal":"TERM""#, r#""code":1"#);
    write(&folder, "run.jsonl", everywhere);
    let page = sh(&folder, "dgl-report run.jsonl").out;
    assert_has(&page, "and 107 processes more");
}

#[test]
fn a_host_that_was_lost_is_led_to() {
    let folder = scratch();
    let process = r#"{"host":41,"id":83,"role":"trainer","rank":41,"code":1}"#;
    let lost = large_run().replace(process, r#"{"host":41,"error":"nothing was heard of it"}"#);
    write(&folder, "run.jsonl", lost);
    let page = sh(&folder, "dgl-report run.jsonl").out;
    let link = r##"<a href="#host-41">host 41 10.0.0.42</a>: nothing was heard of it"##;
    assert!(
        page.contains(link) && page.matches(r#"id="host-41""#).count() == 1,
        "{page}"
    );
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

/// The large run with a stall, and with a record of a version before 0.5.0, which is passed over.
fn stalled_run() -> String {
    large_run()
        + r#"{"type":"sample","host":0,"time_ms":9000,"interval_ms":5000,"cpu_s":5,"cpus":16}
{"type":"stalled","since_ms":3001000,"silent_s":600,"reason":"Nobody moves.","time_ms":3601000}
"#
}

#[test]
fn the_verdict_stands_on_top_and_what_is_drawn_is_told_too() {
    let folder = scratch();
    write(&folder, "run.jsonl", stalled_run());
    let page = sh(&folder, "dgl-report run.jsonl").out;
    let why = page.find("<h2 id=\"verdict\">Why</h2>").unwrap();
    assert!(why < page.find("First failure").unwrap());
    let brief = sh(&folder, "dgl-why --brief run.jsonl").out;
    let cause = brief.lines().next().unwrap();
    assert!(page.contains(cause), "{cause}: {}", &page[why..why + 600]);
    for report in [
        "50 min 0 s to 1 h 0 min: stalled: Nobody moves",
        "1 h 23 min: trainer 41 on host 41 failed: status 1",
        "ran from 0.0 s to 1 h 23 min: ",
    ] {
        assert!(page.contains(report), "{report}");
    }
}

#[test]
fn slow_the_page_is_dark_where_the_reader_wants_it_so() {
    let folder = scratch();
    write(&folder, "run.jsonl", stalled_run());
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

#[test]
fn folded_stacks_for_other_tools() {
    let folder = scratch();
    write(&folder, "profile.jsonl", PROFILES);
    let folded = sh(&folder, "dgl-report --format folded <profile.jsonl");
    folded.ends(0);
    let expected = "trainer 0;<module> (t.py:9);all_reduce (torch/distributed/c10d.py:7) 270\n\
                    trainer 0;<module> (t.py:9);load</script> (t.py:4) 30\n\
                    trainer 1;<module> (t.py:9);load</script> (t.py:4) 300\n\
                    child 42 of trainer 1;sample (t.py:20) 300\n";
    assert_eq!(folded.out, expected);
    let without = "head -n 1 profile.jsonl | dgl-report --format folded";
    sh(&folder, without)
        .ends(65)
        .err_has("no profile record came in\n  fix: record the job while it runs");
}

/// What a display in the recipe "Figures for Prometheus" shows.
fn figures_recipe(display: usize) -> String {
    let manual = std::fs::read_to_string(root().join("man/dgl-tools-jobs.7")).unwrap();
    let (_, recipe) = manual.split_once(".Ss Figures for Prometheus\n").unwrap();
    let shown = recipe.split(".Bd -literal -offset indent\n").nth(display);
    let (shown, _) = shown.unwrap().split_once("\n.Ed").unwrap();
    let lines = shown.lines();
    let lines = lines.map(|line| line.strip_prefix("$ ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n").replace("\\e", "\\")
}

/// Records of a job that stalls.
fn records() -> String {
    let lines = [
        r#"{"type":"host","id":0,"of":1,"ip":"10.0.0.1","port":1,"name":"a\"b\\c\nd\te"}"#,
        r#"{"type":"started","id":4,"host":0,"role":"trainer","rank":1,"pid":7,"time_ms":1}"#,
        r#"{"type":"output","id":4,"line":"{\"type\":\"resumed\"}","time_ms":9}"#,
        r#"{"type":"stalled","since_ms":1,"silent_s":9,"reason":"x","time_ms":9}"#,
    ];
    lines.join("\n") + "\n"
}

/// Prometheus' own promtool reads what the recipe makes of records.
#[test]
fn figures_for_prometheus() {
    let folder = scratch();
    write(&folder, "figures.jq", figures_recipe(1));
    write(&folder, "run.jsonl", records());
    let make = "jq -Rnr --arg job j -f figures.jq run.jsonl >job.prom && \
                promtool check metrics <job.prom && cat job.prom";
    let figures = |what: &str| {
        let made = sh(&folder, what);
        made.ends(0);
        assert_eq!(made.err, "", "promtool complains of {}", made.out);
        made.out
    };
    let expected = r#"# HELP dgl_job_stalled Whether the job stalls.
# TYPE dgl_job_stalled gauge
dgl_job_stalled{dgl_job="j"} 1
# HELP dgl_process_up Whether the process runs.
# TYPE dgl_process_up gauge
dgl_process_up{PROCESS} 1
# HELP dgl_process_failed Whether the process failed before the job was ended.
# TYPE dgl_process_failed gauge
dgl_process_failed{PROCESS} 0
"#
    .replace(
        "PROCESS",
        r#"dgl_job="j",host="a\"b\\c\nd	e",role="trainer",rank="1""#,
    );
    assert_eq!(figures(make), expected);

    let has = |more: &str, lines: &[&str]| {
        write(&folder, "run.jsonl", format!("{}{more}", records()));
        let figures = figures(make);
        for line in lines {
            let values: Vec<&str> = figures
                .lines()
                .filter(|one| one.starts_with(line))
                .collect();
            assert_eq!(values.len(), 1, "{line} after {more}: {figures}");
        }
        figures
    };
    let exited = r#"{"type":"exited","id":4,"host":0,"role":"trainer","rank":1,"elapsed_ms":9"#;
    let all = records();
    let started = all.lines().nth(1).unwrap();
    has(
        r#"{"type":"resumed","since_ms":1,"time_ms":12}"#,
        &[r#"dgl_job_stalled{dgl_job="j"} 0"#],
    );
    let killed = format!("{exited},\"signal\":\"KILL\"}}\n");
    let failed = has(&killed, &[r#"dgl_job_stalled{dgl_job="j"} 1"#]);
    assert!(failed.contains(r#"rank="1"} 0"#) && failed.contains(r#"rank="1"} 1"#));
    let again = has(
        &format!("{killed}{started}\n"),
        &[r#"dgl_job_stalled{dgl_job="j"} 0"#],
    );
    assert_eq!(again.matches(r#"rank="1"} 1"#).count(), 1, "{again}");
    // while it is ended, and with a line that is not complete yet
    let ended = format!("{exited},\"code\":143,\"while_ending\":true}}\n{{\"type\":\"sta");
    let ended = has(&ended, &[]);
    assert!(!ended.contains(r#"rank="1"} 1"#), "{ended}");
}

/// The recipe as it stands in the manual, on a job that stalls and goes on.
#[test]
fn slow_figures_for_prometheus_of_a_job_that_runs() {
    let folder = scratch();
    write(&folder, "figures.jq", figures_recipe(1));
    let job = "echo 127.0.0.1 | ipconf-check | dgl-env --role worker --workspace \"$PWD\" -- \
               sh -c 'read line <go; echo goes on; sleep 2; exit 3' >job.jsonl";
    sh(&folder, job).ends(0);
    // it writes figures more often than in the manual, and keeps all of them
    let recipe = figures_recipe(2)
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
