//! What was written, or done, and is not durable yet: it is written or done again at the next owner if this one goes before it is.
//!
//! Invariants: pieces of one file do not overlap, the newest bytes win; a piece goes when it is known to be durable, or when somebody
//! else has written there (then it is theirs to keep). Read next: `restore.rs`, which writes them again; `retained/requests.rs`.

pub(crate) mod requests;

use std::collections::{BTreeMap, HashMap, HashSet};

use requests::{Request, Requests};

#[cfg(test)]
mod tests;

/// More than this is not kept: the owner is asked to make all durable, and who writes waits for that.
pub(crate) const RETAINED_BYTES_MAX: usize = 64 << 20;

/// The mark of what no owner has yet.
pub(crate) const UNENTERED: u64 = u64::MAX;

/// Bytes of a file that lie together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub bytes: Vec<u8>,
    /// When it was answered, counted.
    order: u64,
    /// The owner's: when that is durable, this is.
    mark: u64,
    /// The program was answered before any owner heard of it.
    is_gathered: bool,
    /// When the file has changed, as the owner told since; somebody may have set that.
    mtime: Option<Time>,
}

/// Seconds since 1970, and nanoseconds.
pub(crate) type Time = (i64, u32);

/// All writes that may have to be repeated.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    files: HashMap<u64, BTreeMap<u64, Piece>>,
    bytes: usize,
    next_order: u64,
    /// Files of which something could not be written again.
    lost: HashMap<u64, i32>,
    /// What others have written a moment ago: answers may still come that are older.
    foreign: Vec<Foreign>,
    /// Changes of names and attributes that are not committed.
    pub requests: Requests,
}

/// What an owner that comes next has to do, in the order of the marks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Again {
    Write { node: u64, offset: u64, bytes: Vec<u8>, mtime: Option<Time> },
    Request(Request),
}

impl Again {
    /// The inode that it makes.
    pub fn makes(&self) -> Option<u64> {
        match self {
            Again::Request(request) => Some(request.inode).filter(|inode| *inode != 0),
            Again::Write { .. } => None,
        }
    }
}

/// Where somebody else has written.
#[derive(Debug)]
struct Foreign {
    node: u64,
    offset: u64,
    length: u64,
    mark: u64,
    /// Requests with lower numbers were sent before this was heard.
    sent_below: u64,
}

/// Makes two pieces of one that goes on over a place.
fn split(file: &mut BTreeMap<u64, Piece>, at: u64) {
    let Some((start, piece)) = file.range_mut(..at).next_back() else { return };
    let length = (at - *start) as usize;
    if length < piece.bytes.len() {
        let bytes = piece.bytes.split_off(length);
        let rest = Piece { bytes, ..*piece };
        assert!(!rest.bytes.is_empty() && !piece.bytes.is_empty(), "a piece has bytes");
        file.insert(at, rest);
    }
}

impl Retained {
    pub fn is_full(&self) -> bool {
        self.bytes > RETAINED_BYTES_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.requests.is_empty()
    }

    /// What is kept from now on has this order or a higher one.
    pub fn order(&self) -> u64 {
        self.next_order
    }

    /// A write was answered.
    pub fn keep(&mut self, node: u64, offset: u64, bytes: &[u8], mark: u64) {
        self.keep_as(node, offset, bytes, (mark, false));
    }

    /// A write was answered of which no owner has heard.
    pub fn gather(&mut self, node: u64, offset: u64, bytes: &[u8]) {
        self.keep_as(node, offset, bytes, (UNENTERED, true));
    }

    fn keep_as(&mut self, node: u64, offset: u64, bytes: &[u8], (mark, is_gathered): (u64, bool)) {
        if bytes.is_empty() {
            return;
        }
        self.cut(node, offset, bytes.len() as u64);
        let order = self.next_order;
        self.next_order += 1;
        self.bytes += bytes.len();
        let piece = Piece { bytes: bytes.to_vec(), order, mark, is_gathered, mtime: None };
        self.files.entry(node).or_default().insert(offset, piece);
        self.cut_older(node);
    }

    /// A change was answered that is not committed.
    pub fn keep_request(&mut self, mark: u64, request: Request) {
        self.requests.keep(mark, self.next_order, request);
        self.next_order += 1;
    }

    /// Takes out of a file what is older than what others have written there.
    fn cut_older(&mut self, node: u64) {
        let newer = self.foreign.iter().filter(|foreign| foreign.node == node);
        let newer: Vec<_> = newer.map(|foreign| (foreign.offset, foreign.length, foreign.mark)).collect();
        newer.into_iter().for_each(|(offset, length, mark)| self.cut_below(node, offset, length, mark));
    }

    /// Somebody else has written there, after what has a lower mark; requests with lower numbers than `sent_below` are under way.
    pub fn others_wrote(&mut self, (node, offset, length): (u64, u64, u64), mark: u64, sent_below: u64) {
        self.cut_below(node, offset, length, mark);
        self.foreign.push(Foreign { node, offset, length, mark, sent_below });
    }

    /// All requests with lower numbers are answered, so nothing older comes.
    pub fn answered_below(&mut self, number: u64) {
        self.foreign.retain(|foreign| foreign.sent_below > number);
    }

    /// There is another owner, whose marks are others.
    pub fn forget_others(&mut self) {
        self.foreign.clear();
    }

    /// It is not kept any more.
    pub fn cut(&mut self, node: u64, offset: u64, length: u64) {
        self.cut_where(node, offset, length, |_| true);
    }

    fn cut_below(&mut self, node: u64, offset: u64, length: u64, mark: u64) {
        self.cut_where(node, offset, length, |piece| piece.mark < mark);
    }

    fn cut_where(&mut self, node: u64, offset: u64, length: u64, is_cut: impl Fn(&Piece) -> bool) {
        let Some(file) = self.files.get_mut(&node) else { return };
        let end = offset.saturating_add(length);
        let before = file.range(..offset).next_back().map(|(start, _)| *start);
        let touched: Vec<u64> = before.into_iter().chain(file.range(offset..end).map(|(start, _)| *start)).collect();
        for start in touched {
            let Some(piece) = file.remove(&start) else { continue };
            let piece_end = start + piece.bytes.len() as u64;
            self.bytes -= piece.bytes.len();
            if piece_end <= offset || !is_cut(&piece) {
                self.bytes += piece.bytes.len();
                file.insert(start, piece);
                continue;
            }
            let mut put = |at: u64, bytes: &[u8]| {
                if !bytes.is_empty() {
                    self.bytes += bytes.len();
                    file.insert(at, Piece { bytes: bytes.to_vec(), ..piece });
                }
            };
            if start < offset {
                put(start, &piece.bytes[..(offset - start) as usize]);
            }
            if piece_end > end {
                put(end, &piece.bytes[(end - start) as usize..]);
            }
        }
        if file.is_empty() {
            self.files.remove(&node);
        }
    }

    fn retain(&mut self, mut is_kept: impl FnMut(u64, &Piece) -> bool) {
        let bytes = &mut self.bytes;
        self.files.retain(|node, file| {
            file.retain(|_, piece| {
                let stays = is_kept(*node, piece);
                if !stays {
                    *bytes -= piece.bytes.len();
                }
                stays
            });
            !file.is_empty()
        });
    }

    /// A file (or all, with `None`) is durable as it was when `order` was told.
    pub fn let_go(&mut self, node: Option<u64>, order: u64) {
        self.retain(|of, piece| node.is_some_and(|node| node != of) || piece.order >= order || piece.mark == UNENTERED);
        if node.is_none() {
            self.requests.let_go(order);
        }
    }

    /// All with this mark or a lower one is durable.
    pub fn let_go_marked(&mut self, mark: u64) {
        self.retain(|_, piece| piece.mark > mark);
        self.requests.let_go_marked(mark);
    }

    /// All pieces, with their files and offsets.
    fn each(&self) -> impl Iterator<Item = (u64, u64, &Piece)> {
        self.files.iter().flat_map(|(node, file)| file.iter().map(move |(at, piece)| (*node, *at, piece)))
    }

    /// All that may have to be done again.
    pub fn again(&self) -> Vec<Again> {
        let writes = self.each().map(|(node, offset, piece)| {
            (piece.mark, Again::Write { node, offset, bytes: piece.bytes.clone(), mtime: piece.mtime })
        });
        let requests = self.requests.all().map(|(mark, request)| (mark, Again::Request(request.clone())));
        let mut all: Vec<(u64, Again)> = writes.chain(requests).collect();
        // Stable: of what no owner has the order is that of the places.
        all.sort_by_key(|(mark, _)| *mark);
        all.into_iter().map(|(_, again)| again).collect()
    }

    /// A piece was written again; the mark is that of the new owner.
    pub fn mark(&mut self, node: u64, offset: u64, mark: u64) {
        if let Some(piece) = self.files.get_mut(&node).and_then(|file| file.get_mut(&offset)) {
            piece.mark = mark;
        }
    }

    /// The owner has what was written past it; what of that is still kept gets its mark.
    pub fn entered(&mut self, node: u64, offset: u64, length: u64, mark: u64) {
        let end = offset.saturating_add(length);
        let Some(file) = self.files.get_mut(&node) else { return };
        [offset, end].into_iter().for_each(|at| split(file, at));
        let pieces = file.range_mut(offset..end);
        let mark = mark.min(UNENTERED - 1);
        pieces.filter(|(_, piece)| piece.mark == UNENTERED).for_each(|(_, piece)| piece.mark = mark);
        self.cut_older(node);
    }

    /// Whether something in this range is here that no owner has.
    pub fn has_unentered(&self, node: u64, offset: u64, length: u64) -> bool {
        let Some(file) = self.files.get(&node) else { return false };
        let before = file.range(..offset).next_back();
        let reaches_in = |(at, piece): &(&u64, &Piece)| *at + piece.bytes.len() as u64 > offset;
        let mut pieces = before.filter(reaches_in).into_iter().chain(file.range(offset..offset.saturating_add(length)));
        pieces.any(|(_, piece)| piece.mark == UNENTERED)
    }

    /// The owner tells when a file has changed, after what was answered before `order`.
    pub fn date(&mut self, node: u64, order: u64, mtime: Time) {
        let pieces = self.files.get_mut(&node).into_iter().flat_map(BTreeMap::values_mut);
        pieces.filter(|piece| piece.order < order).for_each(|piece| piece.mtime = Some(mtime));
    }

    /// A change could not be made again.
    pub fn lose_change(&mut self, node: u64) {
        self.lost.insert(node, libc::EIO);
    }

    /// A piece could not be written again.
    pub fn lose(&mut self, node: u64, offset: u64, length: u64, errno: i32) {
        self.cut(node, offset, length);
        self.lost.insert(node, errno);
    }

    /// The owner has given this machine up, and let others go on: what it has not heard of is lost. Gives how many files have lost something.
    pub fn lose_gathered(&mut self) -> usize {
        let gathered = self.each().filter(|(_, _, piece)| piece.is_gathered && piece.mark == UNENTERED);
        let gathered: Vec<_> = gathered.map(|(node, at, piece)| (node, at, piece.bytes.len() as u64)).collect();
        let files: HashSet<u64> = gathered.iter().map(|(node, _, _)| *node).collect();
        gathered.into_iter().for_each(|(node, at, length)| self.lose(node, at, length, libc::EIO));
        files.len()
    }

    /// Why something of the file was lost, which nobody who synced it was told yet.
    pub fn loss(&self, node: u64) -> Option<i32> {
        self.lost.get(&node).copied()
    }

    /// The same, for whoever syncs it: that is told once.
    pub fn tell_loss(&mut self, node: u64) -> Option<i32> {
        self.lost.remove(&node)
    }
}
