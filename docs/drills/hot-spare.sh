#!/bin/sh
# A disk is given up and a spare takes its place by itself.
. "$(dirname "$0")/drill.sh"

say "A pool on two disks, with files, and a spare."
run create tank "$(disk a)" "$(disk b)"
run mount tank "$mountpoint" -o spare=1s
run device add tank "$(disk c)" --spare
fill files 60
run status tank

say "Disk b is given up."
run device fail tank b --yes --wait
tries=0
until [ "$(field survives)" = 1 ] && ! "$stere" device list tank | grep -q spare; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "the spare did not take over"
    sleep 0.2
done
run device remove tank b --yes --wait
is state healthy
compare files
run umount "$mountpoint"
run check tank

say "The proof: disk a dies, and the spare has everything."
pull a
expect 3 mount tank "$mountpoint" -o wait=0
compare files
run umount "$mountpoint"
