use super::*;

fn findings_of(path: &str, text: &str) -> Vec<String> {
    let findings = source::check(Path::new(path), text).into_iter().chain(source::check_any(Path::new(path), text));
    findings.map(|finding| format!("{} {}", finding.place, finding.what)).collect()
}

fn expect_one(text: &str, part: &str) {
    let found = findings_of("crates/x/src/a.rs", text);
    assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
}

#[test]
fn each_rule_finds_its_fault() {
    expect_one("fn f() {}\n", "does not open");
    expect_one("//! x\nfn f() { todo!() }\n", "todo!");
    expect_one("//! x\nfn f() { dbg!(1); }\n", "dbg!");
    expect_one("//! x\nfn f() { g().unwrap(); }\n", "a.rs:2 `unwrap()`");
    expect_one("//! x\n#[test]\n#[ignore]\nfn f() {}\n", "ignored");
    expect_one("//! x\nmod utils;\n", "utils");
    expect_one(&format!("//! x\n// see {}home\n", concat!("/wo", "rk/")), "somebody");
    expect_one(&format!("//! x\nfn f() {{\n{}}}\n", "    g();\n".repeat(200)), "a function of 202 lines");
    expect_one(&format!("//! x\n{}", "const A: u8 = 1;\n".repeat(901)), "902 lines");
}

#[test]
fn the_core_leaves_nothing_to_chance() {
    let source = "//! x\nuse std::collections::HashMap;\nuse rustc_hash::FxHashMap;\n#[cfg(test)]\nuse std::thread;\n";
    let found = findings_of("crates/log/src/a.rs", source);
    assert!(found.len() == 1 && found[0].contains("a.rs:2 `HashMap`"), "{found:?}");
    assert_eq!(findings_of("crates/fuse/src/a.rs", source), Vec::<String>::new());
}

#[test]
fn what_only_looks_like_a_fault_is_none() {
    let harmless = r####"//! x, todo!() in a head
fn f<'a>(x: &'a str) -> char {
    let _ = "todo!() and } and .unwrap()"; // dbg!(x)
    let _ = (r#"a " } todo!"#, b'{', '\'', '"', '}', '\u{7b}');
    /* /* { */ unimplemented!() */
    x.unwrap_or_default()
}
#[cfg(test)]
mod inner {
    fn g() { f().unwrap(); }
}
const LOCATION: &str = "target/work/x";
"####;
    assert_eq!(findings_of("crates/x/src/a.rs", harmless), Vec::<String>::new());
    assert_eq!(findings_of("crates/x/src/a/tests.rs", "fn f() { g().unwrap(); }\n"), Vec::<String>::new());
}

#[test]
fn promises_are_matched_both_ways() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let document = file("docs/promises.md", "**P-1** one\n\n- `crates/x`\n\n**P-2** two, see P-1\n\n- sim\n");
    let all = [document.clone(), file("crates/x/tests/a.rs", "// P-1 and P-2\n")];
    assert_eq!(promises::check(&all), Vec::new());
    let elsewhere = [document.clone(), file("crates/x/src/a.rs", "// P-1\n"), file("crates/x/tests/a.rs", "// P-2\n")];
    assert_eq!(promises::check(&elsewhere).len(), 1, "a citation outside of tests does not count");
    let unknown = [document, file("crates/x/tests/a.rs", "// P-1 P-2 P-33\n")];
    assert_eq!(promises::check(&unknown).len(), 1, "P-33 is not promised");
    assert_eq!(promises::check(&[]).len(), 1, "the document must be there");
}

#[test]
fn a_promise_is_a_paragraph_with_a_list_of_tests_that_exist() {
    let found = |document: &str| {
        let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
        let files = [file("docs/promises.md", document), file("crates/x/tests/a.rs", "// P-1 P-2\n")];
        promises::check(&files).into_iter().map(|finding| finding.what).collect::<Vec<_>>()
    };
    let second = "\n\n**P-2** two\n\n- sim\n";
    assert_eq!(found(&format!("**P-1** one\n\n- `crates/x/tests/a.rs`{second}")), Vec::<String>::new());
    assert_eq!(found(&format!("**P-1** one\n\n- `crates/x/tests/b.rs`{second}")), ["there is no crates/x/tests/b.rs"]);
    assert_eq!(found(&format!("**P-1** one{second}")), ["P-1 lists no test"]);
    assert_eq!(found("**P-1** one\n\n- sim\n\n**P-2** two\n"), ["P-2 lists no test"]);
    assert_eq!(found(&format!("**P-1** one\n\n- sim{second}{second}")), ["P-2 is there twice"]);
    let mentioned = found("**P-1** one, see P-2\n\n- sim\n");
    assert_eq!(mentioned.len(), 1, "a number in a sentence promises nothing: {mentioned:?}");
}

const GLOSSARY: &str = "# Glossary\n\n## Old words\n\n| `hull`, `put_away` | x |\n| \"tertiary volume\" | medium |\n";

fn counted(path: &str, text: &str) -> std::collections::BTreeMap<String, usize> {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    words::count(&[file("docs/glossary.md", GLOSSARY), file(path, text)])
}

#[test]
fn old_words_are_counted_in_names_and_not_in_comments() {
    let code = "// hull\nlet hull_end = HullOfReads::new(\"hull\"); let hulled = names_put_away(hull_end);\n";
    let found = counted("crates/x/src/a.rs", code);
    assert_eq!((found["hull"], found["put_away"]), (2, 1));
    assert_eq!(counted("crates/x/src/hull.rs", "")["hull"], 1, "a file's name is a name");
    assert_eq!(counted("docs/a.md", "hull")["hull"], 0, "prose is free to use a word");
}

#[test]
fn old_phrases_are_counted_in_documents_and_messages() {
    assert_eq!(counted("docs/a.md", "a tertiary volume")["phrases"], 1);
    assert_eq!(counted("crates/x/src/a.rs", "f(\"a tertiary volume\"); // tertiary volume")["phrases"], 1);
}

#[test]
fn more_old_words_than_accepted_are_refused() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let files = |accepted: &str| {
        let code = file("crates/x/src/a.rs", "let hull = 1;");
        [file("docs/glossary.md", GLOSSARY), file("xtask/words.toml", accepted), code]
    };
    assert_eq!(words::check(&files("hull = 1\n")), Vec::new());
    assert_eq!(words::check(&files("hull = 0\n")).len(), 1);
    assert_eq!(words::check(&files("")).len(), 1, "a word without a line may not stand at all");
    assert!(words::lowered(&files("hull = 5\n")).contains("hull = 1\n"));
    assert!(words::lowered(&files("hull = 0\n")).contains("hull = 0\n"), "it is never raised");
    assert_eq!(words::check(&files("hull = 1\n")[1..]).len(), 1, "the glossary must be there");
}

#[test]
fn documents_have_short_lines_and_sentences_with_a_subject() {
    let long = "word ".repeat(21);
    assert_eq!(markdown::check(Path::new("docs/a.md"), &long).len(), 1);
    let free = format!("| {long} |\n    {long}\n```\n{long}\n```\n{}\n", "x".repeat(120));
    assert_eq!(markdown::check(Path::new("docs/a.md"), &free), Vec::new());
    let openings = |text: &str| markdown::openings(&[(PathBuf::from("docs/a.md"), text.to_owned())]);
    assert_eq!(openings("Who waits goes on. What is cold\ngoes down. **Whoever lists** waits.\n"), 3);
    assert_eq!(openings("## What cannot go wrong\n- Who waits\n- What is cold\n"), 2);
    assert_eq!(openings("Who may read it? The owner, who may.\n"), 0);
}

#[test]
fn subjects_of_commits_are_short() {
    assert_eq!(commits::findings(&format!("abc {}", "x".repeat(72))), Vec::new());
    assert_eq!(commits::findings(&format!("abc {}", "x".repeat(73))).len(), 1);
}

#[test]
fn packages_take_lints_and_the_minimum_from_the_workspace() {
    let found = |path: &str, text: &str| source::check_manifest(Path::new(path), text).len();
    let whole = "[package]\nrust-version.workspace = true\n\n[lints]\nworkspace = true\n";
    assert_eq!(found("crates/x/Cargo.toml", whole), 0);
    assert_eq!(found("crates/x/Cargo.toml", "[package]\nrust-version.workspace = true\n"), 1);
    assert_eq!(found("xtask/Cargo.toml", "[package]\n"), 2);
    assert_eq!(found("plugins/x/Cargo.toml", "[package]\n"), 0, "another workspace");
}
