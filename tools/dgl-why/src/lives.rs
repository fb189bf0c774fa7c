//! Which records tell of the same life of a process, where a job was restarted.

use record::jsonl::Stream;
use record::{Exited, Listening, Started};
use std::collections::HashMap;

/// A process of one try, from its start to its end. The records are given by their place among
/// those of their type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The `id` of the process record.
    pub id: u32,
    /// The number of the try, from 0.
    pub attempt: usize,
    /// Its start; absent if that record was lost.
    pub started: Option<usize>,
    /// That it listens.
    pub listening: Option<usize>,
    /// Its end.
    pub exited: Option<usize>,
}

/// What happened to a process.
enum Happened {
    Started,
    Listening,
    Exited,
}

/// All lives, in the order in which they began. What happens to a process belongs to its latest
/// start before that.
pub fn of(
    stream: &Stream,
    started: &[Started],
    listening: &[Listening],
    exited: &[Exited],
) -> Vec<Life> {
    let started = started.iter().map(|one| (Happened::Started, one.id));
    let listening = listening.iter().map(|one| (Happened::Listening, one.id));
    let exited = exited.iter().map(|one| (Happened::Exited, one.id));
    let mut all = with_places(stream.positions::<Started>(), started);
    all.extend(with_places(stream.positions::<Listening>(), listening));
    all.extend(with_places(stream.positions::<Exited>(), exited));
    all.sort_by_key(|(place, ..)| *place);

    let mut lives = Lives::default();
    for (_, at, (happened, id)) in all {
        match happened {
            Happened::Started => lives.start(id, at),
            Happened::Listening => lives.latest(id).listening = Some(at),
            Happened::Exited => {
                lives.latest(id).exited = Some(at);
                lives.after_last_end = lives.all.len();
            }
        }
    }
    lives.all
}

/// The records of one type with their places in the stream and among those of their type.
fn with_places<T>(places: Vec<usize>, records: impl Iterator<Item = T>) -> Vec<(usize, usize, T)> {
    let numbered = places.into_iter().zip(records).enumerate();
    numbered
        .map(|(at, (place, record))| (place, at, record))
        .collect()
}

#[derive(Default)]
struct Lives {
    all: Vec<Life>,
    /// The place of the latest life of each process.
    latest: HashMap<u32, usize>,
    attempt: usize,
    /// The place of the first life that has begun after the last end of one.
    after_last_end: usize,
}

impl Lives {
    /// A try begins where a process starts that has started in the try before. Processes that have
    /// started between the end of that try and this start belong to the new one too.
    fn start(&mut self, id: u32, at: usize) {
        if let Some(before) = self.latest.get(&id).copied()
            && self.all[before].attempt == self.attempt
        {
            self.attempt += 1;
            if before < self.after_last_end {
                let begun = &mut self.all[self.after_last_end..];
                begun.iter_mut().for_each(|life| life.attempt += 1);
            }
        }
        let life = self.begin(id);
        life.started = Some(at);
    }

    fn begin(&mut self, id: u32) -> &mut Life {
        let at = self.all.len();
        self.latest.insert(id, at);
        self.all.push(Life {
            id,
            attempt: self.attempt,
            ..Life::default()
        });
        &mut self.all[at]
    }

    fn latest(&mut self, id: u32) -> &mut Life {
        match self.latest.get(&id).copied() {
            Some(at) => &mut self.all[at],
            None => self.begin(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lives in a stream of words such as `start 0`: the id of each, its try, and whether its
    /// start, that it listens and its end are known.
    fn lives(words: &str) -> Vec<(u32, usize, [bool; 3])> {
        let line = |word: &str| {
            let (what, id) = word.trim().split_once(' ').unwrap();
            let of = format!(r#""id":{id},"host":0,"role":"trainer","rank":{id}"#);
            match what {
                "start" => format!(r#"{{"type":"started",{of},"pid":7,"time_ms":9}}"#),
                "listen" => format!(r#"{{"type":"listening",{of},"port":1,"time_ms":9}}"#),
                _ => format!(r#"{{"type":"exited",{of},"code":1,"elapsed_ms":9}}"#),
            }
        };
        let text: Vec<String> = words.split(',').map(line).collect();
        let stream = Stream::read(text.join("\n").as_bytes(), true)
            .map_err(|_| ())
            .unwrap();
        let (started, listening, exited) = (
            stream.all().map_err(|_| ()).unwrap(),
            stream.all().map_err(|_| ()).unwrap(),
            stream.all().map_err(|_| ()).unwrap(),
        );
        let known = |life: &Life| {
            let of_it = [life.started, life.listening, life.exited];
            (life.id, life.attempt, of_it.map(|one| one.is_some()))
        };
        let lives = of(&stream, &started, &listening, &exited);
        lives.iter().map(known).collect()
    }

    #[test]
    fn what_happens_belongs_to_the_latest_start() {
        let (runs, ended) = ([true, false, false], [true, false, true]);
        let table = [
            (
                "start 0, listen 0, start 1, exit 1, exit 0",
                vec![(0, 0, [true; 3]), (1, 0, ended)],
            ),
            // the second try goes on
            (
                "start 0, listen 0, exit 0, start 0",
                vec![(0, 0, [true; 3]), (0, 1, runs)],
            ),
            // the host of the first try was lost, and nobody knows how its process ended
            (
                "start 0, start 1, exit 1, start 0, start 1, exit 0",
                vec![(0, 0, runs), (1, 0, ended), (0, 1, ended), (1, 1, runs)],
            ),
            // the first try ended before its second process was started
            (
                "start 0, exit 0, start 1, start 0",
                vec![(0, 0, ended), (1, 1, runs), (0, 1, runs)],
            ),
            // the records begin in the midst
            ("exit 0", vec![(0, 0, [false, false, true])]),
        ];
        for (words, expected) in table {
            assert_eq!(lives(words), expected, "{words}");
        }
    }
}
