//! Jobs that outlive their launcher. [`launch`] starts one and leaves it to the keepers on its
//! hosts, [`attach`] returns to it, and [`servers`] handles persistent graph servers, which are
//! such jobs. The event loop of attached jobs follows them too.

pub mod attach;
pub mod launch;
pub mod servers;
