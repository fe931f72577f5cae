"""What an attacker does to a database's files: changes bytes that mean something, and makes the checksums right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from gmdb.format.address import NO_PAGE
from gmdb.format.checksum import crc32c, page_crc
from gmdb.format.control import CONTROL, COPY_DISTANCE
from gmdb.format.device import SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, PAGE_TAIL, TAIL_SIZE, slot_offset
from gmdb.format.redo import HEAD_SPACE, REDO_GROUP, REDO_ITEM

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


def changed_page(page: bytes, random: Random, ids: list[int]) -> bytes:
    """The page with a few fields changed: of its heads, its directory, what its slots lead to, or anywhere."""
    data, end = bytearray(page), len(page) - TAIL_SIZE
    for _ in range(random.choice((1, 1, 1, 1, 2, 3, 8))):
        kind = random.randrange(8)
        if kind == 0:
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
        size = REDO_ITEM.at(data, item).length
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


def attack_control(directory: Path, random: Random) -> str:
    """Change fields of the control record, in both copies."""
    file = directory / "gmdb.control"
    data = bytearray(file.read_bytes())
    chosen = random.choice([field for field in CONTROL.fields if field.name not in ("magic", "crc", "reserved")])
    for start in (0, COPY_DISTANCE):
        copy = bytearray(data[start : start + CONTROL.size])
        _set(copy, chosen.offset, min(chosen.size, 8), random, [0])
        copy[-4:] = crc32c(bytes(copy[:-4])).to_bytes(4, "little")
        data[start : start + CONTROL.size] = copy
    file.write_bytes(data)
    return f"control {chosen.name}"


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


ATTACKS: tuple[Callable[[Path, Random], str], ...] = (
    attack_pages,
    attack_pages,
    attack_pages,
    attack_pages,
    attack_log,
    attack_log,
    attack_control,
    attack_other,
)


def attack(directory: Path, random: Random) -> str:
    return random.choice(ATTACKS)(directory, random)
