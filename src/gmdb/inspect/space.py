"""Tablespaces: the devices that share a page size and a name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gmdb.inspect.device_file import DeviceFile


@dataclass(frozen=True)
class Space:
    """A tablespace; it has the number of its first device, whose head also keeps its counts."""

    space_id: int
    devices: tuple[DeviceFile, ...]

    @property
    def name(self) -> str:
        return self.devices[0].space_name or "?"

    @property
    def page_size(self) -> int:
        return self.devices[0].page_size

    @property
    def page_count(self) -> int:
        return sum(device.page_count for device in self.devices)

    @property
    def hwm(self) -> int:
        return sum(device.hwm for device in self.devices)

    @property
    def free_pages(self) -> int:
        return sum(device.free_page_count for device in self.devices)

    @property
    def seg_num(self) -> int:
        return self.devices[0].seg_num

    def problems(self) -> list[str]:
        found = [f"device {device.number}: {problem}" for device in self.devices for problem in device.problems()]
        if self.devices[0].number != self.space_id:
            found.insert(0, f"its first device, {self.space_id}, is missing")
        elif self.devices[0].has_head and self.devices[0].space_free_pages != self.free_pages:
            said = f"the space head counts {self.devices[0].space_free_pages} free pages"
            found.append(f"{said}, its devices {self.free_pages}")
        return found

    def document(self) -> dict[str, Any]:
        """The tablespace in plain values, for JSON."""
        return {
            "space_id": self.space_id,
            "name": self.name,
            "page_size": self.page_size,
            "page_count": self.page_count,
            "hwm": self.hwm,
            "free_pages": self.free_pages,
            "seg_num": self.seg_num,
            "devices": [_device_document(device) for device in self.devices],
            "problems": self.problems(),
        }


def _device_document(device: DeviceFile) -> dict[str, Any]:
    return {
        "dev_id": device.number,
        "file": device.path.name,
        "file_size": device.file_size,
        "page_count": device.page_count,
        "hwm": device.hwm,
        "free_page_count": device.free_page_count,
    }


def group_by_space(devices: Iterable[DeviceFile]) -> list[Space]:
    groups: dict[int, list[DeviceFile]] = {}
    for device in devices:
        groups.setdefault(device.space_id, []).append(device)
    return [Space(space_id, tuple(group)) for space_id, group in sorted(groups.items())]
