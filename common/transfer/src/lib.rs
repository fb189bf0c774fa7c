//! The transfer of files between this machine and a host: what both ends do, in either direction.
//!
//! One end reads ([`source`]), the other writes ([`partial`]). Between them go blocks, each with
//! the checksum of its content ([`content`]). [`parts`] tells which parts of a file are present,
//! [`sums`] whether they equal those of the other end.

pub mod content;
pub mod partial;
pub mod parts;
pub mod source;
pub mod sums;

/// A resumed transfer begins and ends at a multiple of this, so that a block that was half written
/// is written again.
pub const GRAIN: u64 = 64 << 10;

/// An end that sends nothing for this long is taken for lost.
pub const SILENCE: std::time::Duration = std::time::Duration::from_secs(60);
/// How often each end sends a sign of life, whatever else it does.
pub const BEAT: std::time::Duration = std::time::Duration::from_secs(10);
