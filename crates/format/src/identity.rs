//! Who is who: pools and devices have 16-byte random ids (UUIDs); within a pool a device is a small index.

use std::fmt;

/// Identity of a pool, drawn when it is created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PoolId(pub [u8; 16]);

/// Identity of a device, drawn when it joins a pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DeviceId(pub [u8; 16]);

/// Place of a device in the pool's device table.
pub type DeviceIndex = u16;

fn write_uuid(id: &[u8; 16], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, byte) in id.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            formatter.write_str("-")?;
        }
        write!(formatter, "{byte:02x}")?;
    }
    Ok(())
}

impl fmt::Display for PoolId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, formatter)
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, formatter)
    }
}

/// The form in which it is shown.
impl std::str::FromStr for PoolId {
    type Err = NoId;

    fn from_str(text: &str) -> Result<PoolId, NoId> {
        let digits: String = text.chars().filter(|character| *character != '-').collect();
        let id = PoolId(from_hexadecimal(&digits).ok_or(NoId)?);
        if id.to_string() == text { Ok(id) } else { Err(NoId) }
    }
}

/// A text is no id as ids are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoId;

impl fmt::Display for DeviceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, formatter)
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_uuid(&self.0, formatter)
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hexadecimal(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
