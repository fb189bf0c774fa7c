//! The abstract Unix socket on which a supervisor answers requests of this user's agents on this
//! host ([`agent::supervisors`]), about its own processes alone. A client sends requests and gets
//! events, as over stdin and stdout. Threads answer, so that no client delays the job.

use super::members;
use crate::reap;
use crate::servers::ServedServers;
use agent::supervisors::SupervisorSocket;
use agent_stacks::recorder;
use host::abstract_socket::{has_hung_up, read_within};
use host::processes::{ProcessHandle, find_below};
use host::readiness::readable;
use host::side_thread::{self, SideThread};
use nix::sys::signal::Signal;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use parking_lot::Mutex;
use record::{Found, Reaped};
use std::collections::HashMap;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::codec::{self, Decoder};
use wire::job::Job;
use wire::reap::Pick;
use wire::{Event, Failure, Request};

/// How long a client may take to send a request or to take a part of the answer, because each keeps
/// a thread. Agents do both at once, except those of dgl-reap: between two requests they wait for
/// other hosts, which may search for processes for 15 s.
const CLIENT_LIMIT: Duration = Duration::from_secs(30);
/// How long the main thread may take to carry out an order. It needs milliseconds.
const ORDER_LIMIT: Duration = Duration::from_secs(2);
/// How many clients are answered at once, each by a thread with a descriptor; others wait in the
/// queue of the socket. More tools hardly run on a host in the same second.
const AT_ONCE: usize = 16;
/// How many threads may read stacks for clients. A reading may hang in the kernel; the others are
/// for clients that ask something else.
const MOST_READERS: usize = 12;
/// How often to check whether a client was answered.
const PACE: Duration = Duration::from_millis(20);
/// How long to wait before another attempt if there is no free descriptor.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct JobAnswers {
    pub servers: Arc<ServedServers>,
    job: Job,
    /// When each started process last wrote something, by process id.
    written: Mutex<HashMap<u32, Instant>>,
    /// Cloned by each thread that reads stacks.
    readers: Arc<()>,
    orders: Sender<Order>,
    ordered: PipeWriter,
}

/// Only the main thread signals and ends processes, so that it knows why they end.
#[derive(Debug)]
pub struct Order {
    /// `None` if the client no longer waits: dgl-reap then signals the processes itself, and a
    /// second ABRT would end Python while it prints its stacks.
    task: Arc<Mutex<Option<Task>>>,
    /// Gets the number of signalled processes, once the order was carried out.
    pub reply: Sender<usize>,
}

impl Order {
    pub fn take(&self) -> Option<Task> {
        self.task.lock().take()
    }
}

#[derive(Debug)]
pub enum Task {
    /// A dgl-reap is about to signal or end processes, here or on other hosts.
    WaitForReap,
    /// That dgl-reap has done its work.
    LeaveToReap,
    Signal(Vec<ProcessHandle>, Signal),
    /// Ends the job, with this grace from TERM to KILL.
    End(Duration),
}

/// While this exists, an end of the job waits for dgl-reap.
struct HeldProcesses<'a> {
    answers: &'a JobAnswers,
    processes: Vec<ProcessHandle>,
}

impl Drop for HeldProcesses<'_> {
    fn drop(&mut self) {
        let task = Arc::new(Mutex::new(Some(Task::LeaveToReap)));
        let _ = self.answers.send(&task);
    }
}

impl JobAnswers {
    /// The pipe gets a byte for each order.
    pub fn new(
        job: &Job,
        servers: Arc<ServedServers>,
    ) -> io::Result<(JobAnswers, Receiver<Order>, PipeReader)> {
        let (orders, receiver) = mpsc::channel();
        let (reader, ordered) = io::pipe()?;
        let answers = JobAnswers {
            servers,
            job: job.clone(),
            written: Mutex::default(),
            readers: Arc::default(),
            orders,
            ordered,
        };
        Ok((answers, receiver, reader))
    }

    pub fn wrote(&self, pid: u32) {
        self.written.lock().insert(pid, Instant::now());
    }

    fn send(&self, task: &Arc<Mutex<Option<Task>>>) -> io::Result<Receiver<usize>> {
        let (reply, replies) = mpsc::channel();
        let task = Arc::clone(task);
        let sent = self.orders.send(Order { task, reply });
        sent.map_err(|_| ErrorKind::BrokenPipe)?;
        (&self.ordered).write_all(&[0])?;
        Ok(replies)
    }

    /// Has the main thread carry out a task; returns how many processes it has signalled. If that
    /// fails, it will not carry it out later.
    fn order(&self, task: Task) -> Result<usize, Failure> {
        let busy = || Failure::new("the job's supervisor is stopped or busy");
        let task = Arc::new(Mutex::new(Some(task)));
        let reply = self.send(&task).map_err(|_| busy())?;
        match reply.recv_timeout(ORDER_LIMIT) {
            Ok(signalled) => Ok(signalled),
            Err(_) if task.lock().take().is_some() => Err(busy()),
            // it is being carried out
            Err(_) => reply.recv().map_err(|_| busy()),
        }
    }

    /// The client may have picked processes.
    fn answer<'a>(
        &'a self,
        request: &Request,
        client: &UnixStream,
        picked: &mut Option<HeldProcesses<'a>>,
    ) -> Result<Vec<Event>, Failure> {
        let token = &self.job.token;
        match request {
            Request::PickProcesses(wanted) => {
                self.order(Task::WaitForReap)?;
                let mut held = HeldProcesses {
                    answers: self,
                    processes: Vec::new(),
                };
                let below = find_below(std::process::id().cast_signed());
                let found = members::selected(token, wanted).into_iter();
                let processes = found.map(|found| found.member.process);
                held.processes = processes.filter(|found| below.contains(found)).collect();
                *picked = Some(held);
                Ok(Vec::new())
            }
            Request::SignalPicked(wanted) => {
                let processes = picked.iter_mut().map(|picked| &mut picked.processes);
                let processes = processes.map(std::mem::take).next().unwrap_or_default();
                let signalled = self.order(Task::Signal(processes, reap::signal(wanted)?))?;
                Ok(vec![Event::Reaped(Reaped {
                    job: self.job.name.clone(),
                    processes: u32::try_from(signalled).unwrap_or(u32::MAX),
                    ..Reaped::default()
                })])
            }
            Request::EndJobs(wanted) => {
                self.order(Task::End(Duration::from_millis(wanted.grace_ms)))?;
                Ok(Vec::new())
            }
            Request::FindServers(_) | Request::TakeGroup(_) => {
                Ok(vec![self.servers.answer(request)?])
            }
            Request::ListJobs => {
                let found = reap::describe_all(members::selected(token, &Pick::default()));
                let found = found.map(|found| Event::Found(self.with_own_knowledge(found)));
                Ok(found.collect())
            }
            Request::TakeStacks(wanted) => {
                let processes = members::known(token, &wanted.pick);
                let stacks = agent_stacks::take(&processes, wanted.connections, &self.reader()?);
                let event = |stack| Event::Stack(Box::new(stack));
                Ok(stacks.into_iter().map(event).collect())
            }
            Request::RecordStacks(wanted) => {
                let _reader = self.reader()?;
                let find = || members::known(token, &wanted.pick);
                let profiles = recorder::record(wanted, find, || !has_hung_up(client));
                let event = |profile| Event::Profile(Box::new(profile));
                Ok(profiles.into_iter().map(event).collect())
            }
            _ => Err(Failure::new("a supervisor does not serve this request")),
        }
    }

    fn with_own_knowledge(&self, found: Found) -> Found {
        let written = self.written.lock();
        let silence = written.get(&found.pid).map(Instant::elapsed);
        let is_server = found.role == Some(job::Role::Server);
        Found {
            silent_s: silence.map(|time| time.as_secs_f64()),
            groups: is_server.then(|| self.servers.groups()).flatten(),
            ..found
        }
    }

    fn reader(&self) -> Result<Arc<()>, Failure> {
        // this struct holds one reference itself
        if Arc::strong_count(&self.readers) > MOST_READERS {
            return Err(Failure::new(
                "the job's supervisor is busy with other requests for stacks",
            ));
        }
        Ok(Arc::clone(&self.readers))
    }
}

#[derive(Debug)]
pub struct JobSocket {
    _thread: SideThread,
}

impl JobSocket {
    /// Without it, dgl-reap could not keep the job from starting again.
    pub fn open(answers: &Arc<JobAnswers>) -> io::Result<JobSocket> {
        let name = SupervisorSocket::new(&answers.job)?.name;
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        let answers = Arc::clone(answers);
        let accept = move |stopped: &PipeReader| accept(&listener, &answers, stopped);
        let thread = SideThread::begin("socket", accept)?;
        Ok(JobSocket { _thread: thread })
    }
}

fn accept(listener: &UnixListener, answers: &Arc<JobAnswers>, stopped: &PipeReader) {
    let mut clients: Vec<JoinHandle<()>> = Vec::new();
    loop {
        clients.retain(|client| !client.is_finished());
        let is_full = clients.len() >= AT_ONCE;
        let mut awaited = vec![stopped.as_fd()];
        awaited.extend((!is_full).then(|| listener.as_fd()));
        if readable(awaited, is_full.then_some(PACE))[0] {
            return;
        }
        if is_full {
            continue;
        }
        match listener.accept() {
            Ok((stream, _)) => clients.extend(serve_apart(stream, answers)),
            // without a pause, poll would report the connection again until a descriptor is free
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                std::thread::sleep(NO_DESCRIPTOR_PAUSE);
            }
            Err(_) => {}
        }
    }
}

/// `None` without a thread, which closes the connection.
fn serve_apart(stream: UnixStream, answers: &Arc<JobAnswers>) -> Option<JoinHandle<()>> {
    let answers = Arc::clone(answers);
    let work = move || drop(serve(stream, &answers));
    side_thread::spawn("client", work).ok()
}

fn serve(mut stream: UnixStream, answers: &JobAnswers) -> io::Result<()> {
    if getsockopt(&stream, PeerCredentials)?.uid() != geteuid().as_raw() {
        return Ok(());
    }
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let mut decoder = Decoder::default();
    let mut picked = None;
    while let Some(request) = next_request(&mut stream, &mut decoder)? {
        let answer = match request {
            // this process was stopped, and the client has done without it, as in `Order`
            Ok(_) if has_hung_up(&stream) => return Ok(()),
            Ok(Request::AwaitServersEnd) => return answers.servers.await_end(stream),
            Ok(request) => answers.answer(&request, &stream, &mut picked),
            Err(malformed) => return write(&mut stream, &Event::Failed(Failure::new(malformed))),
        };
        match answer {
            Ok(events) => {
                for event in events {
                    write(&mut stream, &event)?;
                }
                write(&mut stream, &Event::Done)?;
            }
            Err(failure) => write(&mut stream, &Event::Failed(failure))?,
        }
    }
    Ok(())
}

fn write(stream: &mut UnixStream, event: &Event) -> io::Result<()> {
    stream.write_all(&codec::encode(event, &[]))
}

/// The next request, or what is wrong with it; `None` if the client sends nothing more.
fn next_request(
    stream: &mut UnixStream,
    decoder: &mut Decoder,
) -> io::Result<Option<Result<Request, String>>> {
    let until = Instant::now() + CLIENT_LIMIT;
    let mut buffer = [0; 4096];
    loop {
        match decoder.next_message::<Request>() {
            Ok(Some(message)) => return Ok(Some(Ok(message.head))),
            Ok(None) => {}
            Err(malformed) => return Ok(Some(Err(malformed))),
        }
        match read_within(stream, until, &mut buffer)? {
            Some(count) if count > 0 => decoder.push(&buffer[..count]),
            _ => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each order belongs to a dgl-reap that has signalled or ended the processes itself since.
    #[test]
    fn slow_an_order_is_not_carried_out_after_its_client_was_refused() {
        let (answers, orders, _pipe) =
            JobAnswers::new(&crate::tested_job("busy"), Arc::default()).unwrap();
        let (client, _peer) = UnixStream::pair().unwrap();
        let mut picked = None;
        for request in requests() {
            // this thread, which would carry out the orders, is busy
            let answer = answers.answer(&request, &client, &mut picked);
            assert!(answer.is_err() && picked.is_none(), "{request:?}");
            let tasks: Vec<Option<Task>> = orders.try_iter().map(|order| order.take()).collect();
            assert!(matches!(tasks[..], [None]), "{request:?}: {tasks:?}");
        }
    }

    /// If the whole process is stopped, its socket keeps the request.
    #[test]
    fn an_order_whose_client_has_hung_up_is_not_carried_out() {
        for request in requests() {
            let (answers, orders, _pipe) =
                JobAnswers::new(&crate::tested_job("stopped"), Arc::default()).unwrap();
            let (stream, mut client) = UnixStream::pair().unwrap();
            client.write_all(&codec::encode(&request, &[])).unwrap();
            drop(client);
            let _ = serve(stream, &answers);
            assert!(orders.try_recv().is_err(), "{request:?}");
        }
    }

    fn requests() -> [Request; 3] {
        use wire::reap::{EndJobs, Signal};
        let signal = record::exit::SignalNumber::ABRT;
        let grace_ms = 0;
        [
            Request::PickProcesses(Pick::default()),
            Request::SignalPicked(Signal { signal }),
            Request::EndJobs(EndJobs {
                job: None,
                grace_ms,
            }),
        ]
    }
}
