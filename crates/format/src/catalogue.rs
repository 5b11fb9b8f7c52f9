//! Catalogues of tertiary volumes: lines of JSON, each with its checksum as its last field.
//!
//! What is in the lines is for who writes and reads them; here is only which of them are as they were written. Catalogues from before
//! lines had checksums have none in any line, and are believed as they are. `docs/format/volume.md` has it.

use crate::checksum::crc32c;
use crate::error::DecodeError;

const STRUCTURE: &str = "line of a catalogue";
const FIELD: &[u8] = b",\"crc32c\":\"";
const DIGITS: usize = 8;
const END: &[u8] = b"\"}";

/// Gives a JSON object that has fields its checksum, that of all bytes before the field.
pub fn seal_catalogue_line(line: &mut Vec<u8>) {
    assert!(line.pop() == Some(b'}') && line.len() > 1, "a line of a catalogue is a JSON object");
    let sum = crc32c(line);
    line.extend_from_slice(FIELD);
    line.extend_from_slice(format!("{sum:08x}").as_bytes());
    line.extend_from_slice(END);
}

/// The checksum that a line should have, and the one it has; none if it tells none.
pub(crate) fn checksums(line: &[u8]) -> Option<(u32, u32)> {
    let start = line.len().checked_sub(FIELD.len() + DIGITS + END.len())?;
    let (body, rest) = line.split_at(start);
    let digits = rest.strip_prefix(FIELD)?.strip_suffix(END)?;
    let is_plain = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let told = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| is_plain)?;
    Some((crc32c(body), told))
}

/// The lines of a catalogue, each as it was written or an error.
pub fn catalogue_lines(catalogue: &[u8]) -> impl Iterator<Item = Result<&[u8], DecodeError>> {
    let lines = || catalogue.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let is_sealed = lines().any(|line| checksums(line).is_some());
    lines().map(move |line| match checksums(line) {
        Some((computed, stored)) if computed != stored => {
            Err(DecodeError::Checksum { structure: STRUCTURE, stored, computed })
        }
        None if is_sealed => Err(DecodeError::OutOfRange { structure: STRUCTURE, field: "checksum", value: 0 }),
        _ => Ok(line),
    })
}

#[cfg(test)]
mod tests;
