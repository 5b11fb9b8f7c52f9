#!/bin/sh
# A disk was away while files changed: it is caught up on what it missed, and its old contents never win.
. "$(dirname "$0")/drill.sh"

say "A pool on three disks, with files. Disk c is unplugged."
run create tank "$(disk a)" "$(disk b)" "$(disk c)"
run mount tank "$mountpoint"
fill old 60
fill changing 40
run umount "$mountpoint"
pull c

say "Without it, files are changed, added and removed."
expect 3 mount tank "$mountpoint" -o wait=0
fill changing 40
fill new 20
rm "$mountpoint/old/7"
grep -v ' old/7$' old.sums >rest && mv rest old.sums
run umount "$mountpoint"

say "It is plugged in again: it catches up, and the files are what they are now."
push c
run mount tank "$mountpoint"
run device online tank c --wait
compare old changing new
[ ! -e "$mountpoint/old/7" ] || fail "a removed file came back"
is state healthy
run umount "$mountpoint"

say "The same while the pool is in use."
run mount tank "$mountpoint"
run device offline tank a
fill changing 40
run device online tank a --wait
is state healthy
run umount "$mountpoint"
run check tank

say "The proof: every disk in turn is the one that is gone."
for name in a b c; do
    pull $name
    expect 3 mount tank "$mountpoint" -o wait=0,ro
    compare old changing new
    run umount "$mountpoint"
    push $name
done
