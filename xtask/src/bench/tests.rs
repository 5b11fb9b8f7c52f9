use super::compare::Results;
use super::statistics::Summary;
use super::*;

#[test]
fn medians_of_odd_and_even_counts() {
    assert_eq!(Summary::of(&[]), None);
    assert_eq!(Summary::of(&[3.0, 1.0, 2.0]), Some(Summary { median: 2.0, min: 1.0, max: 3.0, count: 3 }));
    assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).map(|summary| summary.median), Some(2.5));
}

#[test]
fn bars_are_judged_on_medians_and_only_where_both_sides_were_measured() {
    let printed = |value: f64| {
        let metric = format!(r#"{{"name":"seqwrite","value":{value},"unit":"MB/s","durable":"d","cached":"c"}}"#);
        format!(r#"{{"metrics":[{metric}]}}"#)
    };
    let mut results = Results::default();
    for (stere, ext4) in [(60.0, 100.0), (95.0, 100.0), (1000.0, 90.0)] {
        results.add(Kind::Stere, &printed(stere)).expect("good JSON");
        results.add(Kind::Ext4, &printed(ext4)).expect("good JSON");
    }
    let verdicts = bars::judge(&results);
    assert_eq!(verdicts.len(), 1, "mergerfs and the other metrics were not measured");
    assert!((verdicts[0].ratio - 0.95).abs() < 1e-9 && verdicts[0].is_met());
    results.add(Kind::Stere, &printed(1.0)).expect("good JSON");
    results.add(Kind::Stere, &printed(1.0)).expect("good JSON");
    assert!(!bars::judge(&results)[0].is_met(), "the median is now 60");
    assert!(results.add(Kind::Stere, "nonsense").is_err());
}

#[test]
fn no_bar_is_there_twice_and_every_pair_that_is_measured_has_some() {
    let all = bars::bars();
    for (at, bar) in all.iter().enumerate() {
        let same = |other: &&bars::Bar| (other.metric, other.stere, other.peer) == (bar.metric, bar.stere, bar.peer);
        assert_eq!(all.iter().skip(at + 1).find(same), None);
        assert!(bar.stere.is_stere() && !bar.peer.is_stere(), "{bar:?}");
    }
    for peer in [Kind::Ext4, Kind::BtrfsRaid1, Kind::BtrfsRaid5, Kind::Mergerfs, Kind::ZfsFuse, Kind::Null] {
        assert!(all.iter().any(|bar| bar.peer == peer), "{}", peer.name());
    }
}
