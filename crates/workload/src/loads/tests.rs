//! The imitated loads have the thesis' figures, and their Hurst parameters come in the order of its Table 3.3.

use super::*;
use crate::hurst::by_variance_time;
use crate::profile::Profile;

fn profile(load: Load, seed: u64) -> Box<Profile> {
    let mut profile = Box::<Profile>::default();
    load.calls(seed).iter().for_each(|call| profile.note(call));
    profile
}

/// Mean over seeds of H by the variance-time plot.
fn hurst(load: Load) -> f64 {
    const SEEDS: u64 = 6;
    let told: Vec<f64> =
        (0..SEEDS).map(|seed| by_variance_time(profile(load, seed).dependence()).unwrap().value).collect();
    let mean = told.iter().sum::<f64>() / SEEDS as f64;
    println!("{}: {mean:.4} of {told:.3?}", load.name());
    mean
}

#[test]
fn hurst_parameters_come_in_the_order_of_the_thesis() {
    let [checkpoint, one_writer, dumps, web] = Load::ALL.map(hurst);
    assert!(web > one_writer && one_writer > checkpoint && checkpoint > dumps);
    // All depend on what was before, as the thesis found.
    assert!(dumps > 0.55 && web < 1.0, "{dumps} {web}");
}

#[test]
fn the_loads_have_the_figures_of_the_thesis() {
    let checkpoint = profile(Load::BlockCyclicCheckpoint, 1);
    assert_eq!((checkpoint.data_calls(), checkpoint.read_share()), (30_720, Some(0.5)));
    // More than 90 % within two milliseconds of the one before.
    assert!(checkpoint.data_arrivals_ns().share_up_to(2_000_000) > 0.9);
    let one_writer = profile(Load::OneWriter, 1);
    assert!((one_writer.read_share().unwrap() - 0.918).abs() < 0.01);
    assert_eq!(one_writer.read_bytes().greatest(), Some(4096));
    let dumps = profile(Load::PeriodicDumps, 1);
    assert_eq!((dumps.read_share(), dumps.files().round() as u64), (Some(0.0), 10));
    let web = profile(Load::WebServer, 1);
    assert_eq!(web.read_share(), Some(1.0));
    let rate = web.data_calls() as f64 / (web.span_ns() as f64 / 1e9);
    assert!((600.0..1200.0).contains(&rate), "{rate} a second");
    let share = web.metadata_calls() as f64 / web.data_calls() as f64;
    assert!((0.1..0.3).contains(&share), "{share}");
}

#[test]
fn one_seed_gives_one_load() {
    assert_eq!(Load::PeriodicDumps.calls(5), Load::PeriodicDumps.calls(5));
    assert_ne!(Load::PeriodicDumps.calls(5), Load::PeriodicDumps.calls(6));
}
