#!/bin/bash
# The death of a daemon never harms the host (P-166), played in a virtual machine: where the promise is broken, sync(2) of the whole
# machine hangs until it is booted anew. Not part of CI: without KVM it takes some minutes.
#   sudo crates/stere/tests/vm/daemon-death.sh [BINARY]      (default: target/release/stere)
# KERNEL=PACKAGE is the kernel's Debian package (default: what linux-image-amd64 is here), SUITE=NAME takes it from another suite, such as
# KERNEL=linux-image-6.18.15+deb13-cloud-amd64 SUITE=trixie-backports: FUSE over io_uring needs Linux 6.14. LIMIT (1200): seconds for the
# machine. CASES=dev,uring,ending: only these, and the control. What is missing is installed with apt-get; the kernel is only unpacked. Ends with 0 if every line that the guest says is `ok`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$(realpath "${1:-$here/../../../../target/release/stere}")
limit=${LIMIT:-1200}
folder=$(mktemp -d "${TMPDIR:-/tmp}/stere-vm.XXXXXX")
trap 'rm -rf --one-file-system "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"

need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null || PATH=$PATH:/sbin:/usr/sbin command -v "$1" >/dev/null || missing+=("$2")
}
missing=()
need qemu-system-x86_64 qemu-system-x86
need cpio cpio
need depmod kmod
need cc gcc
need xz xz-utils
busybox=$(command -v busybox || true)
# A busybox that is linked with libraries would want them in the guest.
if [ -z "$busybox" ] || ldd "$busybox" >/dev/null 2>&1; then missing+=(busybox-static); fi
if [ ${#missing[@]} -gt 0 ]; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
PATH=$PATH:/sbin:/usr/sbin

apt=(apt-get -qq)
if [ -n "${SUITE:-}" ]; then
    mkdir -p lists/partial cache/archives/partial
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $SUITE main" >sources.list
    apt+=(-o "Dir::Etc::sourcelist=$folder/sources.list" -o Dir::Etc::sourceparts=/dev/null)
    apt+=(-o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache")
    "${apt[@]}" update
fi
kernel=${KERNEL:-$(apt-cache depends linux-image-amd64 | awk '/Depends:/ { print $2; exit }')}
"${apt[@]}" download "$kernel" 2>/dev/null
dpkg-deb -x "$kernel"_*.deb unpacked
image=$(echo unpacked/boot/vmlinuz-*)
release=${image##*/vmlinuz-}
[ -d unpacked/usr/lib/modules ] || { mkdir -p unpacked/usr/lib && mv unpacked/lib/modules unpacked/usr/lib/; }
depmod -b unpacked/usr "$release" 2>/dev/null || depmod -b unpacked "$release"

# The guest: busybox, the binary and its libraries, the modules, the shim of the control, and what it does.
guest=$folder/guest
mkdir -p "$guest"/{bin,dev,proc,sys,tmp,run,w,modules,etc,root}
cp "$(command -v busybox)" "$guest/bin/busybox"
cp "$binary" "$guest/bin/stere"
ldd "$binary" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$guest$(dirname "$library")"
    cp -L "$library" "$guest$library"
done
echo 'root:x:0:0:root:/root:/bin/sh' >"$guest/etc/passwd"
echo 'root:x:0:' >"$guest/etc/group"
cp "$here/guest.sh" "$guest/init"
chmod 755 "$guest/init"
for module in fuse loop virtio_pci virtio_blk; do
    found=$(modprobe -d "$folder/unpacked/usr" -S "$release" --show-depends "$module" 2>/dev/null) ||
        found=$(modprobe -d "$folder/unpacked" -S "$release" --show-depends "$module" 2>/dev/null) || continue
    awk '$1 == "insmod" { print $2 }' <<<"$found"
done | awk '!seen[$0]++' | while read -r path; do
    name=$(basename "$path" .xz)
    case $path in *.xz) xz -dc "$path" ;; *) cat "$path" ;; esac >"$guest/modules/$name"
    echo "$name" >>"$guest/modules/order"
done
# What the daemon asks of its namespace is answered as if it were the machine's, so that the control mounts what must not be mounted there.
cat >shim.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
ssize_t readlink(const char *path, char *buffer, size_t size) {
    const char *lie = !strcmp(path, "/proc/self/ns/pid") ? "pid:[4026531836]"
        : strstr(path, "/ns/mnt") ? "mnt:[4026531832]" : 0;
    if (!lie)
        return ((ssize_t (*)(const char *, char *, size_t))dlsym(RTLD_NEXT, "readlink"))(path, buffer, size);
    size_t length = strlen(lie);
    memcpy(buffer, lie, length < size ? length : size);
    return length < size ? length : size;
}
C
cc -O1 -shared -fPIC -o "$guest/bin/shim.so" shim.c -ldl
(cd "$guest" && find . | cpio -o -H newc --quiet) | gzip -1 >initrd.gz

# A disk that takes a megabyte a second: what is written to it is still under way when the daemon is killed.
truncate -s 256M fast.img
truncate -s 256M slow.img
acceleration=tcg
grep -qE 'vmx|svm' /proc/cpuinfo && [ -w /dev/kvm ] && acceleration=kvm
echo "Linux $release under $acceleration, $limit s at most"
timeout --kill-after=10 "$limit" qemu-system-x86_64 -machine accel=$acceleration -cpu max -smp 2 -m 1536 -nographic -no-reboot \
    -kernel "$image" -initrd initrd.gz -append 'console=ttyS0 quiet panic=1 '"cases=${CASES:-}" -nic none \
    -drive file=fast.img,format=raw,if=virtio,cache=unsafe \
    -drive file=slow.img,format=raw,if=virtio,cache=unsafe,throttling.bps-write=1000000 \
    </dev/null 2>&1 | tr -d '\r' | tee log | grep --line-buffered '^vm:' || true
if grep -q '^vm: FAIL' log || ! grep -q '^vm: end' log; then
    echo "failed; the machine's last lines:"
    tail -n 60 log
    exit 1
fi
echo "all $(grep -c '^vm: ok' log) as promised"
