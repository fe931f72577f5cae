"""The wheel: installed beside what gmdb rests on, without Numba, compiler and linker, it is a working database at once.

The packages of this environment stand for those that pip would fetch, all but Numba and LLVM; nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from gmdb.kernel.runtime.compiler import AHEAD, WAY

ROOT = Path(__file__).parents[1]
ABSENT = re.compile(r"numba|llvmlite|gmdb|pyspark_gmdb|__editable__", re.IGNORECASE)
COMPILERS = re.compile(r"ld(\..+)?|gold|as|(.+-)?(gcc|g\+\+|cc|c\+\+|cpp|ld|as)(-[\d.]+)?|clang.*|ll.*|python.*")
SCRIPT = """
import sys
import gmdb

with gmdb.connect(sys.argv[1]) as db:
    db.execute("create table item (id int primary key, name varchar(20))")
    db.executemany("insert into item values (?, ?)", [(n, f"item {n}") for n in range(1000)])
    db.commit()
    assert db.execute("select name from item where id = ?", (7,)).fetchone() == ("item 7",)
    assert db.execute("select count(*), max(id) from item").fetchone() == (1000, 999)
    assert db.arrow("item").read_all().column("id").to_pylist() == list(range(1000))
from gmdb.kernel.runtime.compiler import WAY
print(WAY, [name for name in ("numba", "llvmlite") if name in sys.modules], gmdb.__file__)
"""
SPARK = """
import sys
from pathlib import Path
from gmdb.spark.jobs import local_session

session = local_session(Path(sys.argv[2]))
rows = session.read.format("gmdb").options(table="item").load(sys.argv[1])
print(rows.selectExpr("sum(id)").collect()[0][0])
session.stop()
"""
pytestmark = pytest.mark.skipif(WAY != AHEAD, reason="no kernels compiled ahead are there")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy of the sources, with the kernels that are compiled already."""
    top = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, top)
    shutil.copytree(ROOT / "src", top / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "wheel",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*command, "--no-build-isolation", "--wheel-dir", str(top / "dist"), str(top)], check=True)
    (made,) = (top / "dist").iterdir()
    return made


class Installation:
    """A virtual environment with the wheel, and how programs run in it: little is on PATH, the home is not theirs."""

    def __init__(self, place: Path, wheel: Path) -> None:
        self.place = place
        venv.create(place / "venv", symlinks=True)
        self.programs = place / "venv" / "bin"
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(place / "venv")}))
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not ABSENT.match(path.name) and path.suffix != ".pth":
                (packages / path.name).symlink_to(path)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python"]
        install = ["install", "--no-deps", "--no-index", str(wheel)]
        subprocess.run([*pip, str(self.programs / "python"), *install], check=True)
        self._tools = place / "tools"
        self._tools.mkdir()
        for folder in ("/usr/bin", "/bin"):
            for path in Path(folder).iterdir():
                if not COMPILERS.fullmatch(path.name) and not (self._tools / path.name).exists():
                    (self._tools / path.name).symlink_to(path)
        self.home = place / "home"
        self.home.mkdir(mode=0o555)

    def run(self, program: str, *arguments: str) -> str:
        kept = {name: os.environ[name] for name in ("JAVA_HOME", "SPARK_LOCAL_IP") if name in os.environ}
        environment = {**kept, "PATH": f"{self.programs}:{self._tools}", "HOME": str(self.home), "LANG": "C.UTF-8"}
        ended = subprocess.run(
            [str(self.programs / program), *arguments],
            env=environment,
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installation:
    return Installation(tmp_path_factory.mktemp("installed"), wheel)


@pytest.fixture(scope="module")
def database(installation: Installation) -> Path:
    """Made by the installation, which has nothing else to run kernels by."""
    path = installation.place / "shop.gmdb"
    told = installation.run("python", "-c", SCRIPT, str(path))
    assert told.startswith(f"ahead [] {installation.place}/venv/"), told
    return path


def test_the_wheel_is_for_every_python_from_3_11_and_says_what_it_needs(wheel: Path) -> None:
    assert re.fullmatch(r"gmdb-[\d.]+-cp311-abi3-manylinux_2_\d+_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        needs = re.findall(r"^Requires-Dist: (.+)$", archive.read(metadata).decode(), re.MULTILINE)
    assert "gmdb/kernel/_kernels.abi3.so" in names
    assert {"gmdb/explore/static/index.html", "gmdb/py.typed"} <= names
    assert [need for need in needs if need.startswith("numba") and "extra ==" not in need] == []
    extras = {extra for need in needs for extra in re.findall(r"extra == [\"'](\w+)[\"']", need)}
    assert {"spark", "sqlalchemy", "plot", "jit"} <= extras


def test_it_makes_a_database_and_queries_it_without_numba(database: Path) -> None:
    assert database.is_dir()


def test_its_programs_run(installation: Installation, database: Path) -> None:
    assert "heap" in installation.run("gmstat", "page", str(database), "4:2")
    assert "1000" in installation.run("gmdb", "sql", str(database), "-c", "select count(*) from item")
    assert installation.run("gmdb", "verify", str(database))


@pytest.mark.spark
def test_spark_reads_through_it(installation: Installation, database: Path) -> None:
    log = installation.place / "spark.log"
    assert installation.run("python", "-c", SPARK, str(database), str(log)).splitlines()[-1] == str(sum(range(1000)))


def test_nothing_is_written_into_the_home(installation: Installation, database: Path) -> None:
    assert database.is_dir()
    assert list(installation.home.iterdir()) == []
