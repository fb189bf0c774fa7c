//! Jobs that outlive their launcher. [`launch`] starts one and leaves it to the keepers on its
//! hosts, and [`servers`] handles persistent graph servers, which are such jobs.

pub mod launch;
pub mod servers;
