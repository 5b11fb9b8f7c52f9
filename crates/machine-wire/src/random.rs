//! Random bytes for nonces and sessions.

/// So many random bytes of the machine.
///
/// # Errors
/// Where the machine gives none.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}
