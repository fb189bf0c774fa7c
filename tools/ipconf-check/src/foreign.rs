//! Recognizes host files of other launchers, which resemble an ip_config.

use crate::text::{HostLine, is_name, is_of_name};
use record::error::Fault;
use record::quote;
use std::net::{Ipv4Addr, Ipv6Addr};

/// More slots than any host has; a larger number after a colon is a port.
const MAX_SLOTS: u32 = 1024;

/// bash keeps all words of a range in memory.
const MAX_DIGITS: usize = 6;

pub fn fault(lines: &[HostLine]) -> Option<Fault> {
    lines.iter().find_map(|line| {
        let fault =
            |problem: String, fix: String| Some(Fault::data(&line.location, problem).fix(fix));
        let word = line.address.as_str();
        if let Some(words) = expansion(word) {
            let problem = format!("{word} names several hosts, as in pdsh and Slurm");
            let fix = format!(
                "write one host per line; bash writes them: printf '%s\\n' {words}; with Slurm: \
                 scontrol show hostnames {}",
                quote::shown(word)
            );
            return fault(problem, fix);
        }
        if let Some(group) = ansible_group(line) {
            let problem = format!("{word} belongs to an inventory of Ansible");
            let fix = format!(
                "write one host per line, without groups and variables; ansible lists the hosts: \
                 ansible -i FILE {group} --list-hosts | tail -n +2 | ipconf-check -"
            );
            return fault(problem, fix);
        }
        number_of_slots(line)?;
        // `slots=4`, or `host:4`
        let assignment = line.port.as_deref().filter(|word| word.contains('='));
        let slots = assignment.unwrap_or(word);
        let problem = format!("{slots:?} gives slots, as in a hostfile of MPI or DeepSpeed");
        let given = num_workers(lines);
        let mut fix =
            format!("write only the host, and give dgl-env the slots: --num-workers {given}");
        if slots.ends_with(":22") {
            fix += "; the port of ssh belongs in ssh_config or in DGL_TOOLS_SSH_PORT";
        }
        fault(problem, fix)
    })
}

fn number_of_slots(line: &HostLine) -> Option<u32> {
    let words = [&line.port, &line.surplus].into_iter().flatten();
    let mut given = words.filter_map(|word| word.split_once('='));
    if let Some((_, number)) = given.find(|(key, _)| ["slots", "cpu", "np", "ppn"].contains(key)) {
        return number.parse().ok();
    }
    let (host, number) = line.address.rsplit_once(':')?;
    let is_host = is_name(host.rsplit('@').next()?) || host.parse::<Ipv4Addr>().is_ok();
    let number = number.parse().ok()?;
    (is_host && (1..=MAX_SLOTS).contains(&number)).then_some(number)
}

fn num_workers(lines: &[HostLine]) -> String {
    let shown = |slots: Option<u32>| slots.map_or("N".to_owned(), |slots| slots.to_string());
    let mut counts: Vec<String> = lines
        .iter()
        .map(|line| shown(number_of_slots(line)))
        .collect();
    if counts.iter().all(|count| *count == counts[0]) {
        counts.truncate(1);
    }
    counts.join(",")
}

/// The Ansible group that a line begins, or `all` for a host with variables.
fn ansible_group(line: &HostLine) -> Option<&str> {
    let second = line.port.as_deref().unwrap_or_default();
    if second.starts_with("ansible_") {
        return Some("all");
    }
    let inner = line.address.strip_prefix('[')?.strip_suffix(']')?;
    let group = inner.split(':').next()?;
    (is_name(group) && inner.parse::<Ipv6Addr>().is_err()).then_some(group)
}

/// `h{1..4} login` for `h[1-4],login`: the words that bash makes of ranges.
fn expansion(word: &str) -> Option<String> {
    let mut is_inside = false;
    let terms = word.split(|c| {
        is_inside = c == '[' || is_inside && c != ']';
        c == ',' && !is_inside
    });
    let words = terms.map(|term| range(term).or_else(|| is_name(term).then(|| term.to_owned())));
    let words: Vec<String> = words.collect::<Option<_>>()?;
    word.contains('[').then(|| words.join(" "))
}

fn range(word: &str) -> Option<String> {
    let (prefix, rest) = word.split_once('[')?;
    let (ranges, suffix) = rest.split_once(']')?;
    // the words stand in a command, unquoted
    let is_part = |part: &str| part.chars().all(is_of_name);
    if prefix.is_empty() || !is_part(prefix) {
        return None;
    }
    let suffix = if is_part(suffix) {
        suffix.to_owned()
    } else {
        range(suffix)?
    };
    let is_number = |text: &str| {
        (1..=MAX_DIGITS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let braces = |range: &str| match range.split_once('-') {
        Some((first, last)) if is_number(first) && is_number(last) => {
            Some(format!("{{{first}..{last}}}"))
        }
        None if is_number(range) => Some(range.to_owned()),
        _ => None,
    };
    let parts: Vec<String> = ranges.split(',').map(braces).collect::<Option<_>>()?;
    let inner = match parts.as_slice() {
        [part] => part.clone(),
        parts => format!("{{{}}}", parts.join(",")),
    };
    Some(format!("{prefix}{inner}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn other_launchers_host_files_are_told_what_to_write() {
        let table = [
            (
                "gpu1 slots=4\ngpu2 slots=2 max_slots=8\n",
                "f:1: \"slots=4\" gives slots",
                "--num-workers 4,2",
            ),
            (
                "ann@10.0.0.1 slots=2\n10.0.0.2 slots=2\n",
                "f:1: \"slots=2\"",
                "--num-workers 2",
            ),
            (
                "gpu1\ngpu2 slots=2\n",
                "f:2: \"slots=2\"",
                "--num-workers N,2",
            ),
            (
                "gpu1 max_slots=4 slots=3\n",
                "f:1: \"max_slots=4\"",
                "--num-workers 3",
            ),
            (
                "# mpich\ngpu1:4\n10.0.0.2:8\n",
                "f:2: \"gpu1:4\" gives slots",
                "--num-workers 4,8",
            ),
            (
                "[workers]\ngpu1 ansible_host=10.0.0.1\n",
                "f:1: [workers] belongs to an inventory",
                " -i FILE workers --list-hosts | tail -n +2 | ipconf-check -",
            ),
            (
                "gpu1 ansible_host=10.0.0.1\n",
                "f:1: gpu1 belongs to an inventory",
                " -i FILE all --list-hosts",
            ),
            (
                "h[1-4]\n",
                "f:1: h[1-4] names several hosts",
                "printf '%s\\n' h{1..4};",
            ),
            (
                "a\nh[01-12,20].x.org\n",
                "f:2: h[01-12,20].x.org names",
                "'%s\\n' h{{01..12},20}.x.org;",
            ),
            (
                "rack2-h[7] 30050\n",
                "f:1: rack2-h[7] names",
                "'%s\\n' rack2-h7;",
            ),
            (
                "h[1,2]-ib\n",
                "f:1: h[1,2]-ib names",
                "'%s\\n' h{1,2}-ib; with Slurm: scontrol show hostnames 'h[1,2]-ib'",
            ),
            (
                "gpu[01-02],cpu[1-2]\n",
                "f:1: gpu[01-02],cpu[1-2] names",
                "gpu{01..02} cpu{1..2}; with Slurm: scontrol show hostnames 'gpu[01-02],cpu[1-2]'",
            ),
            (
                "login,h[1,3],x7\n",
                "f:1: login,h[1,3],x7 names",
                "'%s\\n' login h{1,3} x7;",
            ),
            (
                "rack[1-2]n[1-4]\n",
                "f:1: rack[1-2]n[1-4] names",
                "'%s\\n' rack{1..2}n{1..4};",
            ),
        ];
        for (text, problem, fix) in table {
            let fault = fault(&text::lines("f", text).unwrap()).expect(text);
            let told = fault.to_string();
            assert!(
                told.starts_with(problem) && told.contains(fix),
                "{text}: {told}"
            );
        }
        for text in [
            "10.0.0.1:30050\n",
            "[fe80::1]\n",
            "gpu1 30050\n",
            "h[a-c]\n",
            "h[1-2].$(touch${IFS}PWNED)\n",
            "h[1-2]-`reboot`\n",
            "$(reboot)[1-2]\n",
            "-;reboot;[1-2]\n",
            "h[1-2]'\n",
            "h[1-2],$(reboot)\n",
            "h[1-2]n[a-b]\n",
            "-f,h[1-2]\n",
            "h[1-1000000000]\n",
            "gpu1:x\n",
        ] {
            assert_eq!(fault(&text::lines("f", text).unwrap()), None, "{text}");
        }
    }
}
