//! What of owners, set-id bits and device nodes is restored: what comes from media was perhaps made by somebody who wants to be root here, so it is
//! restored only if it is asked for.

use crate::arguments::preserve::Preserve;

/// The same, put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserved {
    pub owners: bool,
    pub setid: bool,
    pub devices: bool,
}

const SET_ID: u32 = 0o6000;

impl Preserved {
    pub fn of(words: &[Preserve]) -> Preserved {
        let has = |word| words.contains(&word) || words.contains(&Preserve::All);
        Preserved { owners: has(Preserve::Owners), setid: has(Preserve::Setid), devices: has(Preserve::Devices) }
    }

    /// Of a mode what is restored.
    pub fn mode(self, mode: u32) -> u32 {
        mode & if self.setid { 0o7777 } else { 0o7777 & !SET_ID }
    }

    /// Whether a mode loses something.
    pub fn cuts(self, mode: u32) -> bool {
        !self.setid && mode & SET_ID != 0
    }

    /// Whether an extended attribute is restored.
    pub fn keeps(self, attribute: &[u8]) -> bool {
        match attribute.split(|byte| *byte == b'.').next() {
            Some(b"user") => true,
            Some(b"system") => self.owners,
            _ => self.setid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_gives_rights_is_restored_unasked() {
        let none = Preserved::of(&[]);
        assert_eq!((none.mode(0o106_755), none.mode(0o41_777)), (0o755, 0o1777));
        assert!(none.cuts(0o104_755) && none.cuts(0o102_755) && !none.cuts(0o100_755));
        let kept = |what: Preserved| {
            [
                &b"user.x"[..],
                b"system.posix_acl_access",
                b"security.capability",
                b"trusted.stere.copies",
                b"",
                b"strange",
            ]
            .map(|name| what.keeps(name))
        };
        assert_eq!(kept(none), [true, false, false, false, false, false]);
        assert_eq!(kept(Preserved::of(&[Preserve::Owners])), [true, true, false, false, false, false]);
        assert_eq!(kept(Preserved::of(&[Preserve::All])), [true; 6]);
        assert_eq!(Preserved::of(&[Preserve::Setid]).mode(0o106_755), 0o6755);
    }
}
