use super::*;
use crate::attribute::Setting;
use crate::resolver::unsaid;

/// Numbers that are the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % below
    }
}

fn pick<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.next(all.len() as u64) as usize]
}

/// What some name gives: by an attribute, a lock, or nobody.
fn some(random: &mut Random, number: u64) -> Effective {
    let mut effective = unsaid(&Classes::default(), Class::Normal);
    let mut own = Own::default();
    let values: [(Setting, &[&str]); 11] = [
        (Setting::Copies, &["1", "2", "3"]),
        (Setting::Parity, &["1", "4+1", "2+1", "2"]),
        (Setting::Redundancy, &["0", "2", "4", "9"]),
        (Setting::Compress, &["none", "lz4", "zstd", "zstd:9"]),
        (Setting::Encrypt, &["no", "yes", "#2"]),
        (Setting::Tier, &["none", "#1", "#6"]),
        (Setting::Record, &["8K", "128K"]),
        (Setting::Checksum, &["none", "xxh3", "blake3"]),
        (Setting::On, &["any", "#2", "#3"]),
        (Setting::Only, &["any", "#2", "#3"]),
        (Setting::Backup, &["yes", "no"]),
    ];
    for (setting, texts) in values {
        // One way to ask for redundancy at a time.
        if random.next(2) == 0 && !(setting.word() == "parity" || setting.word() == "redundancy") || own.is_empty() {
            let _impossible = own.set(setting, pick(random, texts).as_bytes());
        }
    }
    let source = |random: &mut Random| match random.next(3) {
        0 => Source::Lock(number),
        _ => Source::Inode(number),
    };
    if let Some(wish) = own.scheme_wish() {
        (effective.wish.scheme, effective.scheme_source) = (wish, source(random));
    }
    if random.next(2) == 0 {
        (effective.wish.class, effective.class_source) = (pick(random, &Class::BUILT_IN), source(random));
    }
    if let Some(compression) = own.compression() {
        (effective.wish.compression, effective.compression_source) = (compression, source(random));
    }
    if let Some(encryption) = own.encryption() {
        (effective.wish.encryption, effective.encryption_source) = (encryption, source(random));
    }
    if let Some(tier) = own.tier_wish() {
        (effective.wish.tier, effective.tier_source) = (tier, source(random));
    }
    if let Some(record) = own.record() {
        (effective.wish.record, effective.record_source) = (record, source(random));
    }
    if let Some(checksum) = own.checksum() {
        (effective.wish.checksum, effective.checksum_source) = (checksum, source(random));
    }
    if let Some(on) = own.on() {
        (effective.wish.on, effective.on_source) = (on, source(random));
    }
    if let Some(only) = own.only() {
        (effective.wish.only, effective.only_source) = (only, source(random));
    }
    if let Some(is_on) = own.switches.get(Switch::Backup) {
        effective.switches[Switch::Backup as usize] = (is_on, source(random));
    }
    if random.next(2) == 0 {
        (effective.plugins, effective.plugins_source) = (random.next(3) as u16, source(random));
    }
    if random.next(2) == 0 {
        let count = [None, Some(3), Some(9)][random.next(3) as usize];
        let versions = [Versions::No, Versions::Kept { count, seconds: Some(60) }][random.next(2) as usize];
        (effective.versions, effective.versions_source) = (Some(versions), source(random));
    }
    effective
}

/// P-147: whichever name is looked at first, the same holds, and one more name never makes less of it unless it is locked.
#[test]
fn the_order_of_names_does_not_matter() {
    let (random, classes) = (&mut Random(7), Classes::default());
    let wishes = |effective: Effective| (effective.wish, effective.plugins, effective.versions);
    let locked = |effective: Effective| {
        let list = [effective.plugins_source.is_lock(), effective.versions_source.is_lock()];
        (Setting::ALL.map(|setting| effective.source(setting).is_lock()), list)
    };
    for _ in 0..20_000 {
        let [a, b, c] = [1, 2, 3].map(|number| some(random, number));
        let of = |one: Effective, other: Effective| one.or_stricter(other, &classes);
        assert_eq!(wishes(of(a, a)), wishes(a));
        assert_eq!(wishes(of(a, b)), wishes(of(b, a)), "{a:?}\n{b:?}");
        assert_eq!(wishes(of(of(a, b), c)), wishes(of(a, of(b, c))), "{a:?}\n{b:?}\n{c:?}");
        assert_eq!(locked(of(a, b)), locked(of(b, a)));
        let both = of(a, b);
        for name in [a, b] {
            let is_free = both.scheme_source.is_lock() == name.scheme_source.is_lock();
            assert!(!is_free || both.wish.scheme.survives() >= name.wish.scheme.survives(), "{a:?}\n{b:?}");
            let is_free = both.encryption_source.is_lock() == name.encryption_source.is_lock();
            assert!(!is_free || both.wish.encryption >= name.wish.encryption, "{a:?}\n{b:?}");
        }
    }
}

#[test]
fn what_was_locked_for_a_name_that_goes_becomes_a_lock() {
    let (random, classes) = (&mut Random(8), Classes::default());
    for _ in 0..2_000 {
        let [a, b] = [1, 2].map(|number| some(random, number));
        let locks = a.locks_beyond(&b, Own::default());
        assert_eq!(locks.class != 0, a.class_source.is_lock() && !b.class_source.is_lock());
        let is_lost = a.scheme_source.is_lock() && !b.scheme_source.is_lock();
        assert_eq!(locks.scheme_wish(), is_lost.then_some(a.wish.scheme));
        let is_lost = a.only_source.is_lock() && !b.only_source.is_lock();
        assert_eq!(locks.only(), is_lost.then_some(a.wish.only));
        let is_lost = a.plugins_source.is_lock() && !b.plugins_source.is_lock();
        assert_eq!(locks.plugins, if is_lost { a.plugins + 1 } else { 0 });
        let is_lost = a.tier_source.is_lock() && !b.tier_source.is_lock();
        assert!(!is_lost || locks.tier_wish().is_some() || a.wish.tier == TierWish::Unsaid, "{a:?}");
        assert!(b.locks_beyond(&b, Own::default()).is_empty());
        let kept = a.or_stricter(b, &classes);
        assert!(kept.locks_beyond(&kept, locks) == locks);
    }
}
