use serde_json::json;

use super::*;

fn result(images: &str, stere: f64, ext4: f64) -> Value {
    let figure =
        |subject: &str, value: f64| json!({ "metric": "seqwrite", "subject": subject, "values": [value, value, 1e9] });
    json!({ "conditions": { "images": images }, "figures": [figure("stere", stere), figure("ext4", ext4)] })
}

#[test]
fn the_newest_result_on_disks_counts_and_only_where_both_sides_were_measured() {
    let results = [result("on disk", 3.0, 1.0), result("on disk", 2.0, 4.0), result("in memory", 9.0, 1.0)];
    let ratios = ratios_of(&results, Kind::Stere, Kind::Ext4);
    assert_eq!(ratios, Ratios::from([("seqwrite".to_owned(), 0.5)]));
    assert_eq!(ratios_of(&results, Kind::StereMirror, Kind::BtrfsRaid1), Ratios::new());
}

#[test]
fn every_bar_of_a_pair_that_is_drawn_has_its_row() {
    for bar in bars() {
        if PAIRS.iter().any(|(stere, peer, _)| (*stere, *peer) == (bar.stere, bar.peer)) {
            assert!(ROWS.iter().any(|(metric, _)| *metric == bar.metric), "{bar:?}");
        }
    }
}
