//! Who a process is, as the machine that has the pool mounted tells: the core asks no machine itself.

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// When it was started, in the machine's own count: tells processes of one number apart.
    pub started: u64,
    /// The path of what it runs; empty where that is not known.
    pub executable: Vec<u8>,
    /// Its command with the arguments, a zero byte behind each.
    pub command: Vec<u8>,
}

/// Who knows processes.
pub trait Processes: std::fmt::Debug + Send + Sync {
    /// The process that has a task of this number now.
    fn process(&self, task: u32) -> Option<Process>;
}
