//! The words of Ray Train and of exceptions in Ray's driver (Ray 2).

use super::report::{Form, LauncherReport, number};
use evidence::marks::Writer;
use record::exit::ProcessEnd;

/// These lines belong to exceptions too.
pub const FORMS: [Form; 8] = [
    // `- (node_id=2d49, ip=10.0.0.1, pid=12181) world_rank=1, local_rank=1, node_rank=0`
    (
        r"ip=([^,) ]*), pid=([^,) ]*).*world_rank=([0-9]+)",
        |_, words| {
            let name = format!("RayTrainWorker {} on {}", &words[2], &words[1]);
            Some(LauncherReport::Actor {
                name,
                rank: number(words, 3)?,
            })
        },
    ),
    (r"pid=([^,) ]*).*world_rank=([0-9]+)", |_, words| {
        let name = format!("RayTrainWorker {}", &words[1]);
        Some(LauncherReport::Actor {
            name,
            rank: number(words, 2)?,
        })
    }),
    (r"^\tclass_name: (?:.*\.)?(.*)", |stated, words| {
        words[1].clone_into(&mut stated.class);
        None
    }),
    (r"^\tpid: (.*)", |stated, words| {
        words[1].clone_into(&mut stated.pid);
        None
    }),
    (r"^\tip: (.*)", |stated, words| {
        let (class, pid) = (
            std::mem::take(&mut stated.class),
            std::mem::take(&mut stated.pid),
        );
        failed(&class, &pid, &words[1])
    }),
    (
        r"\): ray::_RayTrainWorker__execute.*?pid=([^,) ]*), ip=([^,) ]*)",
        |_, words| failed("RayTrainWorker", &words[1], &words[2]),
    ),
    (
        r"^Memory on the node \(IP: ([^,) ]*).*?name=([^,). ]*).*?pid=([^,) ]*)",
        |_, words| failed(&words[2], &words[3], &words[1]),
    ),
    (r"^Worker ([0-9]+) has failed\.$", |_, words| {
        Some(LauncherReport::ended(
            Writer::ranked(number(words, 1)?),
            ProcessEnd::default(),
        ))
    }),
];

fn failed(class: &str, pid: &str, ip: &str) -> Option<LauncherReport> {
    let actor = Writer::at(&format!("{class} {pid} on {ip}"));
    Some(LauncherReport::ended(actor, ProcessEnd::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::report::read_all;

    #[test]
    fn who_failed() {
        let at = |place: &str| Some(Writer::at(place));
        for (text, writer) in [
            ("Worker 1 has failed.", Some(Writer::ranked(1))),
            ("Worker pool has failed.", None),
            (
                "\tclass_name: make.<locals>.WorkerDict\n\tpid: 694415\n\tip: 10.0.0.3",
                at("WorkerDict 694415 on 10.0.0.3"),
            ),
            (
                "ray.exceptions.RayTaskError(ValueError): ray::_RayTrainWorker__execute.get_next() \
                 (pid=11566, ip=10.0.0.1, actor_id=6f)",
                at("RayTrainWorker 11566 on 10.0.0.1"),
            ),
            (
                "ray.exceptions.RayTaskError(ValueError): ray::_Inner.train() (pid=114, ip=h1)",
                None,
            ),
            (
                "Memory on the node (IP: 10.0.0.2, ID: 20) where the task (actor ID: 75, \
                 name=RayTrainWorker.__init__, pid=812, memory used=21.0GB) was running",
                at("RayTrainWorker 812 on 10.0.0.2"),
            ),
        ] {
            let found = read_all(&[&FORMS], text).pop();
            let expected =
                writer.map(|writer| LauncherReport::ended(writer, ProcessEnd::default()));
            assert_eq!(found, expected, "{text}");
        }
        let line = "- (node_id=2d, ip=10.0.0.1, pid=12181) world_rank=1, local_rank=1, node_rank=0";
        let actor = |name: &str| LauncherReport::Actor {
            name: name.to_owned(),
            rank: 1,
        };
        let expected = ["RayTrainWorker 12181 on 10.0.0.1", "RayTrainWorker 12181"].map(actor);
        assert_eq!(read_all(&[&FORMS], line), expected);
    }
}
