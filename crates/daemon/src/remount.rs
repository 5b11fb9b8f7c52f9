//! `mount -o remount,...`: changes the flags of a mount that is there. The daemon is not asked and does not notice.
//!
//! Only what the kernel keeps can be changed (ro, nosuid, nodev, noexec, noatime); the other options of the line stay
//! what they were. A mount that was made with `ro` has its pool open for reading, so it cannot become writable.

use std::path::Path;

use rustix::mount::{MountFlags, mount_remount};

use crate::options::Options;
use stere_control::connection;
use stere_machine::error::{At, Result, refused};
use stere_machine::mountinfo;
use stere_machine::registry::Registry;

/// The options without the word `remount`, if it is among them.
pub fn without_remount(texts: &[String]) -> Option<Vec<String>> {
    let words = texts.iter().flat_map(|text| text.split(','));
    let (remount, rest): (Vec<&str>, Vec<&str>) = words.partition(|word| *word == "remount");
    (!remount.is_empty()).then(|| rest.into_iter().map(str::to_owned).collect())
}

/// Sets the flags of what is mounted on `mountpoint` to those that `texts` name.
pub fn run(registry: &Registry, mountpoint: &Path, texts: &[String]) -> Result<()> {
    let options = Options::parse(texts)?;
    let path = mountinfo::canonical(mountpoint);
    if !mountinfo::find(&path).is_some_and(|mount| mount.is_stere()) {
        return refused(format!("no stere pool is mounted on {}, so its options cannot be changed", path.display()));
    }
    let daemon = connection::daemons(registry).into_iter().find(|about| about.mountpoint == path);
    if daemon.is_some_and(|about| about.read_only) && !options.fuse.read_only {
        return refused(format!(
            "{0} was mounted with `ro`, and its pool is open for reading only; unmount it and mount it without `ro`",
            path.display()
        ));
    }
    mount_remount(&path, flags(&options), c"").at("remount", &path)
}

fn flags(options: &Options) -> MountFlags {
    let fuse = &options.fuse;
    let named = [
        (fuse.read_only, MountFlags::RDONLY),
        (fuse.no_suid, MountFlags::NOSUID),
        (fuse.no_dev, MountFlags::NODEV),
        (fuse.no_exec, MountFlags::NOEXEC),
        (fuse.no_atime, MountFlags::NOATIME),
    ];
    named.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect()
}
