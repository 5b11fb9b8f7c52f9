//! `stere io` with the real binary and a real mount (P-304): what is asked of a pool is counted, drawn, recorded, and advised on. Needs
//! root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde_json::Value;
use support::tier::{end_clean, mount_pool};
use support::{World, can_mount};

fn kind<'a>(subject: &'a Value, kind: &str) -> &'a Value {
    subject["kinds"].as_array().unwrap().iter().find(|line| line["kind"] == kind).unwrap_or(&Value::Null)
}

/// P-304: all calls of a kind are counted, with bytes and errors; below a directory from the first question on, and of classes.
#[test]
fn what_is_asked_of_a_pool_is_counted() {
    if !can_mount("what_is_asked_of_a_pool_is_counted") {
        return;
    }
    for options in ["", "-o transport=dev"] {
        let world = World::new();
        mount_pool(&world, options);
        let directory = world.mountpoint().join("work");
        fs::create_dir(&directory).unwrap();
        assert!(world.ok("io stat mount/work").contains("from now on"));
        let file = File::create(directory.join("a")).unwrap();
        (0..256).for_each(|number| file.write_all_at(&[7; 4096], number * 4096).unwrap());
        file.sync_all().unwrap();
        drop(file);
        assert!(fs::remove_dir(&directory).is_err());
        fs::write(world.mountpoint().join("elsewhere"), [1; 100_000]).unwrap();
        fs::remove_file(directory.join("a")).unwrap();
        let report = world.json("io stat tank --json");
        assert_eq!(report["missed_calls"], 0);
        let pool = &report["subjects"][0];
        assert_eq!(pool["of"], "pool");
        assert!(kind(pool, "write")["bytes"].as_u64().unwrap() == (1 << 20) + 100_000, "{pool}");
        assert_eq!(
            (&kind(pool, "unlink")["calls"], &kind(pool, "unlink")["errors"]),
            (&Value::from(2), &Value::from(1))
        );
        assert!(pool["sequential_share"].as_f64().unwrap() > 0.9);
        assert!(kind(pool, "fsync")["latency_median_ns"].as_u64().unwrap() > 0);
        let below = world.json("io stat mount/work --json");
        assert_eq!(kind(&below["subjects"][0], "write")["bytes"], 1 << 20, "{below}");
        let text = world.ok("io stat tank");
        assert!(text.contains("too little data") && text.contains("directory /work"), "{text}");
        // A class of its own is told apart.
        fs::create_dir(world.mountpoint().join("kept")).unwrap();
        world.ok("policy set mount/kept class=precious");
        fs::write(world.mountpoint().join("kept/file"), [1; 50_000]).unwrap();
        let report = world.json("io stat tank --json");
        let of_class = report["subjects"].as_array().unwrap().iter().find(|line| line["name"] == "precious");
        assert_eq!(kind(of_class.unwrap(), "write")["bytes"], 50_000);
        end_clean(&world);
    }
}

/// P-304: pictures, a trace that is read again as table and by Darshan's text, and advice that changes nothing.
#[test]
fn a_load_is_drawn_recorded_and_advised_on() {
    if !can_mount("a_load_is_drawn_recorded_and_advised_on") {
        return;
    }
    let world = World::new();
    mount_pool(&world, "");
    let nothing = world.ok("io advise tank");
    assert!(nothing.contains("no advice on record"), "{nothing}");
    world.ok("io record tank trace --seconds 600");
    world.refused("io record tank other", 1, &["being recorded"]);
    let file = File::create(world.mountpoint().join("secret-name")).unwrap();
    (0..2000_u64).for_each(|number| file.write_all_at(&[3; 4096], (number * 7919 % 2000) * 4096).unwrap());
    drop(file);
    assert!(world.ok("io record tank --stop").contains("recorded"));
    let shown = world.ok("io show trace");
    assert!(shown.contains("write") && shown.contains("2,000"), "{shown}");
    world.ok("io convert trace table.tsv");
    let table = fs::read_to_string(world.path("table.tsv")).unwrap();
    assert!(table.contains("/secret-name") && table.lines().filter(|line| line.contains("write")).count() >= 2000);
    world.ok("io convert table.tsv again");
    let figures = |trace: &str| {
        let shown = world.ok(&format!("io show {trace}"));
        shown.lines().nth(1).unwrap().split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(figures("again"), figures("table.tsv"));
    assert_eq!(figures("again"), figures("trace"));
    world.ok("io convert trace calls.dxt");
    assert!(fs::read_to_string(world.path("calls.dxt")).unwrap().contains("X_POSIX"));
    world.ok("io record tank hashed --seconds 1 --names hashed");
    fs::read(world.mountpoint().join("secret-name")).unwrap();
    world.ok("io record tank --stop");
    let hashed = fs::read(world.path("hashed")).unwrap();
    assert!(!hashed.windows(11).any(|bytes| bytes == b"secret-name"), "names were to be hashed");
    let drawn = world.ok("io show tank --svg pictures");
    assert!(drawn.contains("arrivals.svg") && drawn.contains("misses.svg"), "{drawn}");
    assert!(fs::read_to_string(world.path("pictures/arrivals.svg")).unwrap().starts_with("<svg"));
    let before = world.ok("policy get mount/secret-name");
    let advice = world.json("io advise tank --json");
    let record = advice.as_array().unwrap().iter().find(|line| line["key"] == "record").unwrap();
    assert!(record["because"].as_str().unwrap().contains("60 are needed"), "{advice}");
    assert_eq!(world.ok("policy get mount/secret-name"), before);
    world.refused("io show hashed-away", 1, &["no mounted pool"]);
    end_clean(&world);
}
