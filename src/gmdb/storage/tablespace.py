"""Tablespaces: named groups of devices with one page size.

A tablespace has the number of its first device.  Its devices are filled in order; the last that may still grow
does so when all are full.
"""

from __future__ import annotations

from gmdb.errors import SpaceFull
from gmdb.storage.device import Device


class Tablespace:
    def __init__(self, devices: list[Device]) -> None:
        self.devices = devices
        for device, following in zip(devices, [*devices[1:], None], strict=True):
            device.link(following)

    @property
    def space_id(self) -> int:
        return self.devices[0].number

    @property
    def name(self) -> str:
        return self.devices[0].space_name

    @property
    def page_size(self) -> int:
        return self.devices[0].page_size

    def grow(self, pages: int) -> Device:
        """Make room for ``pages`` pages side by side; answers the device that has it."""
        full: SpaceFull | None = None
        for device in self.devices:
            head = device.head
            if head.page_count - head.hwm >= pages:
                return device
            try:
                device.grow(pages - (head.page_count - head.hwm))
                return device
            except SpaceFull as error:
                full = error
        assert full is not None
        raise full


def group_devices(devices: list[Device]) -> dict[int, Tablespace]:
    """Open devices by tablespace."""
    members: dict[int, list[Device]] = {}
    for device in sorted(devices, key=lambda d: d.number):
        members.setdefault(device.space_id, []).append(device)
    return {space_id: Tablespace(group) for space_id, group in members.items()}
