"""What a test expects of the findings."""

from __future__ import annotations

from gmdb.verify import Finding
from tests.verify.build import Damage


def found(damage: Damage, page_id: int, offset: int, message: str) -> list[Finding]:
    """All findings, one of which must be at that page and offset, and say ``message``."""
    findings = damage.findings()
    there = [f for f in findings if (f.page_id, f.offset) == (page_id, offset) and message in f.message]
    assert there, "\n".join(map(str, findings)) or "nothing was found"
    return findings


def only(damage: Damage, page_id: int, offset: int, message: str) -> None:
    """That finding, and no other."""
    findings = found(damage, page_id, offset, message)
    assert len(findings) == 1, "\n".join(map(str, findings))
