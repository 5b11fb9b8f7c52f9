//! Keys of the pool: made, unlocked, locked, wrapped anew, removed.

use std::path::PathBuf;

use stere_fuse::Forgetter;
use stere_naming::{FileSystem, Io, KeySeed, KeyState, PassphraseCost, Secret, Stale, WrappingSeed};
use zeroize::Zeroizing;

use crate::answer::reconcile;
use stere_control::keys::{KeyReport, Order};
use stere_control::message::Answer;
use stere_control::secret;
use stere_machine::error::{Result, refused};
use stere_machine::random::random;
use stere_machine::{clock, memory};
use stere_online::running::Running;

fn wrapping_seed() -> WrappingSeed {
    WrappingSeed { salt: random(), nonce: random() }
}

/// Unlocks what key files open, at the mount.
pub fn unlock_by_files(filesystem: &FileSystem, paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        let (unlocked, _) = filesystem.encryption().unlock_keys(None, &secret::key_file(path)?.into_secret())?;
        if unlocked.is_empty() {
            return refused(format!("the pool has no key that {} could open; leave keyfile= out", path.display()));
        }
        tracing::info!(keys = unlocked.join(", "), "unlocked");
    }
    Ok(())
}

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, running: &Running, forgetter: &Forgetter, order: Order) -> Result<Answer> {
    let caller = clock::own_caller(Io::BLOCKING);
    let cost = PassphraseCost::default();
    let forget = |stale: &Stale| forgetter.forget(&stale.inodes, &stale.names);
    let said = match order {
        Order::List => {
            return Ok(Answer::Keys { keys: filesystem.encryption().keys().into_iter().map(report).collect() });
        }
        Order::Wrapped => {
            return Ok(Answer::WrappedKeys { keys: filesystem.encryption().wrapped_keys() });
        }
        Order::Create { name, secret } => {
            let seed = KeySeed { key: Zeroizing::new(random()), wrapping: wrapping_seed() };
            let secret = secret.into_secret();
            filesystem.command(&caller, || filesystem.encryption().create_key(&caller, &name, &secret, cost, &seed))?;
            format!("the key '{name}' is made, and unlocked")
        }
        Order::Unlock { name, secret } => {
            let (unlocked, stale) = filesystem.encryption().unlock_keys(name.as_deref(), &secret.into_secret())?;
            forget(&stale);
            // What waited for the key goes on.
            reconcile::try_again(filesystem, running);
            match unlocked.is_empty() {
                true => return refused("the pool has no key yet; make one with `stere key create`"),
                false => format!("unlocked: {}", unlocked.join(", ")),
            }
        }
        Order::Lock { name } => {
            let is_unlocked = |key: &stere_naming::KeyInfo| key.state == KeyState::Unlocked;
            let all = || filesystem.encryption().keys().into_iter().filter(is_unlocked).map(|key| key.name).collect();
            let names: Vec<String> = name.map_or_else(all, |name| vec![name]);
            // What programs changed through mappings is handed over while it can still be encrypted.
            forgetter.forget(&filesystem.encryption().seen_encrypted(), &[]);
            for name in &names {
                forget(&filesystem.encryption().lock_key(&caller, name)?);
            }
            memory::give_back_free();
            if names.is_empty() { "no key was unlocked".into() } else { format!("locked: {}", names.join(", ")) }
        }
        Order::Add { name, secret } => {
            let secret = secret.into_secret();
            let seed = wrapping_seed();
            filesystem
                .command(&caller, || filesystem.encryption().wrap_key(&caller, &name, None, &secret, cost, &seed))?;
            format!("this {} opens the key '{name}' too", secret.kind())
        }
        Order::Change { name, old, new } => {
            let (old, new): (Secret, Secret) = (old.into_secret(), new.into_secret());
            let seed = wrapping_seed();
            filesystem
                .command(&caller, || filesystem.encryption().wrap_key(&caller, &name, Some(&old), &new, cost, &seed))?;
            format!("the old {} no longer opens the key '{name}', and the new {} does", old.kind(), new.kind())
        }
        Order::Remove { name, destroys } => {
            forget(&filesystem.encryption().remove_key(&caller, &name, destroys)?);
            format!("the key '{name}' is gone for ever")
        }
    };
    Ok(Answer::Said { said })
}

fn report(key: stere_naming::KeyInfo) -> KeyReport {
    let state = if key.state == KeyState::Unlocked { "unlocked" } else { "locked" };
    KeyReport {
        name: key.name,
        number: key.number,
        state: state.into(),
        is_default: key.is_default,
        made_seconds: key.made_seconds,
        passphrases: key.passphrases,
        key_files: key.key_files,
    }
}
