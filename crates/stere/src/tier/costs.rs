//! What archiving and staging would ask of volumes, and what that costs, told before anything happens; and what volumes cost.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stere_naming::{FileSystem, Io};
use stere_store::{Costs, Store, VolumePrices};

use super::{Order, Told, ask, destination, open, survey};
use crate::control::{Connection, Request};
use crate::error::{DONE, Error, Result, refused};
use crate::registry::Registry;
use crate::running::Running;
use crate::status::to_json;
use crate::{clock, locate, size};

const MILLION: f64 = 1_000_000.0;

/// What would be asked of one volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostsReport {
    pub volume: String,
    pub segments: u64,
    pub requests: u64,
    /// Bytes that would be copied to it, and stay there.
    pub bytes_to: u64,
    /// Bytes that would be read from it.
    pub bytes_from: u64,
    /// What that costs, and each month from then on.
    pub price: f64,
    pub price_month: f64,
}

/// What a volume costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PriceReport {
    pub volume: String,
    /// A thousand requests, a gigabyte that is read, and one that lies there for a month.
    pub requests: f64,
    pub out: f64,
    pub month: f64,
}

/// Prices that are to be others, in millionths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub requests: Option<u64>,
    pub out: Option<u64>,
    pub month: Option<u64>,
}

impl Change {
    /// The prices with what is other.
    pub fn of(&self, prices: VolumePrices) -> VolumePrices {
        VolumePrices {
            thousand_requests: self.requests.unwrap_or(prices.thousand_requests),
            gigabyte_out: self.out.unwrap_or(prices.gigabyte_out),
            gigabyte_month: self.month.unwrap_or(prices.gigabyte_month),
        }
    }

    /// Takes one `KEY=VALUE`; false if there is no such key.
    pub fn set(&mut self, key: &str, value: &str) -> std::result::Result<bool, String> {
        let at = match key {
            "requests" => &mut self.requests,
            "out" => &mut self.out,
            "month" => &mut self.month,
            _ => return Ok(false),
        };
        let right = "a number with at most six digits behind the point, such as 0.023";
        *at = Some(parse_price(value).ok_or_else(|| format!("the price {key} cannot be '{value}'; it takes {right}"))?);
        Ok(true)
    }
}

/// A price in millionths.
pub fn parse_price(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 6 {
        return None;
    }
    let millionths = format!("{part:0<6}").parse::<u64>().ok()?;
    let price = whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(millionths)?;
    Some(price).filter(|price| *price <= VolumePrices::MAX)
}

/// In words and money, for each volume.
fn reports(store: &Store, costs: BTreeMap<u8, Costs>) -> Result<Vec<CostsReport>> {
    let mut reports = Vec::new();
    for (number, costs) in costs {
        let (price, price_month) = costs.prices(&store.tier.media.volume_prices(number)?);
        let Costs { segments, requests, bytes_to, bytes_from } = costs;
        let (price, price_month) = (price as f64 / MILLION, price_month as f64 / MILLION);
        let volume = store.tier.media.tier_names(1 << number);
        reports.push(CostsReport { volume, segments, requests, bytes_to, bytes_from, price, price_month });
    }
    Ok(reports)
}

/// What sending so many bytes to volumes would cost.
pub fn of_archiving(store: &Store, left: &BTreeMap<u8, u64>) -> Result<Vec<CostsReport>> {
    reports(store, left.iter().map(|(number, bytes)| (*number, store.tier.media.costs_of_archiving(*bytes))).collect())
}

/// What bringing back what is below an inode would cost, or sending it down.
pub fn forecast(filesystem: &FileSystem, running: &Running, root: u64, to: Option<&str>) -> Result<Told> {
    let Some(to) = to else {
        let (_, segments, _) = survey(filesystem, running, root)?;
        return Ok(Told::Costs(reports(&running.store, running.store.tier.media.costs_of_staging(&segments))?));
    };
    let Some(set) = running.store.tier.media.tiers_of(to) else { return refused(format!("there is no volume '{to}'")) };
    let numbers: Vec<u8> = (0..u16::BITS as u8).filter(|number| set >> number & 1 == 1).collect();
    let mut left: BTreeMap<u8, u64> = numbers.iter().map(|number| (*number, 0)).collect();
    filesystem.tiers().tier_walk(&clock::own_caller(Io::BLOCKING), root, &mut |met| {
        for (number, bytes) in &mut left {
            *bytes += met.file.bytes_not_on(*number);
        }
        ControlFlow::Continue(())
    })?;
    Ok(Told::Costs(of_archiving(&running.store, &left)?))
}

/// Tells, and changes, what a volume costs.
pub fn price(running: &Running, volume: &str, change: &Change) -> Result<Told> {
    let Some(entry) = running.find_volume(volume) else {
        return refused(format!("the pool '{0}' has no volume '{volume}'; see `stere tier list {0}`", running.pool));
    };
    let mut prices = running.store.tier.media.volume_prices(entry.number)?;
    if *change != Change::default() {
        prices = change.of(prices);
        running.store.tier.media.set_volume_prices(entry.number, prices)?;
    }
    let [requests, out, month] =
        [prices.thousand_requests, prices.gigabyte_out, prices.gigabyte_month].map(|price| price as f64 / MILLION);
    Ok(Told::Price(PriceReport { volume: entry.name, requests, out, month }))
}

fn unexpected<T>() -> Result<T> {
    refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again")
}

pub fn print(name: &Path, reports: &[CostsReport]) {
    if reports.is_empty() {
        println!("{}: nothing is asked of volumes", name.display());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read() {
        let read = ["0.0004", "5", "0", "1000000", "0.000001"].map(parse_price);
        assert_eq!(read, [Some(400), Some(5_000_000), Some(0), Some(VolumePrices::MAX), Some(1)]);
        assert_eq!(["", "1.", ".5", "-1", "0.0000001", "1000000.1", "x"].map(parse_price), [None; 7]);
        let mut change = Change::default();
        assert_eq!((change.set("out", "0.09"), change.set("in", "1")), (Ok(true), Ok(false)));
        assert!(change.set("month", "much").unwrap_err().contains("0.023"));
        assert_eq!(change.of(VolumePrices::default()).gigabyte_out, 90_000);
    }
}
