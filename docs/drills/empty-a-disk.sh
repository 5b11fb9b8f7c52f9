#!/bin/sh
# A disk is emptied and removed while the pool is in use.
. "$(dirname "$0")/drill.sh"

say "A pool on two disks, with files; two larger ones join."
run create tank "$(disk a)" "$(disk b)"
run mount tank "$mountpoint"
fill files 60
run device add tank "$(disk c 192M)" "$(disk d 192M)"
run device list tank

say "The small ones go, one after the other."
run device remove tank a --dry-run
run device remove tank a --yes --wait
compare files
run device remove tank b --yes --wait
compare files
is state healthy
run device list tank
[ "$("$stere" device list tank --json | grep -c '"name"')" = 2 ] || fail "two devices should be left"
run umount "$mountpoint"

say "They are no part of the pool any more; only noise is left on them."
run create other a.img b.img --force
run check tank
run mount tank "$mountpoint"
compare files
run umount "$mountpoint"
