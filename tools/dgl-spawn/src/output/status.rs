//! The status line: how far a job is.

use job::Progress;
use record::term;
use std::time::Duration;

/// What the end of a job is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has not begun.
    Running,
    /// Processes have so long until KILL.
    Ending { kill_in: Option<Duration> },
}

/// How far a job is, in a line.
pub fn line(
    name: &str,
    (up, hosts): (usize, usize),
    progress: Progress,
    age: Duration,
    busiest: &str,
    phase: Phase,
) -> String {
    let Progress {
        listening,
        servers,
        running,
        others,
    } = progress;
    let mut text = format!("job {name}: {up}/{hosts} hosts up");
    if servers > 0 {
        text += &format!(", {listening}/{servers} servers listening");
    }
    if others > 0 {
        text += &format!(
            ", {running}/{others} {} running",
            if servers > 0 { "trainers" } else { "processes" }
        );
    }
    text += &format!(", {}", whole_seconds(age));
    if !busiest.is_empty() && phase == Phase::Running {
        text += &format!(", {busiest}");
    }
    match phase {
        Phase::Running => text,
        Phase::Ending { kill_in: None } => text + ", ending",
        Phase::Ending {
            kill_in: Some(left),
        } => text + &format!(", ending: {}", kill_notice(left)),
    }
}

/// What comes next, and what can be done about it.
pub fn kill_notice(left: Duration) -> String {
    // the last second counts as one
    format!(
        "KILL in {}, or Ctrl-C again",
        whole_seconds(left + Duration::from_millis(999))
    )
}

fn whole_seconds(time: Duration) -> String {
    if time.as_secs() < 60 {
        format!("{} s", time.as_secs())
    } else {
        term::seconds(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_job_is() {
        let progress = Progress {
            listening: 1,
            servers: 2,
            running: 3,
            others: 4,
        };
        let seconds = Duration::from_secs;
        let shown = |phase| line("try7", (2, 3), progress, seconds(9), "", phase);
        let busy = line(
            "try7",
            (2, 3),
            progress,
            seconds(9),
            "CPU 90 %",
            Phase::Running,
        );
        assert!(busy.ends_with("running, 9 s, CPU 90 %"), "{busy}");
        assert_eq!(
            shown(Phase::Running),
            "job try7: 2/3 hosts up, 1/2 servers listening, 3/4 trainers running, 9 s"
        );
        assert!(shown(Phase::Ending { kill_in: None }).ends_with(", 9 s, ending"));
        let left = Duration::from_millis(6500);
        assert!(
            shown(Phase::Ending {
                kill_in: Some(left)
            })
            .ends_with("9 s, ending: KILL in 7 s, or Ctrl-C again")
        );
        let alone = Progress {
            running: 1,
            others: 1,
            ..Progress::default()
        };
        assert_eq!(
            line("a", (1, 1), alone, seconds(75), "", Phase::Running),
            "job a: 1/1 hosts up, 1/1 processes running, 1 min 15 s"
        );
    }
}
