//! A /dev/shm of the job's own, in a mount namespace, and for an ordinary user in a user namespace
//! around it, in which the uid stays the same. It disappears with the last process that sees it.

#![expect(clippy::disallowed_methods, reason = "files of /proc")]

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use std::fs;

/// Gives this process and its descendants a /dev/shm of their own. The process must have only one
/// thread.
pub fn make_shm() -> Result<(), String> {
    let (uid, gid) = (geteuid(), getegid());
    let step = |what: &'static str| {
        move |error: nix::Error| match error {
            nix::Error::EPERM => format!("not permitted ({what})"),
            other => format!("{what}: {}", other.desc()),
        }
    };
    if uid.is_root() {
        unshare(CloneFlags::CLONE_NEWNS).map_err(step("unshare"))?;
    } else {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUSER).map_err(step("unshare"))?;
        let write = |file: &str, text: String| {
            fs::write(format!("/proc/self/{file}"), text)
                .map_err(|error| format!("{file}: {error}"))
        };
        // the kernel lets a user map a group only after giving up setgroups
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{uid} {uid} 1"))?;
        write("gid_map", format!("{gid} {gid} 1"))?;
    }
    // a slave still sees later mounts of the host, such as homes by autofs
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_SLAVE,
        None::<&str>,
    )
    .map_err(step("mount"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("shm"),
        "/dev/shm",
        Some("tmpfs"),
        flags,
        Some("mode=1777"),
    )
    .map_err(step("mount /dev/shm"))
}
