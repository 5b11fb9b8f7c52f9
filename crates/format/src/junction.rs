//! A junction: a directory at which another pool is mounted on every machine. The value of [`crate::Key::junction`].
//!
//! Invariant: the other pool has a name, an id that is not zero, and at least one place where it is found. Read next:
//! `docs/design/cluster.md`, "Several owners".

use crate::error::DecodeError;
use crate::identity::PoolId;
use crate::wire::{Reader, Writer};

/// Which pool is mounted at a directory, and where it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JunctionValue {
    pub pool: PoolId,
    /// How the pool is called.
    pub pool_name: String,
    /// Addresses of devices that mean the same on every machine, some with the pool's metadata.
    pub places: Vec<String>,
}

impl JunctionValue {
    pub const VERSION: u8 = 1;
    /// Before the texts.
    pub const FIXED_BYTES: usize = 20;
    pub const PLACES_MAX: usize = 8;
    pub const PLACE_BYTES_MAX: usize = 255;
    const STRUCTURE: &'static str = "junction";

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [count]: [u8; 1] = reader.array()?;
        reader.check((1..=Self::PLACES_MAX).contains(&usize::from(count)), "number of places", u64::from(count))?;
        reader.zeros(2)?;
        let pool = PoolId(reader.array()?);
        reader.check(pool.0 != [0; 16], "pool id", 0)?;
        let pool_name = reader.text("pool name")?;
        reader.check(crate::is_pool_name(&pool_name), "pool name", pool_name.len() as u64)?;
        let mut places = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let place = reader.text("place")?;
            reader.check(!place.is_empty(), "place", 0)?;
            places.push(place);
        }
        reader.finish()?;
        Ok(Self { pool, pool_name, places })
    }

    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=Self::PLACES_MAX).contains(&self.places.len()), "refused before it gets here");
        assert!(crate::is_pool_name(&self.pool_name), "the name of a pool was checked");
        let mut out = vec![Self::VERSION, self.places.len() as u8, 0, 0];
        out.extend_from_slice(&self.pool.0);
        assert_eq!(out.len(), Self::FIXED_BYTES, "the texts begin where the page says");
        out.put_text(&self.pool_name, 255);
        for place in &self.places {
            assert!((1..=Self::PLACE_BYTES_MAX).contains(&place.len()), "a place of {} bytes", place.len());
            out.put_text(place, Self::PLACE_BYTES_MAX);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junctions_come_back_as_they_were_and_what_is_impossible_is_refused() {
        let places = vec!["stere://10.0.0.1/films".to_owned(), "nbd://10.0.0.2:10809".to_owned()];
        let value = JunctionValue { pool: PoolId([7; 16]), pool_name: "lab-films".into(), places };
        let bytes = value.encode();
        assert_eq!(JunctionValue::decode(&bytes).unwrap(), value);
        assert!(JunctionValue::decode(&[&bytes[..], b"x"].concat()).is_err());
        // Version, no place, one more place, reserved bytes, a name with a slash, an empty place.
        for (at, wrong) in [(0, 2), (1, 0), (1, 9), (2, 1), (3, 1), (21, b'/'), (30, 0)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(JunctionValue::decode(&bytes).is_err(), "byte {at}");
        }
        let mut nobodys = bytes;
        nobodys[4..20].fill(0);
        assert!(JunctionValue::decode(&nobodys).is_err(), "a pool without an id");
    }
}
