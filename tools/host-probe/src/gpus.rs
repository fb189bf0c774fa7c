//! Warnings about a host's GPUs.

use record::error::Fault;
use record::{GpuCard, GpuUser, Host, term};
use wire::probe::Probed;

/// A driver and a desktop use less of a GPU's memory than this part.
const SYSTEM_PART: u64 = 8;
const USERS_SHOWN: usize = 4;

pub fn warnings(host: &Host, probed: &Probed) -> Vec<Fault> {
    let (cards, unlisted) = (&probed.facts.gpu_cards, probed.unlisted_gpus.unwrap_or(0));
    let count = cards.len();
    let warn = |problem: String| Fault::data(host.location(), problem);
    if let Some(failure) = &probed.gpu_failure {
        let fix = "run nvidia-smi on the host; until it works no process will find a GPU";
        return vec![warn(failure.problem.clone()).fix(fix)];
    }
    let mut warnings = Vec::new();
    if unlisted > 0 && count > 0 {
        let all = count + unlisted as usize;
        let problem = format!("nvidia-smi lists {count} of {all} GPUs");
        warnings.push(warn(problem).fix(
            "if a batch system gave this login only some, all is well; otherwise see what dmesg \
             shows about the others, or restart the host",
        ));
    }
    let in_use: Vec<String> = cards.iter().filter_map(usage).collect();
    if !in_use.is_empty() {
        let problem = match (in_use.len(), count) {
            (1, 1) => "its GPU is in use".to_owned(),
            (1, _) => format!("1 of its {count} GPUs is in use"),
            (in_use, _) => format!("{in_use} of its {count} GPUs are in use"),
        };
        warnings.push(warn(problem).details(in_use).fix(
            "wait for these processes, use other hosts, or give trainers the free GPUs with \
             CUDA_VISIBLE_DEVICES",
        ));
    }
    warnings
}

/// Who uses a GPU, and how much of it; `None` if it is unused.
fn usage(card: &GpuCard) -> Option<String> {
    let room = card.mem_bytes.zip(card.mem_free_bytes);
    let used = room.map(|(all, free)| (all.saturating_sub(free), all));
    let is_full = used.is_some_and(|(used, all)| used > all / SYSTEM_PART);
    let who = match (&card.users[..], is_full) {
        ([], false) => return None,
        ([], true) => "processes that cannot be seen from here, as of another container".to_owned(),
        (users, _) => term::first_few(users.iter().map(shown), USERS_SHOWN),
    };
    let room = used.map_or(String::new(), |(used, all)| {
        format!(", {} of {}", term::bytes(used), term::bytes(all))
    });
    Some(format!("GPU {}{room}: {who}", card.index))
}

/// `process 4242 of alice (python3 train.py) with 30.1 GB`
fn shown(user: &GpuUser) -> String {
    let of = user.user.as_ref().map(|name| format!(" of {name}"));
    let doing = match (&user.job, &user.command) {
        (Some(job), _) => Some(format!(" (job {job})")),
        (None, command) => command.as_ref().map(|command| format!(" ({command})")),
    };
    let with = user
        .mem_used_bytes
        .map(|bytes| format!(" with {}", term::bytes(bytes)));
    let rest = [of, doing, with].map(Option::unwrap_or_default).concat();
    format!("process {}{rest}", user.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Failure;

    const GB: u64 = 1_000_000_000;

    fn card(index: u32, free: Option<u64>, users: Vec<GpuUser>) -> GpuCard {
        GpuCard {
            index,
            mem_bytes: free.map(|_| 80 * GB),
            mem_free_bytes: free.map(|free| free * GB),
            users,
            ..GpuCard::default()
        }
    }

    fn user(pid: u32, name: Option<&str>, job: Option<&str>, gb: Option<u64>) -> GpuUser {
        GpuUser {
            pid,
            user: name.map(str::to_owned),
            command: name.map(|_| "python3 train.py".to_owned()),
            job: job.map(str::to_owned),
            mem_used_bytes: gb.map(|gb| gb * GB),
        }
    }

    fn reported(unlisted: u32, cards: &[GpuCard], failure: Option<&str>) -> Vec<String> {
        let mut probed = Probed {
            unlisted_gpus: Some(unlisted),
            gpu_failure: failure.map(Failure::new),
            ..Probed::default()
        };
        probed.facts.gpu_cards = cards.to_vec();
        let warnings = warnings(&Host::default(), &probed);
        warnings.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn who_uses_which_card() {
        let many = (1..7).map(|pid| user(pid, None, None, None)).collect();
        let table = [
            (card(0, Some(79), vec![]), None),
            (card(0, None, vec![]), None),
            (
                card(0, Some(40), vec![]),
                Some(
                    "GPU 0, 40 GB of 80 GB: processes that cannot be seen from here, as of \
                     another container",
                ),
            ),
            (
                card(1, Some(49), vec![user(4242, Some("alice"), None, Some(30))]),
                Some("GPU 1, 31 GB of 80 GB: process 4242 of alice (python3 train.py) with 30 GB"),
            ),
            (
                card(
                    1,
                    None,
                    vec![
                        user(5, Some("bob"), Some("try7"), None),
                        user(9, None, None, None),
                    ],
                ),
                Some("GPU 1: process 5 of bob (job try7), process 9"),
            ),
            (
                card(2, None, many),
                Some("GPU 2: process 1, process 2, process 3, process 4 and 2 more"),
            ),
        ];
        for (card, expected) in table {
            assert_eq!(usage(&card).as_deref(), expected);
        }
    }

    #[test]
    fn what_is_warned_of() {
        let (free, used) = (card(0, Some(79), vec![]), card(1, Some(1), vec![]));
        assert!(reported(0, &[free.clone(), card(1, None, vec![])], None).is_empty());
        assert!(reported(0, &[], None).is_empty(), "no nvidia-smi");
        let one = reported(0, &[free.clone(), used.clone()], None).concat();
        assert!(
            one.contains("1 of its 2 GPUs is in use\n    GPU 1, 79 GB of 80 GB"),
            "{one}"
        );
        assert!(reported(0, std::slice::from_ref(&used), None)[0].contains("its GPU is in use"));
        assert!(reported(0, &[used.clone(), used], None)[0].contains("2 of its 2 GPUs are in use"));
        let lost = reported(1, &[free], None).concat();
        assert!(lost.contains("nvidia-smi lists 1 of 2 GPUs"), "{lost}");
        let failed = reported(0, &[], Some("nvidia-smi fails: no driver")).concat();
        assert!(
            failed.contains("nvidia-smi fails: no driver\n  fix: "),
            "{failed}"
        );
    }
}
