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
