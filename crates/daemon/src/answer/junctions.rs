//! Junctions: told, made and ended.

use stere_control::junction::{JunctionLine, Order};
use stere_control::message::Answer;
use stere_format::{JunctionValue, PoolId};
use stere_machine::clock;
use stere_machine::error::{Error, Result, refused};
use stere_machine::registry::check_name;
use stere_naming::{FileSystem, Io};

use crate::from_afar::is_everywhere;

/// What the pool says of its junctions.
pub fn list(filesystem: &FileSystem) -> Result<Vec<JunctionLine>> {
    let junctions = stere_naming::junctions_of(filesystem).list(Io::BLOCKING)?;
    let line = |junction: stere_naming::Junction| JunctionLine {
        inode: junction.directory,
        path: String::from_utf8_lossy(&junction.path).into_owned(),
        pool: junction.value.pool_name,
        pool_id: junction.value.pool.to_string(),
        places: junction.value.places,
    };
    Ok(junctions.into_iter().map(line).collect())
}

/// Answers for the daemon. What is done is durable.
pub fn serve(filesystem: &FileSystem, order: Order) -> Result<Answer> {
    let caller = clock::own_caller(Io::BLOCKING);
    match order {
        Order::List => return Ok(Answer::Junctions { junctions: list(filesystem)? }),
        Order::Attach { inode, pool, pool_id, places } => {
            let junction = junction(pool, &pool_id, places)?;
            filesystem.command(&caller, || stere_naming::junctions_of(filesystem).attach(&caller, inode, &junction))?;
        }
        Order::Detach { inode } => {
            filesystem.command(&caller, || stere_naming::junctions_of(filesystem).detach(&caller, inode))?
        }
    }
    filesystem.store().commit(Io::BLOCKING).map_err(stere_naming::Error::from)?;
    Ok(Answer::Done)
}

fn junction(pool_name: String, id: &str, places: Vec<String>) -> Result<JunctionValue> {
    check_name(&pool_name)?;
    let pool: PoolId = id.parse().map_err(|_| Error::Usage(format!("'{id}' is no id of a pool")))?;
    let is_place = |place: &&String| {
        let is_short = (1..=JunctionValue::PLACE_BYTES_MAX).contains(&place.len());
        is_short && is_everywhere(std::path::Path::new(place.as_str()))
    };
    let places: Vec<String> = places.iter().filter(is_place).take(JunctionValue::PLACES_MAX).cloned().collect();
    if places.is_empty() {
        return refused(format!(
            "no device of the pool '{pool_name}' is at a place that means the same on every machine (nbd:// or stere://)"
        ));
    }
    Ok(JunctionValue { pool, pool_name, places })
}
