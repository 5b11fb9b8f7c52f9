//! When a call without room is repeated.

use super::*;

#[test]
fn only_what_was_removed_just_now_is_waited_for() {
    let removals = Removals::default();
    assert!(!removals.may_bring_room(0), "nothing was removed");
    removals.note(opcode::WRITE);
    assert!(!removals.may_bring_room(0), "nothing was removed");
    removals.note(opcode::UNLINK);
    assert!(removals.may_bring_room(0));
    assert!(!removals.may_bring_room(TRIES_MAX), "a call ends");
    std::thread::sleep(RECENT);
    assert!(!removals.may_bring_room(0), "what the kernel has for longer it keeps");
}
