//! Lets one of several threads run at a time, so that a seed decides the order of all that happens.

use crate::random::Random;
use parking_lot::{Condvar, Mutex};

pub struct Turns {
    state: Mutex<State>,
    /// One for each thread.
    woken: Vec<Condvar>,
}

struct State {
    random: Random,
    alive: Vec<usize>,
    running: usize,
    steps: u64,
}

impl Turns {
    pub fn new(mut random: Random, actors: usize) -> Turns {
        let running = random.below(actors as u64) as usize;
        Turns {
            state: Mutex::new(State {
                random,
                alive: (0..actors).collect(),
                running,
                steps: 0,
            }),
            woken: (0..actors).map(|_| Condvar::new()).collect(),
        }
    }

    /// Returns when it is this thread's turn for the first time.
    pub fn begin(&self, me: usize) {
        let mut state = self.state.lock();
        while state.running != me {
            self.woken[me].wait(&mut state);
        }
    }

    /// In so many of 100 cases, another thread runs first.
    pub fn pass(&self, me: usize, percent: u64) {
        let mut state = self.state.lock();
        state.steps += 1;
        if state.random.percent(percent) {
            self.choose(&mut state);
            while state.running != me {
                self.woken[me].wait(&mut state);
            }
        }
    }

    /// All others have ended; the thread 0 runs alone from now on.
    pub fn begin_last(&self) {
        let mut state = self.state.lock();
        (state.alive, state.running) = (vec![0], 0);
    }

    pub fn end(&self, me: usize) {
        let mut state = self.state.lock();
        state.alive.retain(|alive| *alive != me);
        if !state.alive.is_empty() {
            self.choose(&mut state);
        }
    }

    fn choose(&self, state: &mut State) {
        state.running = state.random.pick(&state.alive);
        self.woken[state.running].notify_one();
    }

    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }
}
