//! What this machine and its processes are, without a decision about them.
//!
//! [`procfs`] and [`netlink`] read what the kernel reports; [`processes`] and [`job_processes`]
//! find the processes of jobs, [`shm`] DGL's files in /dev/shm, [`nvidia`] the GPUs. [`command`]
//! asks a program, [`abstract_socket`] a process of this machine; [`executable`] finds why the
//! kernel does not run a file.

pub mod abstract_socket;
pub mod command;
pub mod describe;
pub mod executable;
pub mod home;
pub mod inherited;
pub mod job_processes;
pub mod netlink;
pub mod nvidia;
pub mod open_files;
pub mod panic;
pub mod processes;
pub mod procfs;
pub mod readiness;
pub mod shm;
pub mod side_thread;
