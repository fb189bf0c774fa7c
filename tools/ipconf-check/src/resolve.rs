//! What a name means: the HostName of ssh_config(5), as `ssh -G` tells it, and then what this
//! machine's resolver knows.

use crate::plan::Resolution;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{IpAddr, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

/// How many names are looked up at a time. Each starts an ssh, which takes milliseconds, and may
/// wait for a name server, which takes seconds.
const AT_ONCE: usize = 16;

/// The resolutions of these names, which may have a user in front: `ann@gpu1`. `ssh_options` are
/// those that every login gets.
pub fn all<'a>(names: &[&'a str], ssh_options: &[OsString]) -> HashMap<&'a str, Resolution> {
    let left = Mutex::new(names.iter());
    let next = || left.lock().ok()?.next().copied();
    let work = || {
        let resolutions = std::iter::from_fn(next).map(|name| (name, resolve(name, ssh_options)));
        resolutions.collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE.min(names.len()))
            .map(|_| scope.spawn(work))
            .collect();
        // a panic ends this program
        let done = threads.into_iter().filter_map(|thread| thread.join().ok());
        done.flatten().collect()
    })
}

fn resolve(target: &str, ssh_options: &[OsString]) -> Resolution {
    let name = target.rsplit('@').next().unwrap_or(target);
    let mut resolution = Resolution {
        host_name: name.to_owned(),
        proxy: None,
        addresses: Ok(Vec::new()),
    };
    match settings(target, ssh_options) {
        Ok(settings) => resolution.read_settings(&settings),
        Err(error) => {
            resolution.addresses = Err(error);
            return resolution;
        }
    }
    let host_name = resolution.host_name.as_str();
    resolution.addresses = match host_name.parse::<IpAddr>() {
        Ok(ip) => Ok(vec![ip]),
        Err(_) => (host_name, 0)
            .to_socket_addrs()
            .map(|addresses| addresses.map(|address| address.ip()).collect())
            .map_err(|error| error.to_string()),
    };
    resolution
}

/// What `ssh -G` prints. Without that program there is no configuration to follow.
fn settings(target: &str, options: &[OsString]) -> Result<String, String> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-G").args(options).args(["--", target]);
    match ssh.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            Err(format!("ssh -G: {}", message.trim().replace('\n', "; ")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("ssh -G: {error}")),
    }
}

impl Resolution {
    fn read_settings(&mut self, settings: &str) {
        for line in settings.lines() {
            match line.split_once(' ') {
                Some(("hostname", name)) => self.host_name = name.to_owned(),
                Some((key @ ("proxyjump" | "proxycommand"), value)) if value != "none" => {
                    self.proxy = Some(format!("{key} {value}"));
                }
                _ => {}
            }
        }
    }
}
