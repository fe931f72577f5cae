"""``gmstat index``: levels, outline, graph, from files and from a running owner."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gmdb
from gmdb.cli import gmstat
from gmdb.format.address import page_id_of, page_name
from gmdb.format.btree import INDEX_AT
from gmdb.tables.files.database_files import DatabaseFiles
from tests.verify.build import Damage
from tests.verify.indexed import HashDamage

GMSTAT = "import sys; from gmdb.cli import gmstat; sys.exit(gmstat())"
ROWS = 2000


def build(path: Path) -> Path:
    with gmdb.connect(path) as db:
        fill(db)
    return path


def fill(db: gmdb.Connection) -> None:
    db.create_table("orders", {"id": "INT", "name": "VARCHAR(900)", "day": "DATE"})
    db.create_index("orders_id", "orders", ["id"], unique=True)
    db.create_index("orders_name", "orders", ["name", "day"])
    db.commit()
    for n in range(ROWS):
        db.insert("orders", (n, f'a "{n % 10}\\' + "x" * (n % 3 * 200), None))
    db.commit()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("index") / "shop.gmdb")


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> list[str]:
    assert gmstat(["index", *arguments]) == status
    return capsys.readouterr().out.splitlines()


def test_an_index_is_shown_with_its_levels_and_an_outline(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, str(closed), "orders_id")
    assert lines[0] == "index orders_id of table orders: unique, B-tree of (id INT)"
    assert re.fullmatch(r"entry page 4:\d+, root page 4:\d+", lines[1])
    assert lines[3].split() == ["level", "pages", "entries", "bytes", "fill", "%", "lowest", "%"]
    root, leaves = (list(map(int, line.split())) for line in lines[5:7])
    assert (root[:2], root[2]) == ([1, 1], leaves[1])
    assert (leaves[0], leaves[2]) == (0, ROWS)
    assert leaves[3] == ROWS * 26
    assert re.fullmatch(r"root  4:\d+  level 1, \d+ entries, \d+ % full  \(0\) … \(1999\)", lines[8])
    assert re.fullmatch(r"  up to \(\d+\)  4:\d+  leaf, \d+ entries, \d+ % full  \(0\) … \(\d+\)", lines[9])
    assert lines[-1].startswith("  the rest  4:")
    assert lines[-1].endswith("… (1999)")


def test_a_large_tree_is_cut_and_says_how_to_see_more(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, str(closed), "orders_name")
    assert re.fullmatch(r"… [\d,]+ pages further down; --depth 2 shows some of them, --full all", lines[-1])
    deeper = shown(capsys, str(closed), "orders_name", "--depth", "2")
    assert any(re.match(r"    … [\d,]+ more; --full shows them", line) for line in deeper)
    full = shown(capsys, str(closed), "orders_name", "--full")
    levels = [line.split() for line in full[5:8]]
    assert sum(int(level[1]) for level in levels) == len(full) - 9
    assert not any("--full" in line for line in full)


def test_an_index_as_a_json_document(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads("\n".join(shown(capsys, str(closed), "orders_name", "--json")))
    assert (document["table"], document["unique"], document["kind"]) == ("orders", False, "B-tree")
    assert [column["name"] for column in document["columns"]] == ["name", "day"]
    assert document["levels"][-1]["entries"] == ROWS
    assert document["tree"]["children"][-1]["up_to"] is None
    assert document["tree"]["first_key"] == ['a "0\\', None]


def test_a_graph_has_pages_edges_siblings_and_what_is_left_out(
    closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, str(closed), "orders_name", "--dot", "--depth", "2")
    assert lines[0] == 'digraph "orders_name" {'
    assert lines[-1] == "}"
    nodes = [line for line in lines if re.match(r"  p\d+ \[label=", line)]
    edges = [line for line in lines if re.match(r"  p\d+ -> p\d+ \[label=", line)]
    assert len(nodes) == len(edges) + 1
    assert any("style=dotted, dir=both" in line for line in lines)
    assert any(re.search(r'label="… [\d,]+ more"', line) for line in lines)
    strings = re.findall(r'label="((?:[^"\\]|\\.)*)"[,\]];?', "\n".join(lines))
    assert any("'a \\\"0\\\\\\\\'" in text for text in strings), strings[:3]
    assert all(line.count('"') - line.count('\\"') == 2 for line in nodes)


def test_an_unknown_index_is_told_with_the_known_ones(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gmstat(["index", str(closed), "nope"]) == 2
    assert "there is no index nope; the indexes are: orders_id, orders_name" in capsys.readouterr().err


def test_a_kind_of_index_that_is_not_known_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage = Damage(build(tmp_path / "shop.gmdb"))
    with DatabaseFiles(damage.path) as files:
        entry = next(index.entry_page for _, index in files.index_rows() if index.name == "orders_id")
    damage.write(entry, 24, (6).to_bytes(2, "little"))
    assert gmstat(["index", str(damage.path), "orders_id"]) == 2
    assert "has a segment of type 6; gmstat index knows B-tree, hash" in capsys.readouterr().err


def test_a_damaged_tree_is_shown_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage = Damage(build(tmp_path / "shop.gmdb"))
    with DatabaseFiles(damage.path) as files:
        entry = next(index.entry_page for _, index in files.index_rows() if index.name == "orders_id")
    damage.write(entry, INDEX_AT, page_id_of(4, 1).to_bytes(4, "little"))
    lines = shown(capsys, str(damage.path), "orders_id", status=1)
    assert lines[1].endswith("root page none")
    assert lines[-1].endswith("leads to page 4:1, but it is not a B-tree page")


def test_an_index_of_a_database_that_is_open_elsewhere_is_shown_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "live.gmdb"
    with gmdb.connect(path) as db:
        fill(db)
        db.insert("orders", (77_777, "new", None))  # neither committed nor on disk
        command = [sys.executable, "-c", GMSTAT, "index", str(path), "orders_id"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1].endswith("… (77777)")
        unknown = subprocess.run([*command[:-1], "nope"], capture_output=True, text=True, timeout=60, check=False)
        assert "the indexes are: orders_id, orders_name" in unknown.stderr


def test_a_closed_database_needs_no_compiled_code(closed: Path) -> None:
    code = (
        "import sys; from gmdb.cli import gmstat\n"
        f"gmstat(['index', {str(closed)!r}, 'orders_id'])\n"
        "sys.exit('numba was imported' if 'numba' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_verb_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gmstat(["index", "--help"])
    assert "gmstat index shop.gmdb orders_id --dot | dot -Tsvg" in capsys.readouterr().out


# ---- hash indexes


@pytest.fixture(scope="module")
def hashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hash") / "shop.gmdb"
    with gmdb.connect(path) as db:
        fill_hashed(db)
    return path


def fill_hashed(db: gmdb.Connection) -> None:
    """An index with one level of directories, and one with more: half of its rows have one key."""
    db.create_table("orders", {"id": "INT", "state": "INT"})
    db.create_index("orders_id", "orders", ["id"], unique=True, using="hash")
    db.create_index("orders_state", "orders", ["state"], using="hash")
    for n in range(ROWS):
        db.insert("orders", (n, n if n % 2 else 7))
    db.commit()


def test_a_hash_index_is_shown_with_its_levels_depths_and_an_outline(
    hashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, str(hashed), "orders_id", "--full")
    assert lines[0] == "index orders_id of table orders: unique, hash of (id INT)"
    assert lines[3].split() == ["level", "directories", "buckets", "entries", "bytes", "fill", "%", "lowest", "%"]
    level, directories, buckets, entries, size, fill, lowest = map(int, lines[5].split())
    assert (level, directories, entries, size) == (0, 1, ROWS, ROWS * 34)
    assert 0 < lowest <= fill <= 100
    assert lines[7].split() == ["bits", "buckets", "entries"]
    end = lines.index("", 8)
    depths = [list(map(int, line.split())) for line in lines[9:end]]
    assert [sum(counts) for counts in zip(*depths, strict=True)][1:] == [buckets, ROWS]
    assert re.fullmatch(rf"root  4:\d+  directory, \d+ slots, \d+ free  level 0, {buckets} pages below", lines[end + 1])
    pages = lines[end + 2 :]
    assert len(pages) == buckets
    assert all(re.fullmatch(r"  bits [01]+  4:\d+  bucket, \d+ entr(y|ies), \d+ % full  depth \d+", p) for p in pages)
    bits = [line.split()[1] for line in pages]
    assert bits == sorted(bits)
    assert sum(2.0 ** -len(one) for one in bits) == 1.0, "every address has one bucket"


def test_a_hash_index_with_several_levels_is_cut(hashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, str(hashed), "orders_state")
    assert re.fullmatch(r"… [\d,]+ pages further down; --depth 2 shows some of them, --full all", lines[-1])
    full = shown(capsys, str(hashed), "orders_state", "--full")
    levels = [line.split() for line in full[5 : full.index("", 5)]]
    assert len(levels) > 2
    drawn = [line for line in full if re.search(r"  4:\d+  (directory|bucket)", line)]
    assert sum(int(level[1]) + int(level[2]) for level in levels) == len(drawn)
    assert sum(int(level[3]) for level in levels) == ROWS


def test_a_hash_index_as_a_json_document(hashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads("\n".join(shown(capsys, str(hashed), "orders_state", "--json")))
    assert (document["kind"], document["problems"]) == ("hash", [])
    assert sum(level["entries"] for level in document["levels"]) == ROWS
    assert sum(depth["buckets"] for depth in document["depths"]) == sum(b["buckets"] for b in document["levels"])

    def check(page: dict[str, object], prefix: str) -> int:
        assert str(page["bits"]).startswith(prefix)
        if page["type"] == "bucket":
            assert page["entries"]
            return 1
        children = page["children"]
        assert isinstance(children, list)
        return sum(check(child, str(page["bits"])) for child in children)

    assert check(document["tree"], "") == sum(level["buckets"] for level in document["levels"])


def test_a_hash_index_as_a_graph(hashed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, str(hashed), "orders_id", "--dot", "--full")
    nodes = [line for line in lines if re.match(r"  p\d+ \[label=", line)]
    edges = [line for line in lines if re.match(r'  p\d+ -> p\d+ \[label="[01]+"\];', line)]
    assert len(nodes) == len(edges) + 1
    assert not any("style=dotted" in line for line in lines)
    assert sum("bucket" in line for line in nodes) == len(edges)


def test_a_damaged_hash_index_is_shown_as_far_as_it_goes(
    hashed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = HashDamage(Path(shutil.copytree(hashed, tmp_path / "copy.gmdb")))
    root, buckets = index.root("orders_id"), index.buckets("orders_id")
    index.lead(root, index.block(root, buckets[2]), page_id_of(4, 1))
    index.lead(root, index.block(root, buckets[5]), buckets[0])
    lines = shown(capsys, str(index.path), "orders_id", "--full", status=1)
    assert any("leads to page 4:1, but it is not a hash page" in line for line in lines)
    assert any(f"leads to page {page_name(buckets[0])}, but the index leads there twice" in line for line in lines)
    assert sum("  bucket, " in line for line in lines) == len(buckets) - 2


def test_the_process_that_has_a_hash_index_open_is_asked(tmp_path: Path) -> None:
    with gmdb.connect(tmp_path / "shop.gmdb") as db:
        fill_hashed(db)
        db.insert("orders", (-1, 0))
        run = [sys.executable, "-c", GMSTAT, "index", str(tmp_path / "shop.gmdb"), "orders_id", "--json"]
        document = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    assert sum(level["entries"] for level in document["levels"]) == ROWS + 1


def test_an_index_of_a_schema_is_drawn_by_its_full_name(path, capsys):
    with gmdb.connect(path) as db:
        db.create_schema("s")
        for name in ("t", "s.t"):
            db.execute(f"create table {name} (i int primary key)")
    assert gmstat(["index", str(path), "s.t_pkey"]) == 0
    assert "of table s.t:" in capsys.readouterr().out
