#!/bin/sh
# A project is archived to a directory on a removable disk; then all disks of the pool burn. Everything comes back from the volume, and the
# names of what was never archived.
scripts=$(cd "$(dirname "$0")" && pwd)
. "$scripts/drill.sh"

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
ln -s ../7 "$mountpoint/project/deep/seven"
mkdir -m 750 "$mountpoint/empty"
echo never archived >"$mountpoint/note"
touch -d '2001-02-03 04:05:06' "$mountpoint/project/deep/er"
(cd "$mountpoint" && find project -type f -exec sha256sum {} +) >project.sums
ln "$mountpoint/project/8" "$mountpoint/project/deep/eight"

say "The project goes down, and its room on the disks is given back."
run tier archive "$mountpoint/project" --wait
run tier release "$mountpoint/project"
run media verify tank LAB-0042
compare project
run umount "$mountpoint"

say "All disks burn. What is left is the volume."
rm a.img b.img
expect 4 rescue "dir:$PWD/volume" --to "$PWD/rescued" >said
cat said
grep -q 'damaged: /note' said || fail "what is lost is not named: $(cat said)"
(cd rescued && sha256sum --quiet --check "$folder/project.sums") || fail "rescued files differ"
[ "$(stat -c %a rescued/project/7)" = 640 ] || fail "the mode of a file is lost"
[ "$(stat -c %i rescued/project/8)" = "$(stat -c %i rescued/project/deep/eight)" ] || fail "a hard link is lost"
[ "$(readlink rescued/project/deep/seven)" = ../7 ] || fail "a symbolic link is lost"
[ "$(stat -c %a rescued/empty)" = 750 ] || fail "an empty directory is lost"
[ "$(date -r rescued/project/deep/er +%F)" = 2001-02-03 ] || fail "a time is lost"
[ "$(stat -c %s rescued/note)" = 15 ] || fail "the name of what was never archived is lost"

say "The same without the copy of the metadata: each file as it was when it went down."
run rescue "dir:$PWD/volume" --as-archived --to "$PWD/archived"
# A file of several names comes back under one of them.
grep -v ' project/8$' project.sums >other.sums
(cd archived && sha256sum --quiet --check "$folder/other.sums") || fail "files differ"
[ -e archived/project/8 ] || [ -e archived/project/deep/eight ] || fail "a file of two names is lost"

reader=$scripts/../../tools/read-volume/read_volume.py
if command -v python3 >/dev/null; then
    say "The same without stere: a file of Python that was written from docs/format."
    code=0
    python3 -B "$reader" "$folder/volume" --to "$folder/read" >said || code=$?
    cat said
    [ "$code" = 4 ] || fail "it ended with $code, though the note was never archived"
    grep -q 'damaged: /note: ' said || fail "what is lost is not named: $(cat said)"
    diff -r --no-dereference rescued read || fail "it does not read what stere reads"
fi
