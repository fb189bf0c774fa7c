//! The GPUs of a host with their memory, and the processes that compute on them.

use super::{FORMAT, MAX_CARDS, bytes, number, rows};
use crate::processes::JOB;
use crate::{command, describe, procfs};
use csv::StringRecord;
use record::{GpuCard, GpuUser, term};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use wire::Failure;

/// How many bytes of an answer are kept.
const MAX_OUTPUT: usize = 256 << 10;
/// How many characters of the message are kept if nvidia-smi fails.
const WHY_SHOWN: usize = 200;
/// nvidia-smi's message for a driver without a GPU, as in a container.
const NO_CARDS: &str = "No devices were found";
/// How the paths of the driver's devices begin.
const DEVICES: &str = "/dev/nvidia";
/// The process of CUDA MPS, which computes for others so that they can share a GPU. It runs as long
/// as a GPU is shared in this way, and uses some MB.
const SHARING_SERVICE: &str = "nvidia-cuda-mps-server";

/// What nvidia-smi lists.
pub struct Listed {
    /// The GPUs that CUDA finds, or those of its MIG devices and all others.
    pub cards: Vec<GpuCard>,
    /// How many GPUs nvidia-smi lists.
    pub listed: usize,
    /// How many devices CUDA finds.
    pub usable: usize,
}

/// `visible` is CUDA_VISIBLE_DEVICES, as a batch system sets it that gives a job only some.
pub fn query(program: &Path, limit: Duration, visible: Option<&str>) -> Result<Listed, Failure> {
    let ask = |words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words);
        let answer = command::ask(command, limit, MAX_OUTPUT, || false);
        let answer = answer.map_err(|error| failure(&error))?;
        let text = answer.text();
        let why = match answer.status {
            Some(status) if status.success() => return Ok(text),
            Some(_) if text.starts_with(NO_CARDS) => return Ok(String::new()),
            Some(status) => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                let lines = lines.collect::<Vec<_>>().join("; ");
                let why = if lines.is_empty() {
                    status.to_string()
                } else {
                    term::cut(&lines, WHY_SHOWN)
                };
                format!("fails: {why}")
            }
            None => format!("gave no answer within {} s", limit.as_secs()),
        };
        Err(Failure::new(format!("nvidia-smi {why}")))
    };
    // at the same time, because each may take the whole limit
    thread::scope(|scope| {
        let beside = |words: &'static [&str]| {
            thread::Builder::new()
                .spawn_scoped(scope, || ask(words))
                .map_err(|error| failure(&error))
        };
        let users = beside(&["--query-compute-apps=pid,gpu_uuid,used_memory", FORMAT])?;
        let list = beside(&["-L"])?;
        let cards = ask(&["--query-gpu=index,uuid,memory.total,memory.free", FORMAT])?;
        // the GPUs are known, but not their processes
        let users = users.join().ok().and_then(Result::ok).unwrap_or_default();
        let list = list.join().ok().and_then(Result::ok).unwrap_or_default();
        let mut found = described(&cards, &users, &list, &user);
        let (listed, mut usable) = (found.len(), found.len());
        if let Some(words) = visible {
            let devices = devices(words, &cards);
            usable = devices.len();
            if !devices.contains(&None) {
                found.retain(|card| devices.contains(&Some(card.index as usize)));
            }
        }
        Ok(Listed {
            cards: found,
            listed,
            usable,
        })
    })
}

/// The devices that CUDA finds: the numbers of GPUs, or `None` for a MIG device. It stops at the
/// first word that names none: by a number, a UUID that may be cut, or as a MIG device.
fn devices(words: &str, cards: &str) -> Vec<Option<usize>> {
    let cards = rows(cards);
    let device = |word: &str| {
        let has = |row: &StringRecord| row.get(1).is_some_and(|uuid| uuid.starts_with(word));
        match word.parse() {
            Ok(number) => (number < cards.len()).then_some(Some(number)),
            Err(_) if word.starts_with("MIG-") => Some(None),
            Err(_) if word.starts_with("GPU-") => cards.iter().position(has).map(Some),
            Err(_) => None,
        }
    };
    words.split(',').map(str::trim).map_while(device).collect()
}

pub fn failure(error: &io::Error) -> Failure {
    Failure::new(format!("nvidia-smi: {error}"))
}

/// The GPUs from nvidia-smi's tables of GPUs and processes, and its list `-L` of MIG devices:
///
///     GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-e86c…)
///       MIG 3g.20gb     Device  0: (UUID: MIG-c738…)
fn described(cards: &str, users: &str, list: &str, user: &dyn Fn(u32) -> GpuUser) -> Vec<GpuCard> {
    let mut found: Vec<GpuCard> = Vec::new();
    // by the UUIDs of GPUs and MIG devices
    let mut indices: HashMap<&str, usize> = HashMap::new();
    let cards = rows(cards);
    for row in cards.iter().take(MAX_CARDS) {
        // a GPU that has fallen off the bus has words in place of its number
        let Some(index) = number(row.get(0)) else {
            continue;
        };
        indices.extend(row.get(1).map(|uuid| (uuid, found.len())));
        found.push(GpuCard {
            index,
            mem_bytes: bytes(row.get(2)),
            mem_free_bytes: bytes(row.get(3)),
            ..GpuCard::default()
        });
    }
    let mut whole = None;
    for line in list.lines() {
        if let Some(rest) = line.strip_prefix("GPU ") {
            let number = rest
                .split(':')
                .next()
                .and_then(|number| number.parse().ok());
            whole = found.iter().position(|card| Some(card.index) == number);
        } else if let (Some(index), Some((_, uuid))) = (whole, line.split_once("UUID: ")) {
            found[index].parts += 1;
            indices.insert(uuid.trim_end_matches(')'), index);
        }
    }
    for row in rows(users) {
        let Some(pid) = number(row.get(0)) else {
            continue;
        };
        let uuid = row.get(1).unwrap_or_default();
        // with a single GPU nvidia-smi need not name it, unless it names another that has failed
        let only = (found.len() == 1 && !uuid.starts_with("GPU-")).then_some(0);
        if let Some(index) = indices.get(uuid).copied().or(only) {
            let user = GpuUser {
                mem_used_bytes: bytes(row.get(2)),
                ..user(pid)
            };
            let is_service = |command: &String| command.starts_with(SHARING_SERVICE);
            if !user.command.as_ref().is_some_and(is_service) {
                found[index].users.push(user);
            }
        }
    }
    found
}

/// A process, as far as it is visible here.
fn user(pid: u32) -> GpuUser {
    let unseen = GpuUser {
        pid,
        ..GpuUser::default()
    };
    let Ok(number) = i32::try_from(pid) else {
        return unseen;
    };
    // it may be the machine's number, which another process has in a container
    if !procfs::shows_all_processes() && !procfs::uses_files(number, DEVICES) {
        return unseen;
    }
    procfs::status(number).map_or(unseen, |status| GpuUser {
        pid,
        user: Some(describe::user_name(status.uid)),
        command: describe::command(number),
        job: procfs::environment(number).and_then(|environment| environment.text(JOB)),
        mem_used_bytes: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    const GIB: u64 = 1 << 30;

    fn card(index: u32, of: Option<u64>, free: Option<u64>, parts: u32) -> GpuCard {
        GpuCard {
            index,
            mem_bytes: of.map(|gib| gib * GIB),
            mem_free_bytes: free.map(|gib| gib * GIB),
            parts,
            users: Vec::new(),
        }
    }

    fn known(pid: u32) -> GpuUser {
        GpuUser {
            pid,
            user: Some("alice".to_owned()),
            command: Some(
                if pid == 7 {
                    "nvidia-cuda-mps-server"
                } else {
                    "train"
                }
                .to_owned(),
            ),
            ..GpuUser::default()
        }
    }

    /// The GPUs, and for each the processes with their GiB.
    fn reported(
        cards: &str,
        users: &str,
        list: &str,
    ) -> (Vec<GpuCard>, Vec<Vec<(u32, Option<u64>)>>) {
        let mut cards = described(cards, users, list, &known);
        let users = cards.iter_mut().map(|card| {
            let users = std::mem::take(&mut card.users).into_iter();
            users
                .map(|user| (user.pid, user.mem_used_bytes.map(|bytes| bytes / GIB)))
                .collect()
        });
        let users = users.collect();
        (cards, users)
    }

    #[test]
    fn whole_cards() {
        let two = "0, GPU-a, 81920, 80896\n1, GPU-b, 81920, 40960\n";
        let free = [
            card(0, Some(80), Some(79), 0),
            card(1, Some(80), Some(40), 0),
        ];
        let table = [
            ("", vec![vec![], vec![]]),
            (
                "4242, GPU-b, 39936\n7, GPU-a, 30\n",
                vec![vec![], vec![(4242, Some(39))]],
            ),
            (
                "4242, GPU-b, [N/A]\n4243, GPU-b, 1024\n",
                vec![vec![], vec![(4242, None), (4243, Some(1))]],
            ),
            (
                "[Insufficient Permissions], GPU-a, [N/A]\n5, GPU-z, 1\n",
                vec![vec![], vec![]],
            ),
        ];
        for (users, expected) in table {
            assert_eq!(
                reported(two, users, ""),
                (free.to_vec(), expected),
                "{users}"
            );
        }
    }

    /// The lines are from machines with MIG in a container, with memory that processor and GPU
    /// share, and with a GPU that has fallen off the bus.
    #[test]
    fn cards_that_do_not_tell() {
        let table = [
            (
                "0, GPU-a, [Insufficient Permissions], [Insufficient Permissions]\n",
                vec![card(0, None, None, 0)],
            ),
            ("0, GPU-a, [N/A], [N/A]\n", vec![card(0, None, None, 0)]),
            (
                "0, GPU-a, [Not Supported], 1024\n",
                vec![card(0, None, Some(1), 0)],
            ),
            (
                "[GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n1, GPU-b, 1024, 1024",
                vec![card(1, Some(1), Some(1), 0)],
            ),
            ("", vec![]),
        ];
        for (cards, expected) in table {
            assert_eq!(described(cards, "", "", &known), expected, "{cards}");
        }
        let (_, users) = reported("0, [N/A], 1024, 0\n", "9, [N/A], [N/A]\n", "");
        assert_eq!(
            users,
            [vec![(9, None)]],
            "with a single GPU it need not be named"
        );
        let (_, users) = reported("0, GPU-a, 1024, 0\n", "9, GPU-b, 5\n", "");
        assert_eq!(users, [vec![]], "of another GPU, which has failed");
    }

    #[test]
    fn devices_that_cuda_finds() {
        let cards = "0, GPU-8932f937, 1, 1\n1, GPU-a5, 1, 1\n2, GPU-c, 1, 1\n";
        let table: [(&str, &[Option<usize>]); 11] = [
            ("0,1", &[Some(0), Some(1)]),
            ("2", &[Some(2)]),
            (" 0, 2 ", &[Some(0), Some(2)]),
            ("0,3,1", &[Some(0)]),
            ("0,-1,1", &[Some(0)]),
            ("-1", &[]),
            ("", &[]),
            ("NoDevFiles", &[]),
            ("GPU-8932,GPU-c", &[Some(0), Some(2)]),
            ("GPU-b", &[]),
            ("MIG-c7,MIG-GPU-a5/1/0", &[None, None]),
        ];
        for (words, expected) in table {
            assert_eq!(devices(words, cards), expected, "{words:?}");
        }
    }

    #[test]
    fn cards_in_parts() {
        let list = [
            "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)",
            "  MIG 3g.20gb     Device  0: (UUID: MIG-1)",
            "  MIG 1g.5gb      Device  1: (UUID: MIG-2)",
            "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)",
        ]
        .join("\n");
        let cards = "0, GPU-a, 40960, 39936\n1, GPU-b, 40960, 40960\n";
        let expected = vec![
            card(0, Some(40), Some(39), 2),
            card(1, Some(40), Some(40), 0),
        ];
        let users = vec![vec![(8, Some(5)), (9, None)], vec![]];
        assert_eq!(
            reported(cards, "8, MIG-2, 5120\n9, GPU-a, [N/A]\n", &list),
            (expected, users)
        );
    }

    /// nextest runs this where only the processes of the test can be seen, as in a container.
    #[test]
    fn in_a_container_a_number_alone_names_no_process() {
        let found = user(std::process::id());
        assert_eq!(found.user.is_some(), procfs::shows_all_processes());
        assert_eq!(found.command.is_some(), procfs::shows_all_processes());
    }

    /// A program in place of nvidia-smi.
    fn stand_in(name: &str, script: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("nvidia-smi-{name}-{}", std::process::id()));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn one_that_fails_or_hangs_holds_nobody_up() {
        let driver = "echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA \
            driver. Make sure that the latest NVIDIA driver is installed and running.\"; exit 9";
        let versions = "echo 'Failed to initialize NVML: Driver/library version mismatch'; echo \
            'NVML library version: 535.183'; exit 18";
        let only_cards = "case $1 in *gpu=*) echo 0, GPU-a, 1024, 512 ;; *) sleep 60 ;; esac";
        let table = [
            (
                "driver",
                driver,
                Err("fails: NVIDIA-SMI has failed because it couldn't communicate"),
            ),
            (
                "versions",
                versions,
                Err("mismatch; NVML library version: 535.183"),
            ),
            ("none", "echo No devices were found; exit 6", Ok(0)),
            ("mute", "exit 3", Err("fails: exit status: 3")),
            ("hangs", "sleep 60", Err("gave no answer within 2 s")),
            ("half", only_cards, Ok(1)),
        ];
        for (name, script, expected) in table {
            let program = stand_in(name, script);
            let begun = Instant::now();
            let found = query(&program, Duration::from_secs(2), None);
            let took = begun.elapsed();
            fs::remove_file(&program).unwrap();
            match (found, expected) {
                (Ok(found), Ok(count)) => {
                    assert_eq!((found.cards.len(), found.usable), (count, count), "{name}");
                }
                (Err(failure), Err(text)) => assert!(failure.problem.contains(text), "{failure:?}"),
                (found, _) => panic!("{name}: {:?}", found.map(|found| found.cards)),
            }
            assert!(took < Duration::from_secs(30), "{name}: {took:?}");
        }
    }
}
