"""No statement reaches the machine: its files, its other databases, its network or the program's variables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Error
from gmdb.sql.duck.instance import cursor


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Connection]:
    with gmdb.connect(tmp_path / "shop.gmdb") as made:
        made.execute("create table t (i int, s varchar(100))")
        made.execute("insert into t values (1, 'one'), (2, 'two')")
        made.commit()
        yield made


SECRET = "s3cr3t"
READS = """
select * from '{file}'
select * from "{file}"
select * from read_csv('{file}')
select * from read_csv_auto('{file}')
select * from read_text('{file}')
select * from read_blob('{file}')
select * from read_json('{file}')
select * from read_parquet('{file}')
select * from parquet_metadata('{file}')
select * from sniff_csv('{file}')
select * from glob('{folder}/*')
select * from sqlite_scan('{file}', 't')
select * from duckdb_settings()
select * from duckdb_secrets()
select * from duckdb_extensions()
select * from pragma_database_list()
select * from information_schema.tables
select * from query('select 1')
select * from query_table('t')
select getenv('HOME')
select current_setting('temp_directory')
select getvariable('x')
select * from secret_variable
select * from python_scan('x')
with x as (select * from '{file}') select * from x
select * from t where s = (select content from read_text('{file}') limit 1)
select * from t join '{file}' f on true
select * from (from '{file}')
from '{file}'
from read_csv('{file}')
table '{file}'
summarize '{file}'
describe '{file}'
explain analyze select * from read_csv('{file}')
insert into t select 1, content from read_text('{file}')
update t set s = (select content from read_text('{file}'))
delete from t where s in (select content from read_text('{file}'))
create table copied as select * from '{file}'
create view v as select * from '{file}'
import database '{folder}'
copy t from '{file}'
load '{file}'
install httpfs
install '{file}'
select * from 'http://127.0.0.1:1/x.csv'
select * from read_csv('https://127.0.0.1:1/x.csv')
attach '{file}' as other
attach '{file}' as other (type sqlite)
use other
.read {file}
"""
WRITES = """
copy t to '{made}'
copy (select * from t) to '{made}'
copy t to '{made}' (format parquet)
copy t to '{made}' (format csv, header)
export database '{made}'
attach '{made}' as other
attach database '{made}' as other
create table other.t as select * from t
checkpoint '{made}'
vacuum into '{made}'
pragma temp_directory='{made}'
pragma database_list
pragma enable_profiling
set temp_directory = '{made}'
set enable_external_access = true
set allowed_directories = ['{folder}']
set lock_configuration = false
set secret_directory = '{made}'
set log_query_path = '{made}'
set home_directory = '{made}'
reset enable_external_access
create secret s (type s3)
create macro m(x) as x
create function f(x) as x
create type y as enum ('a')
call dbgen(sf = 1)
execute x
prepare x as select 1
begin; copy t to '{made}'; commit
select 1; copy t to '{made}'
select * from t into outfile '{made}'
"""


@pytest.mark.parametrize("text", [line for line in READS.splitlines() if line])
def test_no_statement_reads_a_file(db: Connection, tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text(f"a,b\n{SECRET},1\n")
    secret_variable = [SECRET]
    statement = text.format(file=file, folder=tmp_path)
    try:
        found = db.execute(statement)
        said = str(found.fetchall()) if found.description else ""
    except Error:
        said = ""
    assert SECRET not in said, secret_variable
    assert str(tmp_path / "shop.gmdb" / "device-0004") not in said
    db.rollback()
    assert db.execute("select * from t order by i").fetchall() == [(1, "one"), (2, "two")]


@pytest.mark.parametrize("text", [line for line in WRITES.splitlines() if line])
def test_no_statement_writes_a_file(db: Connection, tmp_path: Path, text: str) -> None:
    made = tmp_path / "made"
    before = {p for p in tmp_path.iterdir()}
    with pytest.raises(Error):
        db.executescript(text.format(made=made, folder=tmp_path))
    assert {p for p in tmp_path.iterdir()} == before
    db.rollback()
    assert db.execute("select count(*) from t").fetchall() == [(2,)]


def test_queries_leave_the_engine_behind_them_as_locked_as_it_was(db: Connection, tmp_path: Path) -> None:
    """Whatever got past the dialect would find it so."""
    db.execute("select count(*), s from t group by s").fetchall()
    duck = cursor()
    try:
        file = tmp_path / "x"
        refused = ("select * from '/etc/passwd'", f"copy (select 1) to '{file}'", f"attach '{file}'", "install httpfs")
        for text in refused:
            with pytest.raises(Exception, match=r"(?i)disabled|permission|not allowed|locked|cannot|does not exist"):
                duck.execute(text)
        with pytest.raises(Exception, match=r"(?i)locked"):
            duck.execute("set enable_external_access = true")
    finally:
        duck.close()
