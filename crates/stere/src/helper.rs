//! What mount(8) calls for a line of type `stere` in fstab: `mount.stere SPEC DIR [-sfnv] [-o OPTIONS]`.
//!
//! Its exit codes are those of mount(8): 0 mounted, 1 wrong usage, 32 the mount failed.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use stere_daemon::mount;
use stere_daemon::mount_request::MountRequest;
use stere_daemon::remount;
use stere_machine::error::Result;
use stere_machine::registry::Registry;

const MOUNT_FAILED: u8 = 32;

const WRONG_USAGE: u8 = 1;

pub fn is_mount_helper(arguments: &[OsString]) -> bool {
    let name = arguments.first().and_then(|name| Path::new(name).file_name());
    name.is_some_and(|name| name == "mount.stere")
}

pub fn run(arguments: &[OsString]) -> ExitCode {
    let words: Vec<String> = arguments.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let Some(call) = parse(&words) else {
        eprintln!("usage: mount.stere POOL|DEVICE MOUNTPOINT [-sfnv] [-o OPTIONS]");
        return ExitCode::from(WRONG_USAGE);
    };
    match perform(&call) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mount.stere: {error}");
            ExitCode::from(MOUNT_FAILED)
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    words: Vec<String>,
    options: Vec<String>,
    /// Look at everything, mount nothing.
    is_fake: bool,
}

fn parse(words: &[String]) -> Option<Call> {
    let mut call = Call::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-o" => call.options.push(words.next()?.clone()),
            // The type, as `fuse.stere` or `stere`, and a name space: nothing to do with either.
            "-t" | "-N" => drop(words.next()?),
            flags if flags.starts_with('-') && flags.len() > 1 => {
                if !flags[1..].chars().all(|flag| "sfnv".contains(flag)) {
                    return None;
                }
                call.is_fake |= flags.contains('f');
            }
            _ => call.words.push(word.clone()),
        }
    }
    (call.words.len() == 2).then_some(call)
}

fn perform(call: &Call) -> Result<()> {
    let registry = Registry::open();
    if let Some(options) = remount::without_remount(&call.options) {
        let mountpoint = Path::new(&call.words[1]);
        return if call.is_fake { Ok(()) } else { remount::run(&registry, mountpoint, &options) };
    }
    let words = [pool_word(&registry, &call.words[0])?, call.words[1].clone()];
    let request = MountRequest::parse(&registry, &words, &call.options)?;
    if !call.is_fake {
        // Degraded is mounted, for mount(8).
        stere_cli::umount::settle(&registry);
        mount::run(&registry, request, false)?;
    }
    Ok(())
}

/// mount(8) makes a path of the word in fstab where the current folder has an entry of that name (`/` at boot, where
/// `tank` becomes `/tank`): such a path is the pool's name again, if a pool of that name is known.
fn pool_word(registry: &Registry, word: &str) -> Result<String> {
    let (path, folder) = (Path::new(word), std::env::current_dir().unwrap_or_default());
    let name = path.file_name().and_then(|name| name.to_str()).filter(|_| path.parent() == Some(&folder));
    match name {
        Some(name) if registry.find(name)?.is_some() => Ok(name.to_owned()),
        _ => Ok(word.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_mount_are_read() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let call = parse(&words("tank /data -sn -o rw,nofail -v")).unwrap();
        assert_eq!(call.words, ["tank", "/data"]);
        assert_eq!(call.options, ["rw,nofail"]);
        assert!(!call.is_fake);
        assert!(parse(&words("tank /data -f")).unwrap().is_fake);
        for wrong in ["tank", "tank /data -x", "tank /data -o", "a b c"] {
            assert_eq!(parse(&words(wrong)), None, "{wrong}");
        }
        assert!(is_mount_helper(&["/sbin/mount.stere".into()]));
        assert!(!is_mount_helper(&["stere".into()]));
    }
}
