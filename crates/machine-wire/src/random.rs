//! Random bytes for nonces and sessions.

use std::fs::File;
use std::io::Read;

/// So many random bytes of the machine.
///
/// # Errors
/// Where the machine gives none.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
