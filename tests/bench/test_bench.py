from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from bench.__main__ import benchmarks, main
from bench.harness import Attempt, Benchmark, Contender, Measurement, Result, Summary, WrongResultError, run_benchmark
from bench.points import summarize_turned
from bench.report import results_table
from bench.tables import narrow_table, wide_table
from bench.transactions import scanning

from gmdb.format.columns import Kind, parse_column

ROWS = 2000


@pytest.mark.parametrize("benchmark", benchmarks(ROWS), ids=lambda benchmark: benchmark.name)
def test_every_contender_of_a_benchmark_does_its_work(benchmark: Benchmark, tmp_path: Path):
    result = run_benchmark(benchmark, tmp_path, rounds=1)
    assert [len(measured.seconds) for measured in result.measurements] == [1] * len(benchmark.contenders)
    assert benchmark.targets.keys() <= {contender.name for contender in benchmark.contenders[1:]}


def test_the_program_prints_a_table_writes_json_and_leaves_no_files(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work"))
    (tmp_path / "work").mkdir()
    report = tmp_path / "report.json"
    assert main(["--rows", str(ROWS), "--rounds", "1", "--only", "append-narrow", "--json", str(report)]) == 0
    printed = capsys.readouterr().out
    assert f"append {ROWS:,} (int, varchar) rows" in printed
    assert "fewer rows" in printed
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    assert [m["contender"] for m in benchmark["measured"]] == ["gmdb", "SQLite", "DuckDB"]
    assert [c["target"] for c in benchmark["compared"]] == [10, 0.7]
    assert list((tmp_path / "work").iterdir()) == []


def test_a_name_that_no_benchmark_has_is_refused_with_those_there_are(capsys):
    assert main(["--only", "nothing"]) == 2
    assert "append-narrow" in capsys.readouterr().err


def test_a_contender_that_does_something_else_is_found_out(tmp_path: Path):
    class Nothing:
        def __enter__(self) -> Attempt:
            return Attempt(lambda: None, lambda _: Summary(0, 0))

        def __exit__(self, *_: object) -> None: ...

    lazy = Contender("lazy", Summary(10, 45), lambda _: Nothing())
    with pytest.raises(WrongResultError, match="lazy"):
        run_benchmark(Benchmark("work", "work", [lazy]), tmp_path, rounds=1)


def test_an_update_that_leaves_a_row_out_is_found_out():
    table = narrow_table(ROWS)
    turned = [(i, s[::-1]) for i, s in table.python_rows]
    assert summarize_turned(table, turned) == table.summary
    assert summarize_turned(table, [table.python_rows[7], *turned[:7], *turned[8:]]) != table.summary


def test_a_scan_fails_if_the_writer_beside_it_does(tmp_path: Path):
    def fail(*_: object) -> None:
        raise OSError("no writer")

    with pytest.raises(OSError, match="no writer"), scanning(fail, narrow_table(ROWS), tmp_path):
        pass


def test_a_table_of_results_says_which_targets_are_met():
    idle = [Contender(name, Summary(1, 0), lambda _: None) for name in ("gmdb", "fast", "slow")]
    benchmark = Benchmark("work", "work", idle, {"fast": 2.0, "slow": 2.0})
    measured = [Measurement("gmdb", 1, (1.0, 9.0, 1.0)), Measurement("fast", 1, (1.5,)), Measurement("slow", 1, (3.0,))]
    _, _, gmdb_line, fast_line, slow_line = results_table([Result(benchmark, tuple(measured))]).splitlines()
    assert gmdb_line.split()[:4] == ["|", "work", "|", "gmdb"]
    assert ("1.50" in fast_line, "missed" in fast_line) == (True, True)
    assert ("3.00" in slow_line, "met" in slow_line) == (True, True)


def test_the_wide_table_has_the_kinds_it_was_measured_with_and_nulls_in_all_but_the_first():
    table = wide_table(ROWS)
    kinds = {parse_column(c.name, c.gmdb_type).type.kind for c in table.columns}
    assert kinds == set(Kind) - {Kind.SHORT, Kind.WIDE}  # the kinds of types that came after the first figures
    assert len(table.columns) == 20
    assert [column.null_count > 0 for column in table.data.columns] == [False] + [True] * 19


def test_tables_are_the_same_every_time():
    assert narrow_table(ROWS).data.equals(narrow_table(ROWS).data)
