//! `stere key`: keys that contents and names are encrypted with. They are kept, unlocked and locked by the pool's daemon.
//!
//! Secrets go over the control socket, which lies in a directory that only its owner can enter, and are wiped from memory on both
//! sides; none is ever an argument of a command. Read next: `docs/design/encryption.md`.

pub mod memory;
mod secret;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stere_fuse::Forgetter;
use stere_naming::{FileSystem, Io, KeySeed, KeyState, PassphraseCost, Secret, Stale, WrappingSeed};
use zeroize::Zeroizing;

use crate::cli::{KeyCommand, RescueArguments, SecretArguments};
use crate::control::{Answer, Connection, Request};
use crate::error::{DONE, Result, refused};
use crate::registry::Registry;
use crate::running::Running;
use crate::status::to_json;
use crate::{clock, reconcile};

pub use secret::SentSecret;

/// What is asked about keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    List,
    Create {
        name: String,
        secret: SentSecret,
    },
    /// One key, or all that the secret opens.
    Unlock {
        name: Option<String>,
        secret: SentSecret,
    },
    /// One key, or all.
    Lock {
        name: Option<String>,
    },
    Add {
        name: String,
        secret: SentSecret,
    },
    Change {
        name: String,
        old: SentSecret,
        new: SentSecret,
    },
    Remove {
        name: String,
        destroys: bool,
    },
}

/// A key, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyReport {
    pub name: String,
    pub number: u16,
    /// `locked` or `unlocked`.
    pub state: String,
    pub is_default: bool,
    pub made_seconds: i64,
    pub passphrases: usize,
    pub key_files: usize,
}

/// Random bytes of the operating system.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

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
        Order::Create { name, secret } => {
            let seed = KeySeed { key: Zeroizing::new(random()), wrapping: wrapping_seed() };
            filesystem.encryption().create_key(&caller, &name, &secret.into_secret(), cost, &seed)?;
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
            filesystem.encryption().wrap_key(&caller, &name, None, &secret, cost, &wrapping_seed())?;
            format!("this {} opens the key '{name}' too", secret.kind())
        }
        Order::Change { name, old, new } => {
            let (old, new): (Secret, Secret) = (old.into_secret(), new.into_secret());
            filesystem.encryption().wrap_key(&caller, &name, Some(&old), &new, cost, &wrapping_seed())?;
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

pub fn run(registry: &Registry, command: &KeyCommand) -> Result<u8> {
    let (pool, order) = match command {
        KeyCommand::List { pool, .. } => (pool, Order::List),
        KeyCommand::Create { pool, name, secret } => {
            (pool, Order::Create { name: name.clone(), secret: new_secret(secret, name)? })
        }
        KeyCommand::Unlock { pool, name, secret } => {
            let of = name.as_deref().unwrap_or(pool);
            (pool, Order::Unlock { name: name.clone(), secret: known_secret(secret, of)? })
        }
        KeyCommand::Lock { pool, name } => (pool, Order::Lock { name: name.clone() }),
        KeyCommand::Add { pool, name, secret } => {
            (pool, Order::Add { name: name.clone(), secret: new_secret(secret, name)? })
        }
        KeyCommand::Change { pool, name, secret, new_passphrase_file, new_key_file } => {
            let old = known_secret(secret, name)?;
            let new = SecretArguments { passphrase_file: new_passphrase_file.clone(), key_file: new_key_file.clone() };
            (pool, Order::Change { name: name.clone(), old, new: new_secret(&new, name)? })
        }
        KeyCommand::Remove { pool, name, yes } => (pool, Order::Remove { name: name.clone(), destroys: *yes }),
    };
    let Some(mut connection) = Connection::open(registry, pool) else {
        return refused(format!("the pool '{pool}' is not mounted; its keys are kept by its mount: mount it"));
    };
    // A passphrase takes its time, and so does looking for what a key encrypts.
    connection.wait_without_limit()?;
    match connection.ask(Request::Keys { order })? {
        Answer::Keys { keys } => match command {
            KeyCommand::List { json: true, .. } => println!("{}", to_json(&keys)?),
            _ => print(pool, &keys),
        },
        Answer::Said { said } => println!("{said}"),
        _ => return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
    Ok(DONE)
}

/// The secret that the arguments name, for what is no pool.
pub fn secret_of(arguments: &SecretArguments, of: &std::path::Path) -> Result<Secret> {
    Ok(known_secret(arguments, &of.display().to_string())?.into_secret())
}

/// Everything that a rescue may open keys with; nothing is asked for unless that is wanted.
pub fn secrets_of_rescue(arguments: &RescueArguments) -> Result<Vec<Secret>> {
    let of_file = |key_file, passphrase_file| known_secret(&SecretArguments { passphrase_file, key_file }, "the pool");
    let mut secrets = Vec::new();
    for path in &arguments.key_files {
        secrets.push(of_file(Some(path.clone()), None)?.into_secret());
    }
    for path in &arguments.passphrase_files {
        secrets.push(of_file(None, Some(path.clone()))?.into_secret());
    }
    if arguments.passphrase {
        secrets.push(of_file(None, None)?.into_secret());
    }
    Ok(secrets)
}

fn new_secret(arguments: &SecretArguments, of: &str) -> Result<SentSecret> {
    secret::gather(arguments, &format!("new passphrase for {of}"), true)
}

fn known_secret(arguments: &SecretArguments, of: &str) -> Result<SentSecret> {
    secret::gather(arguments, &format!("passphrase for {of}"), false)
}

fn print(pool: &str, keys: &[KeyReport]) {
    if keys.is_empty() {
        println!("the pool '{pool}' has no key yet; make one with `stere key create {pool} NAME`");
    }
    for key in keys {
        let default = if key.is_default { ", the default" } else { "" };
        let (passphrases, files) = (key.passphrases, key.key_files);
        println!("{}: {}{default}; opened by {passphrases} passphrases and {files} key files", key.name, key.state);
    }
}
