//! What DGL 0.5 to 2.4 writes for a partitioned graph: the config, its maps from ids to parts, and
//! the headers of graphs and features.

pub mod config;
pub mod dgl_file;
pub mod maps;

pub use config::{Outline, PartConfig};
