//! Faults on demand, for tests of whole mounts: a device that fails or becomes slow while it is in use.
//!
//! Only in a process that was started with `STERE_TEST_FAULTS` set, and then told by files beside the image: `IMAGE.fail` holds the
//! words of what fails (`read`, `write`, `flush`), `IMAGE.slow` how many milliseconds everything takes longer. While `IMAGE.hang` is there,
//! reads that others make for the device never end, nor what its words name (`read`, `write`, `flush`) before it is gone.

use crate::error::Operation;
use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Faults {
    fail: PathBuf,
    slow: PathBuf,
    hang: PathBuf,
    /// Two ends of which nobody writes to one.
    never: Option<(UnixStream, UnixStream)>,
}

impl Faults {
    pub(super) fn of(path: &Path) -> Option<Faults> {
        std::env::var_os("STERE_TEST_FAULTS").map(|_| Faults::beside(path))
    }

    /// Faults of the device at this path, whatever the environment says.
    pub(super) fn beside(path: &Path) -> Faults {
        let beside = |extension: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(extension);
            PathBuf::from(name)
        };
        Faults { fail: beside(".fail"), slow: beside(".slow"), hang: beside(".hang"), never: UnixStream::pair().ok() }
    }

    pub(super) fn hangs(&self) -> bool {
        self.hang.exists()
    }

    /// What a read of never ends.
    pub(super) fn never(&self) -> Option<BorrowedFd<'_>> {
        self.never.as_ref().map(|(read, _)| read.as_fd())
    }

    /// Takes as long as it shall, then fails if it shall.
    pub(super) fn strike(&self, operation: Operation) -> Result<()> {
        let slow = std::fs::read_to_string(&self.slow).ok().and_then(|text| text.trim().parse().ok());
        std::thread::sleep(Duration::from_millis(slow.unwrap_or(0)));
        let word = operation.to_string();
        let has_word = |text: String| text.split_whitespace().any(|hanging| hanging == word);
        while std::fs::read_to_string(&self.hang).is_ok_and(has_word) {
            std::thread::sleep(Duration::from_millis(20));
        }
        match std::fs::read_to_string(&self.fail) {
            Ok(words) if words.split_whitespace().any(|failing| failing == word) => {
                Err(std::io::Error::from_raw_os_error(libc::EIO))
            }
            _ => Ok(()),
        }
    }
}
