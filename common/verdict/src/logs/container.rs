//! The words of Kubernetes (`kubectl describe`, `kubectl get events`) and docker.

use super::report::{LauncherReport, end_of, number_after};
use evidence::marks::Writer;
use record::exit::{ProcessEnd, SignalNumber};

pub fn read(line: &str) -> Option<LauncherReport> {
    let killed = ProcessEnd::killed(SignalNumber::KILL);
    let out_of_memory = ProcessEnd {
        oom: true,
        ..killed
    };
    // `    Reason:       OOMKilled`, `{"reason":"OOMKilled"}`, `pod/t-3 0/1 OOMKilled 0 5m`
    if let Some((before, after)) = line.split_once("OOMKilled") {
        let is_word = !before.ends_with(|c: char| c.is_alphanumeric())
            && !after.starts_with(|c: char| c.is_alphanumeric());
        let pod = before
            .split_whitespace()
            .next()
            .filter(|_| before.contains("0/1"));
        let writer = pod.map(|pod| Writer::at(pod.trim_start_matches("pod/")));
        return is_word.then(|| LauncherReport::ended(writer.unwrap_or_default(), out_of_memory));
    }
    // `trainer-1 exited with code 137` of docker compose
    if let Some((name, code)) = line.split_once(" exited with code ") {
        let is_name = !name.is_empty() && !name.contains(' ');
        let code: i32 = number_after(code, "").filter(|code| is_name && *code != 0)?;
        let end = match code {
            129..=160 => ProcessEnd::killed(SignalNumber(code - 128)),
            _ => end_of(code),
        };
        return Some(LauncherReport::ended(Writer::at(name), end));
    }
    let (before, reason) = line.split_once("The node was low on resource: ")?;
    let resource = reason.split(['.', ' ']).next().unwrap_or_default();
    let mut words = before.split_whitespace();
    let pod = words.find_map(|word| word.strip_prefix("pod/"));
    let pod = pod.map_or("a pod".to_owned(), |name| format!("the pod {name}"));
    let text = format!("Kubernetes evicted {pod} because its node was low on {resource}");
    Some(LauncherReport::job(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_containers() {
        for (line, place, words) in [
            ("      Reason:       OOMKilled", None, "memory ran out"),
            (
                "t-3   0/1   OOMKilled   0   5m",
                Some("t-3"),
                "memory ran out",
            ),
            (
                "trainer-1 exited with code 137",
                Some("trainer-1"),
                "ended by SIGKILL",
            ),
            (
                "trainer-1 exited with code 3",
                Some("trainer-1"),
                "exited with status 3",
            ),
            ("trainer-1 exited with code 0", None, ""),
            ("the step exited with code 3", None, ""),
            ("def isOOMKilledByLimit():", None, ""),
        ] {
            let (found, end) = match read(line) {
                Some(LauncherReport::Process(end)) => (end.writer.place, end.end.to_string()),
                _ => (None, String::new()),
            };
            assert!(
                found.as_deref() == place && end.contains(words),
                "{line}: {end}"
            );
            assert_eq!(end.is_empty(), words.is_empty(), "{line}");
        }
    }
}
