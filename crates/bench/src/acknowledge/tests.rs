use std::fs;
use std::path::PathBuf;

use super::*;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        Self::with(name, Promise::Fsync)
    }

    fn with(name: &str, promise: Promise) -> Self {
        let folder = std::env::temp_dir().join(format!("stere-acknowledge-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("work")).expect("the temporary folder must be writable");
        let place = Place(folder);
        write(&place.work(), &place.log(), promise, 5, 2, 300).expect("a healthy file system takes everything");
        place
    }

    fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    fn verify(&self) -> Result<u64, BenchError> {
        verify(&self.work(), &self.log(), 5)
    }

    /// Any file that was acknowledged and is longer than a block.
    fn some_file(&self) -> PathBuf {
        let folder = folder_of(&self.work(), 0);
        let mut files: Vec<PathBuf> = fs::read_dir(folder).expect("list").flatten().map(|entry| entry.path()).collect();
        files.retain(|path| fs::metadata(path).expect("stat").len() > 5000);
        files.sort();
        files.remove(0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_was_acknowledged_verifies() {
    for promise in [Promise::Fsync, Promise::Syncfs, Promise::Osync, Promise::Msync] {
        let place = Place::with(&format!("{promise:?}"), promise);
        assert_eq!(place.verify().expect("nothing was lost"), 600, "{promise:?}");
    }
}

#[test]
fn a_lost_file_a_wrong_byte_a_short_and_a_left_over_file_are_found() {
    let place = Place::new("lost");
    let file = place.some_file();
    let data = fs::read(&file).expect("read");
    let is_found = |what: &str| assert!(place.verify().is_err(), "{what} must be found");

    fs::remove_file(&file).expect("unlink");
    is_found("a lost file");
    let mut wrong = data.clone();
    wrong[4500] ^= 1;
    fs::write(&file, &wrong).expect("write");
    is_found("a wrong byte");
    fs::write(&file, &data[..data.len() - 1]).expect("write");
    is_found("a short file");
    fs::write(&file, &data).expect("write");
    place.verify().expect("as it was");
    fs::write(file.with_file_name("file-999"), "").expect("write");
    is_found("a file whose removal was acknowledged");
}

#[test]
fn an_operation_under_way_may_have_happened_or_not() {
    let place = Place::new("pending");
    let file = place.some_file();
    let number: u64 = file.to_string_lossy()[file.to_string_lossy().len() - 3..].parse().expect("a number");
    let line = Line::Begin { thread: 0, change: Change::Unlink { file: number } };
    let log = fs::read_to_string(place.log()).expect("read");
    fs::write(place.log(), format!("{log}{line}\n")).expect("write");
    place.verify().expect("not yet unlinked");
    fs::remove_file(&file).expect("unlink");
    place.verify().expect("already unlinked");
}

#[test]
fn lines_of_the_log_are_read_back_as_written() {
    let changes = [
        Change::Create { file: 1, length: 2, generation: 3 },
        Change::Replace { file: 1, length: 2, generation: 3 },
        Change::Append { file: 1, length: 2, generation: 3 },
        Change::Overwrite { file: 1, first_block: 2, blocks: 3, generation: 4 },
        Change::Unlink { file: 1 },
    ];
    for change in changes {
        let line = Line::Begin { thread: 7, change };
        assert_eq!(Line::parse(&line.to_string()), Some(line));
    }
    assert_eq!(Line::parse("done 3"), Some(Line::Done { thread: 3 }));
    assert_eq!(Line::parse("begin 3 dance 4"), None);
}
