#!/bin/sh
# More is lost than normal files survive: names and precious files stay, exactly the others fail, all come back with the disks.
. "$(dirname "$0")/drill.sh"

say "A pool on three disks: normal files on two each, precious ones on all three."
run create tank "$(disk a)" "$(disk b)" "$(disk c)"
run mount tank "$mountpoint"
mkdir "$mountpoint/precious"
run policy set "$mountpoint/precious" class=precious
fill precious 40
fill normal 60
run umount "$mountpoint"

say "Disks b and c die."
pull b
pull c
expect 3 mount tank "$mountpoint" -o wait=0
expect 4 status tank

say "All names are there, and every precious file can be read."
[ "$(ls "$mountpoint/normal" | wc -l)" = 60 ] || fail "names are missing"
compare precious

say "Of the normal files, some cannot be read: an error, never a wrong byte."
good=0
bad=0
while read -r sum name; do
    if cat "$mountpoint/$name" >read 2>/dev/null; then
        [ "$(sha256sum <read | cut -d' ' -f1)" = "$sum" ] || fail "$name was read wrong"
        good=$((good + 1))
    else
        bad=$((bad + 1))
    fi
done <normal.sums
echo "$good normal files can be read, $bad cannot"
[ "$bad" -gt 0 ] || fail "two of three disks are gone, and nothing is missing?"
# Nothing can be made worse while files are out of reach: the mount only reads.
if touch "$mountpoint/new" 2>/dev/null; then fail "the pool is written to although files are out of reach"; fi
run umount "$mountpoint"

say "One of them comes back, and with it everything."
push b
expect 3 mount tank "$mountpoint" -o wait=0
compare precious normal
touch "$mountpoint/new"
run umount "$mountpoint"
