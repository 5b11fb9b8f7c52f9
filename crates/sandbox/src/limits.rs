//! What a plugin may use.

/// Bounds for every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a module.
    pub module_bytes: usize,
    /// Bytes of an instance's memory.
    pub memory_bytes: usize,
    /// Entries of its table.
    pub table_entries: usize,
    /// Bytes of its stack.
    pub stack_bytes: usize,
    /// Steps of every call; a step is about an instruction.
    pub steps: u64,
    /// And so many more for each byte that it is given.
    pub steps_per_byte: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            module_bytes: 1 << 20,
            memory_bytes: 64 << 20,
            table_entries: 10_000,
            stack_bytes: 256 << 10,
            steps: 20_000_000,
            steps_per_byte: 4_000,
        }
    }
}

impl Limits {
    /// What a call with so many bytes may take.
    pub(crate) fn fuel(&self, bytes: usize) -> u64 {
        self.steps.saturating_add(self.steps_per_byte.saturating_mul(bytes as u64))
    }
}
