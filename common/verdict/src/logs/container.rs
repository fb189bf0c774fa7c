//! The words of Kubernetes (`kubectl describe`, `kubectl get events`) and docker.

use super::report::{Form, LauncherReport, end_of, number};
use evidence::marks::Writer;
use record::exit::{ProcessEnd, SignalNumber};

pub const FORMS: [Form; 3] = [
    // `    Reason:       OOMKilled`, `{"reason":"OOMKilled"}`, `pod/t-3 0/1 OOMKilled 0 5m`
    (
        r"(?:^\s*(?:pod/)?(\S+) .*0/1.*)?\bOOMKilled\b",
        |_, words| {
            let pod = words.get(1).map(|pod| Writer::at(pod.as_str()));
            let killed = ProcessEnd::killed(SignalNumber::KILL);
            Some(LauncherReport::ended(
                pod.unwrap_or_default(),
                ProcessEnd {
                    oom: true,
                    ..killed
                },
            ))
        },
    ),
    // of docker compose
    (r"^([^ ]+) exited with code +([0-9]+)", |_, words| {
        let code = number(words, 2).filter(|code| *code != 0)?;
        Some(LauncherReport::ended(Writer::at(&words[1]), end_of(code)))
    }),
    (
        r"(?:(?:^|\s)pod/(\S+) .*)?The node was low on resource: ([^. ]*)",
        |_, words| {
            let pod = words
                .get(1)
                .map(|name| format!("the pod {}", name.as_str()));
            Some(LauncherReport::job(format!(
                "Kubernetes evicted {} because its node was low on {}",
                pod.as_deref().unwrap_or("a pod"),
                &words[2]
            )))
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::report::read_all;

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
            let (found, end) = match read_all(&[&FORMS], line).pop() {
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
