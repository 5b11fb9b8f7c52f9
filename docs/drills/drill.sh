# What all drills share; sourced by them. Makes a folder, cleans up behind, and knows how to fill and compare.
set -eu

stere=${STERE:-stere}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-drill.XXXXXX")
mountpoint=$folder/mount
export STERE_STATE="$folder/state"
mkdir "$mountpoint"
cd "$folder"

clean_up() {
    code=$?
    trap - EXIT
    cd /
    if mountpoint -q "$mountpoint"; then
        "$stere" umount "$mountpoint" --force >/dev/null 2>&1 || umount -l "$mountpoint" || true
    fi
    ${at_end:-true}
    for device in $(losetup -a 2>/dev/null | grep -F "($folder/" | cut -d: -f1); do
        losetup -d "$device" || true
    done
    [ "$code" = 0 ] || tail -n 20 "$STERE_STATE"/log/*.log >&2 2>/dev/null || true
    [ "${KEEP:-0}" = 1 ] || rm -rf "$folder"
    if [ "$code" = 0 ]; then echo "the drill went well"; else echo "THE DRILL FAILED" >&2; fi
    [ "$code" = 0 ] || exit 1
}
trap clean_up EXIT
trap 'exit 1' INT TERM

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

say() {
    echo
    echo "# $*"
}

# Shows a command and runs it; it must end with 0.
run() {
    echo "\$ stere $*"
    "$stere" "$@" || fail "stere $* ended with $?"
}

# The same for a command that must end with the code in front.
expect() {
    wanted=$1
    shift
    echo "\$ stere $*"
    code=0
    "$stere" "$@" || code=$?
    [ "$code" = "$wanted" ] || fail "stere $* ended with $code, not $wanted"
}

# disk NAME: an image of its own, or a loop device on it, known to the pool by this name.
disk() {
    truncate -s "${2:-128M}" "$1.img"
    if [ "${LOOP:-0}" = 1 ]; then echo "$(losetup -f --show "$PWD/$1.img"),name=$1"; else echo "$PWD/$1.img"; fi
}

# pull NAME: the disk is gone, with everything on it.
pull() {
    for device in $(losetup -a 2>/dev/null | grep -F "($folder/$1.img)" | cut -d: -f1); do losetup -d "$device"; done
    mv "$1.img" "$1.pulled"
}

# push NAME: it is back as it was when it was pulled, at the place where it was.
push() {
    mv "$1.pulled" "$1.img"
    if [ "${LOOP:-0}" = 1 ]; then losetup -f "$PWD/$1.img"; fi
}

# fill DIRECTORY COUNT: files of many sizes, with their checksums noted in DIRECTORY.sums.
fill() {
    mkdir -p "$mountpoint/$1"
    number=0
    while [ "$number" -lt "$2" ]; do
        head -c $((number * number * 700 + 100)) /dev/urandom >"$mountpoint/$1/$number"
        number=$((number + 1))
    done
    sync -f "$mountpoint"
    (cd "$mountpoint" && find "$1" -type f -exec sha256sum {} +) >"$folder/$1.sums"
}

# compare DIRECTORY...: every file is what it was.
compare() {
    for directory in "$@"; do
        echo "\$ sha256sum --check $directory.sums ($(wc -l <"$folder/$directory.sums") files)"
        (cd "$mountpoint" && sha256sum --quiet --check "$folder/$directory.sums") || fail "files in $directory differ"
    done
}

# field NAME: a text or number of the pool's status.
field() {
    "$stere" status tank --json | sed -n "s/^  \"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" | head -n 1
}

# is NAME VALUE: what the status must say.
is() {
    [ "$(field "$1")" = "$2" ] || fail "status says $1 is '$(field "$1")', not '$2'"
}
