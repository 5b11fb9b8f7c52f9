//! Pictures are whole, the same each time, and are drawn of nothing, too.

use super::*;
use crate::loads::Load;

fn profile(load: Load) -> Box<Profile> {
    let mut profile = Box::<Profile>::default();
    load.calls(1).iter().for_each(|call| profile.note(call));
    profile
}

/// Every tag is closed, and no number is none.
fn assert_whole(svg: &str) {
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name)),
            (false, false) => open.push(name),
            (false, true) => {}
        }
    }
    assert!(open.is_empty());
}

fn all(profile: &Profile) -> Vec<String> {
    let mut all = vec![
        arrivals_svg(&[("a <b> & \"c\"\n", profile), ("again", profile)]),
        metadata_arrivals_svg(&[("one", profile)]),
        sizes_svg(profile),
        miss_ratio_svg("one", &profile.reuse().curve(), 1 << 30),
    ];
    all.extend(variance_time_svg("one", profile.dependence()));
    all
}

#[test]
fn pictures_are_whole_and_the_same_each_time() {
    for load in [Load::BlockCyclicCheckpoint, Load::OneWriter, Load::PeriodicDumps] {
        let profile = profile(load);
        let pictures = all(&profile);
        assert_eq!(pictures.len(), 5);
        pictures.iter().for_each(|svg| assert_whole(svg));
        assert_eq!(pictures, all(&profile));
    }
    let folder = std::env::var_os("STERE_PICTURES");
    if let Some(folder) = folder.map(std::path::PathBuf::from) {
        for (number, svg) in all(&profile(Load::OneWriter)).iter().enumerate() {
            std::fs::write(folder.join(format!("{number}.svg")), svg).unwrap();
        }
    }
}

#[test]
fn nothing_is_drawn_as_empty_axes() {
    let pictures = all(&Profile::default());
    assert_eq!(pictures.len(), 4);
    pictures.iter().for_each(|svg| assert_whole(svg));
}

#[test]
fn times_are_written_as_usual() {
    let told = [0.0, 999.0, 1000.0, 1500.0, 2e6, 1.234e9].map(time_text);
    assert_eq!(told, ["0 ns", "999 ns", "1 µs", "1.50 µs", "2 ms", "1.23 s"]);
}
