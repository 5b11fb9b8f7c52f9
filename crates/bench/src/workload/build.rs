//! Loris's application-level set (Appuswamy, van Moolenbroek, Tanenbaum 2010, section 6.3.1): copy a source tree, build it, look
//! through it, delete it. The sources are made up: C files of some 60 lines that include four of 40 headers each, compiled with
//! the C compiler of the machine, two at a time, into objects that are linked and run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::tree::shell;
use super::{Run, SYNCED, cold, warm};
use crate::error::{At, BenchError};
use crate::pattern::Random;
use crate::report::Metric;

const SOURCES: u64 = 240;
const HEADERS: u64 = 40;
const FUNCTIONS: u64 = 12;

pub fn run(run: &Run) -> Result<Vec<Metric>, BenchError> {
    let original = run.scratch.join(format!("stere-bench-sources-{}", std::process::id()));
    if original.exists() {
        fs::remove_dir_all(&original).at("remove", &original)?;
    }
    let sources = run.scaled(SOURCES).max(4);
    let result = make_sources(&original, run.seed, sources).and_then(|sum| phases(run, &original, sources, sum));
    fs::remove_dir_all(&original).at("remove", &original)?;
    result
}

fn phases(run: &Run, original: &Path, sources: u64, sum: u64) -> Result<Vec<Metric>, BenchError> {
    let tree = run.path("sources");
    let (copy_time, ()) = run.time(|| {
        shell(run, &format!("cp -r '{}' '{}'", original.display(), tree.display()))?;
        run.sync_file_system()
    })?;
    run.cold.make()?;
    let compile = "ls src/*.c | xargs -P 2 -n 8 cc -O0 -Iinclude -c";
    let build = format!("cd '{}' && {compile} && cc -o program *.o", tree.display());
    let (build_time, ()) = run.time(|| {
        shell(run, &build)?;
        run.sync_file_system()
    })?;
    let printed = shell(run, &format!("'{}'", tree.join("program").display()))?;
    if printed.trim() != sum.to_string() {
        let what = format!("the program prints {}, its sources say {sum}", printed.trim());
        return Err(BenchError::WrongData { path: tree, what });
    }
    run.cold.make()?;
    let look = format!("find '{}' -type f | wc -l && grep -rl source_ '{}' | wc -l", tree.display(), tree.display());
    let (look_time, looked) = run.time(|| shell(run, &look))?;
    check_looked(&tree, sources, &looked)?;
    let (remove_time, ()) = run.time(|| {
        shell(run, &format!("rm -r '{}'", tree.display()))?;
        run.sync_file_system()
    })?;
    let files = sources + HEADERS;
    Ok(vec![
        Metric::count("build_copy", files, copy_time).durable(SYNCED),
        cold(Metric::count("build_compile", sources, build_time).durable(SYNCED)),
        cold(Metric::count("build_find_grep", files, look_time)),
        warm(Metric::count("build_delete", files, remove_time).durable(SYNCED)),
    ])
}

/// Every source and its object, `main.c` and its own, and the program name the functions; headers name none.
fn check_looked(tree: &Path, sources: u64, printed: &str) -> Result<(), BenchError> {
    let found: Vec<u64> = printed.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let naming = 2 * (sources + 1) + 1;
    if found == [naming + HEADERS, naming] {
        return Ok(());
    }
    let what = format!("find and grep saw {found:?} files, there are {} and {naming}", naming + HEADERS);
    Err(BenchError::WrongData { path: tree.to_owned(), what })
}

/// Writes the sources, and tells what the program that is made of them prints.
fn make_sources(folder: &Path, seed: u64, sources: u64) -> Result<u64, BenchError> {
    let (include, src) = (folder.join("include"), folder.join("src"));
    for directory in [&include, &src] {
        fs::create_dir_all(directory).at("mkdir", directory)?;
    }
    let mut random = Random::new(seed);
    for number in 0..HEADERS {
        let mut text = format!("#ifndef HEADER_{number}\n#define HEADER_{number}\n");
        for line in 0..40 {
            let _ = writeln!(text, "struct shape_{number}_{line} {{ int width, height; char name[{}]; }};", line + 1);
        }
        text.push_str("#endif\n");
        write(&include.join(format!("header_{number}.h")), &text)?;
    }
    let mut sum = 0;
    let mut main = String::from("#include <stdio.h>\n");
    let mut calls = String::new();
    for number in 0..sources {
        let mut text = String::new();
        for _ in 0..4 {
            let _ = writeln!(text, "#include \"header_{}.h\"", random.below(HEADERS));
        }
        let _ = writeln!(text, "long source_{number}(void) {{\n    long sum = 0;");
        for _ in 0..FUNCTIONS {
            let value = random.below(1000);
            sum += value;
            let _ =
                writeln!(text, "    for (int turn = 0; turn < {value}; turn++)\n        sum += turn / (turn + 1) + 1;");
        }
        text.push_str("    return sum;\n}\n");
        write(&src.join(format!("source_{number}.c")), &text)?;
        let _ = writeln!(main, "long source_{number}(void);");
        let _ = writeln!(calls, "    sum += source_{number}();");
    }
    let _ =
        write!(main, "int main(void) {{\n    long sum = 0;\n{calls}    printf(\"%ld\\n\", sum);\n    return 0;\n}}\n");
    write(&src.join("main.c"), &main)?;
    Ok(sum)
}

fn write(path: &Path, text: &str) -> Result<(), BenchError> {
    fs::write(path, text).at("write", path)
}
