//! The status line, which shows the progress of a job.

use job::Progress;
use record::term;
use std::time::Duration;

/// The shortest silence that is shown.
const SILENCE_SHOWN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub struct JobStatus<'a> {
    pub name: &'a str,
    pub hosts_up: usize,
    pub hosts: usize,
    pub progress: Progress,
    pub age: Duration,
    /// Why the job stalls, if it does; empty if unknown.
    pub stalls: Option<&'a str>,
    /// For how long no trainer or worker has written.
    pub silent: Option<Duration>,
    pub is_ending: bool,
    /// When KILL follows, if that is known.
    pub kill_in: Option<Duration>,
}

impl JobStatus<'_> {
    pub fn line(&self) -> String {
        let Progress {
            listening,
            servers,
            running,
            others,
        } = self.progress;
        let mut text = format!(
            "job {}: {}/{} hosts up",
            self.name, self.hosts_up, self.hosts
        );
        if servers > 0 {
            text += &format!(", {listening}/{servers} servers listening");
        }
        if others > 0 {
            text += &format!(
                ", {running}/{others} {} running",
                if servers > 0 { "trainers" } else { "processes" }
            );
        }
        text += &format!(", {}", whole_seconds(self.age));
        text += &match (self.kill_in, self.stalls, self.silent) {
            (Some(left), ..) => format!(", ending: {}", kill_notice(left)),
            _ if self.is_ending => ", ending".to_owned(),
            (None, Some(""), _) => ", stalls".to_owned(),
            (None, Some(why), _) => format!(", stalls: {}", term::plain(why)),
            // in most scripts only one process writes, so only the silence of all is worth showing
            (None, None, Some(time)) if time >= SILENCE_SHOWN => {
                format!(", no output for {}", term::seconds(time))
            }
            _ => String::new(),
        };
        text
    }
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

    const RUNNING: JobStatus<'static> = JobStatus {
        name: "try7",
        hosts_up: 2,
        hosts: 3,
        progress: Progress {
            listening: 1,
            servers: 2,
            running: 3,
            others: 4,
        },
        age: Duration::from_secs(9),
        stalls: None,
        silent: None,
        is_ending: false,
        kill_in: None,
    };
    const SHOWN: &str = "job try7: 2/3 hosts up, 1/2 servers listening, 3/4 trainers running, 9 s";

    #[test]
    fn the_progress_of_a_job_is_shown() {
        let stalls = "worker 3 is in load (ddp.py:9)";
        let table = [
            (None, 59, ""),
            (None, 245, ", no output for 4 min 5 s"),
            (Some(""), 245, ", stalls"),
            (
                Some(stalls),
                245,
                ", stalls: worker 3 is in load (ddp.py:9)",
            ),
        ];
        for (stalls, silent_s, end) in table {
            let status = JobStatus {
                stalls,
                silent: Some(Duration::from_secs(silent_s)),
                ..RUNNING
            };
            assert_eq!(status.line(), format!("{SHOWN}{end}"));
        }
        let alone = JobStatus {
            progress: Progress {
                running: 1,
                others: 1,
                ..Progress::default()
            },
            age: Duration::from_secs(75),
            ..RUNNING
        };
        let shown = "job try7: 2/3 hosts up, 1/1 processes running, 1 min 15 s";
        assert_eq!(alone.line(), shown);
    }

    #[test]
    fn while_a_job_ends_its_next_step_is_shown() {
        let left = Duration::from_millis(6500);
        let table = [
            (None, ", ending"),
            (Some(left), ", ending: KILL in 7 s, or at once with Ctrl-C"),
        ];
        for (kill_in, end) in table {
            let status = JobStatus {
                is_ending: true,
                kill_in,
                stalls: Some(""),
                ..RUNNING
            };
            assert_eq!(status.line(), format!("{SHOWN}{end}"));
        }
    }
}
