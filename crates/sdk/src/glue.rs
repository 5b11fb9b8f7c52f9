//! Between the exports of a module and its hooks: where bytes lie, and what they mean. For the macro [`crate::plugin!`]; whoever
//! writes plugins does not need it.
//!
//! Places are 32 bits wide, as they are in WebAssembly. Memory that is handed over is never given back: the instance ends with the
//! call.

use std::sync::Mutex;

use crate::{Event, EventKind, Follower, Verdict};

/// What this version of the interface is called.
pub const INTERFACE: u32 = 1;

const REFUSED: u64 = 1 << 63;
/// Bytes of an event in front of the names.
const EVENT_BYTES: usize = 48;
const DENY: u8 = 1;
const ANNOTATE: u8 = 2;
const WANTS: u8 = 3;
/// Content that is asked for at once.
const PIECE_BYTES: u32 = 128 << 10;

/// Room for so many bytes.
pub fn allocate(bytes: u32) -> u32 {
    Vec::leak(Vec::<u8>::with_capacity(bytes as usize)).as_mut_ptr() as usize as u32
}

/// The parameters and the input of a call.
///
/// # Safety
/// Both are places that `allocate` gave, with so many bytes put there, or empty.
pub unsafe fn given<'a>(parameters: u32, parameters_bytes: u32, input: u32, input_bytes: u32) -> (&'a str, &'a [u8]) {
    let bytes = |place: u32, length: u32| match length {
        0 => &[][..],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(place as usize as *const u8, length as usize) },
    };
    (std::str::from_utf8(bytes(parameters, parameters_bytes)).unwrap_or_default(), bytes(input, input_bytes))
}

/// Where an answer lies, or why there is none.
pub fn answer(answer: Result<Vec<u8>, String>) -> u64 {
    let (flag, bytes) = match answer {
        Ok(bytes) => (0, bytes),
        Err(why) => (REFUSED, why.into_bytes()),
    };
    let bytes = Vec::leak(bytes);
    flag | (bytes.as_ptr() as usize as u64 & 0x7fff_ffff) << 32 | bytes.len() as u64
}

/// The set of these events.
pub fn events(events: &[EventKind]) -> u32 {
    events.iter().fold(0, |set, event| set | 1 << *event as u32)
}

/// The event that these bytes are.
pub fn event(bytes: &[u8]) -> Result<Event<'_>, String> {
    let cut = || "the event is cut".to_owned();
    let (fixed, names) = bytes.split_first_chunk::<EVENT_BYTES>().ok_or_else(cut)?;
    let number = |at: usize| fixed[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let word = |at: usize| (number(at) & u64::from(u32::MAX)) as u32;
    let kind = EventKind::ALL.into_iter().find(|kind| *kind as u32 == word(0));
    let kind = kind.ok_or_else(|| format!("event {} is not known", word(0)))?;
    let (name_bytes, new_name_bytes) = (word(12) as usize, word(16) as usize);
    let name = names.get(..name_bytes).ok_or_else(cut)?;
    let new_name = names.get(name_bytes..).and_then(|rest| rest.get(..new_name_bytes)).ok_or_else(cut)?;
    let (offset, length, size) = (number(24), number(32), number(40));
    Ok(Event { kind, user: word(4), group: word(8), offset, length, size, name, new_name })
}

/// A verdict as it is told.
pub fn verdict(verdict: Verdict) -> Vec<u8> {
    match verdict {
        Verdict::Allow => Vec::new(),
        Verdict::Deny(why) => std::iter::once(DENY).chain(why.into_bytes()).collect(),
        Verdict::Annotate(note) => std::iter::once(ANNOTATE).chain(note).collect(),
    }
}

/// A follower in the midst of a file.
pub struct Following<T> {
    follower: T,
    offset: u64,
}

/// Begins with an event.
pub fn begin<T: Follower>(
    following: &Mutex<Option<Following<T>>>,
    parameters: &str,
    input: &[u8],
) -> Result<Vec<u8>, String> {
    let event = event(input)?;
    let Some(follower) = T::begin(parameters, &event)? else { return Ok(Vec::new()) };
    // Of what is gone there is no content.
    if event.kind == EventKind::Delete || event.size == 0 {
        return noted(follower.end()?);
    }
    *held(following)? = Some(Following { follower, offset: 0 });
    Ok(wants(0))
}

/// Takes the next piece; an empty one is the end.
pub fn go_on<T: Follower>(following: &Mutex<Option<Following<T>>>, content: &[u8]) -> Result<Vec<u8>, String> {
    let mut held = held(following)?;
    let Some(mut now) = held.take() else { return Err("content came that nobody asked for".into()) };
    if content.is_empty() {
        return noted(now.follower.end()?);
    }
    now.follower.content(content);
    now.offset += content.len() as u64;
    let answer = wants(now.offset);
    *held = Some(now);
    Ok(answer)
}

fn held<T>(following: &Mutex<T>) -> Result<std::sync::MutexGuard<'_, T>, String> {
    following.lock().map_err(|_| "an earlier call ended badly".to_owned())
}

fn wants(offset: u64) -> Vec<u8> {
    let mut answer = vec![WANTS];
    answer.extend_from_slice(&offset.to_le_bytes());
    answer.extend_from_slice(&PIECE_BYTES.to_le_bytes());
    answer
}

fn noted(note: Option<Vec<u8>>) -> Result<Vec<u8>, String> {
    Ok(note.map_or_else(Vec::new, |note| verdict(Verdict::Annotate(note))))
}

#[cfg(test)]
mod tests;
