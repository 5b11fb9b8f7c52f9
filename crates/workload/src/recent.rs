//! Where the last request of each recently used file ended, for telling sequential from random access.
//!
//! Invariants: the table has sixteen sets of four files and never grows; in a set, the file that was used longest ago gives way.
//! A file that is no longer there counts as one that is begun anew, not as a jump. Read next: `profile.rs`.

const SETS: usize = 16;
const WAYS: usize = 4;

/// How a request lies to the one before it in the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// The file was not used lately.
    First,
    /// It begins where the last one ended.
    None,
    /// It begins so many bytes after the end of the last one.
    Forward(u64),
    /// It begins so many bytes before the end of the last one.
    Backward(u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    file: u64,
    end: u64,
    is_used: bool,
}

/// A bounded table of files.
#[derive(Clone, Debug, Default)]
pub struct RecentFiles {
    /// In each set the file used last comes first.
    sets: [[Recent; WAYS]; SETS],
}

impl RecentFiles {
    /// Notes a request; `hash` is the file's, as `distinct.rs` mixes it.
    #[inline]
    pub fn note(&mut self, file: u64, hash: u64, offset: u64, length: u64) -> Jump {
        let set = &mut self.sets[hash as usize % SETS];
        let end = offset.saturating_add(length);
        let place = set.iter().position(|recent| recent.is_used && recent.file == file);
        let jump = match place {
            None => Jump::First,
            Some(place) => match set[place].end {
                last if last == offset => Jump::None,
                last if last < offset => Jump::Forward(offset - last),
                last => Jump::Backward(last - offset),
            },
        };
        let moved = place.unwrap_or(WAYS - 1);
        set.copy_within(0..moved, 1);
        set[0] = Recent { file, end, is_used: true };
        jump
    }
}

#[cfg(test)]
mod tests;
