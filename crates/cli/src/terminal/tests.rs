use super::*;

/// P-232.
#[test]
fn what_a_terminal_takes_for_commands_is_written_out() {
    assert_eq!(plain("/films/\u{fc}ber 'quoted' \\ name"), "/films/\u{fc}ber 'quoted' \\ name");
    assert_eq!(plain("a\u{1b}]0;title\u{7}b"), "a\\u{1b}]0;title\\u{7}b");
    assert_eq!(plain("one\ntwo\tthree\r"), "one\\ntwo\\tthree\\r");
    assert_eq!(plain("8-bit \u{9b}31m"), "8-bit \\u{9b}31m");
    assert_eq!(plain("gpj.\u{202e}exe"), "gpj.\\u{202e}exe");
    assert_eq!(plain_lines("one\ntwo\u{1b}[2J"), "one\ntwo\\u{1b}[2J");
}
