#!/usr/bin/env python3
"""Reads files back from tertiary volumes of stere, without stere.

For the day when there is no stere: this needs Python 3.8 and nothing else, and can be read with the pages of docs/format beside it (each
part below names its page). A volume is a directory with `segments/`, `metadata/`, `states/` and `catalogue/`, or a dump of a cartridge; any
number of those that belonged to one pool are given together, in any order. What was in a bucket is copied to a directory first.

There are two ways. By the **state**: a checkpoint in `states/` leads to a tree in `metadata/`, which has all names, attributes and the map of
contents as they were at that moment. Or **as archived**, where no state can be read: `catalogue/` tells names of inodes, and the rows of
`segments/` tell in their summaries which bytes of which inode they hold.

Invariants: nothing is written to a volume. Every byte of content that is written matched a CRC32C; what does not is a hole, and is listed by
path. What lies on a volume may be damaged or made by somebody hostile: it costs what it describes, never the run, and leads nowhere outside
the directory that is copied to.
"""

import argparse
import bisect
import collections
import errno
import heapq
import io
import json
import mmap
import os
import re
import stat
import struct
import subprocess
import sys
import tempfile

# Here and not where they are needed: later this stands in a directory that is full of other people's files.
try:
    from compression import zstd as ZSTD
except ImportError:
    ZSTD = None
try:
    import zstandard as ZSTANDARD
except ImportError:
    ZSTANDARD = None

BLOCK = 4096
SECTOR = 512
CHUNK_BYTES_MAX = 16 << 20
RECORD_BYTES_MAX = 1 << 20
VALUE_BYTES_MAX = 256 << 10
STATE_BYTES_MAX = 32 << 20
U64_MAX = (1 << 64) - 1
KEPT_OBJECTS = 4
KEPT_NODES = 1024
ROOT = 1
# What ends a run at once: there is no use in trying every other file.
FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Damaged(Exception):
    """Something is not what it must be."""


class Unreadable(Exception):
    """Something is right, but cannot be read with what there is here."""


# ---------------------------------------------------------------- checksums and fields: README.md


LANE = 256


def advance(register):
    """What a byte of zeros makes of the register."""
    for _ in range(8):
        register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register


TABLE = [advance(byte) for byte in range(256)]
# Each of the four bytes of TABLE by itself.
PLANES = [bytes(word >> shift & 255 for word in TABLE) for shift in (0, 8, 16, 24)]


def lane_of_zeros():
    """What a lane of zeros makes of the register, for each of its bytes: it is linear, so bits tell all."""
    bits = [1 << bit for bit in range(32)]
    for _ in range(LANE):
        bits = [TABLE[word & 255] ^ word >> 8 for word in bits]
    tables = []
    for first in (0, 8, 16, 24):
        table = [0] * 256
        for byte in range(1, 256):
            low = (byte & -byte).bit_length() - 1
            table[byte] = table[byte & byte - 1] ^ bits[first + low]
        tables.append(table)
    return tables


ZEROS = lane_of_zeros()


def lanes(data):
    """The CRC32C of each LANE bytes. All lanes at once: the registers are four long numbers, a byte of each for each lane."""
    count = len(data) // LANE
    registers = [int.from_bytes(b"\xff" * count, "little")] * 4
    for at in range(LANE):
        column = int.from_bytes(data[at : count * LANE : LANE], "little")
        index = (registers[0] ^ column).to_bytes(count, "little")
        found = [int.from_bytes(index.translate(plane), "little") for plane in PLANES]
        registers = [registers[1] ^ found[0], registers[2] ^ found[1], registers[3] ^ found[2], found[3]]
    planes = [register.to_bytes(count, "little") for register in registers]
    return [(a | b << 8 | c << 16 | d << 24) ^ 0xFFFFFFFF for a, b, c, d in zip(*planes)]


def joined(crcs, rest=b""):
    """The CRC32C of lanes that follow each other, and of some bytes behind them."""
    crc = 0
    for lane in crcs:
        crc = ZEROS[0][crc & 255] ^ ZEROS[1][crc >> 8 & 255] ^ ZEROS[2][crc >> 16 & 255] ^ ZEROS[3][crc >> 24] ^ lane
    crc ^= 0xFFFFFFFF
    for byte in rest:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def crc32c(data):
    return joined(lanes(data), data[len(data) // LANE * LANE :])


def block_checksums(data):
    """Of each 4096 bytes, the last of what is there."""
    crcs, whole, per_block = lanes(data), len(data) // BLOCK * BLOCK, BLOCK // LANE
    found = [joined(crcs[at : at + per_block]) for at in range(0, whole // LANE, per_block)]
    if len(data) > whole:
        found.append(joined(crcs[whole // LANE :], data[len(data) // LANE * LANE :]))
    return found


class Fields:
    """Little-endian fields, one after the other."""

    def __init__(self, structure, data):
        self.structure, self.data, self.at = structure, data, 0

    def fail(self, what):
        raise Damaged(f"{self.structure}: {what}")

    def check(self, is_right, field):
        if not is_right:
            self.fail(f"{field} is out of range")

    def take(self, length):
        end = self.at + length
        if length < 0 or end > len(self.data):
            self.fail("it is too short")
        part = self.data[self.at : end]
        self.at = end
        return part

    def number(self, length):
        return int.from_bytes(self.take(length), "little")

    def u8(self):
        return self.number(1)

    def u16(self):
        return self.number(2)

    def u32(self):
        return self.number(4)

    def u64(self):
        return self.number(8)

    def i64(self):
        return int.from_bytes(self.take(8), "little", signed=True)

    def zeros(self, length):
        if any(self.take(length)):
            self.fail("reserved bytes are not zero")

    def magic(self, wanted):
        if self.take(len(wanted)) != wanted:
            self.fail("it does not begin as it should")

    def version(self, known=1):
        version = self.u8()
        if version > known:
            self.fail(f"version {version} is newer than this reader")
        self.check(version == known, "version")

    def text(self):
        return self.take(self.u8())

    def finish(self):
        if self.at != len(self.data):
            self.fail("something follows that should not")


def sealed(structure, data, size):
    """A structure that ends with the checksum of everything before; without it."""
    if len(data) < size or size < 4:
        raise Damaged(f"{structure}: it is too short")
    if crc32c(data[: size - 4]) != int.from_bytes(data[size - 4 : size], "little"):
        raise Damaged(f"{structure}: its checksum is wrong")
    return Fields(structure, data[: size - 4])


# ---------------------------------------------------------------- structures: address.md, chunk-header.md, row.md, node.md, blob.md

Address = collections.namedtuple("Address", "segment row offset length")
Reference = collections.namedtuple("Reference", "address crc level")
Header = collections.namedtuple("Header", "pool segment sequence kind chunks")
Row = collections.namedtuple("Row", "pool segment sequence block height entries")
Entry = collections.namedtuple("Entry", "kind encoding offset length crc content tag present")
Blob = collections.namedtuple("Blob", "address content encoding present checksums")
Inode = collections.namedtuple("Inode", "mode uid gid links rdev flags size parent atime mtime target")
State = collections.namedtuple("State", "pool generation root")


def read_address(fields):
    segment, row, offset, length = fields.u64(), fields.u32(), fields.u32(), fields.u32()
    fields.check(1 <= row <= 4095, "row of an address")
    fields.check(offset >= SECTOR and offset % SECTOR == 0, "offset of an address")
    fields.check(1 <= length <= RECORD_BYTES_MAX, "length of an address")
    return Address(segment, row, offset, length)


def read_reference(fields):
    address, crc, level = read_address(fields), fields.u32(), fields.u8()
    fields.check(level <= 31, "level")
    fields.zeros(3)
    return Reference(address, crc, level)


def parse_chunk_header(data):
    fields = sealed("chunk header", data, BLOCK)
    fields.magic(b"stereCHK")
    fields.version()
    chunks = fields.u8()
    fields.check(1 <= chunks <= 32, "count of data chunks of an object")
    fields.take(2)
    kind = fields.u8()
    fields.check(kind in (1, 2), "kind")
    fields.take(3)
    return Header(fields.take(16), fields.u64(), fields.u64(), kind, chunks)


def place(chunks, row, offset):
    """Where a byte of a row is in the object of a segment with so many data chunks: its rows follow each other, whole."""
    return BLOCK + (row - 1) * chunks * BLOCK + offset


def parse_bitmap(fields, blocks):
    """The blocks whose bits are set, in order."""
    data = fields.take((blocks + 7) // 8)
    found = [bit for bit in range(8 * len(data)) if data[bit // 8] >> bit % 8 & 1]
    fields.check(not found or found[-1] < blocks, "bitmap")
    return found


def blocks_of(content):
    return -(-content // BLOCK)


def parse_row(data, block, chunks):
    """The row that begins at this block of the chunks whose segment an object holds, with what its summary tells."""
    start = place(chunks, block, 0)
    fields = sealed("row header", data[start : start + SECTOR], SECTOR)
    fields.magic(b"stereROW")
    fields.version()
    fields.zeros(3)
    count, pool, segment, sequence = fields.u32(), fields.take(16), fields.u64(), fields.u64()
    at, height, offset, length, crc = (fields.u32() for _ in range(5))
    fields.check(at == block and height >= 1 and block + height <= 4096, "place")
    fields.check(offset % SECTOR == 0 and offset + length <= height * chunks * BLOCK, "summary")
    summary = data[start + offset : start + offset + length]
    if len(summary) != length or crc32c(summary) != crc:
        raise Damaged("summary of a row: its checksum is wrong")
    fields = Fields("summary of a row", summary)
    entries, free_from = [], SECTOR
    for _ in range(count):
        entry = read_entry(fields)
        fields.check(free_from <= entry.offset and entry.offset + entry.length <= offset, "place of a record")
        free_from = entry.offset + entry.length
        entries.append(entry)
    fields.finish()
    return Row(pool, segment, sequence, block, height, entries)


def read_entry(fields):
    kind, encoding, flags, hint = fields.take(4)
    offset, length, crc, content = (fields.u32() for _ in range(4))
    fields.check(kind in (1, 2, 3) and flags <= 1 and length <= RECORD_BYTES_MAX, "kind or length of a record")
    fields.check(offset >= SECTOR and offset % SECTOR == 0 and length >= 1, "place of a record")
    tag, present = fields.take(24), None
    if kind == 1:
        fields.check(1 <= content <= RECORD_BYTES_MAX, "content of a blob")
        if flags & 1:
            present = parse_bitmap(fields, blocks_of(content))
        if encoding == 0:
            fields.check(length == plain_length(content, present), "length of a plain blob")
    fields.take(hint)
    return Entry(kind, encoding, offset, length, crc, content, tag, present)


def plain_length(content, present):
    """What the present blocks of a plain blob take; `present` is None where all are."""
    if present is None:
        return content
    last = blocks_of(content) - 1
    return sum(BLOCK if block < last else content - last * BLOCK for block in present)


def parse_blob(data):
    fields = Fields("blob map entry", data)
    fields.version()
    flags, encoding, forms = fields.take(3)
    fields.check(flags < 32 and forms < 4, "flags")
    address, content, references = read_address(fields), fields.u32(), fields.u32()
    fields.check(1 <= content <= RECORD_BYTES_MAX and references >= 1, "content")
    fields.take((4 if encoding >> 4 else 0) + (4 if encoding & 8 else 0))
    if not forms & 1:
        parse_bitmap(fields, blocks_of(content))
    present = None if forms & 2 else parse_bitmap(fields, blocks_of(content))
    if encoding == 0:
        fields.check(address.length == plain_length(content, present), "length of a plain blob")
    else:
        fields.check(present is None, "present blocks")
    checksums = [fields.u32() for _ in range(blocks_of(address.length))]
    fields.take((0, 8, 32, 0)[flags >> 3])
    fields.finish()
    return Blob(address, content, encoding, present, checksums)


class Node:
    """A node of the tree: sorted keys, and values or references to nodes one level below."""

    def __init__(self, data):
        fields = Fields("tree node", data)
        fields.magic(b"stereNOD")
        fields.version()
        self.level, prefix = fields.u8(), fields.u8()
        fields.check(self.level <= 31 and prefix <= 18, "level or prefix")
        fields.zeros(1)
        count, length = fields.u32(), fields.u32()
        fields.check(length == len(data), "length")
        fields.zeros(4)
        first = fields.take(18)
        fields.zeros(2)
        per_entry = 18 - prefix + (4 if self.level == 0 else 28)
        fields.check(1 <= count <= len(data) // per_entry, "count of entries")
        self.keys = [first[:prefix] + fields.take(18 - prefix) for _ in range(count)]
        fields.check(self.keys[0] == first, "first key")
        fields.check(all(a < b for a, b in zip(self.keys, self.keys[1:])), "order of keys")
        if self.level:
            self.values = [read_reference(fields) for _ in range(count)]
            fields.check(all(it.level + 1 == self.level for it in self.values), "level of a child")
        else:
            ends = [0] + [fields.u32() for _ in range(count)]
            fields.check(all(0 <= b - a <= VALUE_BYTES_MAX for a, b in zip(ends, ends[1:])), "end of a value")
            self.values = [fields.take(b - a) for a, b in zip(ends, ends[1:])]
        fields.finish()


def parse_state(data):
    """checkpoint.md. What mounting needs beside the root is passed over."""
    fields = sealed("checkpoint record", data, len(data))
    fields.magic(b"stereCKP")
    fields.version()
    fields.zeros(7)
    pool, generation = fields.take(16), fields.u64()
    fields.take(144 - 40)
    has_root = fields.u8()
    fields.check(has_root <= 1, "root")
    return State(pool, generation, read_reference(fields) if has_root else None)


# ---------------------------------------------------------------- values of names: key.md, inode.md, dirent.md, extent.md, xattr.md, fold.md


def key(tree, number, kind, position):
    """Big-endian, so that comparing bytes compares keys."""
    return struct.pack(">BQBQ", tree, number, kind, position)


def parse_inode(data):
    fields = Fields("inode", data)
    fields.version()
    fields.u8()
    target = fields.u16()
    mode, uid, gid, links, rdev, flags, _ = (fields.u32() for _ in range(7))
    size, _, parent, _ = (fields.u64() for _ in range(4))
    times = []
    for _ in range(4):
        seconds, nanoseconds = fields.i64(), fields.u32()
        fields.check(nanoseconds < 10**9, "time")
        times.append(seconds * 10**9 + nanoseconds)
    fields.check(size < 1 << 63, "size")
    fields.check(target <= min(4128, len(data) - 112), "length of the target")
    fields.check(stat.S_IFMT(mode) in KINDS.values(), "mode")
    return Inode(mode, uid, gid, links, rdev, flags, size, parent, times[0], times[1], data[len(data) - target :])


# As in a directory entry, and as in a mode.
KINDS = {1: stat.S_IFIFO, 2: stat.S_IFCHR, 4: stat.S_IFDIR, 6: stat.S_IFBLK, 8: stat.S_IFREG, 10: stat.S_IFLNK, 12: stat.S_IFSOCK}
ENCRYPTED_TARGET = 1 << 4


def parse_dirent(data, sequence):
    """Kind, inode, name, and whether the name was encrypted; then it is called as on a mount without the key."""
    fields = Fields("directory entry", data)
    version = fields.u8()
    fields.check(version in (1, 2), "version")
    kind, length, inode = fields.u8(), fields.u16(), fields.u64()
    fields.check(kind in KINDS, "type")
    if version == 2:
        return kind, inode, b"locked-%d" % sequence, True
    name = fields.take(length)
    fields.finish()
    fields.check(1 <= length <= 255 and not set(name) & {0, ord("/")}, "name")
    return kind, inode, name, False


def parse_xattrs(data):
    fields = Fields("attribute bucket", data)
    fields.version()
    found = []
    for _ in range(fields.u8()):
        name, value = fields.u8(), fields.u32()
        found.append((fields.take(name), fields.take(value)))
    fields.finish()
    return found


def parse_extent(data, end):
    """Where in the file it begins and ends, the blob, and where in its content; no blob where it was never written."""
    fields = Fields("extent", data)
    fields.version()
    kind, _, offset, length, blob = fields.u8(), fields.u16(), fields.u32(), fields.u32(), fields.u64()
    fields.finish()
    start = end - blocks_of(length) * BLOCK
    fields.check(kind <= 1 and length >= 1 and start >= 0 and end % BLOCK == 0, "place")
    fields.check(kind == 1 or offset + length <= RECORD_BYTES_MAX, "length")
    return start, start + length, None if kind else blob, offset


def read_fold_key(fields):
    return key(1, fields.u64(), fields.u8(), fields.u64())


def parse_fold(data):
    """The blob that has the keys, and the ranges that they are in."""
    fields = Fields("fold", data)
    fields.version()
    fields.zeros(3)
    fields.u64()
    blob, _, count = fields.u64(), fields.u32(), fields.u16()
    ranges = [(read_fold_key(fields), read_fold_key(fields)) for _ in range(count)]
    fields.finish()
    return blob, ranges


def parse_bundle(data, ranges):
    fields = Fields("bundle", data)
    fields.version()
    fields.zeros(3)
    entries = []
    for _ in range(fields.u32()):
        at = read_fold_key(fields)
        fields.check(not entries or entries[-1][0] < at, "order of keys")
        fields.check(any(first <= at < behind for first, behind in ranges), "key")
        entries.append((at, fields.take(fields.u32())))
    fields.finish()
    return entries


# ---------------------------------------------------------------- encodings: blob.md


def decode(stored, encoding, content):
    """The content of what is stored encoded."""
    if encoding >> 4:
        raise Unreadable("it is encrypted, which only `stere rescue` opens, with the passphrase or key file")
    if encoding & 8:
        raise Unreadable("it passed users' plugins, which only a mount runs")
    ways = {0: bytes, 1: lambda data: lz4_block(data, content), 2: lambda data: zstandard_frame(data, content)}
    if encoding not in ways:
        raise Unreadable(f"it is encoded in a way ({encoding}) that is newer than this reader")
    found = ways[encoding](stored)
    if len(found) != content:
        raise Damaged("what was compressed has another length")
    return found


def lz4_block(data, content):
    """An LZ4 block: literals, and copies of what is there already."""
    fields, out = Fields("LZ4 block", data), bytearray()

    def length(nibble):
        if nibble == 15:
            more = 255
            while more == 255:
                more = fields.u8()
                nibble += more
        return nibble

    while fields.at < len(data):
        token = fields.u8()
        out += fields.take(length(token >> 4))
        if fields.at == len(data):
            break
        distance, count = fields.u16(), length(token & 15) + 4
        fields.check(1 <= distance <= len(out) and len(out) + count <= content, "copy")
        start = len(out) - distance
        if distance >= count:
            out += out[start : start + count]
        else:
            out += (bytes(out[start:]) * (count // distance + 1))[:count]
    return bytes(out)


def zstandard_frame(data, content):
    """A frame, by whatever this machine has; never more than a byte more than there should be."""
    try:
        if ZSTD:
            return ZSTD.ZstdDecompressor().decompress(data, content + 1)
        if ZSTANDARD:
            return ZSTANDARD.ZstdDecompressor().stream_reader(io.BytesIO(data)).read(content + 1)
    except Exception as error:
        raise Damaged(f"Zstandard: {error}")
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        command = ["zstd", "--decompress", "--stdout", "--quiet"]
        pipes = {"stdin": file, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        try:
            # Not where it stands, for what is copied there may be called so.
            program = subprocess.Popen(command, cwd="/", **pipes)
        except OSError:
            raise Unreadable("it is compressed with Zstandard: install the Python module `zstandard` or the program `zstd`")
        found = program.stdout.read(content + 1)
        program.stdout.close()
        program.kill()
        program.wait()
        return found


# ---------------------------------------------------------------- volumes: volume.md, cartridge.md


class DirectoryVolume:
    """Objects are files."""

    def __init__(self, root):
        self.root = root

    def names(self):
        found = [name for name in ["stere-volume"] if os.path.isfile(os.path.join(self.root, name))]
        for folder in ("segments", "metadata", "states", "catalogue"):
            path = os.path.join(self.root, folder)
            if os.path.isdir(path):
                found += [f"{folder}/{name}" for name in sorted(os.listdir(path))]
        return found

    def read(self, name, length_max):
        """Sectors of the medium that cannot be read are zeros; checksums tell."""
        data = bytearray()
        # What is no file, a pipe for example, is not waited for.
        descriptor = os.open(os.path.join(self.root, name), os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise OSError(errno.EINVAL, "it is no file")
            length = min(about.st_size, length_max)
            while len(data) < length:
                try:
                    part = os.pread(file.fileno(), min(1 << 20, length - len(data)), len(data))
                except OSError:
                    part = read_block(file.fileno(), len(data), min(BLOCK, length - len(data)))
                if not part:
                    break
                data += part
        return bytes(data)


def read_block(descriptor, at, length):
    try:
        return os.pread(descriptor, length, at)
    except OSError:
        return bytes(length)


class CartridgeDump:
    """Objects as they lie on tape: a file with the blocks of all files of the cartridge, one after the other, as `dd` reads them."""

    def __init__(self, path):
        self.path, self.objects = path, {}
        with open(path, "rb") as file:
            self.scan(file)

    def scan(self, file):
        """Of objects of one name the whole one that was written last; one that lacks blocks only where there is no whole one."""
        listed, index_at, generation, found = None, -1, None, collections.defaultdict(list)
        for block in self.blocks(file):
            # The label comes first. Blocks of another generation are remains from before the cartridge was used again.
            generation = block.generation if generation is None else generation
            if block.generation == generation:
                found[block.ordinal, block.kind, block.name].append(block)
        whole = {at: is_whole(blocks) for at, blocks in found.items()}
        for ordinal, kind, _ in sorted(at for at in found if at[1] == 3 and whole[at]):
            try:
                listed, index_at = self.index(file, found[ordinal, kind, ""]), found[ordinal, kind, ""][0].position
            except (Damaged, KeyError):
                continue
        for at in sorted(found, key=lambda at: (whole[at], at)):
            ordinal, kind, name = at
            # What an index behind it does not list is dead. Copies keep their ordinals, so that alone does not tell what is behind it.
            if kind == 2 and (found[at][0].position > index_at or ordinal in listed):
                self.objects[name] = found[at]

    def blocks(self, file):
        """All blocks that are right. What lies between them is passed over."""
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            position = data.find(b"STERTAPE")
            while position >= 0:
                try:
                    block = parse_tape_block(data[position : position + SECTOR], position + SECTOR)
                    yield block
                    position = block.position + block.length
                except Damaged:
                    position += 1
                position = data.find(b"STERTAPE", position)

    def index(self, file, blocks):
        data = b""
        for block in blocks:
            file.seek(block.position)
            payload = file.read(block.length)
            if crc32c(payload) != block.crc:
                raise Damaged("index of a cartridge: its checksum is wrong")
            data += payload
        fields = Fields("index of a cartridge", data)
        fields.version()
        fields.zeros(3)
        fields.u32()
        ordinals = set()
        for _ in range(fields.u32()):
            fields.take(8)
            ordinals.add(fields.u64())
            fields.take(8)
            fields.text()
        return ordinals

    def names(self):
        return sorted(self.objects)

    def read(self, name, length_max):
        """What no block has is zeros; checksums tell."""
        blocks = self.objects[name]
        data = bytearray(min(blocks[0].total, length_max))
        with open(self.path, "rb") as file:
            for block in blocks:
                file.seek(block.position)
                part = file.read(max(0, min(block.length, len(data) - block.at)))
                data[block.at : block.at + len(part)] = part
        return bytes(data)


def is_whole(blocks):
    end = 0
    for block in blocks:
        if block.at != end:
            return False
        end += block.length
    return end == blocks[0].total


TapeBlock = collections.namedtuple("TapeBlock", "kind length crc ordinal total at generation name position")


def parse_tape_block(data, position):
    fields = sealed("block of a cartridge", data, SECTOR)
    fields.magic(b"STERTAPE")
    version = fields.u16()
    kind, _, length, _, crc = fields.u8(), fields.u8(), fields.u32(), fields.u32(), fields.u32()
    fields.check(version in (1, 2) and kind in (1, 2, 3), "version or kind")
    ordinal, total, at = fields.u64(), fields.u64(), fields.u64()
    fields.check(at + length <= total, "length")
    generation = fields.u64()
    fields.check((generation > 0) == (version == 2), "generation")
    fields.take(8 + 64 + 64)
    field = Fields("block of a cartridge", fields.take(256))
    return TapeBlock(kind, length, crc, ordinal, total, at, generation, field.text().decode("utf-8", "replace"), position)


def open_volume(path):
    """A directory with objects, a dump of a cartridge, or a directory with such dumps."""
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        return [CartridgeDump(path)]
    dumps = []
    for name in sorted(os.listdir(path)):
        file = os.path.join(path, name)
        if os.path.isfile(file):
            with open(file, "rb") as opened:
                # Some programs put a few bytes of their own between blocks.
                if b"STERTAPE" in opened.read(64):
                    dumps.append(CartridgeDump(file))
    return dumps or [DirectoryVolume(path)]


Object = collections.namedtuple("Object", "volume name segment sequence chunks")
NUMBER = "([0-9a-fA-F]{16})"


class Media:
    """All objects of all volumes that were given."""

    def __init__(self, volumes):
        self.states, self.catalogues, self.segments, self.metadata = [], [], collections.defaultdict(list), collections.defaultdict(list)
        self.kept, self.copies, self.bad_objects = collections.OrderedDict(), None, {}
        self.pools, self.labels, self.generations = set(), [], set()
        for volume in volumes:
            for name in volume.names():
                self.add(volume, name)
        for objects in self.metadata.values():
            # The longest has all that the others have.
            objects.sort(key=lambda object: object.name, reverse=True)

    def add(self, volume, name):
        folder, _, rest = name.partition("/")
        if name == "stere-volume":
            self.label(volume)
        elif folder == "states" and re.fullmatch(NUMBER, rest):
            self.state(volume, name)
        elif folder in ("segments", "catalogue") and re.fullmatch(f"{NUMBER}-{NUMBER}(-[0-9a-fA-F]{{2}})?", rest):
            segment, sequence, *more = (int(part, 16) for part in rest.split("-"))
            found = Object(volume, name, segment, sequence, max(1, more[0]) if more else 1)
            (self.segments[segment] if folder == "segments" else self.catalogues).append(found)
        elif folder == "metadata" and re.fullmatch(f"{NUMBER}-{NUMBER}-[0-9a-fA-F]{{8}}", rest):
            segment, sequence = (int(part, 16) for part in rest.split("-")[:2])
            self.metadata[segment].append(Object(volume, name, segment, sequence, 1))

    def label(self, volume):
        try:
            data = volume.read("stere-volume", BLOCK)
        except OSError:
            return
        body, last = data[:-16], data[-16:]
        if last == b"crc32c %08x\n" % crc32c(body) and body.startswith(b"stere-volume 1\n"):
            said = dict(line.partition(" ")[::2] for line in body.decode("utf-8", "replace").splitlines())
            self.pools.add(said.get("pool", ""))
            self.labels.append(f"volume '{shown(said.get('name', ''))}' of the pool '{shown(said.get('pool-name', ''))}'")

    def state(self, volume, name):
        self.generations.add(int(name.partition("/")[2], 16))
        try:
            state = parse_state(volume.read(name, STATE_BYTES_MAX))
        except (Damaged, OSError) as error:
            self.bad_objects[name] = str(error)
            return
        self.states.append(state)
        self.pools.add(state.pool.hex())

    def read(self, found):
        """The bytes of an object, as they are; the last few are kept."""
        at = (id(found.volume), found.name)
        if at in self.kept:
            self.kept.move_to_end(at)
            return self.kept[at]
        try:
            data = found.volume.read(found.name, CHUNK_BYTES_MAX * found.chunks)
        except OSError as error:
            self.bad_objects[found.name] = str(error)
            data = b""
        self.kept[at] = data
        if len(self.kept) > KEPT_OBJECTS:
            self.kept.popitem(last=False)
        return data

    def stored(self, address, start=0, end=None):
        """Bytes of a record from each object that should have them; whether they are right is for the caller to say."""
        end = address.length if end is None else end
        for found in self.metadata.get(address.segment, []) + self.segments.get(address.segment, []):
            data, at = self.read(found), place(found.chunks, address.row, address.offset)
            if len(data) > at + start:
                yield data[at + start : at + end]

    def rows(self, found):
        """All rows of an object that are right; they are looked for block by block where one is not."""
        data, block, is_right = self.read(found), 1, True
        try:
            header = parse_chunk_header(data[:BLOCK])
            is_right = (header.segment, header.sequence, header.chunks) == (found.segment, found.sequence, found.chunks)
            self.pools.add(header.pool.hex())
        except Damaged:
            is_right = False
        while place(found.chunks, block, 0) < len(data):
            try:
                row = parse_row(data, block, found.chunks)
                if row.segment != found.segment:
                    raise Damaged("row header: it belongs to another segment")
                yield row
                block += row.height
            except Damaged:
                is_right = False
                block += 1
        if not is_right:
            self.bad_objects[found.name] = "parts of it are damaged"

    def all_copies(self):
        """By blob, where the segments have it, as the rows' summaries tell. Gathered when it is first asked for."""
        if self.copies is None:
            self.copies = collections.defaultdict(list)
            for objects in self.segments.values():
                for found in objects:
                    for row in self.rows(found):
                        for entry in row.entries:
                            if entry.kind == 1:
                                blob, inode, offset = struct.unpack("<QQQ", entry.tag)
                                self.copies[blob].append(Copy(found, row.sequence, row.block, entry, inode, offset))
        return self.copies

    def copy(self, copy):
        """What is stored of a blob that a summary tells of."""
        at = place(copy.object.chunks, copy.row, copy.entry.offset)
        data = self.read(copy.object)[at : at + copy.entry.length]
        if len(data) != copy.entry.length or crc32c(data) != copy.entry.crc:
            raise Damaged("the record does not match its checksum")
        return data


Copy = collections.namedtuple("Copy", "object sequence row entry inode offset")


class Tree:
    """The map of all metadata, by the root of a checkpoint, with what was put away laid over it."""

    def __init__(self, media, root):
        self.media, self.root, self.nodes = media, root, collections.OrderedDict()
        self.overlay, self.lost_ranges = [], []

    def node(self, reference):
        if reference in self.nodes:
            return self.nodes[reference]
        found = None
        for data in self.media.stored(reference.address):
            if crc32c(data) == reference.crc:
                try:
                    found = Node(data)
                    break
                except Damaged:
                    continue
        if found and found.level != reference.level:
            found = None
        self.nodes[reference] = found
        if len(self.nodes) > KEPT_NODES:
            self.nodes.popitem(last=False)
        return found

    def entries(self, first, behind):
        """Keys and values from `first` up to `behind`; a value is None where something is lost."""
        start = bisect.bisect_left(self.overlay, (first,))
        end = bisect.bisect_left(self.overlay, (behind,))
        lost = [(max(a, first), None) for a, b in self.lost_ranges if a < behind and first < b]
        tree = self.below(self.root, None, None, first, behind) if self.root else ()
        return heapq.merge(tree, self.overlay[start:end], sorted(lost), key=lambda entry: entry[0])

    def below(self, reference, low, high, first, behind):
        node = self.node(reference)
        # A hostile tree could lead to a node twice; its keys cannot lie in two ranges.
        if not node or low not in (None, node.keys[0]) or (high and node.keys[-1] >= high):
            yield max(low or first, first), None
            return
        at = bisect.bisect_left(node.keys, first)
        if node.level and (at == len(node.keys) or node.keys[at] != first):
            at = max(at - 1, 0)
        for index in range(at, len(node.keys)):
            if node.keys[index] >= behind:
                break
            if node.level:
                end = node.keys[index + 1] if index + 1 < len(node.keys) else high
                yield from self.below(node.values[index], node.keys[index], end, first, behind)
            else:
                yield node.keys[index], node.values[index]

    def get(self, at):
        for _, value in self.entries(at, at + b"\0"):
            return value
        return None


# ---------------------------------------------------------------- contents


class Contents:
    """Blobs: by what the map says of them, and where that is not there, by what the rows' summaries say."""

    def __init__(self, media):
        self.media, self.last = media, (None, None)

    def pieces(self, number, value, start, end):
        """Bytes of a blob's content from `start` up to `end`: where each piece begins, and it, or why there is none."""
        if value and value.encoding == 0:
            yield from self.plain(number, value, start, end)
            return
        try:
            if self.last[0] != number:
                self.last = number, self.encoded(number, value) if value else self.unmapped(number)
            found = self.last[1][start:end]
        except (Damaged, Unreadable) as error:
            yield start, end, str(error)
            return
        if len(found) < end - start:
            yield start + len(found), end, "its content is shorter than it should be"
        if found:
            yield start, start + len(found), found

    def plain(self, number, value, start, end):
        """Each block from where it is right."""
        first, last = start // BLOCK, (end - 1) // BLOCK
        if value.present is None:
            wanted, index = range(first, min(last + 1, blocks_of(value.content))), first
        else:
            wanted = [block for block in value.present if first <= block <= last]
            index = bisect.bisect_left(value.present, first)
        places = {block: index + rank for rank, block in enumerate(wanted)}
        right, is_there = {}, False
        for data, of in self.stored_blocks(number, value, wanted, index):
            is_there = True
            for rank, (block, crc) in enumerate(zip(of, block_checksums(data))):
                if block not in right and block in places and crc == value.checksums[places[block]]:
                    right[block] = data[rank * BLOCK : (rank + 1) * BLOCK]
            if len(right) == len(wanted):
                break
        why = "it does not match its checksum" if is_there else missing(value)
        for block in range(first, last + 1):
            at, to = max(start, block * BLOCK), min(end, (block + 1) * BLOCK)
            part = right.get(block, b"")[at - block * BLOCK : to - block * BLOCK]
            if part:
                yield at, at + len(part), part
            if at + len(part) < to:
                yield at + len(part), to, why

    def stored_blocks(self, number, value, wanted, index):
        """The stored bytes of these blocks, from everywhere, and which blocks they are of."""
        for data in self.media.stored(value.address, index * BLOCK, min((index + len(wanted)) * BLOCK, value.address.length)):
            yield data, wanted
        # It may have been moved since.
        for copy in self.media.all_copies().get(number, []):
            if copy.entry.encoding == 0:
                present = range(blocks_of(copy.entry.content)) if copy.entry.present is None else copy.entry.present
                of = [block for block in present if wanted and wanted[0] <= block <= wanted[-1]]
                at = place(copy.object.chunks, copy.row, copy.entry.offset)
                rank = bisect.bisect_left(present, wanted[0]) if of else 0
                end = min((rank + len(of)) * BLOCK, copy.entry.length)
                yield self.media.read(copy.object)[at + rank * BLOCK : at + end], of

    def encoded(self, number, value):
        """All of a blob that is stored as one piece."""
        why = Damaged(missing(value))
        for data in self.stored_everywhere(number, value):
            if block_checksums(data) == value.checksums:
                return decode(data, value.encoding, value.content)
            why = Damaged("it does not match its checksum")
        raise why

    def stored_everywhere(self, number, value):
        yield from self.media.stored(value.address)
        for copy in self.media.all_copies().get(number, []):
            if copy.entry.encoding == value.encoding and copy.entry.length == value.address.length:
                at = place(copy.object.chunks, copy.row, copy.entry.offset)
                yield self.media.read(copy.object)[at : at + copy.entry.length]

    def unmapped(self, number):
        """A blob of which the map says nothing: its id is used once, so copies are equal."""
        why, found = Damaged("it is on nothing that was given"), None
        for copy in self.media.all_copies().get(number, []):
            try:
                if copy.entry.present is None:
                    data = decode(self.media.copy(copy), copy.entry.encoding, copy.entry.content)
                    if found not in (None, data):
                        raise Damaged("copies of it differ")
                    found = data
            except (Damaged, Unreadable) as error:
                why = error
        if found is None:
            raise why
        return found


def missing(value):
    return f"segment {value.address.segment:016x} is on nothing that was given"


# ---------------------------------------------------------------- what is written, and what is said of it


def shown(text):
    """For people: nothing in it moves the cursor."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else "\\x%02x" % ord(char) for char in text)


class Report:
    def __init__(self):
        self.damaged, self.incomplete, self.problems, self.counts = {}, {}, {}, collections.Counter()
        self.is_lost = False

    def add(self, to, path, what):
        to.setdefault(shown(path), {})[what] = True

    def code(self):
        if self.damaged or self.is_lost:
            return 4
        return 3 if self.incomplete or self.problems else 0

    def print(self, media):
        counts = self.counts
        print(
            f"copied {counts['files']} files, {counts['bytes']} bytes of content, {counts['directories']} directories, "
            f"{counts['links']} symbolic links, {counts['names']} further names, {counts['specials']} special files"
        )
        for name, what in sorted(media.bad_objects.items()):
            print(f"bad object: {shown(name)}: {shown(what)}")
        for title, found in (("damaged", self.damaged), ("incomplete", self.incomplete), ("problem", self.problems)):
            for path, what in sorted(found.items()):
                print(f"{title}: {path}: {'; '.join(shown(text) for text in what)}")


class Ranges:
    """What is lost of a file: ranges by why."""

    def __init__(self):
        self.by_why = {}

    def add(self, start, end, why):
        ranges = self.by_why.setdefault(why, [])
        if ranges and ranges[-1][1] == start:
            ranges[-1][1] = end
        else:
            ranges.append([start, end])

    def texts(self):
        for why, ranges in self.by_why.items():
            told = ", ".join(f"{start} to {end - 1}" for start, end in ranges[:8])
            yield f"bytes {told}{', ...' if len(ranges) > 8 else ''}: {why}"


class Target:
    """The directory that is copied to. The process stands in the directory that is being written, so paths may be as long as they like."""

    def __init__(self, root, report, preserve=()):
        self.root, self.report, self.path = os.fsencode(os.path.abspath(root)), report, []
        self.preserve = {"owners", "setid", "devices"} if "all" in preserve else set(preserve)
        self.left_out = collections.Counter()
        os.makedirs(self.root, exist_ok=True)
        if os.listdir(self.root):
            raise SystemExit(f"{root} is not empty; name an empty or new directory")
        os.chdir(self.root)
        self.umask = os.umask(0o077)
        self.is_root = os.geteuid() == 0

    def path_of(self, name=None):
        return b"/" + b"/".join(self.path + ([name] if name is not None else []))

    def problem(self, name, error):
        if isinstance(error, OSError):
            if error.errno in FATAL:
                raise error
            error = error.strerror or str(error)
        self.report.add(self.report.problems, self.path_of(name), str(error))

    def make(self, name, make):
        """Makes something under this name, or under another where it is taken or impossible; tells under which."""
        for number in range(0 if name not in (b"", b".", b"..") and not set(name) & {0, 47} else 1, 1000):
            end = b".~%d~" % number
            tried = name.replace(b"/", b"_").replace(b"\0", b"_")[: 255 - len(end)] + end if number else name
            try:
                make(tried)
            except FileExistsError:
                continue
            except (OSError, ValueError, OverflowError) as error:
                self.problem(name, error)
                return None
            if number:
                self.problem(name, f"it is called {shown(tried)} here")
            return tried
        return None

    def enter(self, name):
        name = self.make(name, os.mkdir)
        if name is not None:
            os.chdir(name)
            self.path.append(name)
        return name is not None

    def leave(self):
        os.chdir("..")
        return self.path.pop()

    def create(self, name):
        """A new file, and what it is called."""
        opened = []
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        name = self.make(name, lambda tried: opened.append(os.open(tried, flags, 0o600)))
        return (os.fdopen(opened[0], "wb", buffering=0), name) if opened else (None, None)

    def attributes(self, name, inode, xattrs):
        """Of something in the current directory. What gives rights is left out unless it is asked for: it may be meant to harm."""
        if name == b"." and not self.path:
            return  # the directory that is copied to is not the pool's
        is_link, steps, mode = stat.S_ISLNK(inode.mode), [], stat.S_IMODE(inode.mode)
        words = {attribute: {b"user": None, b"system": "owners"}.get(attribute.split(b".")[0], "setid") for attribute, _ in xattrs}
        if "setid" not in self.preserve and (mode & 0o6000 or "setid" in words.values()):
            mode &= 0o1777
            self.left_out["setid"] += 1
        if "owners" not in self.preserve and self.is_root and (inode.uid, inode.gid) != (os.geteuid(), os.getegid()):
            self.left_out["owners"] += 1
        xattrs = [(attribute, value) for attribute, value in xattrs if words[attribute] in self.preserve | {None}]
        if self.is_root and "owners" in self.preserve:
            steps.append(lambda: os.chown(name, inode.uid, inode.gid, follow_symlinks=False))
        for attribute, value in xattrs:
            steps.append(lambda attribute=attribute, value=value: os.setxattr(name, attribute, value, follow_symlinks=False))
        if not is_link:
            steps.append(lambda: os.chmod(name, mode))
        steps.append(lambda: os.utime(name, ns=(inode.atime, inode.mtime), follow_symlinks=False))
        for step in steps:
            try:
                step()
            except (OSError, OverflowError, ValueError, AttributeError) as error:
                self.problem(name, error)


# ---------------------------------------------------------------- by the state


class ByState:
    """From the root directory down, as the newest state that can be read says."""

    def __init__(self, media, state, target, report):
        self.media, self.target, self.report = media, target, report
        self.tree, self.contents = Tree(media, state.root), Contents(media)
        self.visited, self.links = {ROOT}, {}
        self.bring_back_folds()

    def bring_back_folds(self):
        """Names that were put away are laid over the tree."""
        overlay = []
        for at, value in self.tree.entries(key(4, 0, 0, 0), key(5, 0, 0, 0)):
            if at[9] != 48 or value is None:
                continue
            try:
                number, ranges = parse_fold(value)
            except Damaged as error:
                self.report.add(self.report.damaged, b"/", f"names that were offloaded are lost: {error}")
                continue
            try:
                overlay += parse_bundle(self.whole_blob(number), ranges)
            except (Damaged, Unreadable):
                self.tree.lost_ranges += ranges
        self.tree.overlay = sorted(overlay)

    def blob_value(self, number):
        value = self.tree.get(key(2, number, 1, 0))
        try:
            return parse_blob(value) if value is not None else None
        except Damaged:
            return None

    def whole_blob(self, number):
        value = self.blob_value(number)
        if not value:
            raise Damaged("the map does not know where it is")
        found = sorted((start, bytes(data)) for start, _, data in self.contents.pieces(number, value, 0, value.content) if isinstance(data, bytes))
        data = b"".join(part for _, part in found)
        if len(data) != value.content:
            raise Damaged("it cannot be read")
        return data

    def scan(self, inode, kind, behind):
        """Keys of an inode of these kinds as (kind, position, value), and whether any are lost."""
        found, is_lost = [], False
        for at, value in self.tree.entries(key(1, inode, kind, 0), key(1, inode, behind, 0)):
            if value is None:
                is_lost = True
            else:
                found.append((at[9], int.from_bytes(at[10:], "big"), value))
        return found, is_lost

    def facts(self, entries):
        """The inode and its extended attributes; what does not decode is not there."""
        inode, xattrs, is_bad = None, [], False
        for kind, _, value in entries:
            try:
                if kind == 1:
                    inode = parse_inode(value)
                elif kind == 2:
                    xattrs += parse_xattrs(value)
            except Damaged:
                is_bad = True
        return inode, xattrs, is_bad

    def damaged(self, name, what):
        self.report.add(self.report.damaged, self.target.path_of(name), what)

    def run(self):
        self.directory(ROOT, is_root=True)
        self.nameless()

    def directory(self, number, is_root=False):
        """Copies what is below; a stack in place of recursion, for trees may be deep."""
        stack = [self.open_directory(number)]
        while stack:
            names, inode, xattrs = stack[-1]
            if names:
                kind, below, name = names.pop()
                if kind == 4:
                    if below in self.visited:
                        self.target.problem(name, "a second name of a directory is left out")
                    else:
                        self.visited.add(below)
                        if self.target.enter(name):
                            stack.append(self.open_directory(below))
                else:
                    self.leaf(name, below)
                continue
            stack.pop()
            is_bottom = is_root and not stack
            self.report.counts["directories"] += not is_bottom
            name = b"." if is_bottom else self.target.leave()
            if inode:
                self.target.attributes(name, inode, xattrs)

    def open_directory(self, number):
        entries, is_lost = self.scan(number, 1, 3)
        inode, xattrs, is_bad = self.facts(entries)
        if inode is None or is_bad:
            self.damaged(None, "attributes of this directory are lost")
        names, is_lost_names = self.scan(number, 4, 5)
        if is_lost or is_lost_names:
            self.damaged(None, "names in this directory are lost: what has them is damaged, or on a volume that was not given")
        found = []
        for _, sequence, value in names:
            try:
                kind, below, name, is_locked = parse_dirent(value, sequence)
            except Damaged as error:
                self.damaged(None, f"a name in this directory is lost: {error}")
                continue
            if is_locked:
                self.target.problem(name, "its name is encrypted, and only `stere rescue` opens it")
            found.append((kind, below, name))
        return found[::-1], inode, xattrs

    def leaf(self, name, number):
        if number in self.links:
            self.further_name(name, *self.links[number])
            return
        self.visited.add(number)
        entries, is_lost = self.scan(number, 1, 255)
        inode, xattrs, is_bad = self.facts(entries)
        if inode is None and not any(kind == 5 for kind, _, _ in entries):
            self.damaged(name, "all that is known is its name")
            return
        if inode and stat.S_ISDIR(inode.mode):
            self.damaged(name, "its name says that it is a file, and it is a directory")
            return
        if inode is None or stat.S_ISREG(inode.mode):
            made = self.file(name, inode, [(end, value) for kind, end, value in entries if kind == 5])
        elif stat.S_ISLNK(inode.mode):
            made = self.symlink(name, inode)
        elif (stat.S_ISBLK(inode.mode) or stat.S_ISCHR(inode.mode)) and "devices" not in self.target.preserve:
            self.target.left_out["devices"] += 1
            self.target.problem(name, "a device node, which is made only with --preserve devices")
            return
        else:
            made = self.target.make(name, lambda tried: os.mknod(tried, stat.S_IFMT(inode.mode) | 0o600, inode.rdev))
            self.report.counts["specials"] += made is not None
        if made is None:
            return
        if is_lost or is_bad or inode is None:
            self.damaged(made, "parts of what is known of it are lost")
        if inode:
            self.target.attributes(made, inode, xattrs)
            if inode.links > 1:
                self.links[number] = os.path.join(self.target.root, *self.target.path, made), self.target.path_of(made)

    def further_name(self, name, first, path):
        made = self.target.make(name, lambda tried: os.link(first, tried, follow_symlinks=False))
        self.report.counts["names"] += made is not None
        if made is not None and shown(path) in self.report.damaged:
            self.damaged(made, f"it is the same file as {shown(path)}")

    def symlink(self, name, inode):
        if inode.flags & ENCRYPTED_TARGET:
            self.damaged(name, "its target is encrypted, which only `stere rescue` opens, with the passphrase or key file")
            return None
        made = self.target.make(name, lambda tried: os.symlink(inode.target, tried))
        self.report.counts["links"] += made is not None
        return made

    def file(self, name, inode, extents):
        file, name = self.target.create(name)
        if file is None:
            return None
        lost, end = Ranges(), 0
        with file:
            for position, value in extents:
                try:
                    start, stop, blob, offset = parse_extent(value, position)
                except Damaged as error:
                    self.damaged(name, str(error))
                    continue
                stop = min(stop, inode.size) if inode else stop
                end = max(end, stop)
                if blob is not None and start < stop:
                    self.extent(file, name, start, stop, blob, offset, lost)
            try:
                file.truncate(inode.size if inode else end)
            except (OSError, OverflowError) as error:
                self.target.problem(name, error)
        for text in lost.texts():
            self.damaged(name, text)
        self.report.counts["files"] += 1
        return name

    def extent(self, file, name, start, stop, blob, offset, lost):
        value = self.blob_value(blob)
        if value is None:
            self.damaged(name, "the map does not tell where parts of it are; they may be older than the rest")
        for at, to, data in self.contents.pieces(blob, value, offset, offset + stop - start):
            if isinstance(data, bytes):
                self.report.counts["bytes"] += write(self.target, name, file, data, start + at - offset)
            else:
                lost.add(start + at - offset, start + to - offset, data)

    def nameless(self):
        """Inodes that exist and that no name leads to: older versions of files, or what was below names that are lost."""
        found = {}
        for at, value in self.tree.entries(key(1, 0, 0, 0), key(2, 0, 0, 0)):
            number = int.from_bytes(at[1:9], "big")
            if value is not None and at[9] == 1 and number not in self.visited:
                try:
                    inode = parse_inode(value)
                except Damaged:
                    continue
                if inode.links:
                    found[number] = inode
        if not found or not self.target.enter(b"lost+found"):
            return
        # Directories that lie in no other one first; then those in circles; then what is in none of them.
        directories = [number for number, inode in found.items() if stat.S_ISDIR(inode.mode)]
        directories.sort(key=lambda number: found[number].parent in found)
        for number in directories + [number for number in found if number not in directories]:
            if number in self.visited:
                continue
            name = b"%d" % number
            if stat.S_ISDIR(found[number].mode):
                self.visited.add(number)
                if self.target.enter(name):
                    self.directory(number)
            else:
                self.leaf(name, number)
            self.report.counts["nameless"] += 1
        self.target.leave()


def write(target, name, file, data, at):
    try:
        return os.pwrite(file.fileno(), data, at)
    except (OSError, OverflowError) as error:
        target.problem(name, error)
        return 0


# ---------------------------------------------------------------- as archived

Line = collections.namedtuple("Line", "path mode uid gid size mtime")


# The last field of a line tells the checksum of what is before it. Where no line has one they are from before there were any.
SEALED = re.compile(rb',"crc32c":"([0-9a-f]{8})"}$')


def parse_line(text, is_sealed):
    """A line of a catalogue: the inode, and what is told of it."""
    told = SEALED.search(text)
    if is_sealed and (not told or crc32c(text[: told.start()]) != int(told.group(1), 16)):
        raise Damaged("line of a catalogue: its checksum is wrong")
    try:
        found = json.loads(text)
        path = bytes.fromhex(found["path_hex"]) if found.get("path") is None else found["path"].encode("utf-8", "surrogateescape")
        inode, mode, uid, gid, size, mtime = (int(found[field]) for field in ("inode", "mode", "uid", "gid", "size", "mtime"))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise Damaged(f"line of a catalogue: {error}")
    numbers = ((inode, U64_MAX), (mode, 0xFFFF), (uid, 0xFFFFFFFF), (gid, 0xFFFFFFFF), (size, (1 << 63) - 1))
    if any(not 0 <= number <= most for number, most in numbers) or abs(mtime) >= 1 << 63:
        raise Damaged("line of a catalogue: a number is out of range")
    return inode, Line(path, mode, uid, gid, size, mtime)


def parts_of(path):
    """The names of a path; none where it would lead elsewhere, or nowhere."""
    parts = [part for part in path.split(b"/") if part]
    is_plain = parts and all(part not in (b".", b"..") and b"\0" not in part and len(part) <= 255 for part in parts)
    return parts if is_plain else None


class AsArchived:
    """Each file as it was when it went down, by catalogues and rows."""

    def __init__(self, media, target, report):
        self.media, self.target, self.report = media, target, report
        self.lines, self.made = {}, set()

    def read_catalogues(self):
        # What was written later knows better.
        for found in sorted(self.media.catalogues, key=lambda found: found.sequence):
            try:
                data = found.volume.read(found.name, 64 << 20)
            except OSError as error:
                self.media.bad_objects[found.name] = str(error)
                continue
            lines = [text for text in data.split(b"\n") if text]
            is_sealed = any(SEALED.search(text) for text in lines)
            for text in lines:
                try:
                    inode, line = parse_line(text, is_sealed)
                    self.lines[inode] = line
                except Damaged as error:
                    self.media.bad_objects[found.name] = str(error)

    def run(self):
        self.read_catalogues()
        records, directories = collections.defaultdict(list), []
        found = self.media.all_copies()
        check_pools(self.media)
        for blob, copies in found.items():
            for copy in copies:
                records[copy.inode].append((blob, copy.sequence, copy))
        for inode in sorted(set(records) | set(self.lines)):
            # Ids of blobs rise, so what was written later lies over what was written before; of one blob all copies say the same.
            of_inode, line = sorted(records.pop(inode, []), key=lambda record: record[:2]), self.lines.get(inode)
            if line and stat.S_ISDIR(line.mode):
                # What it has are bundles of names that were put away (fold.md), which the state leads to and nothing else.
                directories += [(parts, inode, line) for parts in [parts_of(line.path)] if parts]
            else:
                self.file(inode, line, of_inode)
        # When all is in them.
        for parts, inode, line in sorted(directories, reverse=True):
            if self.enter(parts + [b"-"], inode)[-1] == b"-":
                self.attributes(self.target.leave(), line)
            self.leave()
        # Nobody knows what of which file was there.
        self.report.is_lost |= bool(self.media.bad_objects)

    def file(self, inode, line, records):
        parts = parts_of(line.path) if line else None
        if line and not parts:
            self.report.add(self.report.problems, line.path, f"no file can be called so; it is lost+found/{inode}")
        parts = self.enter(parts, inode)
        path = b"/" + b"/".join(parts)
        file, name = self.target.create(parts[-1])
        if file is not None:
            with file:
                covered = self.write_all(file, name, path, records)
                size = line.size if line else max((end for _, end in covered), default=0)
                try:
                    file.truncate(size)
                except (OSError, OverflowError) as error:
                    self.target.problem(name, error)
            self.report.counts["files"] += 1
            if line:
                self.attributes(name, line)
                if not covers(covered, size):
                    self.report.add(self.report.incomplete, path, "it has holes, or was not archived as a whole")
            else:
                self.report.add(self.report.problems, path, "no catalogue tells its name")
        self.leave()

    def write_all(self, file, name, path, records):
        """Writes what there is, older blobs first, and tells which ranges that is."""
        covered, whole, bad, why = [], set(), set(), None
        for blob, _, copy in records:
            entry = copy.entry
            if blob in whole:
                continue
            try:
                data = decode(self.media.copy(copy), entry.encoding, entry.content) if entry.encoding else self.media.copy(copy)
            except (Damaged, Unreadable) as error:
                bad.add(blob)
                why = str(error)
                continue
            runs = [(copy.offset, data)]
            if entry.present is None:
                whole.add(blob)
            else:
                bad.discard(blob)
                parts = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
                runs = [(copy.offset + block * BLOCK, part) for block, part in zip(entry.present, parts)]
            for at, part in runs:
                self.report.counts["bytes"] += write(self.target, name, file, part, at)
                covered.append((at, at + len(part)))
        # Another volume may have had it right.
        if bad - whole:
            self.report.add(self.report.damaged, path, f"{len(bad - whole)} pieces of it cannot be read: {why}")
        return covered

    def enter(self, parts, inode):
        """Goes to the directory that a file is to lie in, and tells its names."""
        for tried in (parts, [b"lost+found", b"%d" % inode]):
            if not tried:
                continue
            for depth in range(1, len(tried)):
                directory = tuple(tried[:depth])
                if directory not in self.made:
                    try:
                        os.mkdir(tried[depth - 1], 0o777)
                        os.chmod(tried[depth - 1], 0o777 & ~self.target.umask)
                    except OSError as error:
                        self.target.problem(tried[depth - 1], error)
                        break
                    self.made.add(directory)
                    self.report.counts["directories"] += 1
                os.chdir(tried[depth - 1])
                self.target.path.append(tried[depth - 1])
            else:
                return tried
            self.leave()
        raise SystemExit("lost+found cannot be made")

    def leave(self):
        while self.target.path:
            self.target.leave()

    def attributes(self, name, line):
        times = line.mtime * 10**9
        inode = Inode(line.mode, line.uid, line.gid, 1, 0, 0, line.size, 0, times, times, b"")
        self.target.attributes(name, inode, [])


def covers(ranges, size):
    end = 0
    for start, stop in sorted(ranges):
        if start > end:
            break
        end = max(end, stop)
    return end >= size


# ---------------------------------------------------------------- the command


def choose_state(media, report):
    """The newest whose root can be read."""
    chosen = None
    for state in sorted(media.states, key=lambda state: state.generation, reverse=True):
        if state.root is None or Tree(media, state.root).node(state.root):
            chosen = state
            break
    for generation in sorted(media.generations):
        if not chosen or generation > chosen.generation:
            report.add(report.problems, b"/", f"the state of generation {generation} is damaged; what is used is older")
    return chosen


def check_pools(media):
    if len(media.pools) > 1:
        raise SystemExit("these volumes belonged to several pools; name those of one pool only")


def main():
    parser = argparse.ArgumentParser(
        description="Restores what lies on tertiary volumes of stere. Ends with 0 if all of it is whole, 3 if something may be older or was not "
        "archived, 4 if something is lost, 1 if nothing can be done."
    )
    parser.add_argument("volumes", nargs="+", metavar="VOLUME", help="directory with the objects of a volume, or dump of a cartridge")
    parser.add_argument("--to", required=True, metavar="DIR", help="new or empty directory to copy to")
    parser.add_argument("--as-archived", action="store_true", help="by catalogues, each file as it was when it went down")
    parser.add_argument(
        "--preserve", default="", metavar="WHAT", help="restore this too, which is left out because it may be meant to harm: owners,setid,devices, or all"
    )
    arguments = parser.parse_args()
    preserve = [word for word in arguments.preserve.split(",") if word]
    if not set(preserve) <= {"owners", "setid", "devices", "all"}:
        parser.error(f"--preserve takes owners, setid, devices or all, not {arguments.preserve}")
    sys.stdout.reconfigure(errors="backslashreplace")
    volumes = [volume for path in arguments.volumes for volume in open_volume(path)]
    media, report = Media(volumes), Report()
    check_pools(media)
    if not media.segments and not media.states:
        raise SystemExit("nothing of a volume is here; name the directory that has `segments` and `states` in it")
    for label in media.labels:
        print(label)
    state = None if arguments.as_archived else choose_state(media, report)
    target = Target(arguments.to, report, preserve)
    if state:
        print(f"by the state of generation {state.generation}; what was changed later is not in it")
        ByState(media, state, target, report).run()
    else:
        print("no state is used: each file as it was when it went down; what was removed since is here too")
        AsArchived(media, target, report).run()
    report.print(media)
    for word, count in sorted(target.left_out.items()):
        print(f"left out: {word} of {count}; --preserve {word} restores that, if you trust whoever made the pool")
    return report.code()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(str(error))
