//! What is decided about a job, by whom, and how far it has come.

/// The next step that the owner of the job takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// End all processes: TERM, and KILL after the grace.
    End,
    /// The same, but first ask for the stacks of those that can print them (ABRT).
    EndWithStacks,
    /// End all processes at once (KILL).
    Kill,
}

/// Who decides about the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// This program does.
    Deciding,
    /// The agent of the first host does. The job is followed until it is up, and a signal ends it
    /// until then.
    Detaching,
    /// The agent of the first host does. The job is followed to its end, and a signal ends only the
    /// following.
    Following,
}

/// How far a job has come. Processes other than servers are counted as others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub listening: usize,
    pub servers: usize,
    pub running: usize,
    pub others: usize,
}
