//! The words of Ray Train and of exceptions in Ray's driver (Ray 2).

use super::report::{LauncherReport, number_after};
use evidence::marks::Writer;
use record::exit::ProcessEnd;

/// The actor that earlier lines of an exception named.
#[derive(Default)]
pub struct Ray {
    class: String,
    pid: String,
}

impl Ray {
    /// These lines belong to exceptions too.
    pub fn read(&mut self, line: &str) -> Vec<LauncherReport> {
        if let Some(rank) = number_after(line, "world_rank=") {
            // `- (node_id=2d49, ip=10.0.0.1, pid=12181) world_rank=1, local_rank=1, node_rank=0`
            let pid = value(line, "pid=");
            let local = format!("RayTrainWorker {pid}");
            let names = [format!("{local} on {}", value(line, "ip=")), local];
            let actor = |name| LauncherReport::Actor { name, rank };
            return names.into_iter().map(actor).collect();
        }
        self.ended(line).into_iter().collect()
    }

    fn ended(&mut self, line: &str) -> Option<LauncherReport> {
        let writer = if let Some(class) = line.strip_prefix("\tclass_name: ") {
            class.rsplit('.').next()?.clone_into(&mut self.class);
            return None;
        } else if let Some(pid) = line.strip_prefix("\tpid: ") {
            pid.clone_into(&mut self.pid);
            return None;
        } else if let Some(ip) = line.strip_prefix("\tip: ") {
            let class = std::mem::take(&mut self.class);
            Writer::at(&format!(
                "{class} {} on {ip}",
                std::mem::take(&mut self.pid)
            ))
        } else if line.contains("): ray::_RayTrainWorker__execute") {
            let (pid, ip) = (value(line, "pid="), value(line, "ip="));
            Writer::at(&format!("RayTrainWorker {pid} on {ip}"))
        } else if line.starts_with("Memory on the node (IP: ") {
            let class = value(line, "name=").split('.').next()?;
            let (pid, ip) = (value(line, "pid="), value(line, "IP: "));
            Writer::at(&format!("{class} {pid} on {ip}"))
        } else {
            let rank = line.strip_prefix("Worker ")?.strip_suffix(" has failed.")?;
            Writer::ranked(rank.parse().ok()?)
        };
        Some(LauncherReport::ended(writer, ProcessEnd::default()))
    }
}

fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let rest = line.split_once(key).map_or("", |(_, rest)| rest);
    rest.split([',', ')', ' ']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let mut ray = Ray::default();
            let found = text.lines().flat_map(|line| ray.read(line)).last();
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
        assert_eq!(Ray::default().read(line), expected);
    }
}
