//! How large the records of a file are at most: the pieces that are compressed, encrypted and verified each on its own.
//!
//! On media a byte: 0 nothing said, 1 is 4 KiB, and each one more is twice as much, up to 9, which is 1 MiB.

/// What a policy says about records. Only what can be on media can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordSize(u8);

const CODE_MAX: u8 = 9;
const SHIFT: u8 = 11;
const _: () = assert!(1 << (CODE_MAX + SHIFT) == 1 << 20, "the largest records have 1 MiB");

impl RecordSize {
    /// Where nobody says anything: 128 KiB.
    pub const USUAL: RecordSize = RecordSize(6);

    /// The byte on media.
    pub fn code(self) -> u8 {
        self.0
    }

    /// What a byte from media says; nothing if it is 0 or unknown.
    pub fn from_code(code: u8) -> Option<RecordSize> {
        (1..=CODE_MAX).contains(&code).then_some(RecordSize(code))
    }

    /// How many bytes that are.
    #[inline]
    pub fn bytes(self) -> u64 {
        assert!((1..=CODE_MAX).contains(&self.0), "{} is no size of records", self.0);
        1 << (self.0 + SHIFT)
    }

    /// What a user wrote: a number of bytes, or one with K or M behind it.
    pub fn from_text(text: &str) -> Option<RecordSize> {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let shift = match unit {
            "" => 0,
            "K" | "k" | "KiB" => 10,
            "M" | "m" | "MiB" => 20,
            _ => return None,
        };
        let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
        (1..=CODE_MAX).map(RecordSize).find(|size| size.bytes() == bytes)
    }

    /// As users write it.
    pub fn text(self) -> String {
        let text = match self.bytes() >> 10 {
            1024 => "1M".into(),
            kib => format!("{kib}K"),
        };
        assert_eq!(RecordSize::from_text(&text), Some(self), "what is shown is read again");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_from_4k_to_1m() {
        for (text, meant, bytes) in
            [("4K", "4K", 4096), ("16384", "16K", 16384), ("128KiB", "128K", 131_072), ("1024k", "1M", 1 << 20)]
        {
            let size = RecordSize::from_text(text).unwrap();
            assert_eq!((size.text().as_str(), size.bytes()), (meant, bytes));
            assert_eq!(RecordSize::from_text(meant), Some(size));
            assert_eq!(RecordSize::from_code(size.code()), Some(size));
        }
        assert_eq!(RecordSize::USUAL.bytes(), 128 << 10);
        for text in ["", "0", "K", "2K", "6K", "2M", "-4K", "4.0K", "4KB", "99999999999999999999M"] {
            assert_eq!(RecordSize::from_text(text), None, "{text}");
        }
        assert!(RecordSize::from_code(0).is_none() && RecordSize::from_code(10).is_none());
    }
}
