//! Who is killed is known to be, who got another signal is not.

use super::*;

#[test]
fn only_what_kills_counts() {
    let status = |state: &str, thread: &str, process: &str| {
        format!("Name:\tcat\nState:\t{state}\nSigPnd:\t{thread}\nShdPnd:\t{process}\n")
    };
    assert!(!is_dying(&status("D (disk sleep)", "0000000000000000", "0000000000000000")));
    assert!(!is_dying(&status("D (disk sleep)", "0000000000000000", "0000000000002000")), "an alarm is pending");
    assert!(is_dying(&status("D (disk sleep)", "0000000000000100", "0000000000000000")));
    assert!(is_dying(&status("D (disk sleep)", "0000000000000000", "0000000000004100")));
    assert!(is_dying(&status("Z (zombie)", "0000000000000000", "0000000000000000")));
    assert!(!is_dying("nonsense"));
}

#[test]
fn a_child_that_was_killed_is_dying() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    assert!(!is_dying(&status().unwrap()));
    // SAFETY: a plain system call on a process that this test started.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    while status().is_ok_and(|status| !is_dying(&status)) {
        std::thread::yield_now();
    }
    child.wait().unwrap();
}
