//! Programs that people use every day, on real trees: git, rsync, and a build of these very sources.

use std::fs;
use std::path::Path;

use super::Job;
use crate::command::{MINUTE, capture, output, quoted, shell};
use crate::error::{At, Result, XtaskError};
use crate::packages::require;
use crate::subject::cargo;

/// Clones these sources, commits on top, packs, checks; the clone must check again after a remount.
pub fn git(job: &Job) -> Result<()> {
    require(&["git"])?;
    let (source, clone) = (quoted(&job.world.root), quoted(&job.subject.mount_point.join("clone")));
    let git = format!("git -c safe.directory='*' -c user.name=test -c user.email=test@localhost -C {clone}");
    let lines = [
        format!("git -c safe.directory='*' clone --quiet --no-local --no-hardlinks {source} {clone}"),
        format!("{git} checkout --quiet -b suite"),
        format!(
            "cd {clone} && for i in $(seq 200); do mkdir -p new/$((i % 7)) && seq $((i * 50)) >new/$((i % 7))/$i; done"
        ),
        format!("{git} add -A && {git} commit --quiet -m 'two hundred files'"),
        format!("{git} gc --quiet --prune=now"),
        format!("{git} checkout --quiet -"),
        format!("{git} checkout --quiet suite"),
    ];
    for line in lines {
        capture(&mut shell(&line), 5 * MINUTE)?;
    }
    let check = format!("{git} fsck --full --strict 2>&1 && test -z \"$({git} status --porcelain)\"");
    capture(&mut shell(&check), 5 * MINUTE)?;
    job.subject.unmount()?;
    job.subject.mount()?;
    capture(&mut shell(&check), 5 * MINUTE).map(drop)
}

/// A tree with everything that `rsync -aHAX` carries: there, remount, back to ext4's own disk, no difference.
pub fn rsync(job: &Job) -> Result<()> {
    require(&["rsync", "setfattr", "setfacl"])?;
    let source = job.scratch.join("source");
    make_tree(&source)?;
    let (there, back) = (job.subject.mount_point.join("there"), job.scratch.join("back"));
    copy(&source, &there)?;
    job.subject.unmount()?;
    job.subject.mount()?;
    copy(&there, &back)?;
    for (left, right) in [(&source, &there), (&there, &source), (&source, &back)] {
        expect_no_difference(left, right)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    capture(&mut shell(&format!("rsync -aHAXS --numeric-ids {}/ {}/", quoted(from), quoted(to))), 10 * MINUTE).map(drop)
}

/// rsync's own comparison by checksum, and one of names, types, links, owners, sizes and times by find.
fn expect_no_difference(left: &Path, right: &Path) -> Result<()> {
    let compare = format!("rsync -aHAXnic --delete --numeric-ids {}/ {}/", quoted(left), quoted(right));
    let changes = capture(&mut shell(&compare), 10 * MINUTE)?;
    if !changes.trim().is_empty() {
        return Err(XtaskError::found(format!("rsync sees differences between {left:?} and {right:?}:\n{changes}")));
    }
    let list = |folder: &Path| {
        let format = "'%P %y %m %U %G %n %l %T@\\n'";
        let line = format!("find {} ! -type d -printf {format} | sort", quoted(folder));
        output(&mut shell(&line), 5 * MINUTE).map(|output| output.stdout)
    };
    let (left_list, right_list) = (list(left)?, list(right)?);
    let unlike = left_list.lines().zip(right_list.lines()).find(|(left, right)| left != right);
    match unlike {
        None if left_list.len() == right_list.len() => Ok(()),
        other => Err(XtaskError::found(format!("find lists {left:?} and {right:?} unlike: {other:?}"))),
    }
}

fn make_tree(tree: &Path) -> Result<()> {
    let script = r#"
        set -e
        mkdir -p "$1" && cd "$1"
        for d in 1 2 3 4 5; do
            mkdir -p "dir $d/sub"
            for f in $(seq 60); do seq $((f * d * 13)) >"dir $d/sub/file-$f.txt"; done
        done
        ln "dir 1/sub/file-2.txt" "dir 2/hard link"
        ln "dir 1/sub/file-2.txt" "dir 3/hard link too"
        ln -s "../dir 1/sub/file-3.txt" "dir 2/symbolic"
        ln -s nowhere "dir 4/dangling"
        mkfifo "dir 5/pipe"
        mknod "dir 5/null" c 1 3
        truncate -s 3M sparse && printf end | dd of=sparse bs=1 seek=3000000 conv=notrunc status=none
        setfattr -n user.note -v "a value" "dir 1/sub/file-4.txt"
        setfattr -n trusted.note -v "a value" "dir 1/sub"
        setfacl -m u:1234:rw,g:77:r "dir 1/sub/file-5.txt"
        setfacl -m d:u:1234:rwx "dir 2/sub"
        chmod 4711 "dir 3/sub/file-6.txt"; chown 1234:77 "dir 3/sub/file-7.txt"; chmod 1777 "dir 3"
        head -c 5000000 /dev/urandom >"large file"
        touch "$(printf 'odd\nname\377')"
        # rsync leaves the time of a new symbolic link alone if it is right to the second: so none is of today.
        find . -exec touch -h -d "2003-02-03 04:05:06.789012345" {} +
        touch -d "1962-02-03 04:05:06.789012345" "dir 4/sub/file-1.txt"
    "#;
    let mut command = shell(script);
    capture(command.arg("make-tree").arg(tree), 5 * MINUTE).map(drop)
}

/// Copies these sources to the mount and builds the developer commands there, with everything written on the mount.
pub fn build(job: &Job) -> Result<()> {
    let copy = job.subject.mount_point.join("sources");
    fs::create_dir(&copy).at("mkdir", &copy)?;
    let pack = format!(
        "tar cf - -C {} --exclude=./target --exclude=./.git . | tar xf - -C {}",
        quoted(&job.world.root),
        quoted(&copy)
    );
    capture(&mut shell(&pack), 5 * MINUTE)?;
    let mut command = cargo(&copy, &["build", "--quiet", "--release", "--offline", "-p", "xtask"]);
    command.env("CARGO_TARGET_DIR", copy.join("target"));
    capture(&mut command, 30 * MINUTE)?;
    let built = copy.join("target/release/xtask");
    capture(std::process::Command::new(built).arg("--help"), MINUTE).map(drop)
}
