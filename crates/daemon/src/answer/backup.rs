//! Destinations of backups: made, forgotten, told, and asked for a run.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stere_backup::Destination;
use stere_naming::{BackupValue, FileSystem, Io};

use crate::backups::Backups;
use stere_control::backup::{Line, Order, no_destination};
use stere_control::message::{About, Answer};
use stere_machine::error::{At, Result, refused};
use stere_machine::{clock, random};

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, backups: &Backups, about: &About, order: Order) -> Result<Answer> {
    let known = filesystem.backups().list(Io::BLOCKING)?;
    let caller = clock::own_caller(Io::BLOCKING);
    let find = |name: &str| match known.iter().find(|(_, value)| value.name == name) {
        Some(found) => Ok(found),
        None => no_destination(&about.pool, name),
    };
    match order {
        Order::List => {
            let destinations = known.into_iter().map(|(_, value)| line(backups, value)).collect();
            return Ok(Answer::Backups { destinations });
        }
        Order::Run { name } => {
            let all = || known.iter().map(|(_, value)| value.name.clone()).collect();
            let names: Vec<String> = match name {
                Some(name) => vec![find(&name)?.1.name.clone()],
                None => all(),
            };
            names.iter().for_each(|name| backups.ask(name));
            return Ok(Answer::Done);
        }
        Order::Remove { name } => {
            filesystem.backups().remove_backup(&caller, find(&name)?.0)?;
            backups.forget(&name);
        }
        Order::Add { name, path, every_seconds, keep, only, adopt } => {
            if known.iter().any(|(_, value)| value.name == name) {
                return refused(format!("the pool has a destination '{name}' already; choose another name"));
            }
            let path = std::fs::canonicalize(&path).at("find", &path)?;
            if path.starts_with(&about.mountpoint) {
                return refused("a backup cannot lie in the pool that it is of; choose a directory elsewhere");
            }
            if !only.is_empty()
                && let Err(error) = filesystem.search().parse_search(&only)
            {
                return refused(format!("the search is not understood: {error}"));
            }
            let id = attach(&path, about, adopt)?;
            let path = path.as_os_str().as_bytes().to_vec();
            let value = BackupValue { name, id, keep, every_seconds, done_seconds: 0, path, only };
            filesystem.command(&caller, || filesystem.backups().put_backup(&caller, None, &value))?;
        }
    }
    filesystem.store().commit(Io::BLOCKING).map_err(stere_naming::Error::from)?;
    backups.wake();
    Ok(Answer::Done)
}

/// Makes a directory a destination, or takes one that is.
fn attach(path: &Path, about: &About, adopt: bool) -> Result<stere_backup::Id> {
    if adopt {
        return Ok(Destination::id_at(path)?);
    }
    let id = random::random();
    Destination::create(path, &id, &format!("pool {} {}", about.pool, about.pool_id))?;
    Ok(id)
}

fn line(backups: &Backups, value: BackupValue) -> Line {
    let told = backups.told(&value.name);
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&value.path));
    Line {
        is_attached: Destination::id_at(&path).is_ok_and(|id| id == value.id),
        name: value.name,
        path,
        every_seconds: value.every_seconds,
        keep: value.keep,
        only: value.only,
        done_seconds: (value.done_seconds != 0).then_some(value.done_seconds),
        is_running: told.is_running,
        is_asked: told.is_asked,
        last: told.last,
    }
}
