use super::*;

#[test]
fn busy_is_what_neither_idles_nor_waits_nor_is_stolen() {
    let stat = "cpu  100 20 3 4000 500 6 7 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
    assert_eq!(busy_ticks(stat), 100 + 20 + 3 + 6 + 7);
    assert_eq!(busy_ticks(""), 0);
}

#[test]
fn costs_are_told_for_each_gibibyte_and_for_each_operation() {
    let spent = Spent { wall: Duration::from_secs(2), processors: Duration::from_millis(500) };
    let bytes = Metric::bytes("write", 512 << 20, spent).to_json();
    assert_eq!(bytes["processors_unit"], "s/GiB");
    assert!((bytes["processors"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert!((bytes["value"].as_f64().unwrap() - 268.435456).abs() < 1e-9);
    let count = Metric::count("create", 1000, spent).to_json();
    assert_eq!(count["processors_unit"], "us each");
    assert!((count["processors"].as_f64().unwrap() - 500.0).abs() < 1e-9);
    assert!((count["value"].as_f64().unwrap() - 500.0).abs() < 1e-9);
}
