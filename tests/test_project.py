"""The project's own rules: sizes, layers, what its text may say, and what the README must explain."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import gmdb
from gmdb.database.dbapi import Cursor

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70

TEXT_FOLDERS = ("src", "tests", "bench", "docs", "scripts", ".ci")
TEXT_SUFFIXES = {"", ".py", ".md", ".toml", ".lock", ".txt", ".sh", ".yml", ".yaml", ".cfg", ".html", ".css", ".js"}
WRITTEN_ELSEWHERE = {"LICENSE", ".git"}  # .git is a file where Git has a work tree beside the repository

MACHINE_PATH = re.compile(r"(?<![\w.:/~-])/(?:home|root|Users|work|opt|mnt|srv|tmp)/\w")
UPWARD_PATH = re.compile(r"(?<![\w./])(?:\.\./)+[\w./-]+")
TICKET = re.compile(r"\b(?:issue|ticket)s?\s*#?\d+", re.IGNORECASE)
REGISTRY = re.compile(r"\bpypi\.\w+|\bpythonhosted\b|\bfiles\.python", re.IGNORECASE)
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMED_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`")
STEP = re.compile(r"([A-Za-z_][\w.]*) +((?:\w+/)+\w+\.py)\b")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def project_texts() -> Iterator[Path]:
    """Every text file that is the project's own."""
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name not in WRITTEN_ELSEWHERE:
            yield path
    for folder in TEXT_FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            generated = any(part == "__pycache__" or part.endswith(".egg-info") for part in path.parts)
            if path.is_file() and path.suffix in TEXT_SUFFIXES and not generated:
                yield path


def matches(pattern: re.Pattern[str]) -> list[str]:
    """``file:line: text`` wherever the pattern matches in the project's text."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in project_texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in pattern.finditer(line)
    ]


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def dependencies() -> list[str]:
    """The names of all packages that pyproject.toml asks for, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = chain(project["dependencies"], *project["optional-dependencies"].values())
    return [re.match(r"[\w.-]+", requirement).group().lower() for requirement in requirements]


def test_no_source_file_is_longer_than_a_reader_can_hold():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert lengths
    assert [f"{p.relative_to(ROOT)}: {n} lines" for p, n in lengths.items() if n > FILE_LINES_MAX] == []


def test_no_function_is_longer_than_a_reader_can_hold():
    too_long = [
        f"{path.relative_to(ROOT)}:{function.lineno}: {function.name}"
        for path in SOURCES
        for function in functions_of(path)
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_a_folder_imports_only_the_folders_below_it(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True, no_logo=True) == 0


def test_every_folder_of_the_package_is_a_layer():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    floors = next(contract["layers"] for contract in config["contracts"] if contract["type"] == "layers")
    layers = {layer for floor in floors for layer in floor.split(" | ")}
    package = ROOT / "src/gmdb"
    modules = [*package.glob("*.py"), *(path.parent for path in package.glob("*/__init__.py"))]
    found = {f"gmdb.{path.stem}" for path in modules if path.stem not in ("__init__", "__main__")}
    assert found - layers == set()


def test_the_lock_names_no_host_and_pins_every_package_by_hash():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "http" not in lock
    assert "://" not in lock
    pinned = re.split(r"\n(?=\w)", re.sub(r"(?m)^#.*\n", "", lock))
    assert [block.splitlines()[0] for block in pinned if "--hash=sha256:" not in block] == []
    names = {re.match(r"[\w.-]+", block).group() for block in pinned}
    assert set(dependencies()) - names == set()


@pytest.mark.parametrize("pattern", [MACHINE_PATH, TICKET, REGISTRY], ids=["machine path", "ticket", "registry"])
def test_the_project_speaks_of_itself_alone(pattern):
    assert matches(pattern) == []


def test_no_text_points_outside_the_project():
    for path in project_texts():
        for upward in UPWARD_PATH.findall(path.read_text(encoding="utf-8")):
            target = (path.parent / upward).resolve()
            inside = target.is_relative_to(ROOT) and target.exists()
            assert inside, f"{path.relative_to(ROOT)}: {upward}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_every_link_of_the_documentation_leads_somewhere(path):
    links = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.fixture(scope="module")
def known_paths() -> set[str]:
    """Every file and folder of the project, by each ending of its path: ``kernel/page/area.py``, ``area.py``."""
    own = (path for path in ROOT.iterdir() if path.name != ".venv")
    paths = [*own, *(path for folder in TEXT_FOLDERS for path in (ROOT / folder).rglob("*"))]
    parts = [path.relative_to(ROOT).parts for path in paths if "__pycache__" not in path.parts]
    return {"/".join(names[n:]) for names in parts for n in range(len(names))}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_every_path_that_the_documentation_names_exists(path, known_paths):
    names = NAMED_PATH.findall(path.read_text(encoding="utf-8"))
    own = [name for name in names if name.endswith(".py") or ("/" in name and name.partition("/")[0] in known_paths)]
    assert [name for name in own if name.rstrip("/") not in known_paths] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_table_of_the_documentation_has_two_rows_about_the_same_thing(path):
    for table in re.findall(r"(?:^\|.*\n)+", path.read_text(encoding="utf-8"), re.MULTILINE):
        names = re.findall(r"^\| (`[^(|]+)", table, re.MULTILINE)
        assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("whole", [gmdb, gmdb.Connection, Cursor], ids=["gmdb", "Connection", "Cursor"])
def test_every_public_name_is_documented(whole):
    text = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("guide.md", "dbapi.md"))
    code = " ".join(re.findall(r"`[^`\n]+`", text))
    names = getattr(whole, "__all__", None) or [name for name in dir(whole) if not name.startswith("_")]
    assert names
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def test_every_step_that_the_architecture_draws_is_defined_in_its_file():
    steps = STEP.findall((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert len(steps) > 30
    assert [f"{name} {file}" for name, file in steps if name not in definitions_of(ROOT / "src/gmdb" / file)] == []


def definitions_of(path: Path) -> set[str]:
    """The functions and classes of a file, and methods as ``Class.method``."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names |= {getattr(node, "name", "")}
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{getattr(member, 'name', '')}" for member in node.body}
    return names


@pytest.mark.parametrize("name", dependencies())
def test_the_readme_says_why_a_dependency_is_there(name):
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What it stands on")[2]
    assert re.search(rf"^\| `?{re.escape(name)}`? \|[^|]+\|[^|]*\w{{3}}[^|]*\|$", section, re.MULTILINE)


def test_every_target_that_the_readme_names_is_in_the_makefile():
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets
