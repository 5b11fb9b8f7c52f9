#!/bin/sh
# A project is archived to a directory on a removable disk; then all disks of the pool burn. Everything comes back from the volume.
. "$(dirname "$0")/drill.sh"

say "A pool on two disks, with a project and other files, and a volume for what is cold."
run create tank "$(disk a)" "$(disk b)"
run mount tank "$mountpoint"
mkdir volume
run device add tank "dir:$PWD/volume,class=media,name=LAB-0042"
fill project 50
mkdir "$mountpoint/project/deep"
# Copied byte for byte: cp and cat would share the content.
tail -c +1 "$mountpoint/project/49" >"$mountpoint/project/deep/er"
chmod 640 "$mountpoint/project/7"
(cd "$mountpoint" && find project -type f -exec sha256sum {} +) >project.sums

say "The project goes down, and its room on the disks is given back."
run tier archive "$mountpoint/project" --wait
run tier release "$mountpoint/project"
run media verify tank LAB-0042
compare project
run umount "$mountpoint"

say "All disks burn. What is left is the volume."
rm a.img b.img
run rescue "dir:$PWD/volume" --to "$PWD/rescued"
(cd rescued && sha256sum --quiet --check "$folder/project.sums") || fail "rescued files differ"
[ "$(stat -c %a rescued/project/7)" = 640 ] || fail "the mode of a file is lost"
