#!/bin/sh
# One of three disks is gone at boot: the pool comes up, reads everything, and goes on writing.
. "$(dirname "$0")/drill.sh"

say "A pool on three disks, with files."
run create tank "$(disk a)" "$(disk b)" "$(disk c)"
run mount tank "$mountpoint"
fill before 60
run umount "$mountpoint"

say "Disk b dies. The pool is mounted without it, and says so (exit code 3)."
pull b
expect 3 mount tank "$mountpoint" -o wait=0
compare before
expect 3 status tank

say "Life goes on: new files, and changes to old ones."
fill meanwhile 40
cp "$mountpoint/meanwhile/39" "$mountpoint/before/59"
(cd "$mountpoint" && find before -type f -exec sha256sum {} +) >before.sums
compare before meanwhile

say "And after another boot."
run umount "$mountpoint"
expect 3 mount tank "$mountpoint" -o wait=0
compare before meanwhile
run umount "$mountpoint"
