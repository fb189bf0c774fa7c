//! Signals to a launcher on its own host, over a Unix socket in the job's directory that only its
//! user can open. The end of the connection shows a connected process that the launcher has ended.

use super::folder::JobFolder;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Pid, geteuid};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::Builder;
use wire::Request;
use wire::codec::Decoder;

/// The most followers of a job. Each is a login of its user.
const AT_ONCE: usize = 64;

/// Accepts signals from now on, in threads.
pub fn serve(folder: &JobFolder) -> io::Result<()> {
    let listener = folder.listen()?;
    let connections = Arc::new(());
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let is_own = getsockopt(&stream, PeerCredentials)
                .is_ok_and(|peer| peer.uid() == geteuid().as_raw());
            if is_own && Arc::strong_count(&connections) <= AT_ONCE {
                let connection = Arc::clone(&connections);
                let read = move || {
                    obey(stream);
                    drop(connection);
                };
                let _ = Builder::new().spawn(read);
            }
        }
    };
    Builder::new().spawn(accept).map(drop)
}

/// Sends the received signals to this process.
fn obey(mut stream: UnixStream) {
    let (mut decoder, mut buffer) = (Decoder::default(), [0; 4096]);
    loop {
        while let Ok(Some(message)) = decoder.next_message::<Request>() {
            if let Request::SignalLauncher(order) = message.head
                && let Ok(signal) = Signal::try_from(order.signal.0)
            {
                let _ = kill(Pid::this(), signal);
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => decoder.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
