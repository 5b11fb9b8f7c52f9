//! Media of one machine that the owner on another machine uses: who serves them, and what is asked of them.
//!
//! A machine begins a conversation with [`Request::ServeMedia`](crate::message::Request) and then answers calls, in any order, until its end:
//! the owner sends an [`Ask`] a line, the machine a [`Told`] or several, the last of which is not a piece. Bytes are base64, and a line has no
//! more than [`LINE_CONTENT_BYTES`] of them. A machine
//! serves places that it remembers as its own, and no other. Read next: `crates/online/src/far_media.rs` (the owner),
//! `crates/daemon/src/client_media.rs` (the machine), `docs/design/machines.md`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use stere_device::VolumeError;

use crate::tier::report::CartridgeReport;

/// Content on its way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD_NO_PAD.encode(&self.0))
    }
}

impl<'a> Deserialize<'a> for Bytes {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Bytes, D::Error> {
        from.deserialize_str(Decoder)
    }
}

/// Decodes where the text lies.
struct Decoder;

impl de::Visitor<'_> for Decoder {
    type Value = Bytes;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("bytes as base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
        STANDARD_NO_PAD.decode(text).map(Bytes).map_err(E::custom)
    }
}

/// No more of an object is in one line: lines are passed on whole, so shorter ones overlap on their way.
pub const LINE_CONTENT_BYTES: usize = 128 << 10;

/// What is asked of a medium: the calls of a `Volume`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// The machine is known from here on; nothing is answered.
    Begin,
    /// Of an object that comes with the same number and is answered then.
    PutPart {
        bytes: Bytes,
    },
    Put {
        object: String,
        bytes: Bytes,
    },
    Get {
        object: String,
        offset: u64,
        length: u64,
    },
    /// In pieces, as they arrive.
    Stream {
        object: String,
        offset: u64,
        length: u64,
    },
    Length {
        object: String,
    },
    Delete {
        object: String,
    },
    List {
        prefix: String,
    },
    Media,
    FreeBytes,
    Estimate {
        object: String,
    },
    BeginsAt {
        object: String,
        offset: u64,
    },
    Close,
    /// Nobody wants the answer to this call any more.
    GiveUp {
        of: u64,
    },
}

/// A call of a medium at a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub number: u64,
    pub place: String,
    pub call: Call,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Done,
    /// More follows.
    Piece(Bytes),
    Bytes(Bytes),
    /// Of a length, of free bytes, or where reading begins.
    Number(Option<u64>),
    List(Vec<(String, u64)>),
    Media(Vec<CartridgeReport>),
    /// On which medium an object is, and the milliseconds to get there.
    Estimate(Option<(String, u64)>),
    Failed(#[serde(with = "Failure")] VolumeError),
}

/// An answer to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub number: u64,
    pub reply: Reply,
}

/// How a [`VolumeError`] is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "VolumeError", rename_all = "snake_case")]
pub enum Failure {
    Away { volume: String, why: String },
    NoObject { volume: String, object: String },
    Short { volume: String, object: String, length: u64, needed: u64 },
    Damaged { volume: String, object: String, why: String },
    Full { volume: String },
    Stranger { volume: String, found: String },
    GivenUp { volume: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_answers_are_lines() {
        let calls = [
            Call::Put { object: "a".into(), bytes: Bytes(vec![0, 10, 255]) },
            Call::Stream { object: "a".into(), offset: 3, length: 1 << 40 },
            Call::GiveUp { of: 7 },
        ];
        for call in calls {
            let ask = Ask { number: u64::MAX, place: "dir:/m,host=n".into(), call };
            let line = serde_json::to_string(&ask).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Ask>(&line).unwrap(), ask);
        }
        let error = VolumeError::Short { volume: "v".into(), object: "o".into(), length: 1, needed: 2 };
        for reply in [
            Reply::Done,
            Reply::Piece(Bytes(b"x".repeat(1000))),
            Reply::Number(None),
            Reply::Estimate(Some(("L00001".into(), 90_000))),
            Reply::Failed(error),
        ] {
            let told = Told { number: 1, reply };
            let line = serde_json::to_string(&told).unwrap();
            assert_eq!(serde_json::from_str::<Told>(&line).unwrap(), told);
        }
        assert!(serde_json::from_str::<Bytes>("\"no base64 !\"").is_err());
    }
}
