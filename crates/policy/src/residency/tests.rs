use super::*;

#[test]
fn values_come_back_as_they_are_meant() {
    for (keep, text, meant) in [
        (ResidencySetting::Pin, "yes", Some("yes")),
        (ResidencySetting::Pin, "never", Some("no")),
        (ResidencySetting::Unit, "no", Some("no")),
        (ResidencySetting::Names, "90d", Some("90d")),
        (ResidencySetting::Names, "no", Some("no")),
        (ResidencySetting::Names, "", None),
    ] {
        let mut residency = ResidencySettings::default();
        residency.set(keep, text.as_bytes()).unwrap();
        assert_eq!((residency.text(keep).as_deref(), residency.says(keep)), (meant, meant.is_some()), "{text}");
        assert_eq!(residency.only(keep), residency);
    }
    for (keep, text) in [
        (ResidencySetting::Pin, "90d"),
        (ResidencySetting::Unit, "YES"),
        (ResidencySetting::Names, "0d"),
        (ResidencySetting::Names, "yes"),
        (ResidencySetting::Release, "0s"),
        (ResidencySetting::Release, "soon"),
    ] {
        assert!(ResidencySettings::default().set(keep, text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn of_rules_that_match_together_what_stays_goes_first() {
    let said =
        |pin, unit, names_seconds| ResidencySettings { pin, unit, names_seconds, release_seconds: names_seconds };
    let (one, other) = (said(Some(false), None, Some(7)), said(Some(true), Some(false), Some(0)));
    assert_eq!(one.or_more(other), said(Some(true), Some(false), Some(0)));
    assert_eq!(other.or_more(one), one.or_more(other));
    assert_eq!(one.or_more(said(None, None, Some(9))).names_seconds, Some(9), "longer");
    assert_eq!(one.or_more(said(None, None, Some(9))).release_seconds, Some(9), "longer");
    assert_eq!(one.or(other), said(Some(false), Some(false), Some(7)));
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn residency(&mut self) -> ResidencySettings {
        ResidencySettings {
            pin: [None, Some(true), Some(false)][self.below(3) as usize],
            ..ResidencySettings::default()
        }
    }
}

/// All that was said, each with its rank written out: the plain model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    /// Locks, overriding rules, objects, the pool's rules, its class.
    layer: u8,
    /// How far up the place is.
    place_up: u64,
    /// Rules before what is set.
    is_set: bool,
    /// How far up what they match is.
    object_up: u64,
    /// A key before the class beside it.
    is_of_class: bool,
}

/// P-154: whatever is said where, what holds is what the first in the order of authority says.
#[test]
fn what_holds_is_what_the_first_says() {
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let depth = 1 + random.below(5);
        let default = random.residency();
        let (mut statements, mut said) = (Arc::new(Statements::of_pool(default)), Vec::new());
        for object in 1..=depth {
            let up = depth - object;
            let rank =
                |layer, place_up, is_set, is_of_class| Rank { layer, place_up, is_set, object_up: up, is_of_class };
            let own = random.residency();
            let maybe = |random: &mut Random| (random.below(3) == 0).then(|| random.residency());
            let (class, locked) = (maybe(&mut random), maybe(&mut random));
            let mut matched = Vec::new();
            for place in (1..object).map(Some).chain([None]) {
                if random.below(2) == 0 {
                    let overrides = place.is_none() && random.below(2) == 0;
                    let (residency, has_class) = (random.residency(), random.below(3) == 0);
                    matched.push(MatchedRules { place, overrides, residency, has_class });
                    let layer = if overrides { 1 } else { place.map_or(3, |_| 2) };
                    let place_up = place.map_or(0, |place| depth - place);
                    said.push((
                        rank(layer, place_up, false, false),
                        residency,
                        has_class,
                        KeptBy::Rule { place, object },
                    ));
                }
            }
            said.push((rank(2, up, true, false), own, false, KeptBy::Object(object)));
            said.extend(class.map(|class| (rank(2, up, true, true), class, true, KeptBy::Object(object))));
            said.extend(locked.map(|locked| (rank(0, up, true, true), locked, false, KeptBy::Lock(object))));
            let here = Said { own, class, locked, has_rules: true };
            statements = statements.below(object, &here, &matched);
        }
        said.push((
            Rank { layer: 4, place_up: 0, is_set: true, object_up: 0, is_of_class: false },
            default,
            false,
            KeptBy::Pool,
        ));
        said.sort_unstable_by_key(|(rank, ..)| *rank);
        let (mut expected, mut has_class) = (None, false);
        for (rank, residency, is_class, by) in said {
            let is_silenced = rank.layer == 2 && rank.is_of_class && has_class;
            if let Some(value) = residency.pin.filter(|_| !is_silenced) {
                expected = Some((value, by));
                break;
            }
            has_class |= is_class;
        }
        assert_eq!(statements.kept(|residency| residency.pin), expected, "seed {seed}");
    }
}

#[test]
fn where_nothing_is_said_nothing_is_kept_of_it() {
    let top = Arc::new(Statements::default());
    assert!(Arc::ptr_eq(&top, &top.below(2, &Said::default(), &[])) && top.is_nothing());
    let rules =
        MatchedRules { place: Some(7), overrides: false, residency: ResidencySettings::default(), has_class: false };
    assert_eq!(
        top.below(2, &Said::default(), &[rules]).kept(|residency| residency.unit),
        None,
        "a place that is not there"
    );
}
