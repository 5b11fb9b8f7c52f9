//! The log of what was begun and done, as lines of text, and the model of a folder that they add up to.

use std::collections::BTreeMap;
use std::fmt;

use crate::pattern::BLOCK_SIZE;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Create {
        file: u64,
        length: u64,
        generation: u64,
    },
    /// Written beside it, synced, renamed over it.
    Replace {
        file: u64,
        length: u64,
        generation: u64,
    },
    Append {
        file: u64,
        length: u64,
        generation: u64,
    },
    Overwrite {
        file: u64,
        first_block: u64,
        blocks: u64,
        generation: u64,
    },
    Unlink {
        file: u64,
    },
}

impl Change {
    pub fn file(&self) -> u64 {
        match *self {
            Change::Create { file, .. } | Change::Replace { file, .. } | Change::Append { file, .. } => file,
            Change::Overwrite { file, .. } | Change::Unlink { file } => file,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    Begin { thread: u64, change: Change },
    Done { thread: u64 },
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Done { thread } => write!(out, "done {thread}"),
            Line::Begin { thread, change } => match change {
                Change::Create { file, length, generation } => {
                    write!(out, "begin {thread} create {file} {length} {generation}")
                }
                Change::Replace { file, length, generation } => {
                    write!(out, "begin {thread} replace {file} {length} {generation}")
                }
                Change::Append { file, length, generation } => {
                    write!(out, "begin {thread} append {file} {length} {generation}")
                }
                Change::Overwrite { file, first_block, blocks, generation } => {
                    write!(out, "begin {thread} overwrite {file} {first_block} {blocks} {generation}")
                }
                Change::Unlink { file } => write!(out, "begin {thread} unlink {file}"),
            },
        }
    }
}

impl Line {
    /// None for a line that is not one of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let kind = words.get(2).copied().unwrap_or_default();
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        let thread = number(1)?;
        if words[0] == "done" {
            return Some(Line::Done { thread });
        }
        let file = number(3)?;
        let change = match kind {
            "create" => Change::Create { file, length: number(4)?, generation: number(5)? },
            "replace" => Change::Replace { file, length: number(4)?, generation: number(5)? },
            "append" => Change::Append { file, length: number(4)?, generation: number(5)? },
            "overwrite" => {
                Change::Overwrite { file, first_block: number(4)?, blocks: number(5)?, generation: number(6)? }
            }
            "unlink" => Change::Unlink { file },
            _ => return None,
        };
        Some(Line::Begin { thread, change })
    }
}

/// What a file holds: its length, and the generation of each block of 4 KiB, the last perhaps cut off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    pub length: u64,
    pub generations: Vec<u64>,
}

/// What a writer's folder holds by what was done so far.
#[derive(Debug, Clone, Default)]
pub struct Folder {
    pub files: BTreeMap<u64, Contents>,
}

impl Folder {
    pub fn has(&self, file: u64) -> bool {
        self.files.contains_key(&file)
    }

    pub fn length(&self, file: u64) -> u64 {
        self.files.get(&file).map_or(0, |contents| contents.length)
    }

    pub fn blocks(&self, file: u64) -> Vec<u64> {
        self.files.get(&file).map(|contents| contents.generations.clone()).unwrap_or_default()
    }

    pub fn after(&self, change: &Change) -> Folder {
        let file = change.file();
        let mut folder = Folder { files: self.files.get(&file).map(|old| (file, old.clone())).into_iter().collect() };
        folder.apply(change);
        folder
    }

    pub fn apply(&mut self, change: &Change) {
        match *change {
            Change::Create { file, length, generation } | Change::Replace { file, length, generation } => {
                let generations = vec![generation; block_count(length)];
                self.files.insert(file, Contents { length, generations });
            }
            Change::Append { file, length, generation } => {
                let contents = self.files.entry(file).or_default();
                contents.length += length;
                contents.generations.resize(block_count(contents.length), generation);
            }
            Change::Overwrite { file, first_block, blocks, generation } => {
                if let Some(contents) = self.files.get_mut(&file) {
                    contents.generations[first_block as usize..(first_block + blocks) as usize].fill(generation);
                }
            }
            Change::Unlink { file } => {
                self.files.remove(&file);
            }
        }
    }
}

fn block_count(length: u64) -> usize {
    length.div_ceil(BLOCK_SIZE as u64) as usize
}

pub fn file_name(file: u64) -> String {
    format!("file-{file:03}")
}

/// The number that the content of a file carries: unlike in every thread.
pub fn content_number(thread: u64, file: u64) -> u64 {
    (thread + 1) << 32 | file
}
