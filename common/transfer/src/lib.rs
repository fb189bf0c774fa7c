//! Files on their way between this machine and a host: what both ends do with them, whichever way
//! they go.
//!
//! One end reads ([`source`]), the other writes ([`partial`]); between them go blocks, each with
//! the sum of its content ([`content`]). [`parts`] says which of a file is there, [`sums`] whether
//! that is what the other end has.

pub mod content;
pub mod partial;
pub mod parts;
pub mod source;
pub mod sums;

/// What is resumed begins and ends at a multiple of this, so that a block that was half written is
/// written again.
pub const GRAIN: u64 = 64 << 10;

/// Without any word for so long, the other end is taken for gone.
pub const SILENCE: std::time::Duration = std::time::Duration::from_secs(60);
/// A word goes to the other end so often, whatever else is done.
pub const BEAT: std::time::Duration = std::time::Duration::from_secs(10);
