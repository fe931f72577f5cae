"""Migrated rows: every ENTRY row leads to a LINK row of its table, and every LINK row has one ENTRY."""

from __future__ import annotations

import numpy as np

from gmdb.format.address import RowId
from gmdb.format.page import PageType
from gmdb.format.row import ROW_HEAD
from gmdb.kernel.verify import ENTRY, LINK
from gmdb.kernel.verify_rows import SUSPECT
from gmdb.verify.survey import Survey


def check_migration(survey: Survey) -> None:
    entries, links = survey.noted(ENTRY), survey.noted(LINK)["place"]
    if not len(entries) and not len(links):
        return
    targets = entries["value"]
    _, first = np.unique(targets, return_index=True)
    is_first = np.zeros(len(targets), bool)
    is_first[first] = True
    for i in np.flatnonzero(~is_first):
        said = f"leads to {_row_name(targets[i])}, to which another ENTRY row leads already"
        _finding(survey, entries["place"][i], f"an ENTRY row {said}", ROW_HEAD.size)
    target_facts, own_facts = survey.gather(targets >> 16), survey.gather(entries["place"] >> 16)
    damaged = (target_facts["verdict"] > SUSPECT) & (target_facts["page_type"] == PageType.DATA)
    there = np.isin(targets, links)
    for i in np.flatnonzero(~there & ~damaged):
        said = f"an ENTRY row leads to {_row_name(targets[i])}, where no LINK row is"
        _finding(survey, entries["place"][i], said, ROW_HEAD.size)
    for i in np.flatnonzero(there & (target_facts["obj_id"] != own_facts["obj_id"])):
        said = f"an ENTRY row leads to {_row_name(targets[i])}, a row of object {target_facts['obj_id'][i]}"
        _finding(survey, entries["place"][i], said, ROW_HEAD.size)
    _check_links(survey, targets, links)


def _check_links(survey: Survey, targets: np.ndarray, links: np.ndarray) -> None:
    """LINK rows without an ENTRY; not of tables with damaged pages, on which it may be."""
    doubtful: set[int] = set()
    for facts in survey.facts.values():
        doubtful.update(facts["obj_id"][facts["verdict"] > SUSPECT].tolist())
    orphans = links[~np.isin(links, targets)]
    objects = survey.gather(orphans >> 16)["obj_id"]
    for place in orphans[~np.isin(objects, list(doubtful))]:
        _finding(survey, place, "a LINK row to which no ENTRY row leads", 0)


def _row_name(place: int) -> str:
    return f"row {RowId(int(place) >> 16, int(place) & 0xFFFF)}"


def _finding(survey: Survey, place: int, said: str, behind: int) -> None:
    page_id, slot = int(place) >> 16, int(place) & 0xFFFF
    survey.findings.on_page(page_id, survey.row_offset(page_id, slot) + behind, f"slot {slot}: {said}")
