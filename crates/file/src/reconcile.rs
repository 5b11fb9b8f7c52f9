//! Making stored data be what the policy says: other redundancy, other devices, or one home for an unreplicated file.
//!
//! Works blob by blob below the file: nothing is locked, and who reads or writes meanwhile notices nothing. Never lowers
//! the protection because devices are away; blobs that several files share get the best protection that one of them asks
//! for, and less only when all of them were seen to ask for the same. Read next: the engine's `relocate.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use stere_format::{ChecksumKind, DeviceIndex, FileKind, Scheme, Site};
use stere_policy::{Algorithm, Effective};
use stere_store::{BlobHandle, Move, Owner, Placement, Store};

use crate::block::END;
use crate::charging::Charging;
use crate::context::Context;
use crate::encode::{Codec, is_as_asked};
use crate::encoding::AskedEncoding;
use crate::encrypted::is_of_other_key;
use crate::error::Error;
use crate::facts::{StoredExtent, stored_extents};
use crate::keys;
use crate::policies::Policies;
use crate::save::Writeback;
use crate::table::FileTable;

/// Extents looked at in one view, and at most moved in one update: several groups of the store's, so that one is read while another is
/// written.
const EXTENTS_PER_STEP: usize = 256;
/// Shared blobs remembered in one walk until all their extents have been seen.
const SHARED_MAX: usize = 1 << 18;

/// What a walk over files remembers of blobs that several of them share: how many extents asked for the same.
#[derive(Debug, Default)]
pub struct SharedWishes {
    /// A blob was met that two files require to lie in different places.
    has_contradiction: bool,
    /// Such blobs are being given to each of them by itself.
    is_separating: bool,
    schemes: Asked<Scheme>,
    sites: Asked<Site>,
    encodings: Asked<(Option<Algorithm>, ChecksumKind)>,
}

impl SharedWishes {
    /// To be asked at the end of a walk: whether it has to be made once more, because of blobs that files require to lie in different
    /// places. Only then it is known that not all of them asked for the same.
    pub fn begin_separating(&mut self) -> bool {
        if self.is_separating || !self.has_contradiction {
            return false;
        }
        *self = SharedWishes { is_separating: true, ..SharedWishes::default() };
        true
    }
}

#[derive(Debug)]
struct Asked<T> {
    seen: BTreeMap<u64, (T, u32)>,
}

impl<T> Default for Asked<T> {
    fn default() -> Asked<T> {
        Asked { seen: BTreeMap::new() }
    }
}

impl<T: PartialEq> Asked<T> {
    /// Notes one extent's wish; true when every extent of the blob has asked for this.
    fn all_ask(&mut self, blob: &BlobHandle, wanted: T) -> bool {
        if self.seen.len() >= SHARED_MAX && !self.seen.contains_key(&blob.id) {
            return false;
        }
        let is_asked = self.seen.get(&blob.id).is_none_or(|(asked, _)| *asked == wanted);
        if !is_asked {
            // They do not agree, and the count never reaches all of them.
            return false;
        }
        let (_, count) = self.seen.entry(blob.id).or_insert((wanted, 0));
        *count += 1;
        let all = *count >= blob.value.references;
        if all {
            self.seen.remove(&blob.id);
        }
        all
    }
}

/// What was done to a file in one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Where to go on; `None` when the file is done.
    pub next: Option<u64>,
    /// Bytes that were moved.
    pub moved_bytes: u64,
    /// Bytes that wait for devices to come back before they can be stored as the policy says.
    pub waiting_bytes: u64,
    /// Bytes that wait for a key to be unlocked.
    pub locked_bytes: u64,
    /// Blobs that cannot be read.
    pub damaged_blobs: u32,
}

/// How a file is to be stored.
struct Wanted {
    inode: u64,
    placement: Placement,
    asked: AskedEncoding,
    home: Option<DeviceIndex>,
    tertiary: Option<u16>,
}

/// What one step does with some extents of a file.
#[derive(Default)]
struct Step {
    /// By the volumes that they belong on.
    moves: BTreeMap<u16, Vec<Move>>,
    /// Blobs of which the file gets its own.
    apart: Vec<u64>,
}

/// Converts stored data to what the policy says.
pub struct Converter {
    pub(crate) store: Arc<Store>,
    pub(crate) table: Arc<FileTable>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) charging: Arc<Charging>,
    pub(crate) writeback: Arc<Writeback>,
}

impl Converter {
    pub(crate) fn new(writeback: &Arc<Writeback>, charging: Arc<Charging>) -> Converter {
        let Writeback { store, table, policies, codec, .. } = &**writeback;
        let (store, table, policies) = (store.clone(), table.clone(), policies.clone());
        Converter { store, table, policies, codec: codec.clone(), charging, writeback: writeback.clone() }
    }

    /// Moves what of a file does not lie as its policy says, from `from` on, about `budget_bytes` of it.
    pub fn reconcile(
        &self,
        context: &Context<'_>,
        inode: u64,
        from: u64,
        budget_bytes: u64,
        shared: &mut SharedWishes,
    ) -> Result<Reconciled, Error> {
        let mut done = Reconciled { next: Some(from), ..Reconciled::default() };
        let effective = self.store.view(context.io, |view| {
            let value = keys::inode_if_any(view, inode)?;
            let Some(value) = value.filter(|value| value.kind() == Some(FileKind::File)) else { return Ok(None) };
            let used_seconds = value.atime.seconds.max(value.mtime.seconds);
            Ok::<_, Error>(Some((self.policies.effective(view, inode, &value)?, used_seconds)))
        })?;
        let Some((effective, used_seconds)) = effective else { return Ok(Reconciled::default()) };
        let placement = self.policies.placement_of(&effective);
        let known = self.table.find(inode).and_then(|held| held.read(context.io).ok()?.content.as_ref()?.home);
        let home = self.policies.home(context.io, inode, known, placement)?;
        let tertiary = self.policies.media_of(effective.wish.tier);
        let wanted = Wanted { inode, placement, asked: self.policies.asked(&effective), home, tertiary };
        while let Some(at) = done.next.filter(|_| done.moved_bytes < budget_bytes) {
            let (extents, next) = stored_extents(&self.store, context.io, inode, at, EXTENTS_PER_STEP)?;
            let (extents, next) = self.with_keys(context, inode, (at, next), &effective, extents, &mut done)?;
            let step = self.plan_step(context, extents, &wanted, shared, &mut done)?;
            for (set, moves) in step.moves.iter().filter(|(_, moves)| !moves.is_empty()) {
                let moved = match *set {
                    0 => self.store.cleaning().relocate(moves, placement, home)?,
                    set => self.store.cleaning().archive_used(moves, placement, set, used_seconds)?,
                };
                done.moved_bytes += moved.bytes;
                done.damaged_blobs += moved.damaged;
            }
            if !step.apart.is_empty() {
                let range = at..next.unwrap_or(END);
                let is_meant = |extent: &StoredExtent| step.apart.contains(&extent.blob.id);
                let anew = self.store_anew(context, inode, range, &effective, is_meant)?;
                done.moved_bytes += anew.moved_bytes;
                done.damaged_blobs += anew.damaged_blobs;
                if anew.moved_bytes > 0 && tertiary.is_some_and(|set| set != 0) {
                    // What has its own blobs now goes to volumes as before.
                    continue;
                }
            }
            self.charging.recharge(context.io, inode, at..next.unwrap_or(END))?;
            done.next = next;
        }
        Ok(done)
    }

    /// What is to be done with some extents of a file.
    fn plan_step(
        &self,
        context: &Context<'_>,
        extents: Vec<StoredExtent>,
        wanted: &Wanted,
        shared: &mut SharedWishes,
        done: &mut Reconciled,
    ) -> Result<Step, Error> {
        let Wanted { inode: _, placement, asked, home, tertiary } = *wanted;
        let mut step = Step::default();
        for extent in extents {
            let judgement = match self.judge_tier(&extent.blob, tertiary, placement, shared) {
                Some(judgement) => judgement,
                None => self.judge(&extent.blob, placement, home, shared),
            };
            // What is elsewhere, or stays there, is not fetched to be compressed.
            let is_other = judgement != Judgement::Archived && self.is_to_be_recoded(&extent.blob, asked, shared);
            if judgement == Judgement::Apart {
                step.apart.push(extent.blob.id);
            }
            if judgement == Judgement::Waits {
                done.waiting_bytes += u64::from(extent.length);
            }
            let moves_on = match judgement {
                Judgement::Moves => true,
                Judgement::Right => is_other,
                Judgement::Stays | Judgement::Waits | Judgement::Archived | Judgement::Apart => false,
            };
            let moves = step.moves.entry(self.volumes_for(&extent.blob, tertiary)).or_default();
            // Several extents may lie in one blob.
            if !moves_on || moves.iter().any(|one| one.blob.id == extent.blob.id) {
                continue;
            }
            let recoded = match is_other.then(|| self.codec.recode(context.io, &extent.blob, asked)) {
                None => None,
                Some(Ok(recoded)) => Some(recoded),
                Some(Err(Error::Undecodable { .. } | Error::Store(stere_store::Error::Damaged { .. }))) => {
                    done.damaged_blobs += 1;
                    continue;
                }
                Some(Err(error)) => return Err(error),
            };
            let offset = extent.start.saturating_sub(u64::from(extent.blob_offset));
            moves.push(Move { blob: extent.blob, owner: Owner { inode: wanted.inode, offset }, recoded });
        }
        Ok(step)
    }

    /// The volumes that a blob belongs on when it has moved, 0 for none.
    fn volumes_for(&self, blob: &BlobHandle, wanted: Option<u16>) -> u16 {
        wanted.unwrap_or_else(|| self.store.tier.media.in_place_of(blob.tertiary_wanted()))
    }

    /// What is to be done with a blob because of its media; `None` where they decide nothing.
    fn judge_tier(
        &self,
        blob: &BlobHandle,
        wanted: Option<u16>,
        placement: Placement,
        shared: &mut SharedWishes,
    ) -> Option<Judgement> {
        // What is on a volume that is being retired is on its way to the heir.
        let now = self.store.tier.media.in_place_of(blob.tertiary_wanted());
        match wanted {
            None | Some(0) if now == 0 => None,
            Some(set) if set != now => Some(Judgement::Moves),
            // Whoever asked for volumes may not have it any more: what is left of it is kept as safe as everything else.
            None | Some(_) => Some(self.judge_archived(blob, placement, shared)),
        }
    }

    /// What is, or waits to be, on the volumes that it belongs on: on devices it lies where and as its file wants it, too. What is on
    /// volumes only lies nowhere, and stays so until somebody wants it back.
    fn judge_archived(&self, blob: &BlobHandle, placement: Placement, shared: &mut SharedWishes) -> Judgement {
        let is_wanted = || !blob.is_released() || self.store.tier.recalls.is_wanted_back(blob.segment_id());
        let is_there = blob.site() == placement.site;
        match self.judge_scheme(blob, placement, shared) {
            _ if !is_wanted() => Judgement::Archived,
            // What is on volumes only comes back before it is stored otherwise.
            Judgement::Moves if !blob.is_released() => Judgement::Moves,
            judgement if is_there && judgement != Judgement::Right && !blob.is_released() => judgement,
            _ if is_there => Judgement::Archived,
            _ if blob.is_released() && !self.store.tier.media.can_reach(blob.media()) => Judgement::Waits,
            _ => judge_site(blob, placement.site, shared),
        }
    }

    /// These extents, after those were stored anew that are encrypted otherwise than asked for; without those that still are. And where
    /// to go on: there may be more now.
    fn with_keys(
        &self,
        context: &Context<'_>,
        inode: u64,
        (at, next): (u64, Option<u64>),
        effective: &Effective,
        extents: Vec<StoredExtent>,
        done: &mut Reconciled,
    ) -> Result<(Vec<StoredExtent>, Option<u64>), Error> {
        let asked = self.policies.asked(effective);
        if !extents.iter().any(|extent| is_of_other_key(extent, asked)) {
            return Ok((extents, next));
        }
        drop(extents);
        let end = next.unwrap_or(END);
        let anew = self.store_anew(context, inode, at..end, effective, |extent| is_of_other_key(extent, asked))?;
        done.moved_bytes += anew.moved_bytes;
        done.locked_bytes += anew.locked_bytes;
        done.damaged_blobs += anew.damaged_blobs;
        let (mut extents, again) = stored_extents(&self.store, context.io, inode, at, EXTENTS_PER_STEP)?;
        extents.retain(|extent| extent.start < end && !is_of_other_key(extent, asked));
        Ok((extents, again.filter(|again| *again < end).or(next)))
    }

    /// Whether a blob's content is to be stored in another encoding. What files share is stored as one of them asks until all
    /// ask for the same.
    fn is_to_be_recoded(&self, blob: &BlobHandle, wanted: AskedEncoding, shared: &mut SharedWishes) -> bool {
        if is_as_asked(blob, wanted) || !blob.value.encoding.is_known() {
            return false;
        }
        let asks = (wanted.compression.algorithm(), wanted.checksum);
        !blob.is_shared() || shared.encodings.all_ask(blob, asks)
    }

    fn judge(
        &self,
        blob: &BlobHandle,
        placement: Placement,
        home: Option<DeviceIndex>,
        shared: &mut SharedWishes,
    ) -> Judgement {
        if blob.site() != placement.site {
            return judge_site(blob, placement.site, shared);
        }
        let judgement = self.judge_scheme(blob, placement, shared);
        // Together again on one device, if that has room.
        let is_apart = home.is_some_and(|home| {
            !blob.is_shared() && blob.home() != Some(home) && self.store.places().has_room_at_home(placement, home)
        });
        if judgement == Judgement::Right && is_apart { Judgement::Moves } else { judgement }
    }

    /// What is to be done with a blob because of its copies or parity on devices.
    fn judge_scheme(&self, blob: &BlobHandle, placement: Placement, shared: &mut SharedWishes) -> Judgement {
        let (now, possible) = (blob.scheme(), self.store.places().fit_for(placement));
        if now == possible {
            return Judgement::Right;
        }
        // Devices are away: what there is may be better than what could be had now.
        if possible != placement.scheme && possible.parity <= now.parity {
            return if now == placement.scheme { Judgement::Stays } else { Judgement::Waits };
        }
        if blob.is_shared() && possible.parity <= now.parity && !shared.schemes.all_ask(blob, possible) {
            return Judgement::Stays;
        }
        Judgement::Moves
    }
}

/// A blob that was not asked to lie where this file wants it. Of files that share one, who requires a place goes before who does not;
/// otherwise it stays until all ask for the same. Where two require different places and that is not because one of them was not met
/// yet, who comes gets a blob of his own.
fn judge_site(blob: &BlobHandle, wanted: Site, shared: &mut SharedWishes) -> Judgement {
    let now = blob.site();
    let is_stricter = now == Site::ANYWHERE || (now.only == 0 && wanted.only != 0);
    let is_contradiction = now.only != 0 && wanted.only != 0 && now.only != wanted.only;
    if is_contradiction && shared.is_separating && blob.value.references > 1 {
        return Judgement::Apart;
    }
    if is_stricter || !blob.is_shared() || shared.sites.all_ask(blob, wanted) {
        return Judgement::Moves;
    }
    shared.has_contradiction |= is_contradiction;
    Judgement::Stays
}

/// What is to be done with a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    /// It lies as it should.
    Right,
    /// It lies better than this file could have it now, or must be stored as another one wants it.
    Stays,
    /// It does not lie as it should, and cannot until devices come back.
    Waits,
    /// It moves.
    Moves,
    /// It stays for others, and this file gets one of its own.
    Apart,
    /// It is, or waits to be, on the media it belongs to.
    Archived,
}
