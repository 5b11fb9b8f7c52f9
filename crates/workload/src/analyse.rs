//! Traces made to profiles: the same that a mount would have noted live.
//!
//! Invariant: a trace gives the profile of the calls as they were noted, but that times count from its start, so that bins of
//! arrivals begin elsewhere. Read next: `profile.rs`, `subjects.rs`.

use crate::call::Call;
use crate::profile::Profile;
use crate::subjects::{Subject, SubjectKind, Subjects};
use crate::trace::Trace;

/// The profile of all calls.
pub fn profile_of(trace: &Trace) -> Box<Profile> {
    let mut profile = Box::<Profile>::default();
    trace.calls.iter().for_each(|call| profile.note(call));
    assert_eq!(profile.calls(), trace.calls.len() as u64, "every call is noted");
    profile
}

/// Profiles by a subject of each call; calls without one are left out.
pub fn subjects_of(trace: &Trace, subject: impl Fn(&Call) -> Option<Subject>) -> Subjects {
    let mut subjects = Subjects::default();
    for call in &trace.calls {
        if let Some(subject) = subject(call) {
            subjects.note(subject, call);
        }
    }
    subjects
}

/// Profiles by client.
pub fn clients_of(trace: &Trace) -> Subjects {
    subjects_of(trace, |call| Some(Subject { kind: SubjectKind::Client, id: call.stream }))
}

/// Profiles by the directory of each file, so many parts below the root; files without a name are left out.
pub fn subtrees_of(trace: &Trace, depth: usize) -> Subjects {
    subjects_of(trace, |call| {
        let id = crate::distinct::hashed(subtree(trace.file_name(call.file)?, depth));
        Some(Subject { kind: SubjectKind::Subtree, id })
    })
}

/// The beginning of a path with so many parts, its last part left out: `/a/b` of `/a/b/c` for two.
pub fn subtree(path: &str, depth: usize) -> &str {
    let directory = path.rfind('/').map_or("", |end| &path[..end]);
    let inner = directory.strip_prefix('/').unwrap_or(directory);
    let end = inner.match_indices('/').nth(depth.saturating_sub(1)).map_or(inner.len(), |(end, _)| end);
    let beginning = if depth == 0 { "" } else { &directory[..directory.len() - inner.len() + end] };
    assert!(path.starts_with(beginning), "{beginning} begins {path}");
    beginning
}

#[cfg(test)]
mod tests;
