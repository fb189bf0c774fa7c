//! Jobs that outlive their launcher. [`launch`] starts one and leaves it to the keepers on its
//! hosts, [`attach`] goes back to it, and [`servers`] are jobs of that kind that others use. What
//! happens to such a job is followed by the loop of attached jobs.

mod answers;
pub mod attach;
pub mod launch;
pub mod servers;
