//! How many data and parity chunks a segment has: `1+0` single, `1+1` two copies, `4+1`, `4+2`, ...

use crate::WIDTH_MAX;
use crate::error::DecodeError;
use std::fmt;

/// k data + m parity chunks; k = 1 is copying. Invariant once decoded or made by [`Scheme::new`]: k >= 1, k+m <= 32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scheme {
    pub data: u8,
    pub parity: u8,
}

impl Scheme {
    pub const SIZE: usize = 2;

    pub const fn new(data: u8, parity: u8) -> Option<Self> {
        let scheme = Self { data, parity };
        if scheme.is_possible() { Some(scheme) } else { None }
    }

    /// A single copy, or `copies` whole copies.
    pub const fn copies(copies: u8) -> Option<Self> {
        if copies == 0 { None } else { Self::new(1, copies - 1) }
    }

    pub const fn is_possible(self) -> bool {
        self.data >= 1 && self.width() <= WIDTH_MAX
    }

    pub const fn width(self) -> usize {
        self.data as usize + self.parity as usize
    }

    /// How many devices may be lost.
    pub const fn survives(self) -> usize {
        self.parity as usize
    }

    pub(crate) fn from_parts(structure: &'static str, data: u8, parity: u8) -> Result<Self, DecodeError> {
        let value = u64::from(data) << 8 | u64::from(parity);
        Self::new(data, parity).ok_or(DecodeError::OutOfRange { structure, field: "scheme", value })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}+{}", self.data, self.parity)
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
