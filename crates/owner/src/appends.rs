//! Appends to one file are answered in the order in which they lie in it (P-280).
//!
//! Where an append went only the owner knows until the client has the answer. An append behind one that was not answered would be written
//! again by its client, with a hole before it, if the owner were lost. So it waits until the client of the one before has said that it has
//! its answer; within a session answers arrive in order. Invariants: an append is listed from before it is performed until its answer is
//! queued; who waits for one that turns out to lie behind it is let go, so nobody waits in a circle. Read next: `sharing.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

#[cfg(test)]
mod tests;

/// An append that is not answered.
pub(crate) struct UnderWay<W, A> {
    tag: u64,
    writer: Weak<W>,
    place: Mutex<Place<A>>,
}

struct Place<A> {
    /// From where to where, when it is performed.
    range: Option<(u64, u64)>,
    /// Others' answers, and where they lie.
    waiting: Vec<(u64, Arc<A>)>,
}

/// The last append to a file.
struct Last<W> {
    tag: u64,
    writer: Weak<W>,
    end: u64,
    mark: u64,
}

struct File<W, A> {
    under_way: Vec<Arc<UnderWay<W, A>>>,
    last: Option<Last<W>>,
}

/// Appends of all sessions to all files.
pub(crate) struct Appends<W, A> {
    files: Mutex<HashMap<u64, File<W, A>>>,
    /// Has a client say that it has all its answers, which the answer waits for.
    confirm: fn(&Arc<W>, &Arc<A>),
}

/// Keeps an append in the list.
pub(crate) struct Appending<W, A> {
    appends: Arc<Appends<W, A>>,
    node: u64,
    under_way: Arc<UnderWay<W, A>>,
}

impl<W, A> Appends<W, A> {
    pub fn new(confirm: fn(&Arc<W>, &Arc<A>)) -> Appends<W, A> {
        Appends { files: Mutex::default(), confirm }
    }

    /// A session is going to append to a file.
    pub fn begin(self: &Arc<Self>, writer: &Arc<W>, tag: u64, node: u64) -> Appending<W, A> {
        let place = Mutex::new(Place { range: None, waiting: Vec::new() });
        let under_way = Arc::new(UnderWay { tag, writer: Arc::downgrade(writer), place });
        let mut files = self.files.lock();
        let file = files.entry(node).or_insert_with(|| File { under_way: Vec::new(), last: None });
        file.under_way.push(Arc::clone(&under_way));
        Appending { appends: Arc::clone(self), node, under_way }
    }

    /// It was performed; its answer waits for those before it.
    pub fn placed(&self, own: &Arc<UnderWay<W, A>>, node: u64, (start, end): (u64, u64), mark: u64, answer: &Arc<A>) {
        assert!(start < end, "an append has bytes");
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&node) else { return };
        let mut others = Vec::new();
        for other in file.under_way.iter().filter(|other| !Arc::ptr_eq(other, own)) {
            let mut place = other.place.lock();
            if place.range.is_none_or(|(_, before)| before == start) {
                place.waiting.push((start, Arc::clone(answer)));
            }
        }
        let last = Last { tag: own.tag, writer: own.writer.clone(), end, mark };
        match &mut file.last {
            Some(before) if before.end > end => {}
            before => {
                let before = before.replace(last).filter(|before| before.end == start && before.tag != own.tag);
                others.extend(before.and_then(|before| before.writer.upgrade()));
            }
        }
        let mut place = own.place.lock();
        place.range = Some((start, end));
        // They lie before it.
        let released: Vec<_> = place.waiting.extract_if(.., |(other, _)| *other < start).collect();
        drop((place, files));
        drop(released);
        others.iter().for_each(|other| (self.confirm)(other, answer));
    }

    /// All with this mark or a lower one is durable: no hole can come before what follows.
    pub fn let_go(&self, mark: u64) {
        self.files.lock().retain(|_, file| {
            file.last.take_if(|last| last.mark <= mark);
            file.last.is_some() || !file.under_way.is_empty()
        });
    }
}

impl<W, A> Appending<W, A> {
    pub fn under_way(&self) -> Arc<UnderWay<W, A>> {
        Arc::clone(&self.under_way)
    }
}

impl<W, A> Drop for Appending<W, A> {
    fn drop(&mut self) {
        let mut files = self.appends.files.lock();
        if let Some(file) = files.get_mut(&self.node) {
            file.under_way.retain(|other| !Arc::ptr_eq(other, &self.under_way));
            if file.under_way.is_empty() && file.last.is_none() {
                files.remove(&self.node);
            }
        }
        drop(files);
        let (waiting, is_placed) = {
            let mut place = self.under_way.place.lock();
            (std::mem::take(&mut place.waiting), place.range.is_some())
        };
        if let Some(writer) = self.under_way.writer.upgrade().filter(|_| is_placed) {
            waiting.iter().for_each(|(_, answer)| (self.appends.confirm)(&writer, answer));
        }
    }
}
