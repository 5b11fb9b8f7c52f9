#!/bin/sh
# Two disks were each written to without the other: refused until you choose.
. "$(dirname "$0")/drill.sh"

say "A pool on two disks, with files."
run create tank "$(disk a)" "$(disk b)"
run mount tank "$mountpoint"
fill files 40
run umount "$mountpoint"

say "Each disk is used without the other."
pull b
expect 3 mount tank "$mountpoint" -o wait=0
fill on-a 20
run umount "$mountpoint"
pull a
push b
expect 3 mount tank "$mountpoint" -o wait=0
fill on-b 20
run umount "$mountpoint"
push a

say "Together they are refused."
expect 1 mount tank "$mountpoint" -o wait=0

say "The half of disk b is chosen; disk a is filled anew."
expect 3 mount tank "$mountpoint" -o prefer=b.img
run device online tank a --wait
compare files on-b
[ ! -e "$mountpoint/on-a" ] || fail "what was given up is there"
is state healthy
run umount "$mountpoint"
run check tank

say "The proof: disk b dies, and disk a has everything."
pull b
expect 3 mount tank "$mountpoint" -o wait=0
compare files on-b
run umount "$mountpoint"
