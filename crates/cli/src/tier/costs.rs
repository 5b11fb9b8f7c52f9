//! What archiving and staging would ask of volumes, and what that costs, told before anything happens; and what volumes cost.

use std::path::{Path, PathBuf};

use crate::json::to_json;
use crate::tier::ask::{ask, open};
use crate::tier::destination;
use stere_control::connection::Connection;
use stere_control::locate;
use stere_control::message::Request;
use stere_control::tier::Order;
use stere_control::tier::costs::{Change, CostsReport};
use stere_control::tier::report::Told;
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

fn unexpected<T>() -> Result<T> {
    refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again")
}

pub fn print(name: &Path, reports: &[CostsReport]) {
    if reports.is_empty() {
        println!("{}: nothing is asked of media", name.display());
    }
    for one in reports {
        let (to, from) = (size::show(one.bytes_to), size::show(one.bytes_from));
        println!(
            "{}: {} in {} segments: {} requests, {to} to it, {from} from it; costs {:.6}, and {:.6} a month",
            name.display(),
            one.volume,
            one.segments,
            one.requests,
            one.price,
            one.price_month
        );
    }
}

/// What to ask of a pool by its name about a path and its inode.
type Ordering<'a> = &'a dyn Fn(&mut Connection, &str, (&Path, u64)) -> Result<Order>;

fn tell(registry: &Registry, paths: &[PathBuf], json: bool, order: Ordering<'_>) -> Result<u8> {
    for path in paths {
        let (about, mut connection, inode) = locate::connect(registry, path)?;
        connection.wait_without_limit()?;
        let order = order(&mut connection, &about.pool, (path, inode))?;
        let Told::Costs(reports) = ask(&mut connection, order)? else { return unexpected() };
        match json {
            true => println!("{}", to_json(&reports)?),
            false => print(path, &reports),
        }
    }
    Ok(DONE)
}

pub fn stage(registry: &Registry, paths: &[PathBuf], json: bool) -> Result<u8> {
    tell(registry, paths, json, &|_, _, (_, inode)| Ok(Order::Costs(inode, None)))
}

pub fn archive(registry: &Registry, paths: &[PathBuf], to: Option<&str>, json: bool) -> Result<u8> {
    tell(registry, paths, json, &|connection, pool, of| {
        // What was written last is gathered in memory still.
        connection.ask(Request::Flush { wait: true })?;
        Ok(Order::Costs(of.1, Some(destination(connection, pool, of, to)?.0)))
    })
}

/// `stere tier price`.
pub fn show(registry: &Registry, pool: &str, volume: &str, settings: &[String], json: bool) -> Result<u8> {
    let mut change = Change::default();
    for setting in settings {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        if !change.set(key, value).map_err(Error::Usage)? {
            return Err(Error::Usage(format!("'{key}' is no price; there are requests, out and month")));
        }
    }
    let order = Order::Price(volume.to_owned(), change);
    let Told::Price(report) = ask(&mut open(registry, pool)?, order)? else { return unexpected() };
    match json {
        true => println!("{}", to_json(&report)?),
        false => println!(
            "{}: {} a thousand requests, {} a gigabyte out, {} a gigabyte and month",
            report.volume, report.requests, report.out, report.month
        ),
    }
    Ok(DONE)
}
