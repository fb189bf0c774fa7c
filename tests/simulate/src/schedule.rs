//! What a seed decides: the job, how its processes behave, and the faults, with their times.

use crate::host::{Habits, heartbeat};
use crate::random::Random;
use crate::time::{FOREVER, MS, Micros, SECOND};
use job::{Limit, Rules, StallRule};
use std::time::Duration;

/// Something that goes wrong, or somebody who ends the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process fails.
    Exit {
        host: usize,
        index: u32,
        code: u8,
    },
    /// A process is killed by somebody else.
    Kill {
        host: usize,
        index: u32,
    },
    /// Nothing arrives in one direction for a while.
    Stall {
        host: usize,
        to_agent: bool,
        time: Micros,
    },
    /// The connection becomes slow.
    Slow {
        host: usize,
        latency: Micros,
    },
    /// The connection is lost, and each end learns it or does not.
    Cut {
        host: usize,
        launcher_sees: bool,
        agent_sees: bool,
    },
    /// The supervisor of a host does not run for a while.
    StopAgent {
        host: usize,
        time: Micros,
    },
    /// A host sleeps.
    Sleep {
        host: usize,
        time: Micros,
    },
    /// The clock of a host jumps ahead.
    Jump {
        host: usize,
        time: Micros,
    },
    /// A host is restarted.
    Reboot {
        host: usize,
    },
    KillSupervisor {
        host: usize,
    },
    KillWatcher {
        host: usize,
    },
    /// The launcher does not run for a while (SIGSTOP).
    StopLauncher {
        time: Micros,
    },
    /// The launcher's machine sleeps.
    SleepLauncher {
        time: Micros,
    },
    KillLauncher,
    /// Somebody asks the launcher to end the job.
    Signal {
        number: i32,
    },
    /// dgl-reap ends the job on all hosts.
    Reap,
    /// dgl-reap signals one process.
    ReapProcess {
        host: usize,
        index: u32,
    },
    /// A host is silent, and the launcher is stopped while it waits for it.
    StopWhileSilent {
        host: usize,
        silent: Micros,
        stopped: Micros,
    },
    /// No process shows any activity for a while.
    Hang {
        time: Micros,
    },
}

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Server,
    Trainer,
    /// A process of a program that serves the others (`--service`).
    Service,
}

/// A job and its faults.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub seed: u64,
    /// The processes of each host: servers first, then trainers, then services.
    pub hosts: Vec<Vec<(Part, Habits)>>,
    pub patience: Micros,
    pub grace: Micros,
    pub rules: Rules,
    pub restart: u32,
    /// Whether the launcher runs on the first host.
    pub on_first_host: bool,
    /// How likely it is that a process fails whose peers are gone, in percent.
    pub peers_fail: u64,
    /// Whether the faults stay within what is documented to end no job.
    pub is_mild: bool,
    /// Whether it is of the later kind: with services, a launcher that may be stopped in the middle
    /// of a turn, and agents that find only a part of what is ready.
    pub is_later: bool,
    /// The longest time that a process runs by itself, but for those that run for ever.
    pub longest_run: Micros,
    pub faults: Vec<(Micros, Fault)>,
}

/// Seeds from here on are of the later kind; those before stay what they were, because tests name
/// some.
pub const LATER_SEEDS: u64 = 1_000_000;

impl Schedule {
    pub fn new(seed: u64, host_count: usize) -> Schedule {
        let mut random = Random::new(seed);
        let is_later = seed >= LATER_SEEDS;
        let is_mild = random.percent(30);
        let patience = random.pick(&[6, 12, 60]) * SECOND;
        let grace = random.pick(&[0, 1, 5, 30]) * SECOND;
        let length = random.between(10, 150) * SECOND;
        let stall = random.pick(&[0, 0, 20]) * SECOND;
        let mut hosts = Vec::new();
        let has_servers = random.percent(50);
        let has_services = is_later && random.percent(40);
        for _ in 0..host_count {
            let trainers = random.between(1, 3);
            let roles = has_servers.then_some(Part::Server).into_iter();
            let roles = roles.chain((0..trainers).map(|_| Part::Trainer));
            let service = (has_services && random.percent(60)).then_some(Part::Service);
            let roles = roles.chain(service);
            let habits = |part| (part, habits(part, length, is_mild, &mut random));
            hosts.push(roles.map(habits).collect());
        }
        let runs = hosts
            .iter()
            .flatten()
            .map(|(_, habits): &(Part, Habits)| habits.runs);
        let longest_run = runs.filter(|runs| *runs < FOREVER).max().unwrap_or(0);
        let seconds = |micros| Duration::from_micros(micros);
        let mut limits = Vec::new();
        if !is_mild && random.percent(20) {
            limits.push(Limit::Start(Duration::from_secs(5)));
        }
        if !is_mild && random.percent(20) {
            limits.push(Limit::Job(seconds(random.between(5, 150) * SECOND)));
        }
        let mut schedule = Schedule {
            seed,
            hosts,
            patience,
            grace,
            rules: Rules {
                limits,
                stall: (stall > 0).then(|| StallRule {
                    limit: seconds(stall),
                    ends: random.percent(70),
                }),
                fail_on_exception: false,
                grace: seconds(grace),
            },
            restart: random.pick(&[0, 0, 1, 2]) as u32,
            on_first_host: random.percent(30),
            peers_fail: random.pick(&[0, 50, 100]),
            is_mild,
            is_later,
            longest_run,
            faults: Vec::new(),
        };
        schedule.faults = if is_mild {
            schedule.mild_faults(length, &mut random)
        } else {
            schedule.faults(length, &mut random)
        };
        schedule.faults.sort_by_key(|(time, _)| *time);
        schedule
    }

    /// Silences that are shorter than the patience by two heartbeats, one after the other.
    fn mild_faults(&self, length: Micros, random: &mut Random) -> Vec<(Micros, Fault)> {
        let pause = 3 * heartbeat(self.patience) + 2 * SECOND;
        let most = self.patience.saturating_sub(pause);
        let mut faults = Vec::new();
        let mut time = random.magnitude(length);
        while time < length && faults.len() < 6 && most > 0 {
            let host = random.below(self.hosts.len() as u64) as usize;
            let (begun, takes) = (time, random.magnitude(most));
            let fault = match random.below(6 + u64::from(self.is_later)) {
                0 => Fault::StopAgent { host, time: takes },
                1 => Fault::StopLauncher { time: takes },
                2 => Fault::SleepLauncher { time: takes },
                3 => Fault::Sleep { host, time: takes },
                4 => Fault::Jump { host, time: takes },
                6 => {
                    // longer than the patience only together
                    let [silent, stopped] = [(); 2].map(|()| random.between(most / 2, most));
                    time += silent + stopped;
                    Fault::StopWhileSilent {
                        host,
                        silent,
                        stopped,
                    }
                }
                _ => Fault::Stall {
                    host,
                    to_agent: random.percent(50),
                    time: takes,
                },
            };
            faults.push((begun, fault));
            time += takes + pause + random.magnitude(length);
        }
        faults
    }

    fn faults(&self, length: Micros, random: &mut Random) -> Vec<(Micros, Fault)> {
        let count = random.between(1, 6);
        let mut faults = Vec::new();
        let mut time = random.magnitude(length);
        for _ in 0..count {
            // many at the same moment, or close together
            time = match random.below(3) {
                0 => time,
                1 => time + random.magnitude(3 * SECOND),
                _ => random.below(length + length / 4),
            };
            let fault = self.fault(random);
            faults.push((time, fault));
            if fault == (Fault::Hang { time: FOREVER }) {
                faults.push((time + 200 * SECOND, Fault::Signal { number: 15 }));
            }
        }
        faults
    }

    fn fault(&self, random: &mut Random) -> Fault {
        let host = random.below(self.hosts.len() as u64) as usize;
        let index = random.below(self.hosts[host].len() as u64) as u32;
        let time = random.magnitude(self.patience * 3);
        match random.below(22 + 2 * u64::from(self.is_later)) {
            0..=3 => Fault::Exit {
                host,
                index,
                code: random.pick(&[1, 2, 3, 137]),
            },
            4 | 5 => Fault::Kill { host, index },
            6 | 7 => Fault::Stall {
                host,
                to_agent: random.percent(50),
                time,
            },
            8 => Fault::Slow {
                host,
                latency: random.magnitude(5 * SECOND),
            },
            9 | 10 => Fault::Cut {
                host,
                launcher_sees: random.percent(50),
                agent_sees: random.percent(50),
            },
            11 => Fault::StopAgent { host, time },
            12 => Fault::Sleep { host, time },
            13 => Fault::Jump { host, time },
            14 => Fault::Reboot { host },
            15 => Fault::KillSupervisor { host },
            16 => Fault::KillWatcher { host },
            17 => Fault::StopLauncher { time },
            18 => Fault::SleepLauncher { time },
            19 => {
                if random.percent(50) {
                    Fault::KillLauncher
                } else {
                    Fault::Reap
                }
            }
            20 => Fault::Signal {
                number: random.pick(&[1, 2, 15]),
            },
            22 => Fault::ReapProcess { host, index },
            23 => Fault::StopWhileSilent {
                host,
                silent: time,
                stopped: random.magnitude(self.patience),
            },
            _ => Fault::Hang {
                time: random.pick(&[10 * SECOND, 60 * SECOND, FOREVER]),
            },
        }
    }
}

fn habits(part: Part, length: Micros, is_mild: bool, random: &mut Random) -> Habits {
    let is_odd = !is_mild && random.percent(10);
    let term = match random.below(8) {
        0 if is_odd => FOREVER,
        0..=2 => random.magnitude(3 * SECOND),
        _ => random.magnitude(20 * MS),
    };
    let kill = if is_odd && random.percent(10) {
        random.between(5, 40) * SECOND
    } else {
        random.magnitude(5 * MS)
    };
    Habits {
        runs: match part {
            // servers end after their clients
            Part::Service if !is_mild && random.percent(15) => random.below(length),
            Part::Server | Part::Service => FOREVER,
            Part::Trainer => length + random.magnitude(length / 4),
        },
        listens_after: if is_odd && random.percent(30) {
            FOREVER
        } else {
            random.magnitude(4 * SECOND)
        },
        term,
        kill,
        has_daemon: is_odd && random.percent(50),
        writes_every: random.between(1, 20) * SECOND,
        fails_to_start: is_odd && random.percent(10),
    }
}
