//! A private /dev/shm of a job, in a mount namespace; an ordinary user needs a user namespace
//! around it, which keeps the uid. Both disappear with the last process in them.

#![expect(clippy::disallowed_methods, reason = "files of /proc")]

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use std::fs;

/// Gives this process, which must have only one thread, and its descendants a private /dev/shm.
pub fn make_shm() -> Result<(), String> {
    let (uid, gid) = (geteuid(), getegid());
    let failed = |step: &'static str| {
        move |error: nix::Error| match error {
            nix::Error::EPERM => format!("not permitted ({step})"),
            other => format!("{step}: {}", other.desc()),
        }
    };
    if uid.is_root() {
        unshare(CloneFlags::CLONE_NEWNS).map_err(failed("unshare"))?;
    } else {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUSER).map_err(failed("unshare"))?;
        let write = |file: &str, text: String| {
            fs::write(format!("/proc/self/{file}"), text)
                .map_err(|error| format!("{file}: {error}"))
        };
        // the kernel lets a user map a group only after giving up setgroups
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{uid} {uid} 1"))?;
        write("gid_map", format!("{gid} {gid} 1"))?;
    }
    // a slave mount still sees later mounts of the host, such as homes by autofs
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_SLAVE,
        None::<&str>,
    )
    .map_err(failed("mount"))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("shm"),
        "/dev/shm",
        Some("tmpfs"),
        flags,
        Some("mode=1777"),
    )
    .map_err(failed("mount /dev/shm"))
}
