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
  type=directory            file, directory, symlink, fifo, socket, block, character, or the letters of find(1): f d l p s b c
  depth>2  links>1  inode=7
  class=archive  copies=2  parity>1  redundancy=10  compress=zstd  encrypt=yes  tier=MEDIUM  wanted=4+2  backup=yes
                            what policy asks for
  survives<1  scheme=1+0  on=NAME
                            what is so: losses survived, data and parity units, a device or medium that has it
  state!=compliant          compliant, pending, impossible, away or lost
  residency=nearline        online, partial, nearline or offline
  user.project=a*           a user's attribute; user.project alone: it exists

Signs are = != < <= > >= and &. Quotes and backslashes keep blanks and parentheses in a word.
Writes that the kernel still holds (mount option writeback) are not seen.";

#[derive(Debug, Args)]
pub struct FindArguments {
    /// The search, such as 'size>1G and class=archive and state!=compliant'
    pub expression: String,
    /// A directory, for everything below it, or one file
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// End each path with a zero byte, for xargs -0
    #[arg(short = '0', long)]
    pub print0: bool,
    /// Print what is known of each file as JSON, one object a line
    #[arg(long, conflicts_with_all = ["print0", "count"])]
    pub json: bool,
    /// Look at every inode instead of using an index, to compare
    #[arg(long)]
    pub no_index: bool,
    /// Print only the number of files
    #[arg(long, conflicts_with = "print0")]
    pub count: bool,
}
