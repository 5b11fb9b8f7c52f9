//! What cargo's messages are taken for.

use std::path::Path;

use super::{by_module, repeat_alone, run_all, test_program};

const ARTIFACT: &str = r#"{"reason":"compiler-artifact","manifest_path":"/clone/crates/tree/Cargo.toml","target":{"name":"stere_tree"},"profile":{"test":true},"executable":"/clone/target/release/deps/stere_tree-1"}"#;

#[test]
fn test_programs_are_told_from_other_artifacts() {
    let one = test_program(ARTIFACT).expect("a test program");
    assert_eq!(one.name, "tree stere_tree");
    assert_eq!(one.folder, Path::new("/clone/crates/tree"));
    assert_eq!(test_program(&ARTIFACT.replace("true", "false")), None, "a program that is no test");
    assert_eq!(test_program(&ARTIFACT.replace("\"/clone/target/release/deps/stere_tree-1\"", "null")), None);
    assert_eq!(test_program("warning: something"), None);
}

#[test]
fn integration_tests_are_one_program_for_each_module() {
    let one = test_program(&ARTIFACT.replace("stere_tree\"}", "all\"}")).expect("a test program");
    assert_eq!(one.name, "tree all");
    let listed = "heat::deep::b: test\ncold::a: test\nheat::a: test\nbench::c: benchmark\n";
    let programs = by_module(&one, listed);
    let names: Vec<&str> = programs.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["tree cold", "tree heat"]);
    assert_eq!(programs[1].tests, ["heat::deep::b", "heat::a"]);
    assert_eq!(programs[0].executable, one.executable);
    assert_eq!(by_module(&one, ""), [], "nothing listed, nothing run");
}

#[test]
fn a_program_that_fails_is_told_and_the_others_run() {
    let program = |executable: &str| {
        let mut one = test_program(ARTIFACT).expect("a test program");
        (one.executable, one.folder) = (executable.into(), "/".into());
        one
    };
    let names = ["/bin/false", "/bin/true", "/bin/true", "/no such program"];
    let outcomes = run_all(names.into_iter().map(program).collect(), std::ffi::OsStr::new("/bin"));
    assert_eq!(outcomes.len(), names.len());
    assert_eq!(outcomes.iter().filter(|outcome| outcome.has_failed).count(), 2);
    let failed = repeat_alone(outcomes, std::ffi::OsStr::new("/bin"));
    assert_eq!(failed.len(), 2, "they fail alone too");
}
