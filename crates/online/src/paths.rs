//! Paths of inodes, found by walking all names once.

use std::collections::{HashMap, HashSet};

use stere_format::{DirentValue, Key, key};
use stere_store::Store;

use stere_machine::error::Result;

/// Paths of inodes, from the root of the pool. A file with several names gets one of them.
pub fn paths_of(store: &Store, inodes: &HashSet<u64>) -> Result<HashMap<u64, String>> {
    let mut names: HashMap<u64, (u64, String)> = HashMap::new();
    let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::NAMES + 1, 0, 0, 0));
    let mut note = |key: &Key, bytes: &[u8]| {
        if key.kind == key::kind::DIRENT
            && let Ok(entry) = DirentValue::decode(bytes)
        {
            let name = match entry.key {
                0 => String::from_utf8_lossy(&entry.name).into_owned(),
                // As a mount without its key shows it.
                _ => format!("locked-{:016x}", key.position),
            };
            names.insert(entry.inode, (key.object, name));
        }
    };
    if let Err(error) = store.for_each_key(from, to, &mut note) {
        // Paths through names that were put away are not known then.
        tracing::warn!(%error, "some names cannot be read");
        store.for_each_resident_key(from, to, &mut note)?;
    }
    let path_of = |inode: u64| -> Option<String> {
        let mut parts = Vec::new();
        let mut at = inode;
        while at != stere_naming::ROOT {
            let (parent, name) = names.get(&at)?;
            parts.push(name.as_str());
            at = *parent;
            if parts.len() > 4096 {
                return None;
            }
        }
        parts.reverse();
        Some(format!("/{}", parts.join("/")))
    };
    Ok(inodes.iter().filter_map(|inode| Some((*inode, path_of(*inode)?))).collect())
}
