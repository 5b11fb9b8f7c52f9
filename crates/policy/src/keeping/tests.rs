use super::*;

#[test]
fn values_come_back_as_they_are_meant() {
    for (keep, text, meant) in [
        (Keep::Pin, "yes", Some("yes")),
        (Keep::Pin, "never", Some("no")),
        (Keep::Unit, "no", Some("no")),
        (Keep::Names, "90d", Some("90d")),
        (Keep::Names, "no", Some("no")),
        (Keep::Names, "", None),
    ] {
        let mut keeping = Keeping::default();
        keeping.set(keep, text.as_bytes()).unwrap();
        assert_eq!((keeping.text(keep).as_deref(), keeping.says(keep)), (meant, meant.is_some()), "{text}");
        assert_eq!(keeping.only(keep), keeping);
    }
    for (keep, text) in [(Keep::Pin, "90d"), (Keep::Unit, "YES"), (Keep::Names, "0d"), (Keep::Names, "yes")] {
        assert!(Keeping::default().set(keep, text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn of_rules_that_match_together_what_stays_goes_first() {
    let said = |pin, unit, names_seconds| Keeping { pin, unit, names_seconds };
    let (one, other) = (said(Some(false), None, Some(7)), said(Some(true), Some(false), Some(0)));
    assert_eq!(one.or_more(other), said(Some(true), Some(false), Some(0)));
    assert_eq!(other.or_more(one), one.or_more(other));
    assert_eq!(one.or_more(said(None, None, Some(9))).names_seconds, Some(9), "longer");
    assert_eq!(one.or(other), said(Some(false), Some(false), Some(7)));
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn keeping(&mut self) -> Keeping {
        Keeping { pin: [None, Some(true), Some(false)][self.below(3) as usize], ..Keeping::default() }
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
        let default = random.keeping();
        let (mut statements, mut said) = (Arc::new(Statements::of_pool(default)), Vec::new());
        for object in 1..=depth {
            let up = depth - object;
            let rank =
                |layer, place_up, is_set, is_of_class| Rank { layer, place_up, is_set, object_up: up, is_of_class };
            let own = random.keeping();
            let maybe = |random: &mut Random| (random.below(3) == 0).then(|| random.keeping());
            let (class, locked) = (maybe(&mut random), maybe(&mut random));
            let mut matched = Vec::new();
            for place in (1..object).map(Some).chain([None]) {
                if random.below(2) == 0 {
                    let overrides = place.is_none() && random.below(2) == 0;
                    let (keeping, has_class) = (random.keeping(), random.below(3) == 0);
                    matched.push(MatchedRules { place, overrides, keeping, has_class });
                    let layer = if overrides { 1 } else { place.map_or(3, |_| 2) };
                    let place_up = place.map_or(0, |place| depth - place);
                    said.push((
                        rank(layer, place_up, false, false),
                        keeping,
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
        for (rank, keeping, is_class, by) in said {
            let is_silenced = rank.layer == 2 && rank.is_of_class && has_class;
            if let Some(value) = keeping.pin.filter(|_| !is_silenced) {
                expected = Some((value, by));
                break;
            }
            has_class |= is_class;
        }
        assert_eq!(statements.kept(|keeping| keeping.pin), expected, "seed {seed}");
    }
}

#[test]
fn where_nothing_is_said_nothing_is_kept_of_it() {
    let top = Arc::new(Statements::default());
    assert!(Arc::ptr_eq(&top, &top.below(2, &Said::default(), &[])) && top.is_nothing());
    let rules = MatchedRules { place: Some(7), overrides: false, keeping: Keeping::default(), has_class: false };
    assert_eq!(
        top.below(2, &Said::default(), &[rules]).kept(|keeping| keeping.unit),
        None,
        "a place that is not there"
    );
}
