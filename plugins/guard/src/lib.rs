//! Keeps files from being removed or renamed whose name ends in `.keep` (or in the parameter, where there is one), and notes with
//! every file who made it.

use stere_sdk::{Event, EventKind, Verdict, Watcher};

struct Guard;

impl Watcher for Guard {
    const EVENTS: &'static [EventKind] = &[EventKind::Create, EventKind::Rename, EventKind::Delete];

    fn judge(parameters: &str, event: &Event<'_>) -> Verdict {
        let ending = if parameters.is_empty() { ".keep" } else { parameters };
        match event.kind {
            EventKind::Create => Verdict::Annotate(format!("made by user {}", event.user).into_bytes()),
            _ if event.name.ends_with(ending.as_bytes()) => Verdict::Deny(format!("what ends in {ending} stays")),
            _ => Verdict::Allow,
        }
    }
}

stere_sdk::plugin!(watcher: Guard);
