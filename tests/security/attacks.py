"""What an attacker does to a database's files: changes bytes that mean something, and makes the checksums right."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from gmdb.errors import Corruption
from gmdb.format import anatomy
from gmdb.format.address import NO_PAGE
from gmdb.format.checksum import crc32c, page_crc
from gmdb.format.control import CONTROL, COPY_DISTANCE
from gmdb.format.device import SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.heap import row_extents
from gmdb.format.images import IMAGE_BATCH, IMAGE_ENTRY
from gmdb.format.mirror import MIRROR_HEAD, PAGES_AT
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, PAGE_TAIL, TAIL_SIZE, PageType, slot_offset
from gmdb.format.redo import HEAD_SPACE, REDO_FILE, REDO_GROUP, REDO_ITEM
from gmdb.format.row import SizeCode, walk_cells
from gmdb.format.staging import STAGED_SEAL

_CRC_AT = REDO_GROUP.offset("lsn")


def sealed(page: bytes) -> bytes:
    return page[:-TAIL_SIZE] + PAGE_TAIL.pack(crc=page_crc(page))


def _number(random: Random, width: int, before: int, ids: list[int]) -> int:
    """A number that may mean something where another was."""
    top = (1 << 8 * width) - 1
    choices = (
        0,
        1,
        top,
        top - 1,
        1 << (8 * width - 1),
        random.randrange(top + 1),
        random.randrange(64),
        before + random.choice((-20, -8, -4, -2, -1, 1, 2, 4, 8, 16, 20, 24, 32, 255, 4096)),
        before ^ 1 << random.randrange(8 * width),
        random.choice(ids) if width >= 4 else random.randrange(8200),
    )
    return random.choice(choices) & top


def _set(data: bytearray, at: int, width: int, random: Random, ids: list[int]) -> None:
    width = min(width, len(data) - at)
    before = int.from_bytes(data[at : at + width], "little")
    data[at : at + width] = _number(random, width, before, ids).to_bytes(width, "little")


def _field_of_head(random: Random) -> tuple[int, int]:
    field = random.choice([field for field in PAGE_HEAD.fields if field.size <= 4 and field.name != "page_id"])
    return field.offset, field.size


def _named_field(page: bytes, random: Random) -> tuple[int, int]:
    """Any field that has a name, or a part of it: of rows, entries, nodes, maps, heads, undo, large objects."""
    named = [region for region in anatomy.regions(page) if region.length and not region.name.startswith("tail.")]
    region = random.choice(named)
    if region.length > 8:
        return region.offset + random.randrange(region.length - 7), random.choice((1, 2, 4, 8))
    return region.offset, region.length


def changed_page(page: bytes, random: Random, ids: list[int]) -> bytes:
    """The page with a few fields changed: of its heads, its directory, what its slots lead to, or anywhere."""
    data, end = bytearray(page), len(page) - TAIL_SIZE
    for _ in range(random.choice((1, 1, 1, 1, 2, 3, 8))):
        kind = random.randrange(14)
        if kind > 7:
            at, width = _named_field(page, random)
        elif kind == 0:
            at, width = _field_of_head(random)
        elif kind in (1, 2):
            at, width = 80 + 2 * random.randrange(24), random.choice((2, 4))  # node heads, device heads
        elif kind == 3:
            at, width = 80 + 4 * random.randrange(140), 4  # segment heads, map heads, directories
        elif kind == 4:
            at, width = slot_offset(len(page), random.randrange(40)), 2
        elif kind in (5, 6):
            offset = int.from_bytes(data[slot_offset(len(page), random.randrange(30)) :][:2], "little") & 0x7FFF
            at, width = (
                offset + random.choice((0, 3, 4, 5, 6, 8, 9, 12, 14, 16, 18, 20, 22, 24)),
                random.choice((1, 2, 4)),
            )
        else:
            at, width = random.randrange(8, end), random.choice((1, 2, 4, 8))
        if at + width <= end:
            _set(data, at, width, random, ids)
    return sealed(bytes(data))


def _page_size(file: Path) -> int:
    with file.open("rb") as opened:
        start = opened.read(SPACE_HEAD_AT + SPACE_HEAD.size)
    size = SPACE_HEAD.at(start, SPACE_HEAD_AT).page_size
    return size if size in PAGE_SIZES else PAGE_SIZES[0]


def attack_pages(directory: Path, random: Random) -> str:
    """Change some pages of a device: those that are used, each kind as likely as the others."""
    file = random.choice(sorted(directory.glob("device-*")))
    size, number = _page_size(file), int(file.name[-4:])
    data = file.read_bytes()
    pages: dict[tuple[int, int], list[int]] = {}
    for n in range(len(data) // size):
        head = PAGE_HEAD.at(data, n * size)
        if head.page_type:
            pages.setdefault((head.page_type, head.seg_type), []).append(n)
    ids = [number << 22 | n for kind in pages.values() for n in kind] + [4 << 22 | 1, 1 << 22 | 1, 0, NO_PAGE]
    said = []
    with file.open("r+b") as opened:
        for _ in range(random.choice((1, 1, 2, 4))):
            n = random.choice(random.choice(list(pages.values())))
            page = data[n * size : (n + 1) * size]
            if random.random() < 0.05:  # another page, in its place, as if it were this one
                other = random.choice(random.choice(list(pages.values())))
                page = bytearray(data[other * size : (other + 1) * size])
                page[12:16] = (number << 22 | n).to_bytes(4, "little")
                changed = sealed(bytes(page))
            else:
                changed = changed_page(page, random, ids)
            opened.seek(n * size)
            opened.write(changed)
            said.append(f"{number}:{n}")
    return f"pages {' '.join(said)}"


def _groups(data: bytes) -> list[tuple[int, int]]:
    found, at = [], HEAD_SPACE
    while at + REDO_GROUP.size <= len(data):
        length = REDO_GROUP.at(data, at).length
        if not REDO_GROUP.size <= length <= len(data) - at:
            break
        found.append((at, length))
        at += length
    return found


def attack_log(directory: Path, random: Random) -> str:
    """Change items of some groups of the log, their heads or what they write, and make the groups whole again."""
    files = [file for file in sorted(directory.glob("redo-*")) if _groups(file.read_bytes())]
    if not files:
        return attack_pages(directory, random)
    file = random.choice(files)
    data, ids = bytearray(file.read_bytes()), [4 << 22 | 3, 1 << 22 | 2, 0, 4 << 22, NO_PAGE, 9 << 22]
    groups, said = _groups(bytes(data)), []
    for _ in range(random.choice((1, 1, 2, 5))):
        at, length = random.choice(groups)
        items, place = [], at + REDO_GROUP.size
        while place + REDO_ITEM.size <= at + length:
            items.append(place)
            place += REDO_ITEM.size + REDO_ITEM.at(data, place).length
        if not items:
            continue
        item = random.choice(items)
        size = min(REDO_ITEM.at(data, item).length, at + length - item - REDO_ITEM.size)  # it may be changed already
        if random.random() < 0.6 and size:
            where, width = item + REDO_ITEM.size + random.randrange(size), random.choice((1, 2, 4))
        else:
            field = random.choice(REDO_ITEM.fields)
            where, width = item + field.offset, field.size
        _set(data, where, min(width, at + length - where), random, ids)
        data[at + 4 : at + 8] = crc32c(bytes(data[at + _CRC_AT : at + length])).to_bytes(4, "little")
        said.append(str(at))
    file.write_bytes(data)
    return f"{file.name} at {' '.join(said)}"


# ---- rows of the catalog

_ODD_TEXTS = ("", "\0", "x" * 300, "sys_tables", "'", '"; drop', "0,0,0", "-1", "99", "1,", "btree", "hash", "DECIMAL")
_ODD_TEXTS += ("always", "CLOB", "VARCHAR", "check", "primary key", "[1e400]", "[[]]", "{}", "[null]", '["x",1]')
_ODD_TEXTS += ("k >", "(((", "k / 0 > 1", "1", "select 1", "random()", "NaN", "\ud800")


def attack_catalog(directory: Path, random: Random) -> str:
    """Change values of rows of the system tables to others of their width: numbers, and texts with a meaning."""
    file = directory / "device-0000"
    size, data = _page_size(file), bytearray(file.read_bytes())
    pages = []
    for number in range(1, len(data) // size):
        page = bytes(data[number * size : (number + 1) * size])
        if PAGE_HEAD.at(page).page_type == PageType.DATA and any(row_extents(page)):
            pages.append(number)
    said = []
    for _ in range(random.choice((1, 1, 2, 4))):
        number = random.choice(pages)
        page = bytearray(data[number * size : (number + 1) * size])
        _slot, at, length = random.choice(list(row_extents(bytes(page))))
        try:
            cells = [cell for cell in walk_cells(bytes(page), at, at + length) if cell[2]]
        except Corruption:
            continue
        if cells:
            _change_cell(page, random.choice(cells), random)
            data[number * size : (number + 1) * size] = sealed(bytes(page))
            said.append(f"0:{number}")
    file.write_bytes(data)
    return f"catalog {' '.join(said)}"


def _change_cell(page: bytearray, cell: tuple[int, int, int], random: Random) -> None:
    code, at, length = cell
    if code == SizeCode.VARIABLE and random.random() < 0.7:
        text = random.choice(_ODD_TEXTS).encode("utf-8", "surrogatepass")[: length - 1]
        page[at : at + length] = text.ljust(length - 1, random.choice((b" ", b"\0", b"9"))) + b"\0"
    else:
        _set(page, at, min(length, 8), random, [1, 4 << 22 | 1, 4 << 22 | 3, 5 << 22, NO_PAGE])


# ---- files beside the devices


def _with_crc(raw: bytes) -> bytes:
    """A record whose last four bytes are the CRC of those before."""
    return raw[:-4] + crc32c(raw[:-4]).to_bytes(4, "little")


def attack_control(directory: Path, random: Random) -> str:
    """Change fields of the control record, in both copies."""
    file = directory / "gmdb.control"
    data = bytearray(file.read_bytes())
    fields = [field for field in CONTROL.fields if field.name not in ("magic", "crc", "reserved")]
    chosen = random.sample(fields, random.choice((1, 1, 1, 2, 3)))
    for start in (0, COPY_DISTANCE):
        copy = bytearray(data[start : start + CONTROL.size])
        for field in chosen:
            _set(copy, field.offset, min(field.size, 8), random, [0])
        data[start : start + CONTROL.size] = _with_crc(bytes(copy))
    file.write_bytes(data)
    return f"control {' '.join(field.name for field in chosen)}"


def attack_log_head(directory: Path, random: Random) -> str:
    """Change fields of the head of a file of the log, or have two files change places."""
    files = sorted([*directory.glob("redo-*"), *directory.glob("archive/redo-*")])
    file = random.choice(files)
    if random.random() < 0.2:
        other = random.choice(files)
        mine, others = file.read_bytes(), other.read_bytes()
        file.write_bytes(others)
        other.write_bytes(mine)
        return f"{file.name} and {other.name} change places"
    data = bytearray(file.read_bytes())
    field = random.choice([field for field in REDO_FILE.fields if field.name not in ("magic", "crc", "reserved")])
    _set(data, field.offset, min(field.size, 8), random, [0])
    data[: REDO_FILE.size] = _with_crc(bytes(data[: REDO_FILE.size]))
    file.write_bytes(data)
    return f"{file.name}, {field.name}"


def attack_mirror(directory: Path, random: Random) -> str:
    """Change the mirror's head, ids or pages, and tear a page that it has in its place, so that it is needed."""
    file = directory / "gmdb.mirror"
    if not file.is_file():
        return attack_pages(directory, random)
    data = bytearray(file.read_bytes())
    head = MIRROR_HEAD.at(data)
    count, table = min(head.page_count, 400), MIRROR_HEAD.size
    places = [int.from_bytes(data[table + 8 * n : table + 8 * n + 4], "little") for n in range(count)]
    sizes = [int.from_bytes(data[table + 8 * n + 4 : table + 8 * n + 8], "little") for n in range(count)]
    torn = random.randrange(count)
    device = directory / f"device-{places[torn] >> 22:04d}"
    with device.open("r+b") as opened:
        opened.seek((places[torn] & 0x3FFFFF) * sizes[torn] + 200)
        opened.write(random.randbytes(64))
    for _ in range(random.choice((1, 1, 2))):
        kind = random.randrange(4)
        if kind == 0:
            field = random.choice([f for f in MIRROR_HEAD.fields if f.name in ("page_count", "ckpt_id", "database_id")])
            _set(data, field.offset, min(field.size, 8), random, [0])
        elif kind == 1:
            _set(data, table + 4 * random.randrange(2 * count), 4, random, [*places, 0, NO_PAGE, *PAGE_SIZES])
        else:
            at = PAGES_AT + sum(sizes[:torn])
            data[at : at + sizes[torn]] = changed_page(bytes(data[at : at + sizes[torn]]), random, places)
    count = min(MIRROR_HEAD.at(data).page_count, (len(data) - table) // 8)
    crc = crc32c(bytes(data[table : table + 8 * count]))
    at = MIRROR_HEAD.offset("ids_crc")
    data[at : at + 4] = crc.to_bytes(4, "little")
    data[:table] = _with_crc(bytes(data[:table]))
    file.write_bytes(data)
    return f"mirror, page {places[torn] >> 22}:{places[torn] & 0x3FFFFF} torn"


def attack_staged(directory: Path, random: Random) -> str:
    """Change the seal of a staging file, its pages or its Arrow batches."""
    files = [path for path in sorted(directory.glob("loads/*/part-*")) if path.stat().st_size > 4096]
    if not files:
        return attack_pages(directory, random)
    file = random.choice(files)
    data = bytearray(file.read_bytes())
    seal_at = len(data) - STAGED_SEAL.size
    page_size = STAGED_SEAL.at(data, seal_at).page_size
    for _ in range(random.choice((1, 1, 2, 4))):
        if random.random() < 0.2:
            field = random.choice([f for f in STAGED_SEAL.fields if f.name in ("kind", "page_size", "page_count")])
            _set(data, seal_at + field.offset, field.size, random, [*PAGE_SIZES, 2, 3])
        elif page_size and random.random() < 0.8:
            at = random.randrange(seal_at // page_size) * page_size
            data[at : at + page_size] = changed_page(bytes(data[at : at + page_size]), random, [4 << 22 | 3, 0])
        else:
            _set(data, random.randrange(min(seal_at - 8, 3000)) & ~3, random.choice((1, 4, 8)), random, [0])
    crc_at = seal_at + STAGED_SEAL.offset("content_crc")
    data[crc_at : crc_at + 4] = crc32c(bytes(data[:seal_at])).to_bytes(4, "little")
    data[seal_at:] = _with_crc(bytes(data[seal_at:]))
    file.write_bytes(data)
    return f"{file.relative_to(directory)}"


def attack_images(directory: Path, random: Random) -> str:
    """Change the heads, entries or pages of a pin's images, or the locks that it has."""
    files = [path for path in sorted(directory.glob("snapshots/*")) if path.suffix != ".pin" and path.stat().st_size]
    if not files:
        return attack_notes(directory, random)
    file = random.choice(files)
    data = bytearray(file.read_bytes())
    if data.startswith(b"GMDBIMGS"):
        head, entries = IMAGE_BATCH.at(data), IMAGE_BATCH.size
        count = head.page_count
        sizes = [IMAGE_ENTRY.at(data, entries + n * IMAGE_ENTRY.size).size for n in range(count)]
        pages_at = entries + count * IMAGE_ENTRY.size
        kind = random.randrange(4)
        if kind == 0:
            field = random.choice([f for f in IMAGE_BATCH.fields if f.name in ("page_count", "size")])
            _set(data, field.offset, field.size, random, [count + 1])
        elif kind == 1:
            _set(data, entries + 4 * random.randrange(3 * count), 4, random, [4 << 22 | 3, 0, NO_PAGE, *PAGE_SIZES])
        else:
            n = random.randrange(count)
            at = pages_at + sum(sizes[:n])
            data[at : at + sizes[n]] = changed_page(bytes(data[at : at + sizes[n]]), random, [4 << 22 | 3, 1 << 22])
        count = min(IMAGE_BATCH.at(data).page_count, (len(data) - entries) // IMAGE_ENTRY.size)
        crc_at = IMAGE_BATCH.offset("entries_crc")
        raw = bytes(data[entries : entries + count * IMAGE_ENTRY.size])
        data[crc_at : crc_at + 4] = crc32c(raw).to_bytes(4, "little")
        data[:entries] = _with_crc(bytes(data[:entries]))
    else:
        for _ in range(random.choice((1, 2, 5))):
            _set(data, random.randrange(max(len(data) - 4, 1)) & ~3, random.choice((1, 4, 8)), random, [1, NO_PAGE])
    file.write_bytes(data)
    return f"{file.relative_to(directory)}"


_ODD_VALUES: tuple[Any, ...] = (None, -1, 0, 1, 1 << 31, 1 << 40, 1 << 63, 1 << 70, 1.5, 1e300, float("nan"), True)
_ODD_VALUES += ("", "x", "\0", f"{os.pardir}/{os.pardir}/x", "0" * 5000, "9" * 30, [], [[]], {}, {"a": 1}, [1, 2, 3])


def odd_json(value: Any, random: Random) -> Any:
    """A document with one thing in it changed: a value replaced, left out, doubled or put elsewhere."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        if random.random() < 0.1:
            return {name: one for name, one in value.items() if name != key}
        if random.random() < 0.05:
            return {**value, "more": 1}
        return {**value, key: odd_json(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.93:
        at = random.randrange(len(value))
        if random.random() < 0.07:
            return [*value[:at], *value[at + 1 :]]
        if random.random() < 0.05:
            return [*value, value[at]]
        return [*value[:at], odd_json(value[at], random), *value[at + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and random.random() < 0.5:
        return value + random.choice((-1, 1, 7, 1 << 22, -(1 << 22)))
    return random.choice(_ODD_VALUES)


def attack_notes(directory: Path, random: Random) -> str:
    """Change the documents beside the pages: pins, readers and definitions of feeds, backup notes, drivers of loads."""
    files = []
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix in (".pin", ".reader", ".json", ".backup"):
            files.append(path)
    if not files:
        return attack_pages(directory, random)
    file = random.choice(files)
    try:
        document = json.loads(file.read_bytes())
    except (ValueError, RecursionError):  # another attack was there before
        return "nothing more"
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        document = odd_json(document, random)
    text = "[" * 100_000 if random.random() < 0.02 else json.dumps(document)
    file.write_text(text)
    return f"{file.relative_to(directory)}"


def attack_sizes(directory: Path, random: Random) -> str:
    """Make a file longer or shorter, by pages or by bytes, or put another in its place."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    file = random.choice(files)
    size = file.stat().st_size
    how = random.randrange(4)
    if how == 0:
        file.write_bytes(random.choice(files).read_bytes())
    else:
        step = random.choice((1, 64, 4096, 8192, 32768))
        length = max(0, size + (step if how == 1 else -step if how == 2 else -size + random.randrange(size + 1)))
        with file.open("r+b") as opened:
            opened.truncate(length)
    return f"{file.relative_to(directory)}, its length"


def attack_other(directory: Path, random: Random) -> str:
    """Change bytes of any file, without making anything right; or cut it off, or empty it."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.stat().st_size]
    others = [path for path in files if not path.name.startswith(("device-", "redo-"))]
    file = random.choice(others if others and random.random() < 0.7 else files)
    data = bytearray(file.read_bytes())
    how = random.randrange(4)
    if how == 0:
        data = data[: random.randrange(len(data))]
    elif how == 1:
        data = bytearray(random.randbytes(len(data) if len(data) < 4096 else 64))
    else:
        for _ in range(random.choice((1, 3, 20))):
            data[random.randrange(min(len(data), 8192))] = random.randrange(256)
    file.write_bytes(data)
    return f"{file.relative_to(directory)}, {('cut', 'noise', 'bytes', 'bytes')[how]}"


ATTACKS: dict[Callable[[Path, Random], str], int] = {
    attack_pages: 20,
    attack_catalog: 5,
    attack_log: 5,
    attack_log_head: 1,
    attack_control: 2,
    attack_mirror: 2,
    attack_staged: 3,
    attack_images: 2,
    attack_notes: 3,
    attack_sizes: 1,
    attack_other: 2,
}
"""What an attacker does, and how often."""


def attack(directory: Path, random: Random) -> str:
    """One attack, now and then several of them."""
    count = random.choice((1, 1, 1, 1, 1, 1, 1, 2, 3))
    chosen = random.choices(list(ATTACKS), list(ATTACKS.values()), k=count)
    said: list[str] = []
    for one in chosen:
        try:
            said.append(one(directory, random))
        except (IndexError, ValueError):
            if not said:
                raise
            said.append("nothing more, for what was there is not any more")
    return "; ".join(said)
