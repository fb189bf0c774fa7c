//! Groups the stacks of many processes: which processes stand where, and which stand elsewhere than
//! the others. A frame is `function (file.py:123)`; the innermost comes first.

use crate::Role;

/// What a process waits for, as its frames tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// DGL's barrier at the end of a client, where it waits for all others to end.
    ExitBarrier,
    /// A barrier, DGL's or torch's.
    Barrier,
    /// A collective operation of torch.distributed, such as all_reduce.
    Collective,
    /// The backward pass, in which torch's DDP waits for all others.
    Backward,
    /// The rendezvous of torch.distributed.
    Rendezvous,
    /// The samplers, which are child processes of a trainer.
    Samplers,
    /// The start of the graph servers.
    ServersStart,
    /// An answer from graph servers.
    Servers,
}

impl Wait {
    /// What the process does, to be put behind its name: `waits for its samplers`.
    pub fn words(self) -> &'static str {
        match self {
            Wait::ExitBarrier => "waits at DGL's exit barrier for all others to end",
            Wait::Barrier => "waits in a barrier for all others",
            Wait::Collective => "waits in a collective operation for all others",
            Wait::Backward => "waits for all others in DDP's backward pass",
            Wait::Rendezvous => "waits for all others at torch's rendezvous",
            Wait::Samplers => "waits for its samplers",
            Wait::ServersStart => "waits for the graph servers to be there",
            Wait::Servers => "waits for an answer of the graph servers",
        }
    }

    /// The same for several processes: `wait for their samplers`.
    fn words_of_several(self) -> String {
        let words = self.words().replacen("waits", "wait", 1);
        words.replacen("its samplers", "their samplers", 1)
    }

    /// Whether the process waits for other trainers.
    pub fn is_for_others(self) -> bool {
        matches!(
            self,
            Wait::ExitBarrier
                | Wait::Barrier
                | Wait::Collective
                | Wait::Backward
                | Wait::Rendezvous
        )
    }
}

/// What a stack waits for; `None` if it may be computing. The names are those of DGL 0.5 to 2.4 and
/// torch 1 and 2.
pub fn wait(frames: &[String]) -> Option<Wait> {
    let function = |frame: &String| frame.split(" (").next().unwrap_or_default().to_owned();
    let functions: Vec<String> = frames.iter().map(function).collect();
    let has = |names: &[&str]| functions.iter().any(|name| names.contains(&name.as_str()));
    let is_in = |file: &str| {
        let ends = [format!("({file}:"), format!("/{file}:")];
        (frames.iter()).any(|frame| ends.iter().any(|end| frame.contains(end)))
    };
    Some(match () {
        () if has(&["exit_client"]) => Wait::ExitBarrier,
        () if has(&["init_process_group", "_store_based_barrier", "rendezvous"]) => {
            Wait::Rendezvous
        }
        () if has(&["client_barrier", "barrier", "monitored_barrier"]) => Wait::Barrier,
        () if has(&["connect_to_server", "_wait_for_server"]) => Wait::ServersStart,
        () if has(&["recv_response", "remote_call", "wait_for_response"]) => Wait::Servers,
        () if has(&["_next_data", "__next__"]) && (is_in("queues.py") || is_in("queue.py")) => {
            Wait::Samplers
        }
        () if has(&[
            "all_reduce",
            "all_gather",
            "all_gather_object",
            "all_to_all",
            "all_to_all_single",
            "broadcast",
            "broadcast_object_list",
            "gather",
            "reduce",
            "reduce_scatter",
            "scatter",
        ]) =>
        {
            Wait::Collective
        }
        () if has(&["backward"]) => Wait::Backward,
        () => return None,
    })
}

/// What a child process of a trainer does. It writes to the trainer's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// It takes samples for the trainer.
    Sampler,
    /// It does what multiprocessing needs, such as tracking resources.
    Helper,
}

/// The kind of child process to which a stack belongs; `None` for a trainer itself.
pub fn child(frames: &[String]) -> Option<Child> {
    let has = |begin: &str| frames.iter().any(|frame| frame.starts_with(begin));
    let is_spawned = has("spawn_main (") || has("_bootstrap (multiprocessing/process.py");
    match () {
        () if is_spawned => Some(Child::Sampler),
        () if frames
            .iter()
            .any(|frame| frame.contains("resource_tracker.py:")) =>
        {
            Some(Child::Helper)
        }
        () => None,
    }
}

/// The innermost frame in the user's own code: one whose file is neither in a package nor part of
/// Python. Where no frame has its folder, it is the innermost one in the file of the `<module>`.
pub fn own_frame(frames: &[String]) -> Option<&str> {
    /// Files of Python itself in which a script waits.
    const PYTHONS: [&str; 9] = [
        "contextlib.py",
        "queue.py",
        "runpy.py",
        "selectors.py",
        "socket.py",
        "ssl.py",
        "subprocess.py",
        "threading.py",
        "<string>",
    ];
    let file = |frame: &str| {
        let (_, place) = frame.rsplit_once(" (")?;
        Some(place.rsplit_once(':')?.0.to_owned())
    };
    let files: Vec<String> = frames
        .iter()
        .map(|frame| file(frame).unwrap_or_default())
        .collect();
    let script = frames
        .iter()
        .rposition(|frame| frame.starts_with("<module> ("))
        .map(|at| files[at].as_str());
    let has_folders = files.iter().any(|file| file.contains('/'));
    let is_own = |file: &String| match has_folders {
        true => !file.contains('/') && !PYTHONS.contains(&file.as_str()),
        false => Some(file.as_str()) == script,
    };
    let at = files.iter().position(is_own).unwrap_or(0);
    frames.get(at).map(String::as_str)
}

/// Processes that stand at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<T> {
    /// The frames that all members share, the innermost first.
    pub frames: Vec<String>,
    /// The processes of the group.
    pub members: Vec<T>,
}

impl<T> Group<T> {
    /// What the group does, to be put behind its name: `waits for its samplers [train
    /// (train.py:93)]`.
    pub fn words(&self) -> String {
        let place = own_frame(&self.frames).unwrap_or("no frame");
        let inner = self.frames.first().filter(|inner| *inner != place);
        let is_one = self.members.len() == 1;
        match (wait(&self.frames), inner) {
            (Some(wait), _) if is_one => format!("{} [{place}]", wait.words()),
            (Some(wait), _) => format!("{} [{place}]", wait.words_of_several()),
            (None, inner) => {
                let inner = inner.map_or("", String::as_str);
                let verb = if is_one { "is" } else { "are" };
                format!("{verb} in {place} {inner}").trim_end().to_owned()
            }
        }
    }
}

/// The members as people name them: `trainers 0, 2 and 3`; of many, only the number.
pub fn names(members: &[(Role, u32)]) -> String {
    /// As many ranks as are read at a glance.
    const NAMED: usize = 6;
    let name = |(role, rank): &(Role, u32)| format!("{} {rank}", role.name());
    let role = members.first().map(|member| member.0.name());
    let role = role.filter(|role| members.iter().all(|member| member.0.name() == *role));
    match (members, role) {
        ([], _) => "nobody".to_owned(),
        ([one], _) => name(one),
        (many, role) if many.len() > NAMED => match role {
            Some(role) => format!("{} {role}s", many.len()),
            None => format!("{} processes", many.len()),
        },
        ([first @ .., last], Some(role)) => {
            let ranks: Vec<String> = first.iter().map(|(_, rank)| rank.to_string()).collect();
            format!("{role}s {} and {}", ranks.join(", "), last.1)
        }
        (many, None) => many.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

/// Groups equal stacks, in the order in which they come.
pub fn groups<T>(stacks: impl IntoIterator<Item = (T, Vec<String>)>) -> Vec<Group<T>> {
    let mut groups: Vec<Group<T>> = Vec::new();
    for (member, frames) in stacks {
        match groups.iter_mut().find(|group| group.frames == frames) {
            Some(group) => group.members.push(member),
            None => groups.push(Group {
                frames,
                members: vec![member],
            }),
        }
    }
    groups
}

/// The group for which the others wait, if the stacks tell: most processes wait for others and a
/// few stand elsewhere. Processes in the largest group wait for those outside it.
pub fn odd<T>(groups: &[Group<T>]) -> Option<&Group<T>> {
    let all: usize = groups.iter().map(|group| group.members.len()).sum();
    let largest = groups.iter().max_by_key(|group| group.members.len())?;
    let is_waiting = |group: &Group<T>| wait(&group.frames).is_some_and(Wait::is_for_others);
    let waiting: usize = groups
        .iter()
        .filter(|group| is_waiting(group))
        .map(|group| group.members.len())
        .sum();
    // A process that waits for others is not what they wait for, if there is one that does not
    // wait.
    let mut busy = groups.iter().filter(|group| !is_waiting(group));
    match (busy.next(), busy.next()) {
        (Some(busy), None) if busy.members.len() * 2 <= all && waiting > 0 => return Some(busy),
        (Some(_), _) => return None,
        (None, _) => {}
    }
    // All processes wait for others, at two places: those at the rarer place are missing at the
    // other.
    match groups.len() {
        2 if largest.members.len() * 2 > all => groups
            .iter()
            .find(|group| group.members.len() < largest.members.len()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> Vec<String> {
        frames.iter().map(|frame| (*frame).to_owned()).collect()
    }

    const REDUCE: &[&str] = &[
        "all_reduce (distributed_c10d.py:1322)",
        "over_all (train.py:75)",
        "<module> (train.py:131)",
    ];
    const BARRIER: &[&str] = &[
        "recv_response (rpc.py:822)",
        "client_barrier (rpc.py:1109)",
        "main (train.py:80)",
        "<module> (train.py:131)",
    ];
    const SAMPLERS: &[&str] = &[
        "get (queues.py:103)",
        "__next__ (dist_dataloader.py:101)",
        "train (train.py:93)",
        "<module> (train.py:131)",
    ];
    const LOOP: &[&str] = &["spin (train.py:12)", "<module> (train.py:131)"];

    #[test]
    fn stacks_tell_what_is_waited_for() {
        let exit = [
            "client_barrier (rpc.py:1109)",
            "exit_client (dist_context.py:384)",
        ];
        let pull = ["recv_response (rpc.py:822)", "pull (kvstore.py:9)"];
        let table: [(&[&str], Option<Wait>); 6] = [
            (REDUCE, Some(Wait::Collective)),
            (BARRIER, Some(Wait::Barrier)),
            (SAMPLERS, Some(Wait::Samplers)),
            (&exit, Some(Wait::ExitBarrier)),
            (&pull, Some(Wait::Servers)),
            (LOOP, None),
        ];
        for (frames, found) in table {
            assert_eq!(wait(&stack(frames)), found, "{frames:?}");
        }
        assert_eq!(own_frame(&stack(SAMPLERS)), Some("train (train.py:93)"));
        assert_eq!(own_frame(&stack(&exit)), Some(exit[0]));
        let package = [
            "wait (threading.py:320)",
            "backward (torch/_tensor.py:488)",
            "train (train.py:97)",
            "<module> (main.py:3)",
        ];
        assert_eq!(own_frame(&stack(&package)), Some(package[2]));
    }

    #[test]
    fn several_are_named_in_few_words() {
        let trainers =
            |count| -> Vec<(Role, u32)> { (0..count).map(|rank| (Role::Trainer, rank)).collect() };
        let mixed = [(Role::Server, 1), (Role::Trainer, 0)];
        assert_eq!(names(&[]), "nobody");
        assert_eq!(names(&trainers(1)), "trainer 0");
        assert_eq!(names(&trainers(3)), "trainers 0, 1 and 2");
        assert_eq!(names(&trainers(48)), "48 trainers");
        assert_eq!(names(&mixed), "server 1, trainer 0");
    }

    #[test]
    fn children_are_no_trainers() {
        let sampler = [
            "get (multiprocessing/queues.py:113)",
            "spawn_main (multiprocessing/spawn.py:120)",
        ];
        let helper = ["main (multiprocessing/resource_tracker.py:197)"];
        assert_eq!(child(&stack(&sampler)), Some(Child::Sampler));
        assert_eq!(child(&stack(&helper)), Some(Child::Helper));
        assert_eq!(child(&stack(SAMPLERS)), None);
    }

    #[test]
    fn the_odd_one_is_named_only_where_it_is_one() {
        let table: [(&[&[&str]], Option<&[u32]>); 8] = [
            (&[REDUCE, LOOP, REDUCE], Some(&[1])),
            (&[REDUCE, BARRIER, REDUCE], Some(&[1])),
            (&[REDUCE, SAMPLERS], Some(&[1])),
            (&[REDUCE, BARRIER], None),
            (&[REDUCE, REDUCE], None),
            (&[LOOP, LOOP, REDUCE], None),
            (&[LOOP, SAMPLERS, REDUCE, REDUCE, REDUCE], None),
            (&[], None),
        ];
        for (stacks, found) in table {
            let numbered = (0u32..).zip(stacks.iter().map(|frames| stack(frames)));
            let groups = groups(numbered);
            assert_eq!(
                odd(&groups).map(|group| group.members.as_slice()),
                found,
                "{stacks:?}"
            );
        }
    }
}
