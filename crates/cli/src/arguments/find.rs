//! What can be typed behind `stere find`.

use std::path::PathBuf;

use clap::Args;

pub const TESTS: &str = "\
Tests, joined by and, or, not and parentheses; tests beside each other must all hold:
  *.iso  src/**/*.c         the name; with a slash the path from PATH (also name=... and path=...); ext=jpg in any case
  size>1G  stored<10M       bytes: K, M, G, T are powers of 1024; stored is before copies and parity
  age>30d  ctime<1h         how long ago content, or anything, changed; atime, btime: was read, was made (s m h d w y)
  owner=anna  group!=7      names or numbers
  mode=644  mode&111        octal; & asks whether all of these bits are set
  type=directory            file, directory, symlink, fifo, socket, block, character, or as find(1) calls them: f d l p s b c
  depth>2  links>1  inode=7
  class=archive  copies=2  parity>1  redundancy=10  compress=zstd  encrypt=yes  tier=VOLUME  wanted=4+2  backup=yes
                            what policy asks for
  survives<1  scheme=1+0  on=NAME
                            what is so: losses survived, data and parity units, a device or tertiary volume it lies on
  state!=compliant          compliant, pending, impossible, away or lost
  residency=nearline        online, partial, nearline or offline
  user.project=a*           a user's attribute; user.project alone: it is there

Signs are = != < <= > >= and &. Quotes and backslashes keep blanks and parentheses in a word.
What the kernel has in memory and did not hand over yet (mount option writeback) is not known.";

#[derive(Debug, Args)]
pub struct FindArguments {
    /// What to look for, such as 'size>1G and class=archive and state!=compliant'
    pub expression: String,
    /// Where: a directory with everything below it, or one file
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// End each path with a zero byte, which no path can have in it
    #[arg(short = '0', long)]
    pub print0: bool,
    /// What is known of each file, an object a line, for programs
    #[arg(long, conflicts_with_all = ["print0", "count"])]
    pub json: bool,
    /// Look at every inode although an index would do, to compare
    #[arg(long)]
    pub no_index: bool,
    /// Only how many there are
    #[arg(long, conflicts_with = "print0")]
    pub count: bool,
}
