//! The tables and figures of the thesis for its imitated loads: `cargo run --release -p stere-workload --example thesis [FOLDER]`
//! prints the tables, and writes the figures to FOLDER.

use std::path::PathBuf;

use stere_workload::loads::Load;
use stere_workload::{Profile, picture, table};

fn main() -> std::io::Result<()> {
    let profiles = Load::ALL.map(|load| {
        let mut profile = Box::<Profile>::default();
        load.calls(0).iter().for_each(|call| profile.note(call));
        (load.name(), profile)
    });
    let named: Vec<(&str, &Profile)> = profiles.iter().map(|(name, profile)| (*name, &**profile)).collect();
    println!("{}\n{}\n{}", table::basic(&named), table::sizes(&named), table::dependence(&named));
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else { return Ok(()) };
    std::fs::write(folder.join("arrivals.svg"), picture::arrivals_svg(&named))?;
    std::fs::write(folder.join("metadata-arrivals.svg"), picture::metadata_arrivals_svg(&named[3..]))?;
    for (name, profile) in named {
        let curve = profile.reuse().curve();
        std::fs::write(folder.join(format!("{name} misses.svg")), picture::miss_ratio_svg(name, &curve, 1 << 30))?;
        std::fs::write(folder.join(format!("{name} sizes.svg")), picture::sizes_svg(profile))?;
        if let Ok(svg) = picture::variance_time_svg(name, profile.dependence()) {
            std::fs::write(folder.join(format!("{name} variance.svg")), svg)?;
        }
    }
    Ok(())
}
