//! Random tokens.

use std::io::Read as _;

/// 128 random bits in hexadecimal.
pub fn random_token() -> std::io::Result<String> {
    let mut bits = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}
