//! The site: its pages hang together, and each command of its tutorials does what the page says.

use crate::recipes;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Cluster, assert_has, made_by, python_with_dgl, root, scratch, sh, write};

/// The texts between a word and a quote, as in `href="…"`.
fn values<'a>(text: &'a str, attribute: &str) -> Vec<&'a str> {
    let begin = format!(" {attribute}=\"");
    let rests = text.split(&begin).skip(1);
    rests.filter_map(|rest| rest.split('"').next()).collect()
}

/// The site, built again; none where what builds it is missing.
fn built(folder: &Path) -> Option<PathBuf> {
    let build = format!(
        "CARGO_TARGET_DIR=\"$PWD\" '{}/site/build.sh'",
        root().display()
    );
    let built = sh(folder, &build);
    if built.status == 69 && std::env::var_os("CI").is_none() {
        support::skipped!("{}", built.err);
        return None;
    }
    built.ends(0);
    Some(folder.join("site"))
}

/// All pages, by the names of their files.
fn pages(site: &Path) -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    for file in fs::read_dir(site).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "html") {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            pages.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    pages
}

/// What a browser makes of a page after its scripts; none where there is no browser.
fn drawn(site: &Path, page: &str) -> Option<String> {
    if Command::new("chromium").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "no chromium");
        support::skipped!("no chromium here");
        return None;
    }
    let browser = "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                   --disable-background-networking --disable-component-update --disable-sync \
                   --user-data-dir=browser --virtual-time-budget=8000 --dump-dom";
    let command = format!("{browser} \"file://$PWD/{page}\" 2>/dev/null");
    Some(sh(site, &command).ends(0).out.clone())
}

/// The lines of a picture of a terminal.
fn lines_of_picture(svg: &str) -> Vec<String> {
    let mut lines: BTreeMap<u32, String> = BTreeMap::new();
    for element in svg.split("<text ").skip(1) {
        let (attributes, rest) = element.split_once('>').unwrap();
        let height = values(attributes, "y")[0].parse::<f64>().unwrap() * 10.0;
        let text = rest.split("</text>").next().unwrap();
        let line = lines.entry(height as u32).or_default();
        line.push_str(&text.replace("&#160;", " ").replace('\n', ""));
    }
    lines.into_values().collect()
}

/// How a message about a job begins: `The job failed`, or what follows the job's name.
fn beginning(line: &str) -> Option<String> {
    if line.starts_with("The job ") {
        return Some(line.split(':').next().unwrap().to_owned());
    }
    let (_, rest) = line.strip_prefix("dgl-spawn: job ")?.split_once(' ')?;
    let word = rest.split(' ').next().unwrap();
    Some(
        if word.parse::<u32>().is_ok() {
            "a number"
        } else {
            word
        }
        .to_owned(),
    )
}

/// Pictures are of real jobs, and cases have the messages of today: `make pictures`.
#[test]
fn pictures_have_messages_of_today() {
    let of_today: BTreeSet<String> = fs::read_dir(root().join("tests/cases"))
        .unwrap()
        .filter_map(|file| fs::read_to_string(file.unwrap().path()).ok())
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| beginning(line.get(2..)?))
        // no case waits for a stall
        .chain(["stalls:".to_owned()])
        .collect();
    let mut seen = 0;
    for file in fs::read_dir(root().join("site/pictures")).unwrap() {
        let path = file.unwrap().path();
        let Some(svg) = fs::read_to_string(&path)
            .ok()
            .filter(|text| text.contains("<svg"))
        else {
            continue;
        };
        for line in lines_of_picture(&svg) {
            if let Some(begin) = beginning(&line) {
                assert!(of_today.contains(&begin), "{}: {line}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 6, "{seen}");
}

#[test]
fn slow_pages_have_a_title_and_no_link_leads_nowhere() {
    let Some(site) = built(&scratch()) else {
        return;
    };
    let pages = pages(&site);
    let mut links = 0;
    for (page, text) in &pages {
        let title = text.split("<title>").nth(1).unwrap();
        let (title, _) = title.split_once("</title>").unwrap();
        assert!(
            !title.is_empty() && !title.contains('\n'),
            "{page}: {title}"
        );
        for link in values(text, "href").into_iter().chain(values(text, "src")) {
            if link.starts_with("https://") {
                continue;
            }
            links += 1;
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let path = if path.is_empty() { page } else { path };
            assert!(
                site.join(path).exists(),
                "{page}: {link}: there is no {path}"
            );
            let is_there = fragment.is_empty() || values(&pages[path], "id").contains(&fragment);
            assert!(is_there, "{page}: {link}: {path} has no {fragment}");
        }
    }
    assert!(pages.len() > 30 && links > 500, "{} {links}", pages.len());
}

#[test]
fn slow_the_search_of_the_manual_finds_flags_words_and_messages() {
    let Some(site) = built(&scratch()) else {
        return;
    };
    for (query, first) in [
        ("--stall-timeout", "dgl-spawn.1.html#stall-timeout"),
        ("part-pull+limit", "part-pull.1.html#limit"),
        ("connectors", "dgl-tools-connect.7.html#CONNECTORS"),
        // a package, which a host lacks, and not a module of the user's own
        (
            "ModuleNotFoundError:+No+module+named+'torch_geometric'",
            "dgl-tools-trouble.7.html#ModuleNotFoundError:~2",
        ),
        // a message of a user, with other figures
        (
            "part-push:+host+7+(gpu7):+no+space+left:+5+GB+are+to+be+sent,+1+GB+are+free",
            "part-push.1.html#part-push:",
        ),
    ] {
        let Some(page) = drawn(&site, &format!("manual.html?q={query}")) else {
            return;
        };
        let (_, found) = page.split_once("<ol>").unwrap_or_else(|| panic!("{query}"));
        assert!(
            values(found, "href")[0].starts_with(first),
            "{query}: {found}"
        );
    }
    let page = drawn(&site, "manual.html?q=xyzzy").unwrap();
    assert_has(&page, ">0 found<");
}

#[test]
fn slow_no_page_of_the_site_is_wider_than_a_telephone() {
    let Some(site) = built(&scratch()) else {
        return;
    };
    let mut frames = String::new();
    let names: Vec<String> = pages(&site).into_keys().collect();
    for name in &names {
        let path = site.join(name);
        let measured = fs::read_to_string(&path).unwrap()
            + "<script>const page = document.documentElement; parent.postMessage(
               `${location.pathname.split('/').pop()} ${page.scrollWidth - page.clientWidth}`, '*')
               </script>";
        fs::write(path, measured).unwrap();
        frames += &format!("<iframe src='{name}' width='400' height='600'></iframe>");
    }
    // an element of the page has what the frames say, one on each line
    let listens = "<pre id='said'></pre><script>onmessage = message => \
                   said.append(message.data + '\\n')</script>";
    write(
        &site,
        "frames.html",
        format!("<!DOCTYPE html>{listens}{frames}"),
    );
    let Some(page) = drawn(&site, "frames.html") else {
        return;
    };
    for name in &names {
        assert!(
            page.contains(&format!("{name} 0\n")),
            "{name} scrolls: {page}"
        );
    }
}

enum Block {
    Runs(String),
    Fails(String),
    /// Starts hosts, which the tests have, and writes their ip_config.
    Lab,
}

/// The blocks of a tutorial. Examples are those of the repository.
fn blocks(tutorial: &str) -> Vec<Block> {
    let path = root().join(format!("site/tutorials/{tutorial}.md"));
    let text = fs::read_to_string(path).unwrap();
    let fenced = text.split("```").skip(1).step_by(2);
    let installed = r#"$(dirname "$(command -v dgl-env)")/../share/dgl-tools/examples"#;
    let examples = root().join("examples").display().to_string();
    let blocks: Vec<Block> = fenced
        .map(|block| {
            let (kind, script) = block.split_once('\n').unwrap();
            // hosts of host-lab share the home
            let script = script.replace(installed, &examples);
            let script = script.replace("'~/job'", "/srv/job");
            match kind {
                "sh" => Block::Runs(script),
                "sh fails" => Block::Fails(script),
                "lab" => Block::Lab,
                other => panic!("{tutorial}: a block of unknown kind {other:?}"),
            }
        })
        .collect();
    assert!(!blocks.is_empty(), "{tutorial}");
    blocks
}

/// Runs the commands of a tutorial on host 1, with that Python; returns all they print.
fn follow(cluster: &Cluster, folder: &Path, tutorial: &str, python: &str) -> String {
    let mut shown = String::new();
    for block in blocks(tutorial) {
        let (script, fails) = match block {
            Block::Runs(script) => (script, false),
            Block::Fails(script) => (script, true),
            Block::Lab => {
                write(folder, "ip_config.txt", cluster.call(&["list"]).out);
                continue;
            }
        };
        let script = script.replace("python3 ", &format!("{python} "));
        let ran = cluster.sh(folder, &script);
        let message = format!("{}{}", ran.out, ran.err);
        assert_eq!(ran.status != 0, fails, "{tutorial}: {script}{message}");
        shown += &message;
    }
    shown
}

#[test]
fn real_hosts_do_what_the_tutorials_for_torch_say() {
    let Some(python) = made_by("tests/dgl/python.sh", "torch") else {
        return;
    };
    let folder = scratch();
    let cluster = Cluster::up(4);
    let shown = follow(&cluster, &folder, "torch", &python);
    for part in [
        "epoch 2: loss 0.0",
        "worker 2 on host 1 (10.77.0.2) raised ValueError: could not convert string to float",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let model = folder.join("results/10.77.0.1/model.pt");
    let page = folder.join("run.html");
    assert!(
        (model.is_file() || folder.join("results/model.pt").is_file()) && page.is_file(),
        "{shown}"
    );
    // its checkpoint has five epochs
    let again = format!(
        "python3 code/data.py; ipconf-check ip_config.txt | host-probe | part-map --workspace \
         /srv/job --script-folder code --extra data.csv | part-push | dgl-env --role worker \
         --num-workers 2 -- {python} code/ddp.py --epochs 6 --checkpoint run.pt | dgl-spawn \
         --format human"
    );
    let continued = cluster.sh(&folder, &again);
    continued
        .ends(0)
        .out_has("epoch 5: loss")
        .out_lacks("epoch 4: loss");
    cluster.assert_clean();

    // the job that the other tutorial finds
    let faulty = root().join("tests/dgl/ddp.py").display().to_string();
    let hang = format!(
        "rm -r logs; cp '{faulty}' code/faulty.py; ipconf-check ip_config.txt | host-probe | \
         part-map --workspace /srv/job --script-folder code | part-push >pushed.jsonl; \
         {{ dgl-env --role worker --num-workers 1 --env FAULT=loader \
         --env FAULT_RANK=2 -- {python} code/faulty.py <pushed.jsonl | dgl-spawn --job hang \
         --log-dir logs --stall-timeout 10s; }} >spawn.out 2>&1 & \
         for i in $(seq 600); do ! grep -q stalled logs/run.jsonl 2>/dev/null || exit 0; \
         sleep 0.2; done; cat spawn.out; exit 1"
    );
    cluster.run(&folder, &hang);
    let shown = follow(&cluster, &folder, "hang", &python);
    for part in [
        "\"frames\":[\"__getitem__ (faulty.py:",
        "The job waits: worker 2 on host 2 (10.77.0.3) is in __getitem__ (faulty.py:",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    cluster.assert_clean();
}

#[test]
fn real_dgl_does_what_its_tutorial_says() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let folder = scratch();
    let cluster = Cluster::up(4);
    let shown = follow(&cluster, &folder, "dgl", &python);
    assert_has(&shown, "loss fell from");
    assert!(folder.join("run.html").is_file(), "{shown}");
    cluster.assert_clean();
}

/// GraphStorm's own parts are tried by `make test-graphstorm`; here the job is only planned.
#[test]
fn slow_the_tutorial_on_graphstorm_is_a_job() {
    let folder = recipes::prepared();
    for block in blocks("graphstorm") {
        let Block::Runs(script) = block else {
            panic!("graphstorm: a block that is not run");
        };
        let script = support::recipe_commands(&script, &folder);
        let ran = recipes::run(&folder, &script);
        assert_eq!(ran, (0, String::new()), "{script}");
    }
    let example = "make WORKSPACE=$PWD/data/job train fetch 2>&1";
    assert_eq!(recipes::run(&folder, example), (0, String::new()));
}
