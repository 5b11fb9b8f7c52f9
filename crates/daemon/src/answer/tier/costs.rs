//! What archiving and staging would cost, and what media cost.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_naming::{FileSystem, Io};
use stere_store::{Costs, Store};

use crate::answer::tier::survey::survey;
use stere_control::tier::costs::{Change, CostsReport, PriceReport};
use stere_control::tier::report::Told;
use stere_machine::clock;
use stere_machine::error::{Result, refused};
use stere_online::running::Running;

const MILLION: f64 = 1_000_000.0;

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

/// Bytes that are to go to each volume in segments with so many data chunks.
pub type ToArchive = BTreeMap<(u8, u8), u64>;

/// What sending so many bytes to volumes would cost.
pub fn of_archiving(store: &Store, left: &ToArchive) -> Result<Vec<CostsReport>> {
    let mut costs: BTreeMap<u8, Costs> = BTreeMap::new();
    for ((number, data_chunks), bytes) in left {
        *costs.entry(*number).or_default() += store.tier.media.costs_of_archiving(*bytes, *data_chunks);
    }
    reports(store, costs)
}

/// What bringing back what is below an inode would cost, or sending it down.
pub fn forecast(filesystem: &FileSystem, running: &Running, root: u64, to: Option<&str>) -> Result<Told> {
    let Some(to) = to else {
        let (_, segments, _) = survey(filesystem, running, root)?;
        return Ok(Told::Costs(reports(&running.store, running.store.tier.media.costs_of_staging(&segments))?));
    };
    let Some(set) = running.store.tier.media.tiers_of(to) else { return refused(format!("there is no volume '{to}'")) };
    let numbers: Vec<u8> = (0..u16::BITS as u8).filter(|number| set >> number & 1 == 1).collect();
    // Each is told of, also if nothing is to go there.
    let mut left: ToArchive = numbers.iter().map(|number| ((*number, 1), 0)).collect();
    filesystem.tiers().tier_walk(&clock::own_caller(Io::BLOCKING), root, &mut |met| {
        for number in &numbers {
            *left.entry((*number, met.data_chunks)).or_default() += met.file.bytes_not_on(*number);
        }
        ControlFlow::Continue(())
    })?;
    Ok(Told::Costs(of_archiving(&running.store, &left)?))
}

/// Tells, and changes, what a volume costs.
pub fn price(filesystem: &FileSystem, running: &Running, volume: &str, change: &Change) -> Result<Told> {
    let Some(entry) = running.find_volume(volume) else {
        return refused(format!("the pool '{0}' has no medium '{volume}'; see `stere tier list {0}`", running.pool));
    };
    let mut prices = running.store.tier.media.volume_prices(entry.number)?;
    if *change != Change::default() {
        prices = change.of(prices);
        let media = &running.store.tier.media;
        let caller = clock::own_caller(Io::BLOCKING);
        filesystem.command(&caller, || Ok(media.set_volume_prices(entry.number, prices)?))?;
    }
    let [requests, out, month] =
        [prices.thousand_requests, prices.gigabyte_out, prices.gigabyte_month].map(|price| price as f64 / MILLION);
    Ok(Told::Price(PriceReport { volume: entry.name, requests, out, month }))
}
