//! What lies below all features, put together: inodes and names, keys, plugins, rules and classes.
//!
//! Each is built with those that it needs, so none can call one that is built later. Read next: `inode` (what all share).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stere_file::Files;
use stere_format::FileKind;
use stere_store::{Io, Store};

use crate::access_times::LazyTimes;
use crate::call::{Options, ROOT};
use crate::classes::{PolicyClasses, read_classes};
use crate::encryption::EncryptionKeys;
use crate::error::Error;
use crate::flagged::FlaggedInodes;
use crate::inode::Core;
use crate::junctions::Junctions;
use crate::names::Names;
use crate::plugins::PluginRegistry;
use crate::recalls::Recalls;
use crate::rules::PolicyRules;
use crate::tiers::Tiers;
use crate::visibility::PathVisibility;
use crate::words::PolicyWords;
use crate::{encryption, plugins};

/// The names of a pool, and what decides how files are stored.
pub struct Namespace {
    pub core: Arc<Core>,
    pub access_times: Arc<LazyTimes>,
    pub flagged: Arc<FlaggedInodes>,
    pub junctions: Arc<Junctions>,
    pub words: Arc<PolicyWords>,
    pub tiers: Arc<Tiers>,
    pub recalls: Arc<Recalls>,
    pub visibility: Arc<PathVisibility>,
    pub encryption: Arc<EncryptionKeys>,
    pub registry: Arc<PluginRegistry>,
    pub rules: Arc<PolicyRules>,
    pub classes: Arc<PolicyClasses>,
}

/// What all features share, of a pool that was formatted.
fn open_core(store: Arc<Store>, options: Options) -> Result<Arc<Core>, Error> {
    let files = Files::new(store.clone(), options.files.clone())?;
    let names = Names::new(&store.hash_key(), files.keyring().clone());
    encryption::load(&store, files.keyring())?;
    plugins::load(&store, files.plugins())?;
    let root = store.view(Io::BLOCKING, |view| stere_file::inode_if_any(view, ROOT))?;
    if root.is_none_or(|root| root.kind() != Some(FileKind::Directory)) {
        return Err(Error::Damaged("the pool has no root directory; run `stere check`".into()));
    }
    files.resolver().set_classes(read_classes(&store, Io::BLOCKING)?);
    let (reconcile, policy, names_used) = Default::default();
    let names_are_counted = AtomicBool::new(false);
    Ok(Arc::new(Core { store, files, names, options, reconcile, policy, names_used, names_are_counted }))
}

impl Namespace {
    /// The namespace of a pool that was formatted.
    pub fn open(store: Arc<Store>, options: Options) -> Result<Namespace, Error> {
        let core = open_core(store, options)?;
        let words = Arc::new(PolicyWords { core: core.clone() });
        let encryption = Arc::new(EncryptionKeys::new(core.clone()));
        let registry = Arc::new(PluginRegistry { core: core.clone() });
        let rules = Arc::new(PolicyRules::load(core.clone(), registry.clone(), encryption.clone())?);
        let classes = PolicyClasses {
            core: core.clone(),
            rules: rules.clone(),
            registry: registry.clone(),
            words: words.clone(),
        };
        let flagged = Arc::new(FlaggedInodes::new(core.clone()));
        Ok(Namespace {
            access_times: Arc::new(LazyTimes::new(core.clone())),
            junctions: Arc::new(Junctions { core: core.clone(), flagged: flagged.clone() }),
            flagged,
            words,
            tiers: Arc::new(Tiers { core: core.clone(), rules: rules.clone() }),
            recalls: Arc::new(Recalls { core: core.clone() }),
            visibility: Arc::new(PathVisibility { core: core.clone() }),
            encryption,
            registry,
            rules,
            classes: Arc::new(classes),
            core,
        })
    }
}
