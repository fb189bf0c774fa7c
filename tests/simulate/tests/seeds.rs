//! A few schedules of faults in every run of the tests, and those that have found something.

use simulate::copies;
use simulate::run::run;
use simulate::schedule::{Fault, LATER_SEEDS, Part, Schedule};
use simulate::time::SECOND;

fn copies_keep_all_invariants(seed: u64, hosts: usize) {
    let run = copies::run(seed, hosts, false);
    assert_eq!(
        run.violations, [""; 0],
        "seed {seed} of copies to {hosts} hosts"
    );
}

#[test]
fn slow_some_schedules_of_copies_keep_all_invariants() {
    (0..100).for_each(|seed| copies_keep_all_invariants(seed, 4));
}

#[test]
fn the_same_seed_gives_the_same_copies() {
    for seed in 0..10 {
        let trace = || copies::run(seed, 4, true).trace;
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

/// A push with `--fsync` had written a file and its directory to the disk, but not the directory
/// above, in which that one was new.
#[test]
fn a_new_directory_is_on_the_disk_with_its_files() {
    copies_keep_all_invariants(92, 4);
    copies_keep_all_invariants(109, 4);
}

/// These find an agent that accepts a log that changed while it was read, and a receiver that does
/// not compare the beginning of one that grew.
#[test]
fn a_log_that_changes_while_it_is_read_arrives_as_a_true_beginning() {
    copies_keep_all_invariants(0, 4);
    copies_keep_all_invariants(27, 4);
}

fn keeps_all_invariants(seed: u64, hosts: usize) {
    let run = run(Schedule::new(seed, hosts), false);
    assert_eq!(run.violations, [""; 0], "seed {seed} of {hosts} hosts");
}

#[test]
fn slow_a_few_schedules_keep_all_invariants() {
    (0..100).for_each(|seed| keeps_all_invariants(seed, 8));
    (0..5).for_each(|seed| keeps_all_invariants(seed, 64));
    (LATER_SEEDS..LATER_SEEDS + 100).for_each(|seed| keeps_all_invariants(seed, 8));
}

#[test]
fn slow_a_schedule_of_many_hosts_keeps_all_invariants() {
    keeps_all_invariants(0, 1000);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..10 {
        let trace = || run(Schedule::new(seed, 8), true).trace;
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

/// A process failed, and a host was lost while the job ended. The next try began a second later,
/// when that host still ended its part.
#[test]
fn a_host_that_is_lost_while_a_job_ends_has_time_to_end_its_part() {
    keeps_all_invariants(438, 8);
    keeps_all_invariants(581, 8);
}

/// A server had failed a moment before its host or another one was lost, so its failure was the
/// cause, and nothing showed that a host was lost. The next try began a second later.
#[test]
fn a_lost_host_that_is_not_the_cause_has_time_to_end_its_part() {
    keeps_all_invariants(120_962, 4);
    keeps_all_invariants(122_515, 4);
}

/// dgl-reap acted on a host whose processes had ended, and its agent said so before others heard of
/// their processes' ends.
#[test]
fn dgl_reap_is_the_cause_where_no_process_was_left() {
    keeps_all_invariants(113_500, 4);
}

/// A host notices only at its next look, once a second, that it hears nothing.
#[test]
fn a_lost_host_has_a_second_more_to_notice_that() {
    keeps_all_invariants(405_473, 6);
}

/// The launcher was stopped right after it had started the processes, and took the hosts, which had
/// missed it, for lost.
#[test]
fn a_pause_right_after_the_start_is_a_pause() {
    keeps_all_invariants(201_751, 3);
}

/// A host was paused for longer than the grace and what KILL needs. It gave up in the same moment
/// in which it sent KILL, and a process was left.
#[test]
fn a_host_that_is_paused_while_a_job_ends_waits_for_kill() {
    keeps_all_invariants(802_078, 8);
}

/// A network was silent while a job ended, for less than `--host-timeout`. A service that had ended
/// with its clients counted as ended before them, because they were heard of later than 5 s after
/// it; in the second schedule the launcher was stopped, too.
#[test]
fn a_service_may_end_with_clients_that_are_heard_of_late() {
    keeps_all_invariants(1_000_266, 3);
    keeps_all_invariants(1_001_302, 3);
}

/// The launcher was stopped after it had read from a host and before it handled that. The silence
/// before, with the time in which it was stopped, was longer than `--host-timeout`.
#[test]
fn a_host_that_was_not_read_from_was_not_silent() {
    keeps_all_invariants(1_000_066, 3);
    keeps_all_invariants(1_000_116, 2);
}

/// The launcher slept when it was about to start the processes, and took the hosts, which had
/// missed it, for lost.
#[test]
fn a_pause_right_before_the_start_is_a_pause() {
    keeps_all_invariants(1_000_272, 3);
}

/// dgl-reap ended the trainers, and a server on the same host ended well because they were gone.
#[test]
fn a_server_that_ends_well_after_dgl_reap_was_reaped() {
    keeps_all_invariants(1223, 4);
}

/// A host was silent for longer than KILL and the removal of files may take, but for less than
/// `--host-timeout`, when all processes had ended well. The launcher gave it up.
#[test]
fn a_host_may_be_silent_for_its_time_while_a_job_ends() {
    keeps_all_invariants(201_512, 3);
    keeps_all_invariants(208_648, 3);
}

/// The launcher was stopped for almost as long as its hosts wait, as a laptop that sleeps. The
/// heartbeats that each host had sent in that time looked like a flood, and the host was lost.
#[test]
fn heartbeats_that_arrive_at_once_after_a_long_pause_are_no_flood() {
    let mut schedules = (0..).map(|seed| Schedule::new(seed, 3));
    let mut schedule = schedules.find(|schedule| schedule.is_mild).unwrap();
    schedule.patience = 720 * SECOND;
    schedule.rules.stall = None;
    schedule.longest_run = 2000 * SECOND;
    for (part, habits) in schedule.hosts.iter_mut().flatten() {
        // output would be sent in the place of heartbeats
        habits.writes_every = schedule.longest_run;
        if *part == Part::Trainer {
            habits.runs = schedule.longest_run;
        }
    }
    let pause = Fault::StopLauncher { time: 665 * SECOND };
    schedule.faults = vec![(3 * SECOND, pause), (700 * SECOND, pause)];
    assert_eq!(run(schedule, false).violations, [""; 0]);
}
