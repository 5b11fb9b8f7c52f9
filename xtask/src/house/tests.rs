use std::path::Path;

use super::*;

fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    files.iter().filter_map(|(path, text)| Source::new(Path::new(path), text)).collect()
}

fn circle_of(files: &[(&str, &str)]) -> Vec<String> {
    circle::largest_by_crate(&sources(files)).remove("x").unwrap_or_default()
}

#[test]
fn a_circle_is_found_through_paths_and_through_methods() {
    let lib = ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use crate::a::Thing;\n");
    let a = ("crates/x/src/a.rs", "use crate::b::{self, other};\npub struct Thing;\n");
    let by_path = ("crates/x/src/b.rs", "use super::a;\n");
    assert_eq!(circle_of(&[lib, a, by_path]), ["src/a.rs", "src/b.rs"]);
    let by_name = ("crates/x/src/b.rs", "use crate::Thing;\n");
    assert_eq!(circle_of(&[lib, a, by_name]), ["src/a.rs", "src/b.rs"], "a re-export leads to the file that defines");
    let alone = ("crates/x/src/b.rs", "// use crate::a;\nconst TEXT: &str = \"crate::a\";\n");
    assert_eq!(circle_of(&[lib, a, alone]).len(), 1, "comments and strings lead nowhere");
    let caller = ("crates/x/src/b.rs", "fn f(t: &T) { t.only_there(); }\n");
    let definer = ("crates/x/src/a.rs", "use crate::b::f;\nimpl Thing {\n    pub fn only_there(&self) {}\n}\n");
    assert_eq!(circle_of(&[lib, definer, caller]), ["src/a.rs", "src/b.rs"]);
    let of_trait = ("crates/x/src/a.rs", "use crate::b::f;\nimpl Act for Thing {\n    fn only_there(&self) {}\n}\n");
    assert_eq!(circle_of(&[lib, of_trait, caller]).len(), 1, "what is called through a trait leads to no file");
    let parent = ("crates/x/src/a.rs", "mod c;\nfn f() { c::g(); }\n");
    let child = ("crates/x/src/a/c.rs", "pub(super) fn g() {}\n");
    assert_eq!(circle_of(&[parent, child]).len(), 1, "who may see a thing is no need of it");
}

#[test]
fn a_chain_is_no_circle() {
    let chain =
        [("crates/x/src/a.rs", "use crate::b::B;"), ("crates/x/src/b.rs", "use crate::c;"), ("crates/x/src/c.rs", "")];
    assert_eq!(circle_of(&chain).len(), 1);
}

#[test]
fn methods_are_counted_for_their_type() {
    let code = "impl<T: Fn() -> u8> Trait for Big<T> {\n    fn a() {}\n    pub(crate) const fn b() {}\n        fn inner() {}\n}\nimpl Small {\n    fn c() {}\n}\n";
    let source = sources(&[("crates/x/src/a.rs", code)]);
    assert_eq!(count::largest_type(&source), ("x::Big".into(), 2));
}

#[test]
fn asserts_and_functions_of_tests_do_not_count() {
    let text =
        "fn f() { assert!(true); debug_assert_eq!(1, 1); }\n#[cfg(test)]\nmod tests {\n fn g() { assert!(1); }\n}\n";
    let all =
        sources(&[("crates/x/src/a.rs", text), ("crates/x/src/a/tests.rs", text), ("crates/x/tests/all/b.rs", text)]);
    assert_eq!(all.iter().map(count::asserts).sum::<usize>(), 2);
    assert_eq!(all.iter().map(count::functions).sum::<usize>(), 1);
}

#[test]
fn a_run_of_six_lines_counts_once_however_long() {
    let lines: String = (0..9).map(|line| format!("let value_{line} = compute_something({line});\n")).collect();
    let twice = sources(&[("crates/x/src/a.rs", &lines), ("crates/x/src/b.rs", &lines)]);
    assert_eq!(count::duplicated_runs(&twice), 1);
    assert_eq!(count::duplicated_runs(&twice[..1]), 0);
}

#[test]
fn thread_locals_are_for_scratch_only() {
    let scratch = "thread_local! {\n    static A: RefCell<Vec<u8>> = X;\n}\n";
    let state = "thread_local! {\n    static A: Cell<u8> = X;\n}\n";
    assert!(count::thread_locals(&sources(&[("crates/log/src/a.rs", scratch)])).is_empty());
    assert_eq!(count::thread_locals(&sources(&[("crates/log/src/a.rs", state)])), ["log/src/a.rs"]);
    assert!(count::thread_locals(&sources(&[("crates/fuse/src/a.rs", state)])).is_empty(), "a front end may");
}

#[test]
fn the_ratchet_only_tightens() {
    let ratchet = Ratchet::parse("# head\nlargest_type = 90 # x\nasserts_core = 0.1\n").expect("it is well formed");
    let methods = |value| figure("largest_type", "", value, Goal::AtMost(80.0), "");
    let asserts = |value| figure("asserts_core", "", value, Goal::AtLeast(0.2), "");
    assert_eq!(ratchet.lowered(&methods(85.0)), 85.0);
    assert_eq!(ratchet.lowered(&methods(99.0)), 90.0);
    assert_eq!(ratchet.lowered(&asserts(0.15)), 0.15);
    assert_eq!(ratchet.lowered(&asserts(0.05)), 0.1);
    assert_eq!(print_all(&[methods(91.0), asserts(0.1)], &ratchet), ["largest_type"]);
    assert_eq!(print_all(&[figure("unknown", "", 1.0, Goal::AtMost(1.0), "")], &ratchet), ["unknown"]);
    assert!(Ratchet::parse("largest_type 90\n").is_err());
}

#[test]
fn each_test_executable_counts_once() {
    let paths =
        ["crates/a/tests/all/main.rs", "crates/a/tests/all/x.rs", "crates/a/tests/b.rs", "crates/a/tests/s/m.rs"];
    assert_eq!(count::test_executables(paths.iter().map(Path::new)), 2);
}
