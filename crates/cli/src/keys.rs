//! `stere key`: the keys of a pool, made, opened and locked by its daemon.

use stere_naming::Secret;

use crate::arguments::{KeyCommand, RescueArguments, SecretArguments};
use crate::json::to_json;
use crate::secret;
use stere_control::connection::Connection;
use stere_control::keys::{KeyReport, Order};
use stere_control::message::{Answer, Request};
use stere_control::secret::SentSecret;
use stere_machine::error::{DONE, Result, refused};
use stere_machine::registry::Registry;

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
