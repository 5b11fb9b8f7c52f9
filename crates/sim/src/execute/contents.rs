//! Operations on the bytes of files, and filling the pool with them.

use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_naming::{Caller, Error, Io, OpenFlags, SetAttributes, Sync, Whence};

use crate::content::{Content, pattern};
use crate::history::{History, Slot, Stop};
use crate::model::{Errno, Kind, Node, ROOT};
use crate::operation::Between;
use crate::pool::{PoolUnderTest, caller};
use crate::{execute::names, non_blocking, quotas, syncs, watermark_eviction};

const PUNCH_HOLE: u32 = 2;
const KEEP_SIZE: u32 = 1;
const FILL_PIECE: usize = 1 << 20;

impl PoolUnderTest {
    /// As a request of the kernel; now and then the store works while its reads are under way.
    fn read_unwaited(&self, inode: u64, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let (files, store) = (&self.mounted().files, &self.mounted().store);
        // Drawn from the place: the history that a seed stands for stays as it is.
        let is_disturbed = (offset / 7 + buffer.len() as u64) % 4 == 0;
        let between = || {
            if is_disturbed {
                // What fails here fails the next step as well.
                drop(store.step(true));
            }
        };
        non_blocking::read(files, &caller(&self.machine), inode, offset, buffer, between)
    }
}

pub(crate) fn write(history: &mut History, inode: u64, offset: u64, data: &[u8]) -> Result<(), Stop> {
    let real = history.mounted().files.write(&caller(&history.machine), inode, offset, data, false);
    if matches!(real, Err(Error::NoSpace)) {
        watermark_eviction::must_have_no_room(history)?;
    }
    judge_write(history, inode, offset, data, real)
}

/// What somebody wrote from the start on, who asked for it himself.
pub(crate) fn put_written(history: &mut History, inode: u64, data: &[u8]) {
    let mut after = (*history.model.content(inode)).clone();
    after.write(0, data);
    history.put_content(inode, after);
}

/// A write, and another one that is done while the first reads a volume, if it does: then that one was first.
pub(crate) fn write_meanwhile(
    history: &mut History,
    inode: u64,
    offset: u64,
    data: &[u8],
    between: Between,
) -> Result<(), Stop> {
    // Where there may be no room, nobody could say what a part of it left behind.
    if history.plan.may_fill || history.quotas.are_on() || history.model.check_changeable(inode).is_err() {
        return write(history, inode, offset, data);
    }
    let waits = syncs::sync_of(history, inode)? != Sync::Relaxed;
    let files = history.mounted().files.clone();
    let (user, other) = (caller(&history.machine), pattern(between.seed, between.length as usize));
    let outcome = Arc::new(Mutex::new(None));
    let (told, written) = (outcome.clone(), other.clone());
    history.machine.set_meanwhile(Some(Box::new(move || {
        let hasty = Caller { io: Io::NON_BLOCKING, ..user };
        let done = files.write(&hasty, inode, between.offset, &written, false);
        // Nobody holds the file, or the write would not have been done.
        let is_synced = between.syncs && done.is_ok() && files.fsync(&user, inode, false).is_ok();
        *told.lock() = Some((done, is_synced));
    })));
    let real = history.mounted().files.write(&caller(&history.machine), inode, offset, data, false);
    history.machine.set_meanwhile(None);
    let outcome = outcome.lock().take();
    let is_changed = matches!(outcome, Some((Ok(_), _)));
    if let Some((done, is_synced)) = outcome {
        let mut after = (*history.model.content(inode)).clone();
        after.write(between.offset, &other[..*done.as_ref().unwrap_or(&other.len())]);
        match done {
            Ok(_) => {
                history.summary.tier.changed_meanwhile += 1;
                history.put_content(inode, after);
                if is_synced && waits {
                    history.note_durable(inode);
                    history.note_commit();
                }
            }
            Err(_) if history.machine.is_off() => history.note_content(inode, Rc::new(after)),
            Err(_) => {}
        }
    }
    // What it waited for may be dead by now, and was asked for all the same.
    let is_eio = real.as_ref().is_err_and(|error| error.errno() == libc::EIO);
    if is_changed && is_eio && !history.machine.is_off() && history.machine.has_any_failed() {
        history.reads_refused.set(history.reads_refused.get() + 1);
        return Ok(());
    }
    judge_write(history, inode, offset, data, real)
}

fn judge_write(
    history: &mut History,
    inode: u64,
    offset: u64,
    data: &[u8],
    real: Result<usize, Error>,
) -> Result<(), Stop> {
    let mut after = (*history.model.content(inode)).clone();
    // A crash comes in the middle, or there is no more room, or no device that takes it.
    let may_end_early =
        history.plan.may_fill || history.machine.is_off() || history.mounted().store.failure().is_some();
    let may_end_early = may_end_early || history.pool.may_lack_content();
    let granted = quotas::granted(history, after.size(), offset, data.len());
    let most = granted.unwrap_or(0);
    let accepted = match &real {
        Ok(length) if *length == most => most,
        Ok(length) if *length < data.len() && may_end_early => *length,
        Ok(length) if *length != most => {
            return Err(Stop::Failure(format!("write: {length} of {most} bytes written")));
        }
        _ => most,
    };
    after.write(offset, &data[..accepted]);
    history.expect_content("write", inode, real, history.model.check_changeable(inode).and(granted).map(|_| after))?;
    Ok(())
}

pub(crate) fn read(history: &mut History, inode: u64, offset: u64, length: u32) -> Result<(), Stop> {
    let mut buffer = vec![0xee; length as usize];
    let real = history.pool.read_unwaited(inode, offset, &mut buffer);
    let Some(length_read) = history.must_but_for_volumes("read", real)? else {
        history.reads_refused.set(history.reads_refused.get() + 1);
        return Ok(());
    };
    let right = history.model.content(inode).read(offset, u64::from(length));
    if buffer[..length_read] == right[..] {
        return Ok(());
    }
    let at = right.iter().zip(&buffer).position(|(right, real)| right != real);
    Err(Stop::Failure(format!("read: {length_read} bytes instead of {}, first difference at {at:?}", right.len())))
}

pub(crate) fn truncate(history: &mut History, inode: u64, size: u64) -> Result<(), Stop> {
    let mut after = (*history.model.content(inode)).clone();
    let shrinks = size <= after.size();
    let may = history.model.check_changeable(inode).and(quotas::check_growth(history, after.size(), size));
    after.truncate(size);
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    let real = history.mounted().files.setattr(&caller(&history.machine), inode, &set);
    if shrinks && matches!(real, Err(Error::NoSpace)) && !history.machine.is_off() {
        return Err(Stop::Failure("truncate needs no space, but found none".into()));
    }
    match history.expect_content("truncate", inode, real, may.map(|()| after))? {
        Some(attributes) => history.model.check_attributes(&attributes),
        None => Ok(()),
    }
}

pub(crate) fn allocate(history: &mut History, inode: u64, offset: u64, length: u64, mode: u32) -> Result<(), Stop> {
    if quotas::leaves_out(history, mode) {
        return Ok(());
    }
    let before = history.model.content(inode);
    let after = allocated(&before, offset, length, mode);
    let after = after.and_then(|after| quotas::check_growth(history, before.size(), after.size()).map(|()| after));
    let real = history.mounted().files.fallocate(&caller(&history.machine), inode, offset, length, mode);
    // Records of encrypted files are bound to their places.
    if matches!(mode, 8 | 0x20) && history.plan.may_be_encrypted() && matches!(real, Err(Error::Unsupported(_))) {
        return Ok(());
    }
    // They are not done again once archived segments have made room, and leave the file as it was.
    let is_never_repeated = matches!(mode, 8 | 0x20) && history.mounted().store.tier.media.has_volumes();
    if is_never_repeated && matches!(real, Err(Error::NoSpace)) {
        return history.verify_file(inode);
    }
    history.expect_content("fallocate", inode, real, history.model.check_changeable(inode).and(after))?;
    Ok(())
}

/// As cp does: a call may end before the end, where what lies on media only begins or ends, and the next one goes on.
fn copy_range(history: &History, from: (u64, u64), to: (u64, u64), length: u64) -> Result<u64, Error> {
    let (files, caller) = (&history.mounted().files, caller(&history.machine));
    let mut done = 0;
    loop {
        match files.copy_range(&caller, from.0, from.1 + done, to.0, to.1 + done, length - done) {
            Ok(copied) if copied > 0 && done + copied < length => done += copied,
            Ok(copied) => return Ok(done + copied),
            // What was copied before is told.
            Err(Error::NoSpace | Error::OverQuota(_)) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn copy(history: &mut History, from: (u64, u64), to: (u64, u64), length: u64) -> Result<(), Stop> {
    let source = history.model.content(from.0);
    let copied = source.read(from.1, length);
    let count = copied.len() as u64;
    let overlaps = from.0 == to.0 && from.1 < to.1 + count && to.1 < from.1 + count;
    history.places.note_sharing(from.0, to.0);
    // Not beyond the end: within one file it moves as the file is copied.
    let real = copy_range(history, from, to, if count > 0 { count } else { length });
    let mut after = (*history.model.content(to.0)).clone();
    let end = if count > 0 { to.1 + count } else { 0 };
    let fits = quotas::check_growth(history, after.size(), after.size().max(end));
    let done = match &real {
        // It goes on by pieces, as far as there is room for one.
        Ok(done) if *done < count && fits.is_err() => *done,
        Ok(done) if *done < count && (history.plan.may_fill || history.pool.may_lack_content()) => *done,
        Ok(done) if *done != count && !(overlaps && count > 0) => {
            return Err(Stop::Failure(format!("copy: {done} of {count} bytes copied")));
        }
        _ => count,
    };
    after.write(to.1, &copied[..done as usize]);
    let after = if overlaps && count > 0 { Err(libc::EINVAL) } else { Ok(after) };
    // Nothing to copy is nothing to refuse.
    let is_refused = matches!(real, Err(Error::OverQuota(_)));
    let may = if count > 0 { history.model.check_changeable(to.0) } else { Ok(()) };
    let may = may.and(if is_refused || real.as_ref().is_ok_and(|done| *done == count) { fits } else { Ok(()) });
    history.expect_content("copy", to.0, real, may.and(after))?;
    Ok(())
}

pub(crate) fn seek(history: &mut History, inode: u64, offset: u64) -> Result<(), Stop> {
    let content = history.model.content(inode);
    let real = history.mounted().files.seek(&caller(&history.machine), inode, offset, Whence::Data);
    let data = match real {
        Ok(at) => Some(at),
        Err(Error::NoSuchOffset) => None,
        Err(error) => return Err(history.unexpected("seek", error.errno(), &error.to_string())),
    };
    if offset >= content.size() && data.is_some() {
        return Err(Stop::Failure(format!("seek: data at {data:?} behind the end")));
    }
    // What is zero may count as data or as a hole; what is not zero is data.
    let right = content.next_nonzero(offset);
    if right.is_some_and(|right| data.is_none_or(|data| data > right)) {
        return Err(Stop::Failure(format!("seek from {offset}: data at {data:?}, but byte {right:?} is data")));
    }
    Ok(())
}

pub(crate) fn fill(history: &mut History, bytes: u32) -> Result<(), Stop> {
    if !history.plan.may_fill {
        return Ok(());
    }
    for _ in 0..200 {
        // A write that finds devices nearly full may wait for a hundred times as much to be moved together (seed 310765).
        history.machine.count_anew();
        let name = format!("fill{}", history.fill_count).into_bytes();
        history.fill_count += 1;
        let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        let real = history.mounted().files.create(&caller(&history.machine), ROOT, &name, 0o666, flags);
        let Some((attributes, handle)) = history.expect("create", real, Ok(()))? else { return Ok(()) };
        let inode = attributes.inode;
        names::made(history, ROOT, &name, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
        history.model.open(inode);
        let before = history.summary.no_space;
        let mut at = 0;
        while at < u64::from(bytes) && history.summary.no_space == before {
            let data = pattern(inode ^ at, FILL_PIECE.min((u64::from(bytes) - at) as usize));
            write(history, inode, at, &data)?;
            let size = history.model.content(inode).size();
            if size < at + data.len() as u64 {
                history.summary.no_space += 1;
            }
            at += data.len() as u64;
        }
        history.release(Slot { inode, handle })?;
        if history.summary.no_space > before {
            return Ok(());
        }
    }
    Ok(())
}

pub(crate) fn empty(history: &mut History, every: u8) -> Result<(), Stop> {
    let Kind::Directory(names) = &history.model.nodes[&ROOT].kind else { return Ok(()) };
    let fills: Vec<Vec<u8>> = names.keys().filter(|name| name.starts_with(b"fill")).cloned().collect();
    for name in fills.iter().step_by(usize::from(every).max(1)) {
        names::remove_name(history, ROOT, name, false)?;
    }
    Ok(())
}

/// What fallocate makes of a content.
fn allocated(content: &Content, offset: u64, length: u64, mode: u32) -> Result<Content, Errno> {
    let mut after = content.clone();
    let (end, size) = (offset + length, content.size());
    let aligned = offset % 4096 == 0 && length % 4096 == 0;
    match mode & !KEEP_SIZE {
        _ if length == 0 => return Err(libc::EINVAL),
        0 | 0x40 => {}
        PUNCH_HOLE | 0x10 => after.zero(offset, end.min(size).max(offset)),
        8 if !aligned || end >= size => return Err(libc::EINVAL),
        8 => after.collapse(offset, length),
        0x20 if !aligned || offset >= size => return Err(libc::EINVAL),
        0x20 => after.insert(offset, length),
        _ => return Err(libc::EOPNOTSUPP),
    }
    if mode & KEEP_SIZE == 0 && matches!(mode, 0 | 0x10 | 0x40) {
        after.grow(end);
    }
    Ok(after)
}
