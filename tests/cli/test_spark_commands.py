"""``gmdb spark load`` and ``export``: files into tables and back, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import gmdb
from gmdb.cli import main
from tests.integrity import assert_sound

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
CSV = "i,s,day,p,at\n1,x,2024-01-02,1.50,2024-01-02 03:04:05\n2,,2024-01-03,2.25,\n"
MORE = 'i,s,day,p,at\n3,"",2024-01-02,0.5,\n'


@pytest.fixture
def shop(path: Path) -> Path:
    """A closed database with a table of ten rows."""
    with gmdb.connect(path) as db:
        db.create_table("tbl", {"i": "INT", "s": "VARCHAR(10)", "day": "DATE"})
        days = [date(2024, 1, 1 + n % 2) for n in range(10)]
        db.append(
            "tbl", pa.table({"i": pa.array(range(10), pa.int32()), "s": [f"t{n}" for n in range(10)], "day": days})
        )
    return path


def rows_of(path: Path, table: str, columns: str = "*") -> list[tuple]:
    with gmdb.connect(path, read_only=True) as db:
        return db.execute(f"select {columns} from {table} order by 1").fetchall()


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the command says, which fails, and says it in one line."""
    assert main(["spark", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    return line.removeprefix("gmdb: ")


# ---- load


def test_csv_files_make_a_table_of_inferred_types(path: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "b.csv").write_text(MORE)
    assert main(["spark", "load", str(path), "new", str(tmp_path / "[ab].csv"), "--create"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{path}, table new: 3 rows, 0.1 KiB in ")
    with gmdb.connect(path, read_only=True) as db:
        types = [str(column.type) for column in db.table("new").columns]
    assert types == ["INT", "VARCHAR(4000)", "DATE", "DOUBLE", "TIMESTAMP"]
    assert rows_of(path, "new") == [
        (1, "x", date(2024, 1, 2), 1.5, datetime(2024, 1, 2, 3, 4, 5)),
        (2, None, date(2024, 1, 3), 2.25, None),
        (3, "", date(2024, 1, 2), 0.5, None),
    ]
    assert_sound(path)


def test_texts_become_what_the_table_has(shop: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "more.csv").write_text("day,S,i\n2024-02-03,007,10\n")
    (tmp_path / "more.jsonl").write_text('{"i": 11, "s": "j", "day": "2024-02-04"}\n{"i": 12}\n')
    assert main(["spark", "load", str(shop), "tbl", str(tmp_path / "more.csv"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["bytes"]) == (1, 26)
    assert main(["spark", "load", str(shop), "tbl", str(tmp_path / "more.jsonl")]) == 0
    added = [(10, "007", date(2024, 2, 3)), (11, "j", date(2024, 2, 4)), (12, None, None)]
    assert rows_of(shop, "tbl")[10:] == added


def test_parquet_and_orc_replace_what_was_there(shop: Path, tmp_path: Path) -> None:
    data = pa.table({"I": pa.array([5], pa.int16()), "s": ["five"]})
    (tmp_path / "files").mkdir()
    pq.write_table(data, tmp_path / "files" / "part-0.parquet")
    (tmp_path / "files" / "_SUCCESS").touch()
    assert main(["spark", "load", str(shop), "tbl", str(tmp_path / "files"), "--overwrite"]) == 0
    assert rows_of(shop, "tbl") == [(5, "five", None)]
    orc.write_table(pa.table({"i": pa.array([6], pa.int32())}), tmp_path / "six.orc")
    assert main(["spark", "load", str(shop), "tbl", str(tmp_path / "six.orc")]) == 0
    assert rows_of(shop, "tbl", "i, s") == [(5, "five"), (6, None)]


def test_what_cannot_be_loaded_is_named(shop: Path, tmp_path: Path, capsys) -> None:
    before = rows_of(shop, "tbl")
    files = {
        "a.csv": "i,s\n1,x\n", "swapped.csv": "s,i\nx,1\n", "bad.csv": "i,s\nnine,x\n", "other.csv": "i,nope\n1,2\n",
        "half.json": '{"i": 1.5}\n', "thing": "?", "no.parquet": "PAR?",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    pq.write_table(pa.table({"i": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"i": ["1"]}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"i": [[1]]}), tmp_path / "lists.parquet")

    def load(table: str, *names: str) -> str:
        return refused(capsys, "load", shop, table, *(tmp_path / name for name in names))

    assert load("tbl", "none-*.csv") == f"there is no file {tmp_path / 'none-*.csv'}"
    assert "its name does not say what it is; say --format" in load("tbl", "thing")
    assert "files of one kind can be loaded at once, but these are csv (" in load("tbl", "a.csv", "half.json")
    assert "2.parquet has other columns than" in (said := load("tbl", "1.parquet", "2.parquet"))
    assert "i is string here, int64 there" in said
    assert "no.parquet is not a parquet file" in load("tbl", "no.parquet", "1.parquet")
    assert "swapped.csv" in (said := load("tbl", "a.csv", "swapped.csv"))
    assert "CSV header does not conform to the schema" in said
    assert 'The value \'nine\' of the type "STRING" cannot be cast to "INT"' in load("tbl", "bad.csv")
    assert 'The value \'1.5\' of the type "STRING" cannot be cast to "INT"' in load("tbl", "half.json")
    assert "table tbl has no column nope" in load("tbl", "other.csv")
    assert "a table has no type for array<bigint>" in load("tbl", "lists.parquet")
    assert "does not take every bigint" in load("tbl", "1.parquet")
    assert "--create makes one" in load("nope", "a.csv")
    assert rows_of(shop, "tbl") == before


def test_a_load_that_fails_leaves_no_new_database(path: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "a.parquet").write_text("?")
    assert f"{path} does not exist" in refused(capsys, "load", path, "t", tmp_path / "a.parquet")
    assert "not a Parquet file" in refused(capsys, "load", path, "t", tmp_path / "a.parquet", "--create")
    assert not path.exists()


# ---- export


def test_a_table_is_exported_and_loaded_again(shop: Path, tmp_path: Path, capsys) -> None:
    target = tmp_path / "out"
    assert main(["spark", "export", str(shop), "tbl", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"{target}: 10 rows, ")
    assert pq.read_table(target).num_rows == 10
    [file] = target.glob("*.parquet")
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "ZSTD"
    assert main(["spark", "load", str(shop), "again", str(target), "--create"]) == 0
    assert rows_of(shop, "again") == rows_of(shop, "tbl")


def test_an_export_is_chosen_divided_and_replaced(shop: Path, tmp_path: Path, capsys) -> None:
    target = tmp_path / "out"
    chosen = ["--columns", "i,day", "--where", "i > 3 and s <> 't9'", "--partition-by", "day", "--files", "1"]
    assert main(["spark", "export", str(shop), "tbl", str(target), *chosen, "--compression", "snappy"]) == 0
    assert sorted(p.name for p in target.glob("day=*")) == ["day=2024-01-01", "day=2024-01-02"]
    assert [len(list(folder.glob("*.snappy.parquet"))) for folder in target.glob("day=*")] == [1, 1]
    assert sorted(pq.read_table(target)["i"].to_pylist()) == [4, 5, 6, 7, 8]
    capsys.readouterr()
    assert refused(capsys, "export", shop, "tbl", target).endswith("choose another directory, or say --overwrite")
    assert main(["spark", "export", str(shop), "tbl", str(target), "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 10
    assert not list(target.glob("day=*"))


def test_what_cannot_be_exported_is_named(shop: Path, tmp_path: Path, capsys) -> None:
    target = tmp_path / "out"
    assert "has no table nope" in refused(capsys, "export", shop, "nope", target)
    assert "table tbl has no column nope; it has i, s, day" in refused(
        capsys, "export", shop, "tbl", target, "--partition-by", "nope"
    )
    assert "which --columns leaves out" in refused(
        capsys, "export", shop, "tbl", target, "--columns", "i", "--partition-by", "day"
    )
    assert "`nope` cannot be resolved" in refused(capsys, "export", shop, "tbl", target, "--where", "nope = 1")
    assert "write at least one file" in refused(capsys, "export", shop, "tbl", target, "--files", 0)
    (tmp_path / "file").touch()
    assert refused(capsys, "export", shop, "tbl", tmp_path / "file").endswith("is a file; name a directory")
    assert not target.exists()


@pytest.mark.parametrize("inside", [".", "..", "sub"])
def test_a_database_is_not_overwritten_by_its_own_export(shop: Path, capsys, inside: str) -> None:
    said = refused(capsys, "export", shop, "tbl", shop / inside, "--overwrite")
    assert said.endswith("is the database, or has it inside; choose a directory of its own")
    assert len(rows_of(shop, "tbl")) == 10


# ---- all of them


@pytest.mark.parametrize("verb", ["load", "export", "verify", "stats"])
def test_help_needs_neither_spark_nor_compiled_code(verb: str) -> None:
    code = "\n".join(
        (
            "import sys; from gmdb.cli import main",
            f"try: main(['spark', '{verb}', '--help'])",
            "except SystemExit: print([name for name in ('numba', 'pyspark', 'pyarrow') if name in sys.modules])",
        )
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
    assert f"gmdb spark {verb} shop.gmdb" in run.stdout


def test_without_java_it_says_what_to_install(shop: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "Spark needs Java 17 or later" in refused(capsys, "stats", shop)
