//! How file contents behave, and their limits; nothing in here is on media.

use std::sync::Arc;

use stere_plugin::Coders;
use stere_policy::Class;

/// The largest size of a file.
pub const FILE_BYTES_MAX: u64 = 16 << 40;

/// How file contents behave; nothing in here is on media.
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory for bytes that were written and not yet handed to the store.
    pub dirty_bytes_max: u64,
    /// Policy of what says nothing else.
    pub default_class: Class,
    /// Age steps after which unsaved changes are handed to the store.
    pub dirty_steps_max: u64,
    /// Random, and new for every mount: nonces are made of it. Without it nothing can be encrypted.
    pub encryption_salt: Option<[u8; 16]>,
    /// What runs users' plugins. Without it files that have some cannot be read or written.
    pub plugin_loader: Option<Arc<dyn stere_plugin::Loader>>,
    /// Who compresses the records of one request at once.
    pub coders: Coders,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            dirty_bytes_max: 64 << 20,
            default_class: Class::Normal,
            dirty_steps_max: 5,
            encryption_salt: None,
            plugin_loader: None,
            coders: Coders::default(),
        }
    }
}
