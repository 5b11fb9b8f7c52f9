#!/bin/sh
# A dead disk is replaced; afterwards any other disk may die.
. "$(dirname "$0")/drill.sh"

say "A pool on three disks, with files. Disk b dies."
run create tank "$(disk a)" "$(disk b)" "$(disk c)"
run mount tank "$mountpoint"
fill files 60
run umount "$mountpoint"
pull b
expect 3 mount tank "$mountpoint" -o wait=0

say "What would replacing it take? Then it is done."
new=$(disk new)
run device replace tank b "$new" --dry-run
run device replace tank b "$new" --yes --wait
run status tank
is state healthy
is survives 1
compare files
run umount "$mountpoint"
run check tank

say "The proof: now disk a dies."
pull a
expect 3 mount tank "$mountpoint" -o wait=0
compare files
run umount "$mountpoint"
