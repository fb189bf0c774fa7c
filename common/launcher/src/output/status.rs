//! The status line, which shows the progress of a job.

use job::Progress;
use record::term;
use std::time::Duration;

/// The progress of the job's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndPhase {
    /// The end has not begun.
    Running,
    /// The end has begun; KILL follows after this time.
    Ending { kill_in: Option<Duration> },
}

/// Further facts for the status line.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusFacts<'a> {
    /// Why the job stalls, if it does; empty if that is not known.
    pub stalls: Option<&'a str>,
    /// For how long no trainer or worker has written output.
    pub silent: Option<Duration>,
}

/// The shortest silence that is mentioned.
const SILENCE_SHOWN: Duration = Duration::from_secs(60);

/// The status line.
pub fn line(
    name: &str,
    (up, hosts): (usize, usize),
    progress: Progress,
    age: Duration,
    state: StatusFacts<'_>,
    phase: EndPhase,
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
    if phase == EndPhase::Running {
        text += &state_text(state);
    }
    match phase {
        EndPhase::Running => text,
        EndPhase::Ending { kill_in: None } => text + ", ending",
        EndPhase::Ending {
            kill_in: Some(left),
        } => text + &format!(", ending: {}", kill_notice(left)),
    }
}

fn state_text(state: StatusFacts<'_>) -> String {
    let mut text = String::new();
    match (state.stalls, state.silent) {
        (Some(""), _) => text += ", stalls",
        (Some(why), _) => text += &format!(", stalls: {}", term::plain(why)),
        // in most scripts only one process writes, so only the silence of all is worth showing
        (None, Some(time)) if time >= SILENCE_SHOWN => {
            text += &format!(", no output for {}", term::seconds(time));
        }
        (None, _) => {}
    }
    text
}

/// The next step of the end, and what the user can do.
pub fn kill_notice(left: Duration) -> String {
    // rounded up, so that the last second is shown as 1
    format!(
        "KILL in {}, or at once with Ctrl-C",
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
        let state = StatusFacts::default();
        let job = |state, phase| line("try7", (2, 3), progress, seconds(9), state, phase);
        let shown = |phase| job(state, phase);
        let with = |state| job(state, EndPhase::Running);
        let writes = with(StatusFacts {
            silent: Some(seconds(59)),
            ..state
        });
        assert!(writes.ends_with("running, 9 s"), "{writes}");
        let silent = StatusFacts {
            silent: Some(seconds(245)),
            ..state
        };
        let table = [
            (None, "running, 9 s, no output for 4 min 5 s"),
            (Some(""), "running, 9 s, stalls"),
            (
                Some("worker 3 is in load (ddp.py:9)"),
                "running, 9 s, stalls: worker 3 is in load (ddp.py:9)",
            ),
        ];
        for (stalls, expected) in table {
            let shown = with(StatusFacts { stalls, ..silent });
            assert!(shown.ends_with(expected), "{shown}");
        }
        assert_eq!(
            shown(EndPhase::Running),
            "job try7: 2/3 hosts up, 1/2 servers listening, 3/4 trainers running, 9 s"
        );
        assert!(shown(EndPhase::Ending { kill_in: None }).ends_with(", 9 s, ending"));
        let left = Duration::from_millis(6500);
        assert!(
            shown(EndPhase::Ending {
                kill_in: Some(left)
            })
            .ends_with("9 s, ending: KILL in 7 s, or at once with Ctrl-C")
        );
        let alone = Progress {
            running: 1,
            others: 1,
            ..Progress::default()
        };
        assert_eq!(
            line("a", (1, 1), alone, seconds(75), state, EndPhase::Running),
            "job a: 1/1 hosts up, 1/1 processes running, 1 min 15 s"
        );
    }
}
