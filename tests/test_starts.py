"""What a process reads when it starts: a module is read when its subject is, and not before."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import gmdb

ROOT = Path(__file__).parents[1]
# What neither opening a database, nor finding a row by its key, nor changing one takes.
UNUSED = {
    *("numpy", "pyarrow", "pandas", "duckdb", "pyspark", "sqlalchemy", "prompt_toolkit", "numba"),
    *("dataclasses", "importlib.metadata", "email", "ssl", "hashlib", "shutil", "tempfile", "secrets", "calendar"),
    *("concurrent.futures", "sqlglot.diff", "gmdb.inspect.inspector", "gmdb.sql.duck.text", "gmdb.sql.duck.instance"),
    *("gmdb.sql.operations.functions", "gmdb.sql.statements.definitions", "gmdb.sql.statements.analyze"),
    *("gmdb.sql.plan.explain", "gmdb.tables.catalog.index_creation", "gmdb.server.client_session"),
}
# What reads a module, beside opening the database.
SUBJECTS = {
    "db.execute('select upper(label) from item where id = 7').fetchone()": {"gmdb.sql.operations.functions"},
    "db.execute('explain select id from item')": {"gmdb.sql.plan.explain"},
    "db.execute('update item set label = null where id = 7')": {"gmdb.sql.statements.update"},
    "db.create_index('by_label', 'item', ['label'])": {"gmdb.tables.catalog.index_creation", "numpy"},
    "db.arrow('item').read_all()": {"numpy", "pyarrow"},
    "db.execute('select label from item').arrow()": {"pyarrow"},
    "db.inspect('spaces')": {"gmdb.inspect.inspector"},
}
OPENING = "import gmdb; db = gmdb.connect(sys.argv[1])"
CLOSING = "db.rollback(); db.close()"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("starts") / "shop.gmdb"
    with gmdb.connect(path) as db:
        db.execute("create table item (id int primary key, label varchar(20))")
        db.executemany("insert into item values (?, ?)", [(n, f"item {n}") for n in range(100)])
    return path


def modules_after(code: str, *arguments: object) -> set[str]:
    """The modules that a fresh process has read when the code has run."""
    told = "import json, sys\n" + code + "\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", told, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stdout.splitlines()[-1]))


def test_a_row_is_found_and_changed_without_what_that_does_not_take(shop: Path) -> None:
    find = "assert db.execute('select label from item where id = ?', (7,)).fetchone() == ('item 7',)"
    change = "db.execute('update item set label = ? where id = ?', ('seven', 7))"
    read = modules_after("\n".join((OPENING, find, change, CLOSING)), shop)
    assert sorted(read & UNUSED) == []


@pytest.mark.parametrize("code", SUBJECTS)
def test_a_module_is_read_when_its_subject_is(code: str, shop: Path) -> None:
    before = f"assert not set({sorted(SUBJECTS[code])}) & set(sys.modules), 'already read'"
    assert SUBJECTS[code] <= modules_after("\n".join((OPENING, before, code, CLOSING)), shop)


@pytest.mark.parametrize(
    ("program", "arguments", "own"),
    [
        ("main", ("sql", "{}", "-c", "select 1"), {"gmdb.cli.sql", "gmdb.cli.shell.outputs"}),
        ("gmstat", ("page", "{}", "4:4"), {"gmdb.cli.stat_verbs"}),
    ],
)
def test_a_command_reads_what_it_takes_itself(
    program: str, arguments: tuple[str, ...], own: set[str], shop: Path
) -> None:
    given = [argument.format(shop) for argument in arguments]
    read = modules_after(f"from gmdb.cli import {program}\nassert {program}({given}) == 0")
    others = {"gmdb.cli.demo", "gmdb.cli.import_", "gmdb.cli.serve", "gmdb.cli.spark", "gmdb.cli.upkeep"}
    needed = {"shutil", "concurrent.futures"} if program == "main" else {"shutil", "gmdb.inspect.inspector"}
    assert sorted(read & (UNUSED | others) - needed) == []
    assert own <= read


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    from gmdb.cli.program import COMMANDS, main

    with pytest.raises(SystemExit):
        main(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ")]
    assert [name for name in COMMANDS if name not in listed] == []
    for name in COMMANDS:
        with pytest.raises(SystemExit) as raised:
            main([name, "--help"])
        assert (raised.value.code, f"usage: gmdb {name} " in capsys.readouterr().out) == (0, True)


def test_no_module_reads_the_library_of_dataclasses() -> None:
    """But for the one that stands for it, when it is asked to."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if "dataclasses" in names and path.name != "late_dataclasses.py":
                found.append(path.name)
    assert found == []
