//! What DGL 0.5 to 2.4 writes for a partitioned graph: the config, its maps from ids to parts, and
//! the headers of graphs and features; and which host gets which file.

pub mod config;
pub mod files;
pub mod format;
pub mod maps;
pub mod npy;

pub use config::{Outline, PartConfig, path_ends};
