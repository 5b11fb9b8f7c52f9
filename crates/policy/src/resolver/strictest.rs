//! Files with several names: of each key the strictest of what each name would give.
//!
//! What is locked for one of the names goes before what is not for another; of several locks, and of what nobody locked, the strictest counts. The
//! order is that of rules that match together (`rules/decision.rs`), made total, so that it does not matter in which order names are
//! looked at. Here the pool's default counts like anything that is said: a name where nothing is said gives what nobody would take less of.

use std::cmp::Reverse;

use super::{Effective, Source};
use crate::attribute::{ANYWHERE, Own, TIERS_NONE};
use crate::class::{Class, SchemeWish, TierWish, Wish};
use crate::classes::Classes;
use crate::switches::Switch;
use crate::versions::Versions;

/// Of two values the locked one, else the one of the greater rank; of equals the first.
fn stricter<T, R: Ord>(one: (T, Source), other: (T, Source), rank: impl Fn(&T) -> R) -> (T, Source) {
    match (one.1.is_lock(), other.1.is_lock()) {
        (true, false) => one,
        (false, true) => other,
        _ if rank(&other.0) > rank(&one.0) => other,
        _ => one,
    }
}

/// The class that survives most, and among equals the one that does less.
fn rank_of_class(class: Class, classes: &Classes) -> impl Ord + use<> {
    (classes.wish(class).scheme.survives(), classes.compression(class).is_none(), Reverse(class.code()))
}

/// What survives most losses; copies before parity that survives as many, and few units of data before many.
fn rank_of_scheme(wish: SchemeWish) -> impl Ord + use<> {
    let (form, last) = match wish {
        SchemeWish::Copies(_) => (2, 0),
        SchemeWish::Parity { data, .. } => (1, if data == 0 { 0 } else { u8::MAX - data }),
        SchemeWish::Scale(place) => (0, place),
    };
    (wish.survives(), form, last)
}

/// A place rather than anywhere, and of two the one that was named first in the pool.
fn rank_of_place(place: u8) -> impl Ord + use<> {
    (place > ANYWHERE, Reverse(place))
}

/// Volumes rather than none, so that what one directory hands out there is whole; and more of them.
pub(crate) fn rank_of_tier(tier: TierWish) -> impl Ord + use<> {
    match tier {
        TierWish::Nowhere => (0, 0, 0),
        TierWish::Unsaid => (1, 0, 0),
        TierWish::Usual => (2, 0, 0),
        TierWish::Volumes(set) => (3, set.count_ones(), set),
    }
}

/// As many versions as one keeps, as long as one does; who says so is whose value that is, or the first.
fn more_versions(one: (Option<Versions>, Source), other: (Option<Versions>, Source)) -> (Option<Versions>, Source) {
    match (one.1.is_lock(), other.1.is_lock()) {
        (true, false) => return one,
        (false, true) => return other,
        _ => {}
    }
    let both = [one.0, other.0].into_iter().flatten().reduce(Versions::or_more);
    (both, if both == other.0 && both != one.0 { other.1 } else { one.1 })
}

impl Effective {
    /// What holds for a file that has one name where this holds and one where `other` does.
    pub fn or_stricter(self, other: Effective, classes: &Classes) -> Effective {
        let (a, b) = (self.wish, other.wish);
        let (class, class_source) = stricter((a.class, self.class_source), (b.class, other.class_source), |class| {
            rank_of_class(*class, classes)
        });
        let (scheme, scheme_source) =
            stricter((a.scheme, self.scheme_source), (b.scheme, other.scheme_source), |wish| rank_of_scheme(*wish));
        let (compression, compression_source) = stricter(
            (a.compression, self.compression_source),
            (b.compression, other.compression_source),
            |compression| Reverse(compression.code()),
        );
        let (encryption, encryption_source) =
            stricter((a.encryption, self.encryption_source), (b.encryption, other.encryption_source), |encryption| {
                *encryption
            });
        let (tier, tier_source) =
            stricter((a.tier, self.tier_source), (b.tier, other.tier_source), |tier| rank_of_tier(*tier));
        let (record, record_source) =
            stricter((a.record, self.record_source), (b.record, other.record_source), |record| Reverse(*record));
        let (checksum, checksum_source) =
            stricter((a.checksum, self.checksum_source), (b.checksum, other.checksum_source), |checksum| *checksum);
        let (on, on_source) = stricter((a.on, self.on_source), (b.on, other.on_source), |on| rank_of_place(*on));
        let (only, only_source) =
            stricter((a.only, self.only_source), (b.only, other.only_source), |only| rank_of_place(*only));
        let (node, node_source) =
            stricter((a.node, self.node_source), (b.node, other.node_source), |node| rank_of_place(*node));
        let (sync, sync_source) = stricter((a.sync, self.sync_source), (b.sync, other.sync_source), |sync| *sync);
        let (plugins, plugins_source) =
            stricter((self.plugins, self.plugins_source), (other.plugins, other.plugins_source), |stack| {
                (*stack > 0, Reverse(*stack))
            });
        let (versions, versions_source) =
            more_versions((self.versions, self.versions_source), (other.versions, other.versions_source));
        let survives_most = a.scheme.survives().max(b.scheme.survives());
        assert!(scheme_source.is_lock() || scheme.survives() == survives_most, "{scheme:?} is not the strictest");
        let checksum_most = a.checksum.max(b.checksum);
        assert!(checksum_source.is_lock() || checksum == checksum_most, "{checksum:?} is not the strictest");
        let encrypts_most = a.encryption.max(b.encryption);
        assert!(encryption_source.is_lock() || encryption == encrypts_most, "{encryption:?} is not the strictest");
        let smallest = a.record.min(b.record);
        assert!(record_source.is_lock() || record == smallest, "{record:?} is not the strictest");
        let is_locked = self.scheme_source.is_lock() || other.scheme_source.is_lock();
        assert_eq!(scheme_source.is_lock(), is_locked, "what is locked for one of the names is locked");
        let switches = Switch::ALL
            .map(|switch| stricter(self.switches[switch as usize], other.switches[switch as usize], |is_on| *is_on));
        Effective {
            wish: Wish { class, scheme, compression, encryption, tier, record, checksum, on, only, node, sync },
            class_source,
            scheme_source,
            compression_source,
            encryption_source,
            tier_source,
            record_source,
            checksum_source,
            on_source,
            only_source,
            node_source,
            sync_source,
            plugins,
            plugins_source,
            versions,
            versions_source,
            switches,
        }
    }

    /// What is locked here and not in `other`, added to these locks of an object: for a file that lost the name that was locked.
    pub fn locks_beyond(&self, other: &Effective, mut locks: Own) -> Own {
        let wish = self.wish;
        let is_lost = |mine: Source, theirs: Source| mine.is_lock() && !theirs.is_lock();
        if is_lost(self.class_source, other.class_source) {
            locks.class = wish.class.code();
        }
        if is_lost(self.scheme_source, other.scheme_source) {
            locks.set_scheme(wish.scheme);
        }
        if is_lost(self.compression_source, other.compression_source) {
            locks.compression = wish.compression.code();
        }
        if is_lost(self.encryption_source, other.encryption_source) {
            locks.encryption = wish.encryption.code();
        }
        if is_lost(self.tier_source, other.tier_source) {
            // What is usual in the pool comes with its class.
            locks.tiers = match wish.tier {
                TierWish::Volumes(set) => set,
                TierWish::Nowhere => TIERS_NONE,
                TierWish::Usual | TierWish::Unsaid => locks.tiers,
            };
        }
        if is_lost(self.record_source, other.record_source) {
            locks.record = wish.record.code();
        }
        if is_lost(self.checksum_source, other.checksum_source) {
            locks.checksum = wish.checksum.code();
        }
        if is_lost(self.on_source, other.on_source) {
            locks.on = wish.on.max(ANYWHERE);
        }
        if is_lost(self.only_source, other.only_source) {
            locks.only = wish.only.max(ANYWHERE);
        }
        if is_lost(self.node_source, other.node_source) {
            locks.node = wish.node.max(ANYWHERE);
        }
        if is_lost(self.sync_source, other.sync_source) {
            locks.sync = wish.sync.code();
        }
        if is_lost(self.plugins_source, other.plugins_source) {
            locks.plugins = self.plugins + 1;
        }
        if is_lost(self.versions_source, other.versions_source) {
            locks.versions = self.versions;
        }
        for switch in Switch::ALL {
            let (is_on, source) = self.switches[switch as usize];
            if is_lost(source, other.switches[switch as usize].1) {
                locks.switches.set(switch, Some(is_on));
            }
        }
        locks
    }
}

#[cfg(test)]
mod tests;
