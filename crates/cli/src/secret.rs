//! Passphrases and key files: from a file, or typed.

use std::io::{BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::arguments::SecretArguments;
use stere_control::secret::{SentSecret, key_file, read};
use stere_machine::error::{Error, Result, refused};

/// What the arguments say, else what is typed. A new passphrase is typed twice.
pub fn gather(arguments: &SecretArguments, prompt: &str, is_new: bool) -> Result<SentSecret> {
    if let Some(path) = &arguments.key_file {
        return key_file(path);
    }
    let mut bytes = match &arguments.passphrase_file {
        Some(path) => read(path)?,
        None => typed(prompt, is_new)?,
    };
    // As editors and echo leave it.
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(SentSecret::passphrase(bytes))
}

fn typed(prompt: &str, is_new: bool) -> Result<Vec<u8>> {
    if !std::io::stdin().is_terminal() {
        return line();
    }
    let first = Zeroizing::new(unseen(prompt)?);
    if is_new && *Zeroizing::new(unseen("the same again")?) != *first {
        return refused("the passphrases differ; try again");
    }
    Ok(first.to_vec())
}

fn line() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_until(b'\n', &mut bytes).map_err(Error::System)?;
    Ok(bytes)
}

/// A line that is not shown while it is typed.
fn unseen(prompt: &str) -> Result<Vec<u8>> {
    let system = |error: rustix::io::Errno| Error::System(error.into());
    eprint!("{prompt}: ");
    // A prompt that cannot be shown stops nobody.
    drop(std::io::stderr().flush());
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).map_err(system)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).map_err(system)?;
    let typed = line();
    let restored = tcsetattr(&stdin, OptionalActions::Now, &before).map_err(system);
    eprintln!();
    restored.and(typed)
}
