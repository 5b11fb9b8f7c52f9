//! Random bytes for nonces and sessions.

/// So many random bytes of the machine.
///
/// # Errors
/// Where the machine gives none.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // As words: its error is one of the standard library only with a feature that not every build has.
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(bytes)
}
