#!/bin/sh
# dd writes noise over a disk: nobody reads a wrong byte, and a scrub repairs it.
. "$(dirname "$0")/drill.sh"

say "A pool on two disks, with files."
run create tank "$(disk a)" "$(disk b)"
run mount tank "$mountpoint"
fill files 60
run umount "$mountpoint"

say "Forty megabytes of disk a rot."
dd if=/dev/urandom of=a.img bs=1M seek=6 count=40 conv=notrunc status=none
run mount tank "$mountpoint"
compare files

say "A scrub finds and repairs all of it."
run scrub start tank --wait
run scrub status tank
run umount "$mountpoint"
run check tank

say "The proof: disk b dies, and what had rotted is read from a alone."
pull b
expect 3 mount tank "$mountpoint" -o wait=0
compare files
run umount "$mountpoint"
