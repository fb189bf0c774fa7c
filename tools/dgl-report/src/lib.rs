//! From the records of a run to a page to look at: values to values.

pub mod args;
pub mod page;
pub mod plan;
