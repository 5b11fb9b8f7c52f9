//! `stere tier policy`: when archived segments are released by themselves, as people read it.

use stere_control::tier::report::TierReport;
use stere_machine::size;

pub fn print(report: &TierReport) {
    let first = match report.order.as_str() {
        "lru" => "what was used longest ago first".to_owned(),
        "once" => "what was used at most once since it came back first".to_owned(),
        "size" => "the largest first".to_owned(),
        _ if (report.exponent - 1.0).abs() < 0.001 => "the least used and largest first".to_owned(),
        _ => format!("the greatest size times age to the power of {} first", report.exponent),
    };
    println!(
        "archived files are released when devices are {} % full, {first}, down to {} %; now {} % (order={})",
        report.high, report.low, report.used_percent, report.order
    );
    let back = size::show(report.back_bytes);
    match report.cache_bytes {
        Some(bytes) => println!("what came back takes {back} of devices, and may take {}", size::show(bytes)),
        None => println!("what came back takes {back} of devices, and may take as much as the marks allow"),
    }
}
