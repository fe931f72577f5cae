"""A database that another process has open: what it does shows in the browser, without loading anything again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.explore.conftest import Complaints
from tests.explore.exploring import Exploring
from tests.server.peer import Peer


@dataclass
class Scene:
    """A process with a database, and an explorer of it.  Row ids by the key of the row."""

    owner: Peer
    explorer: Exploring
    rows: dict[int, str]

    def page(self) -> str:
        return self.rows[1].rpartition(":")[0]


@pytest.fixture
def scene(tab: Page, tmp_path: Path) -> Iterator[Scene]:
    owner = Peer("import gmdb.database.connection")
    path = tmp_path / "live.gmdb"
    owner("db = gmdb.connect(path)", path=path)
    owner("db.create_table('t', {'i': 'INT', 's': 'VARCHAR(50)'})")
    owner("[db.insert('t', (n, 'old')) for n in range(20)]; db.commit()")
    found = owner("db.execute('select i, rowid from t').fetchall()")
    owner("db.gc(); db.checkpoint()")
    explorer = Exploring(path)
    yield Scene(owner, explorer, {key: str(row_id) for key, row_id in found})
    tab.goto("about:blank")  # views that ask again and again do so no more
    try:
        assert explorer.end() == (0, "", "")
    finally:
        explorer.kill()
        owner.end()


def begin_to_wait(owner: Peer) -> None:
    """One session changes three rows and stays open; another waits for one of them."""
    owner("one, other = gmdb.connect(path), gmdb.connect(path, lock_timeout=300)")
    owner("one.execute(\"update t set s = 'changed' where i = 1\").rowcount")
    owner("one.execute('delete from t where i = 2').rowcount")
    owner("one.execute(\"insert into t values (99, 'new')\").rowcount")
    owner("other.execute(\"update t set s = 'mine' where i = 5\").rowcount")
    owner("waiter = threading.Thread(target=lambda: other.execute(\"update t set s = 'late' where i = 1\").rowcount)")
    owner("waiter.start()")


def table_named(tab: Page, caption: str) -> Locator:
    return tab.locator("section.listing", has=tab.get_by_role("heading", name=caption, exact=True))


def test_transactions_locks_and_waits_come_and_go(tab: Page, scene: Scene) -> None:
    scene.explorer.show(tab, "live")
    tab.evaluate("window.stayed = true")
    expect(table_named(tab, "Waits")).to_contain_text("Nothing.")
    begin_to_wait(scene.owner)
    expect(table_named(tab, "Waits").locator("tbody tr")).to_have_count(1)
    expect(table_named(tab, "Waits").locator("tbody tr")).to_contain_text(scene.rows[1])
    expect(table_named(tab, "Transactions").locator("tr.open")).to_have_count(2)
    locks = table_named(tab, "Locks").locator("tbody")
    expect(locks.locator("tr", has_text=scene.rows[1])).to_contain_text("UPDATE")
    expect(locks.locator("tr", has_text=scene.rows[2])).to_contain_text("DELETE")
    expect(locks.locator("tr", has_text="INSERT")).to_have_count(1)
    expect(tab.locator("#told")).to_contain_text("1 waits")
    scene.owner("one.commit(); waiter.join(60); other.commit(); db.gc()")
    expect(table_named(tab, "Waits")).to_contain_text("Nothing.")
    expect(table_named(tab, "Transactions").locator("tr.open")).to_have_count(0)
    expect(table_named(tab, "Locks")).to_contain_text("Nothing.")
    assert tab.evaluate("window.stayed")


def test_a_pause_holds_what_is_shown(tab: Page, scene: Scene) -> None:
    scene.explorer.show(tab, "live")
    tab.get_by_label("pause").check()
    begin_to_wait(scene.owner)
    tab.wait_for_timeout(2500)
    expect(table_named(tab, "Waits")).to_contain_text("Nothing.")
    tab.get_by_label("pause").uncheck()
    expect(table_named(tab, "Waits").locator("tbody tr")).to_have_count(1)
    scene.owner("one.commit(); waiter.join(60); other.commit()")


def test_who_sees_which_is_asked_of_memory(tab: Page, scene: Scene) -> None:
    begin_to_wait(scene.owner)
    scene.explorer.show(tab, f"page/{scene.page()}")
    expect(tab.get_by_label("State")).to_have_value("memory")
    row = tab.locator(".seen tbody tr", has=tab.locator(f"td:first-child a[href='#row/{scene.rows[1]}']"))
    expect(row).to_contain_text("other's UPDATE: from undo")
    expect(row).to_contain_text("old")
    reader = tab.get_by_label("Rows, as they are seen by")
    active = [one for one in reader.locator("option").all_inner_texts() if "active" in one]
    assert len(active) == 2
    number = scene.owner("one.session.hub.memory.number(one.session.slot)")
    reader.select_option(label=f"transaction {number}, active")
    expect(row).to_contain_text("own UPDATE: visible")
    expect(row).to_contain_text("changed")
    scene.owner("one.rollback(); waiter.join(60); other.rollback()")


def test_the_log_grows_while_it_is_written(tab: Page, scene: Scene) -> None:
    scene.explorer.show(tab, "log")
    tab.evaluate("window.stayed = true")
    records = table_named(tab, "Records, the newest first").locator("tbody tr")
    expect(records.first).to_be_visible()
    commits = records.and_(tab.locator(".commit"))
    before = records.count(), commits.count()
    for n in range(3):
        scene.owner(f"db.execute(\"update t set s = 'log {n}' where i = 3\"); db.commit()")
    expect(commits).to_have_count(before[1] + 3)
    assert records.count() > before[0]
    tab.get_by_label("Only").fill("commit")
    expect(records).to_have_count(before[1] + 3)
    scene.owner("db.execute(\"update t set s = 'more' where i = 3\"); db.commit()")
    expect(records).to_have_count(before[1] + 4)
    assert tab.evaluate("window.stayed")


def test_files_and_memory_differ_in_the_row_that_was_changed(tab: Page, scene: Scene) -> None:
    scene.owner("db.execute(\"update t set s = 'fresh' where i = 4\"); db.commit()")
    scene.explorer.show(tab, f"compare/{scene.page()}")
    result = tab.locator(".result")
    row = result.locator("tbody tr", has=tab.get_by_role("cell", name=scene.rows[4], exact=True))
    expect(row).to_contain_text("old")
    expect(row).to_contain_text("fresh")
    expect(result.get_by_role("cell", name=scene.rows[5], exact=True)).to_have_count(0)
    scene.owner("db.checkpoint()")
    tab.get_by_role("button", name="Compare").click()
    expect(result.locator("tbody tr", has_text="fresh")).to_have_count(0)


def test_the_map_has_pages_that_are_in_memory_alone(tab: Page, scene: Scene) -> None:
    scene.owner("db.create_table('u', {'s': 'VARCHAR(2000)'}); db.commit()")
    scene.owner("[db.insert('u', ('x' * 2000,)) for n in range(400)]; db.commit()")
    scene.explorer.show(tab)
    expect(tab.get_by_role("list", name="Legend").get_by_text("u", exact=True)).to_be_visible()
    pages = scene.owner("db.inspect('cells', 0, 1, 16384).num_rows")
    expect(tab.get_by_role("application")).to_have_attribute("data-painted", f"segment {pages}")


def test_when_the_owner_is_killed_the_files_are_shown(tab: Page, scene: Scene, complaints: Complaints) -> None:
    begin_to_wait(scene.owner)
    scene.explorer.show(tab, "live")
    expect(table_named(tab, "Waits").locator("tbody tr")).to_have_count(1)
    complaints.expected = "Failed to load resource"  # a request that is on its way when the process dies
    scene.owner.kill()
    expect(tab.locator("main")).to_contain_text("No process has the database open: this is what its files show.")
    expect(tab.get_by_label("State")).to_have_value("files")
    expect(table_named(tab, "Waits")).to_contain_text("Nothing.")
    tab.goto(f"{scene.explorer.base}#page/{scene.page()}")
    expect(tab.locator(".seen tbody tr")).to_have_count(20)
    expect(tab.locator("#trouble")).to_be_hidden()


def test_an_owner_that_comes_is_noticed(tab: Page, scene: Scene) -> None:
    scene.owner("db.close()")
    scene.explorer.show(tab, "live")
    expect(tab.locator("main")).to_contain_text("No process has the database open")
    expect(tab.get_by_label("State")).to_have_value("files")
    scene.owner("db = gmdb.connect(path)")
    expect(tab.locator("main")).to_contain_text("From the memory of the process that has the database open")
    expect(tab.get_by_label("State")).to_have_value("memory")
    scene.owner("db.execute(\"update t set s = 'again' where i = 6\").rowcount")
    expect(table_named(tab, "Locks").locator("tbody tr")).to_have_count(1)
