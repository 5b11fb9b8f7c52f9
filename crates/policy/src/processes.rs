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

    /// What the program may be called that a task of this number runs: by what it runs, how it was called, and what it calls itself.
    /// A name that was cut is as long as the machine keeps any.
    fn names(&self, task: u32) -> Vec<Vec<u8>> {
        self.process(task).map_or_else(Vec::new, |process| names_of(&process))
    }
}

/// The last part of a path.
fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The names of a process by its executable and its command.
pub fn names_of(process: &Process) -> Vec<Vec<u8>> {
    let executable = process.executable.strip_suffix(b" (deleted)").unwrap_or(&process.executable);
    let called = process.command.split(|byte| *byte == 0).next().unwrap_or_default();
    // A shell that was logged in to has a hyphen before it.
    let called = base(called);
    let called = called.strip_prefix(b"-").unwrap_or(called);
    [base(executable), called].into_iter().filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

/// As many bytes Linux keeps of what a process calls itself.
const OWN_NAME_BYTES: usize = 15;

/// Whether a program of these names is meant by a name.
pub fn is_named(names: &[Vec<u8>], wanted: &str) -> bool {
    let wanted = wanted.as_bytes();
    let is_cut = |name: &Vec<u8>| name.len() == OWN_NAME_BYTES && wanted.starts_with(name);
    names.iter().any(|name| name == wanted || is_cut(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P-139: a program is known by what it runs, how it was called and what it calls itself; by nothing else.
    #[test]
    fn programs_are_known_by_their_names() {
        let process = |executable: &str, command: &str| Process {
            executable: executable.into(),
            command: command.as_bytes().to_vec(),
            ..Process::default()
        };
        let names = names_of(&process("/usr/bin/busybox", "/bin/file\0-b\0updatedb\0"));
        assert!(is_named(&names, "busybox") && is_named(&names, "file"));
        assert!(!is_named(&names, "updatedb") && !is_named(&names, "fil") && !is_named(&names, "bin"));
        assert!(is_named(&names_of(&process("/opt/indexer (deleted)", "")), "indexer"));
        assert!(is_named(&names_of(&process("", "-zsh\0")), "zsh"));
        // What Linux cut.
        assert!(is_named(&[b"tracker-extract".to_vec()], "tracker-extract-3"));
        assert!(!is_named(&[b"tracker".to_vec()], "tracker-extract-3"));
        assert!(names_of(&Process::default()).is_empty());
    }
}
