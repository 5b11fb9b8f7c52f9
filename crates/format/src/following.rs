//! What was done to a file and is still to be told to its plugins: the value of [`crate::Key::follow`], one for each file.
//!
//! Several events of a file are one value, so the list is never longer than there are files (and files that were removed). Invariant:
//! each event is in it once, in the order in which each was last.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// What waits for a file's plugins.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FollowValue {
    /// Tried so often that nobody tries again before something new is done to the file, or somebody asks for it.
    pub is_given_up: bool,
    /// Times that it was tried and failed.
    pub failures: u8,
    /// The numbers of the events, in their order.
    pub events: Vec<u8>,
    /// The stack of plugins that the file had.
    pub stack: u16,
    /// Whose the file was.
    pub user: u32,
    pub group: u32,
    /// Grows with each event that is added: who served it can tell whether more came meanwhile.
    pub number: u64,
    /// Since when it waits, in seconds since 1970.
    pub since_seconds: i64,
    /// When it is tried next.
    pub next_seconds: i64,
    /// The name that the file had before it was renamed or removed; empty where that is not known, or not for everybody.
    pub old_name: Vec<u8>,
    /// Why it failed last.
    pub cause: String,
}

const GIVEN_UP: u8 = 1;

impl FollowValue {
    pub const VERSION: u8 = 1;
    /// Before the name.
    pub const FIXED_BYTES: usize = 48;
    pub const EVENTS_MAX: usize = 4;
    /// Numbers of events end here.
    pub const EVENT_END: u8 = 32;
    pub const NAME_BYTES_MAX: usize = 255;
    pub const CAUSE_BYTES_MAX: usize = 512;
    const STRUCTURE: &'static str = "what waits for plugins";

    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=Self::EVENTS_MAX).contains(&self.events.len()), "something was done, and each is told once");
        assert!(
            self.old_name.len() <= Self::NAME_BYTES_MAX && self.cause.len() <= Self::CAUSE_BYTES_MAX,
            "texts were cut"
        );
        let mut out = Vec::with_capacity(Self::FIXED_BYTES + self.old_name.len() + self.cause.len());
        let flags = if self.is_given_up { GIVEN_UP } else { 0 };
        out.extend_from_slice(&[Self::VERSION, flags, self.failures, self.events.len() as u8]);
        out.extend_from_slice(&self.events);
        out.put_zeros(Self::EVENTS_MAX - self.events.len());
        out.put_u16(self.stack);
        out.put_u16(self.cause.len() as u16);
        out.extend_from_slice(&[self.old_name.len() as u8, 0, 0, 0]);
        out.put_u32(self.user);
        out.put_u32(self.group);
        out.put_u64(self.number);
        out.put_u64(self.since_seconds as u64);
        out.put_u64(self.next_seconds as u64);
        assert_eq!(out.len(), Self::FIXED_BYTES, "the name begins where the page says");
        out.extend_from_slice(&self.old_name);
        out.extend_from_slice(self.cause.as_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [flags, failures, count] = reader.array()?;
        reader.check(flags & !GIVEN_UP == 0, "flags", u64::from(flags))?;
        let count = usize::from(count);
        reader.check((1..=Self::EVENTS_MAX).contains(&count), "count of events", count as u64)?;
        let places: [u8; Self::EVENTS_MAX] = reader.array()?;
        let (events, unused) = places.split_at(count);
        let is_possible = |at: usize| events[at] < Self::EVENT_END && !events[..at].contains(&events[at]);
        reader.check((0..count).all(is_possible), "events", u64::from(events[0]))?;
        reader.check(unused.iter().all(|byte| *byte == 0), "events behind the last", 1)?;
        let (stack, cause_bytes) = (reader.u16()?, usize::from(reader.u16()?));
        reader.check(stack >= 1, "stack", 0)?;
        reader.check(cause_bytes <= Self::CAUSE_BYTES_MAX, "length of the cause", cause_bytes as u64)?;
        let name_bytes = usize::from(reader.u8()?);
        reader.zeros(3)?;
        let (user, group, number) = (reader.u32()?, reader.u32()?, reader.u64()?);
        let (since_seconds, next_seconds) = (reader.u64()? as i64, reader.u64()? as i64);
        let old_name = reader.take(name_bytes)?.to_vec();
        let cause = reader.utf8(cause_bytes, "cause")?;
        reader.finish()?;
        let (events, is_given_up) = (events.to_vec(), flags & GIVEN_UP != 0);
        Ok(Self {
            is_given_up,
            failures,
            events,
            stack,
            user,
            group,
            number,
            since_seconds,
            next_seconds,
            old_name,
            cause,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_comes_back_as_it_was_and_what_is_impossible_is_refused() {
        let value = FollowValue {
            is_given_up: true,
            failures: 8,
            events: vec![4, 5],
            stack: 3,
            user: 1000,
            group: 100,
            number: 7,
            since_seconds: -1,
            next_seconds: 1 << 33,
            old_name: b"old\xff".to_vec(),
            cause: "it trapped".into(),
        };
        let bytes = value.encode();
        assert_eq!(FollowValue::decode(&bytes).unwrap(), value);
        assert!(FollowValue::decode(&[&bytes[..], b"x"].concat()).is_err());
        let wrongs =
            [(0, 2), (1, 2), (3, 0), (3, 5), (3, 1), (4, 5), (4, 32), (7, 1), (8, 0), (11, 3), (13, 1), (52, 0xff)];
        for (at, wrong) in wrongs {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(FollowValue::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
