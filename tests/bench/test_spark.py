from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.harness import Benchmark, Contender, Measurement, Result, Summary
from bench.postgres import Listening, server
from bench.spark import jdbc
from bench.spark.__main__ import main
from bench.spark.growth import Growth, conclusions, descendants, fit, growth_table, table_sizes, worker_peak
from bench.spark.picture import draw
from bench.spark.source import batches, digest_of_arrow, keys_of, write_source

ROWS = 10_000


# ---- rows


def test_a_source_has_the_rows_and_sums_that_it_says(tmp_path: Path):
    source = write_source(tmp_path / "source", ROWS)
    (batch,) = pq.read_table(source.folder).combine_chunks().to_batches()
    assert (source.rows, source.digest) == (ROWS, digest_of_arrow(batch))
    assert source.keys == Summary(ROWS, sum(range(ROWS))) == keys_of(ROWS)


@pytest.mark.parametrize("column", range(6))
def test_a_digest_changes_with_any_column(column: int):
    (batch,) = batches(ROWS)
    turned = [c.take(pa.array([*range(ROWS - 1), 0])) if n == column else c for n, c in enumerate(batch.columns)]
    assert digest_of_arrow(pa.record_batch(turned, schema=batch.schema)) != digest_of_arrow(batch)


# ---- growth


def test_the_largest_table_is_as_large_as_wanted():
    assert table_sizes(50_000_000) == [10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 50_000_000]
    assert table_sizes(20_000) == [10_000, 20_000]


def test_a_fixed_cost_and_one_for_each_row_are_found_again():
    rows = table_sizes(50_000_000)
    fitted = fit(rows, [0.5 + 0.3 * count / 1e6 for count in rows])
    assert (round(fitted.fixed_seconds, 6), round(fitted.seconds_per_million, 6)) == (0.5, 0.3)
    assert fitted.linear


@pytest.mark.parametrize(("power", "linear"), [(0.9, True), (1.0, True), (1.2, False), (2.0, False)])
def test_a_power_is_found_again(power: float, linear: bool):
    rows = table_sizes(50_000_000)
    fitted = fit(rows, [1e-6 * count**power for count in rows])
    assert fitted.exponent == pytest.approx(power)
    assert fitted.linear == linear


def test_the_fixed_cost_of_small_tables_does_not_hide_a_power():
    rows = table_sizes(50_000_000)
    assert not fit(rows, [1 + (count / 1e6) ** 1.5 for count in rows]).linear


def test_growth_is_shown_with_what_it_comes_to():
    measured = [Growth(10_000_000, 10.0, 3.0, 200.0), Growth(50_000_000, 50.0, 30.0, 240.0)]
    lines = growth_table(measured).splitlines()
    assert lines[3] == "| 50,000,000 | 50.00 | 30.00 | 240 |"
    assert [("met" in line, "missed" in line) for line in conclusions(measured)] == [
        (True, False),  # the load takes 5 times as long
        (False, True),  # the read 10 times
        (False, True),  # and 40 MiB more
    ]
    assert conclusions(measured[:1]) == []


def test_the_memory_of_the_largest_process_below_is_found():
    lines = ["import os", "if os.fork():", "    os.wait()", "else:"]
    lines += ["    data = b'x' * (100 << 20)", "    print(flush=True)", "    input()"]
    with subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdin=-1, stdout=-1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with worker_peak(process.pid) as workers:
            process.stdout.readline()
            (child,) = descendants(process.pid)
        assert {process.pid, child} <= set(descendants(os.getpid()))
        process.stdin.close()
    assert 100 < workers.peak < 140
    assert not {process.pid, child} & set(descendants(os.getpid()))


# ---- PostgreSQL


def test_a_server_listens_to_tcp_where_asked_and_leaves_nothing():
    if jdbc.missing():
        pytest.skip(str(jdbc.missing()))
    with server(Listening(jdbc._free_port(), "word")) as connection:
        folder = connection.folder
        assert connection.ask("show listen_addresses").rows == [("127.0.0.1",)]
        rules = connection.ask("select distinct type, auth_method from pg_hba_file_rules order by 1").rows
        assert rules == [("host", "scram-sha-256"), ("local", "trust")]
    assert not folder.exists()


# ---- the program


def test_a_picture_is_drawn_of_whatever_was_measured(tmp_path: Path):
    idle = [Contender(name, Summary(1, 0), lambda _: None) for name in ("gmdb", "JDBC")]
    measurements = (Measurement("gmdb", 1, (1.0,)), Measurement("JDBC", 1, (5.0,)))
    result = Result(Benchmark("read", "read", idle), measurements)
    measured = [Growth(10_000_000, 10.0, 3.0, 200.0), Growth(50_000_000, 50.0, 30.0, 240.0)]
    sizes = []
    for number, (results, growths) in enumerate([([result], []), ([], measured), ([result], measured)]):
        draw(tmp_path / f"{number}.png", results, growths, "heading")
        assert (tmp_path / f"{number}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        sizes.append(np.frombuffer((tmp_path / f"{number}.png").read_bytes()[16:20], ">u4")[0])
    assert sizes[0] == sizes[1] < sizes[2]


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--rows", "0"], ["--rows", "many"]])
def test_what_is_no_option_is_refused(arguments: list[str], capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert arguments[0] in capsys.readouterr().err


def test_without_java_it_says_what_to_do(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["--into", str(tmp_path / "out")]) == 1
    assert "JAVA_HOME" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
def test_the_program_measures_prints_draws_and_leaves_no_files(tmp_path: Path):
    """In a process of its own: Spark's session here is that of other tests."""
    work = tmp_path / "work"
    work.mkdir()
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bench.spark", "--rows", str(ROWS), "--largest", str(ROWS), "--rounds", "1"]
    command += ["--no-jdbc", "--only", "read", "--only", "load", "--only", "growth"]
    environment = {**os.environ, "TMPDIR": str(work)}
    root = Path(__file__).resolve().parents[2]
    command += ["--into", str(out)]
    done = subprocess.run(command, check=False, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads((out / "spark.json").read_text())
    peers = ["gmdb", "Parquet"]
    names = {b["name"]: [m["contender"] for m in b["measured"]] for b in figures["benchmarks"]}
    assert names == {"read": peers, "read-key": peers, "load": [*peers, "source alone"]}
    assert [growth["rows"] for growth in figures["growth"]] == [ROWS]
    assert (out / "spark.png").exists()
    assert f"read {ROWS:,} rows of 6 columns" in (out / "spark.md").read_text()
    assert f"read {ROWS:,} rows of 6 columns" in done.stdout
    assert not list(work.glob("gmdb-bench-*"))
