//! Counts lines, words and bytes of every file after it was changed, as wc(1) does, and notes them in `user.plugin.words`, where they
//! can be looked up without anybody reading the files again. With the parameter `deny=TEXT` it refuses files that begin with TEXT, which
//! shows what becomes of a plugin that fails.

use stere_sdk::{Event, EventKind, Follower};

#[derive(Default)]
struct Words {
    lines: u64,
    words: u64,
    bytes: u64,
    is_within_word: bool,
    denied: Option<String>,
    start: Vec<u8>,
}

impl Follower for Words {
    const EVENTS: &'static [EventKind] = &[EventKind::Create, EventKind::Close];

    fn begin(parameters: &str, _event: &Event<'_>) -> Result<Option<Self>, String> {
        let denied = parameters.strip_prefix("deny=").map(str::to_owned);
        Ok(Some(Words { denied, ..Words::default() }))
    }

    fn content(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        for byte in bytes {
            let is_space = byte.is_ascii_whitespace();
            self.words += u64::from(!is_space && !self.is_within_word);
            self.is_within_word = !is_space;
            self.lines += u64::from(*byte == b'\n');
        }
        if self.denied.is_some() && self.start.len() < 256 {
            self.start.extend_from_slice(&bytes[..bytes.len().min(256)]);
        }
    }

    fn end(self) -> Result<Option<Vec<u8>>, String> {
        if let Some(denied) = self.denied.filter(|denied| self.start.starts_with(denied.as_bytes())) {
            return Err(format!("files that begin with '{denied}' are not counted"));
        }
        Ok(Some(format!("{} {} {}", self.lines, self.words, self.bytes).into_bytes()))
    }
}

stere_sdk::plugin!(follower: Words);
