//! Looks up names: the HostName of ssh_config(5), from `ssh -G`, and its addresses, from this
//! machine's resolver.

use crate::plan::Resolution;
use remote::RemoteOptions;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread;

/// Each look-up starts an ssh, which takes milliseconds, and may wait seconds for a name server.
const AT_ONCE: usize = 16;

/// The names may begin with a user: `ann@gpu1`.
pub fn all<'a>(names: &[&'a str], options: &RemoteOptions) -> HashMap<&'a str, Resolution> {
    let left = Mutex::new(names.iter());
    let next = || left.lock().ok()?.next().copied();
    let work = || {
        let resolutions = std::iter::from_fn(next).map(|name| (name, resolve(name, options)));
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

fn resolve(target: &str, options: &RemoteOptions) -> Resolution {
    let name = target.rsplit('@').next().unwrap_or(target);
    let mut resolution = Resolution {
        host_name: name.to_owned(),
        proxy: None,
        addresses: Ok(Vec::new()),
    };
    let settings = match remote::printed_settings(options, target) {
        Ok(settings) => settings,
        Err(fault) => {
            resolution.addresses = Err(fault.problem);
            return resolution;
        }
    };
    for line in settings.lines() {
        match line.split_once(' ') {
            Some(("hostname", name)) => resolution.host_name = name.to_owned(),
            Some((key @ ("proxyjump" | "proxycommand"), value)) if value != "none" => {
                resolution.proxy = Some(format!("{key} {value}"));
            }
            _ => {}
        }
    }
    let (name, limit) = (&resolution.host_name, options.connect_timeout);
    let is_stopped = || options.stop.load(Ordering::Relaxed) != 0;
    resolution.addresses = remote::addresses(name, 0, limit, is_stopped)
        .map(|addresses| addresses.iter().map(SocketAddr::ip).collect())
        .map_err(|error| error.to_string());
    resolution
}
