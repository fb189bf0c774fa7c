//! The system call in which a thread waits. The kernel reports it without stopping the thread, but
//! not while the thread computes.

use host::procfs;
use nix::libc;

/// A thread that waits in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Blocked {
    number: i64,
    stack_pointer: u64,
}

/// `None` if the thread computes, has ended or cannot be read.
pub fn of_thread(pid: i32, tid: u32) -> Option<String> {
    blocked(pid, tid)?.name(tid)
}

pub fn stack_pointers(pid: i32) -> Vec<(u32, u64)> {
    let threads = procfs::threads(pid).into_iter();
    threads
        .filter_map(|tid| Some((tid, blocked(pid, tid)?.stack_pointer)))
        .collect()
}

fn blocked(pid: i32, tid: u32) -> Option<Blocked> {
    parse(&procfs::of_thread(pid, tid, "syscall")?)
}

/// Parses `NUMBER SIX-ARGUMENTS STACK-POINTER PROGRAM-COUNTER`; `-1 STACK-POINTER PROGRAM-COUNTER`
/// if the thread waits outside of a call, for instance for a page of its memory; `running`.
fn parse(text: &str) -> Option<Blocked> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let number = words.first()?.parse().ok()?;
    let [.., stack_pointer, _] = words[..] else {
        return None;
    };
    let stack_pointer = u64::from_str_radix(stack_pointer.strip_prefix("0x")?, 16).ok()?;
    Some(Blocked {
        number,
        stack_pointer,
    })
}

impl Blocked {
    /// A call that cannot be interrupted waits for a disk or a file server, which the kernel's
    /// function identifies.
    fn name(&self, tid: u32) -> Option<String> {
        let name = match self.number {
            -1 => "none".to_owned(),
            number => known(number).map_or_else(|| format!("number {number}"), str::to_owned),
        };
        // /proc/TID has the state of the thread, not of its process
        let tid = tid.cast_signed();
        if procfs::stat(tid)?.state != 'D' {
            return Some(name);
        }
        let function = procfs::kernel_function(tid);
        let function = function.as_deref().unwrap_or("the kernel");
        Some(format!(
            "{name}, which cannot be interrupted, in {function}"
        ))
    }
}

macro_rules! calls {
    ($($(#[$only:meta])? $name:ident = $number:ident),+ $(,)?) => {
        fn known(number: i64) -> Option<&'static str> {
            $(
                $(#[$only])?
                if number == i64::from(libc::$number) {
                    return Some(stringify!($name));
                }
            )+
            None
        }
    };
}

calls! {
    accept = SYS_accept,
    accept4 = SYS_accept4,
    clock_nanosleep = SYS_clock_nanosleep,
    close = SYS_close,
    connect = SYS_connect,
    copy_file_range = SYS_copy_file_range,
    #[cfg(target_arch = "x86_64")] epoll_wait = SYS_epoll_wait,
    epoll_pwait = SYS_epoll_pwait,
    fallocate = SYS_fallocate,
    fcntl = SYS_fcntl,
    fdatasync = SYS_fdatasync,
    flock = SYS_flock,
    fsync = SYS_fsync,
    ftruncate = SYS_ftruncate,
    futex = SYS_futex,
    getdents64 = SYS_getdents64,
    io_getevents = SYS_io_getevents,
    io_uring_enter = SYS_io_uring_enter,
    ioctl = SYS_ioctl,
    mprotect = SYS_mprotect,
    msync = SYS_msync,
    munmap = SYS_munmap,
    nanosleep = SYS_nanosleep,
    #[cfg(target_arch = "x86_64")] open = SYS_open,
    openat = SYS_openat,
    #[cfg(target_arch = "x86_64")] pause = SYS_pause,
    #[cfg(target_arch = "x86_64")] poll = SYS_poll,
    ppoll = SYS_ppoll,
    pread64 = SYS_pread64,
    preadv = SYS_preadv,
    pselect6 = SYS_pselect6,
    pwrite64 = SYS_pwrite64,
    pwritev = SYS_pwritev,
    read = SYS_read,
    readv = SYS_readv,
    recvfrom = SYS_recvfrom,
    recvmmsg = SYS_recvmmsg,
    recvmsg = SYS_recvmsg,
    rt_sigsuspend = SYS_rt_sigsuspend,
    rt_sigtimedwait = SYS_rt_sigtimedwait,
    #[cfg(target_arch = "x86_64")] select = SYS_select,
    sendfile = SYS_sendfile,
    sendmmsg = SYS_sendmmsg,
    sendmsg = SYS_sendmsg,
    sendto = SYS_sendto,
    splice = SYS_splice,
    #[cfg(target_arch = "x86_64")] stat = SYS_stat,
    statx = SYS_statx,
    sync = SYS_sync,
    #[cfg(target_arch = "x86_64")] unlink = SYS_unlink,
    unlinkat = SYS_unlinkat,
    wait4 = SYS_wait4,
    waitid = SYS_waitid,
    write = SYS_write,
    writev = SYS_writev,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_thread() {
        let waits = "230 0x0 0x0 0x7f20 0x7f60 0x0 0x0 0x7fff749b6408 0x7fd88ba8a503\n";
        let blocked = |number, stack_pointer| {
            Some(Blocked {
                number,
                stack_pointer,
            })
        };
        let table = [
            (waits, blocked(230, 0x7fff_749b_6408)),
            ("-1 0x7f08 0x5603\n", blocked(-1, 0x7f08)),
            ("running\n", None),
            ("", None),
            ("202 0x1\n", None),
            ("202 x y\n", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert!((0..600).filter_map(known).any(|name| name == "futex"));
        assert_eq!(known(99_999), None);
    }
}
