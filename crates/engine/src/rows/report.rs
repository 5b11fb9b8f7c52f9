//! What looking through media found and did.

/// Content or metadata that could not be read rightly from what is there, nor be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub segment: u64,
    /// The blob, where it is content.
    pub blob: Option<u64>,
    /// The file, where one names the blob; several files that share it give an entry each.
    pub inode: Option<u64>,
    /// Bytes of the file; of the blob or of the segment's record where there is no file.
    pub offset: u64,
    pub length: u64,
}

/// What a part of scrubbing went through, found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Chunks that were looked at to their end.
    pub chunks_checked: u64,
    /// Bytes read from devices.
    pub bytes_checked: u64,
    /// Blocks that were bad and are right again.
    pub repaired_blocks: u64,
    /// Damage beyond repair.
    pub unrepairable: Vec<Damage>,
    /// Live bytes that cannot be read now because too many devices are away.
    pub unreachable_bytes: u64,
    /// Accounts that are not right, and other things a person should know.
    pub findings: Vec<String>,
}

impl ScrubReport {
    /// Whether nothing was found that is still so.
    pub fn is_clean(&self) -> bool {
        self.unrepairable.is_empty() && self.unreachable_bytes == 0 && self.findings.is_empty()
    }

    /// Takes another part's report into this one.
    pub fn add(&mut self, other: ScrubReport) {
        self.chunks_checked += other.chunks_checked;
        self.bytes_checked += other.bytes_checked;
        self.repaired_blocks += other.repaired_blocks;
        self.unrepairable.extend(other.unrepairable);
        self.unreachable_bytes += other.unreachable_bytes;
        self.findings.extend(other.findings);
    }
}
