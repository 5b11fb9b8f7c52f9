#!/bin/sh
# One pool in place of a pile of disks under parity and a mirror beside it: begun on two free disks, grown as others are emptied.
. "$(dirname "$0")/drill.sh"

# stored PATH WORDS: how a file is stored, which must be so.
stored() {
    echo "\$ stere policy explain $1"
    explanation=$("$stere" policy explain "$mountpoint/$1")
    echo "$explanation"
    case $explanation in *"$2"*) ;; *) fail "$1 is not as it should be: $2" ;; esac
}

say "Two disks are free: the former parity disk and a new one. Three kinds of files, three classes."
run create tank "$(disk parity 256M)" "$(disk new 256M)"
run mount tank "$mountpoint"
run class create tank films parity=3+1
run class create tank photos copies=3
mkdir "$mountpoint/films" "$mountpoint/photos" "$mountpoint/scratch"
run policy set "$mountpoint/films" class=films
run policy set "$mountpoint/photos" class=photos
run policy set "$mountpoint/scratch" class=scratch

say "The first files move in. Two disks cannot give all that is asked for: they get the best there is, and it says so."
fill films 40
fill photos 20
fill scratch 10
stored films/39 "copies is 2"

say "The disks that held them are empty now, and join. What asked for more gets it in the background."
run device add tank "$(disk film1 192M)"
run device add tank "$(disk film2 192M)"
run policy set "$mountpoint/films" class=films --wait
run policy set "$mountpoint/photos" class=photos --wait
stored films/39 "parity is 3+1"
stored photos/19 "it survives the loss of 2 devices"
compare films photos scratch
run free tank

say "What would be lost with a disk? Nothing of films and photos. So one goes."
run lose film1
"$stere" lose film1 | grep -E "/(films|photos)/" && fail "nothing but scratch may be lost with one disk"
run umount "$mountpoint"
pull film1
expect 3 mount tank "$mountpoint" -o degraded=auto,wait=0s
compare films photos
run umount "$mountpoint"
