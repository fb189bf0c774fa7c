//! What a schedule does to hosts, processes and the launcher.

use super::{Actor, Agent, Task, Truth, WATCHER_PACE, World, trace};
use crate::host::{By, ProcessEvent};
use crate::schedule::Fault;
use crate::time::{FOREVER, Micros, SECOND};
use job::Termination;
use nix::sys::signal::Signal;
use record::exit::{ProcessEnd, SignalNumber};
use std::collections::BTreeSet;
use std::time::Duration;

impl World {
    /// A host was hit by something that may end the job, or delays what it says until `until`.
    pub(super) fn hit(&mut self, host: usize, until: Micros, harms: bool) {
        let now = self.now;
        let one = &mut self.hosts[host];
        one.quiet_from = one.quiet_from.max(until);
        one.is_harmed |= harms;
        if harms {
            self.truths.push((now, Truth::Hit { host }));
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        trace!(self, "fault: {fault:?}");
        self.faults_end = self.faults_end.max(self.now);
        let harms = !self.schedule.is_mild;
        match fault {
            Fault::Exit { host, index, code } => self.fail(host, index, ProcessEnd::exited(code)),
            Fault::Kill { host, index } => {
                self.fail(host, index, ProcessEnd::killed(SignalNumber::KILL));
            }
            Fault::Stall {
                host,
                to_agent,
                time,
            } => {
                let until = self.now + time;
                let mut connection = self.hosts[host].connection.lock();
                let direction = if to_agent {
                    &mut connection.to_agent
                } else {
                    &mut connection.to_launcher
                };
                direction.stalled_until = direction.stalled_until.max(until);
                drop(connection);
                self.faults_end = self.faults_end.max(until);
                self.hit(host, until, harms);
                self.look_at_connection(host);
            }
            Fault::Slow { host, latency } => {
                let mut connection = self.hosts[host].connection.lock();
                connection.to_agent.latency += latency;
                connection.to_launcher.latency += latency;
                drop(connection);
                self.hit(host, FOREVER, harms);
            }
            Fault::Cut {
                host,
                launcher_sees,
                agent_sees,
            } => {
                let mut connection = self.hosts[host].connection.lock();
                connection.now = self.now;
                connection.cut(launcher_sees, agent_sees);
                drop(connection);
                self.hit(host, FOREVER, true);
                self.look_at_connection(host);
            }
            Fault::StopAgent { host, time } => {
                let until = self.now + time;
                self.hosts[host].runs_from = self.hosts[host].runs_from.max(until);
                self.faults_end = self.faults_end.max(until);
                self.hit(host, until, harms);
            }
            Fault::Sleep { host, time } => self.sleep(host, time, harms),
            Fault::Jump { host, time } => {
                self.hosts[host].clock.jumped += time;
                self.hit(host, self.now, harms);
                self.wake_soon(Actor::Agent(host));
            }
            Fault::Reboot { host } => self.reboot(host),
            Fault::KillSupervisor { host } => self.kill_supervisor(host),
            Fault::KillWatcher { host } => {
                if matches!(self.hosts[host].agent, Agent::Supervised(_)) {
                    self.hosts[host].state.borrow_mut().watcher_lives = false;
                    self.hit(host, FOREVER, true);
                }
            }
            Fault::StopLauncher { time } => self.stop_launcher(time),
            Fault::SleepLauncher { time } => {
                let until = self.now + time;
                let from = self.launcher_runs_from.max(self.now);
                self.launcher_clock.slept += until.saturating_sub(from);
                self.stop_launcher(time);
            }
            Fault::KillLauncher => self.kill_launcher(),
            Fault::Signal { number } => {
                self.truths.push((self.now, Truth::Signal(number)));
                self.signals.push(number);
                self.wake_soon(Actor::Launcher);
            }
            Fault::Reap => {
                self.reaped.get_or_insert(self.now);
                for host in 0..self.hosts.len() {
                    let after = self.random.magnitude(SECOND);
                    self.push(self.now + after, Task::Reap(host, self.attempt, false));
                }
                self.faults_end = self.faults_end.max(self.now + SECOND);
            }
            Fault::ReapProcess { host, index } => self.reap_process(host, index),
            Fault::StopWhileSilent {
                host,
                silent,
                stopped,
            } => {
                let (to_agent, time) = (false, silent);
                self.fault(Fault::Stall {
                    host,
                    to_agent,
                    time,
                });
                let before_end = self.random.magnitude(silent);
                self.push(self.now + silent - before_end, Task::Stop(stopped));
            }
            Fault::Hang { time } => self.hang(time),
        }
    }

    /// A process fails by itself.
    pub(super) fn fail(&mut self, host: usize, index: u32, status: ProcessEnd) {
        let pid = self.hosts[host].state.borrow().pid_of(index);
        if let Some(pid) = pid {
            self.process(host, pid, ProcessEvent::Ends(status, By::Itself));
        }
    }

    pub(super) fn sleep(&mut self, host: usize, time: Micros, harms: bool) {
        let until = self.now + time;
        let one = &mut self.hosts[host];
        one.clock.slept += until.saturating_sub(one.sleeps_until.max(self.now));
        one.sleeps_until = one.sleeps_until.max(until);
        self.faults_end = self.faults_end.max(until);
        self.hit(host, until, harms);
        if host == 0 && self.schedule.on_first_host {
            self.fault(Fault::SleepLauncher { time });
        }
    }

    pub(super) fn reboot(&mut self, host: usize) {
        let one = &mut self.hosts[host];
        one.agent = Agent::None;
        one.state.borrow_mut().lose_all();
        one.happening.iter_mut().for_each(|(pid, _)| *pid = 0);
        let sees = self.random.percent(50);
        let mut connection = one.connection.lock();
        connection.now = self.now;
        connection.cut(sees, true);
        drop(connection);
        self.hit(host, FOREVER, true);
        self.look_at_connection(host);
        if host == 0 && self.schedule.on_first_host {
            self.kill_launcher();
        }
    }

    /// Its children come to the watcher, and get TERM from the kernel.
    pub(super) fn kill_supervisor(&mut self, host: usize) {
        if !matches!(self.hosts[host].agent, Agent::Supervised(_)) {
            return;
        }
        let watcher_lives = self.hosts[host].state.borrow().watcher_lives;
        if !watcher_lives {
            return;
        }
        let one = &mut self.hosts[host];
        let grace = Duration::from_micros(self.schedule.grace);
        let now = one.clock.read(self.now);
        one.agent = Agent::Guarded(Termination::begin(grace, false, now));
        one.state
            .borrow_mut()
            .signal_all(Signal::SIGTERM, By::Agent);
        self.take_coming(host);
        self.hit(host, FOREVER, true);
        self.wake_soon(Actor::Agent(host));
    }

    pub(super) fn stop_launcher(&mut self, time: Micros) {
        // before their first turn, executors have started nothing
        let have_turned = self.now > self.begun;
        if self.schedule.is_later && have_turned && self.launcher_runs_from <= self.now {
            self.interrupt_executors();
        }
        let until = self.now + time;
        self.launcher_runs_from = self.launcher_runs_from.max(until);
        self.faults_end = self.faults_end.max(until);
        self.truths.push((self.now, Truth::Paused(time)));
        for host in 0..self.hosts.len() {
            let one = &mut self.hosts[host];
            one.quiet_from = one.quiet_from.max(until);
        }
    }

    /// Some executors have just read from their hosts and not handled it.
    pub(super) fn interrupt_executors(&mut self) {
        for host in 0..self.executors.len() {
            let Some(executor) = &mut self.executors[host] else {
                continue;
            };
            if self.hosts[host].unhandled.is_none() && self.random.percent(30) {
                self.hosts[host].connection.lock().now = self.now;
                let events = executor.session().step(None, Duration::ZERO);
                self.hosts[host].unhandled = Some(events);
                self.wake(Actor::Executor(host), self.now);
            }
        }
    }

    /// dgl-reap has the supervisor signal one process.
    pub(super) fn reap_process(&mut self, host: usize, index: u32) {
        let one = &mut self.hosts[host];
        let mut state = one.state.borrow_mut();
        let Some(pid) = state.pid_of(index) else {
            return;
        };
        state.now = self.now;
        state.signal(pid, Signal::SIGTERM, By::Picked);
        drop(state);
        if let Agent::Supervised(supervision) = &mut one.agent {
            supervision.signalled_by_dgl_reap(&BTreeSet::from([index]), Signal::SIGTERM);
        }
        self.take_coming(host);
        self.wake_soon(Actor::Agent(host));
    }

    /// dgl-reap ends the job on a host: it asks the supervisor or, if there is none, signals all
    /// processes; and it sends KILL itself.
    pub(super) fn reap_on(&mut self, host: usize, kills: bool) {
        let grace = self.schedule.grace;
        let one = &mut self.hosts[host];
        if one.sleeps_until > self.now {
            let until = one.sleeps_until;
            return self.push(until, Task::Reap(host, self.attempt, kills));
        }
        trace!(self, "host {host}: dgl-reap acts, KILL {kills}");
        let one = &mut self.hosts[host];
        let mut state = one.state.borrow_mut();
        if state.alive().next().is_none() {
            return;
        }
        state.now = self.now;
        match &mut one.agent {
            Agent::Supervised(supervision) if !kills => {
                state.is_reaped = true;
                drop(state);
                let now = one.clock.read(self.now);
                supervision.end_by_dgl_reap(Duration::from_micros(grace), now);
            }
            _ => {
                let signal = if kills {
                    Signal::SIGKILL
                } else {
                    Signal::SIGTERM
                };
                state.signal_all(signal, By::Reap);
                drop(state);
            }
        }
        self.take_coming(host);
        self.wake_soon(Actor::Agent(host));
        let again = if kills { WATCHER_PACE } else { grace };
        self.push(self.now + again, Task::Reap(host, self.attempt, true));
    }

    /// No process does anything any more, for a while.
    pub(super) fn hang(&mut self, time: Micros) {
        for host in 0..self.hosts.len() {
            let mut state = self.hosts[host].state.borrow_mut();
            state.idle_since.get_or_insert(self.now);
        }
        self.hung_from.get_or_insert(self.now);
        if time < FOREVER {
            self.hung_for += time;
            let at = self.now + time;
            self.push(at, Task::Resume(self.attempt));
        }
    }

    pub(super) fn resume(&mut self) {
        trace!(self, "the processes move again");
        let since = self.hung_from.take();
        self.hangs.extend(since.map(|since| (since, self.now)));
        for host in 0..self.hosts.len() {
            self.hosts[host].state.borrow_mut().idle_since = None;
            self.wake_soon(Actor::Agent(host));
        }
    }
}
