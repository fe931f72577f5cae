"""The session's time zone: what it decides, and what it does not."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from gmdb.database.connection import Connection
from gmdb.errors import CheckViolation, Error, UnsupportedExpression, ValueOutOfRange
from gmdb.format.interval import Interval
from gmdb.sql.plan.estimates import DUCK, ROWS
from gmdb.sql.zones import read_instant, zone_setting

SPRING, AUTUMN = datetime(2024, 3, 31, 1, 30, tzinfo=UTC), datetime(2024, 10, 27, 0, 30, tzinfo=UTC)


@pytest.fixture
def at(db: Connection) -> Connection:
    db.execute("create table at (k int primary key, moment timestamptz, clock timestamp default now())")
    db.executemany("insert into at (k, moment) values (?, ?)", [(1, SPRING), (2, AUTUMN), (3, None)])
    db.commit()
    return db


def both(db: Connection, text: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The rows that both executors give."""
    answers = []
    for executor in (ROWS, DUCK):
        db._statements.executor = executor  # type: ignore[attr-defined]
        answers.append(db.execute(text, values).fetchall())
    db._statements.executor = None  # type: ignore[attr-defined]
    assert answers[0] == answers[1]
    return answers[0]


def test_texts_and_clocks_go_by_it_and_instants_do_not(at: Connection) -> None:
    shown = (
        "select moment, moment::text, moment::timestamp, moment::date, extract(hour from moment) from at where k < 3"
    )
    assert both(at, f"{shown} order by k")[0] == (SPRING, "2024-03-31 01:30:00+00", *_clock(2024, 3, 31, 1, 30), 1)
    at.execute("set time zone 'Europe/Vienna'")
    assert both(at, f"{shown} order by k") == [
        (SPRING, "2024-03-31 03:30:00+02", *_clock(2024, 3, 31, 3, 30), 3),
        (AUTUMN, "2024-10-27 02:30:00+02", *_clock(2024, 10, 27, 2, 30), 2),
    ]
    assert both(at, "select k from at where moment = '2024-10-27 02:30+02' or moment = '2024-03-31 03:30'") == [
        (1,),
        (2,),
    ]


def _clock(*parts: int) -> tuple[datetime, date]:
    return datetime(*parts), datetime(*parts).date()  # type: ignore[arg-type]


def test_types_have_their_long_names(db: Connection) -> None:
    db.execute("create table z (a timestamp with time zone not null, b timestamp without time zone, c time)")
    db.execute("insert into z (a) values ('2024-03-31 01:30+00')")
    shown = "select a, timestamp with time zone '2024-03-31 01:30Z' = a, b::timestamp with time zone from z"
    assert both(db, shown) == [(SPRING, True, None)]
    assert both(db, "with time as (select a from z) select a from time") == [(SPRING,)]
    with pytest.raises(UnsupportedExpression, match="TIMETZ"):
        db.execute("create table y (a time with time zone)")


def test_days_are_those_of_clocks_and_hours_pass(at: Connection) -> None:
    at.execute("set time zone 'Europe/Vienna'")
    ((day, hours, month),) = both(
        at,
        "select timestamptz '2024-03-30 12:00' + interval '1 day', timestamptz '2024-03-30 12:00' + interval '24 hour',"
        " date_trunc('month', moment) from at where k = 1",
    )
    assert (day, hours) == (datetime(2024, 3, 31, 10, tzinfo=UTC), datetime(2024, 3, 31, 11, tzinfo=UTC))
    assert month == datetime(2024, 2, 29, 23, tzinfo=UTC)


def test_at_time_zone_goes_both_ways(at: Connection) -> None:
    asked = (
        "select moment at time zone 'Asia/Tokyo', moment at time zone 'Asia/Tokyo' at time zone 'Asia/Tokyo' from at"
    )
    assert both(at, f"{asked} where k = 2") == [(datetime(2024, 10, 27, 9, 30), AUTUMN)]
    assert both(at, "select timestamp '2024-01-01' at time zone interval '2 hours'") == [
        (datetime(2023, 12, 31, 22, tzinfo=UTC),)
    ]
    with pytest.raises(ValueOutOfRange, match="nowhere"):
        at.execute("select moment at time zone 'nowhere' from at").fetchall()


def test_times_that_clocks_skip_or_show_twice_are_read_as_postgresql_reads_them() -> None:
    skipped, twice = "2024-03-31 02:30", "2024-10-27 02:30"
    assert read_instant(skipped, "Europe/Vienna") == datetime(2024, 3, 31, 1, 30, tzinfo=UTC)
    assert read_instant(twice, "Europe/Vienna") == datetime(2024, 10, 27, 1, 30, tzinfo=UTC)


def test_parameters_are_read_by_it(at: Connection) -> None:
    east = timezone(timedelta(hours=9))
    at.execute("set time zone 'Europe/Vienna'")
    at.executemany(
        "insert into at values (?, ?, ?)",
        [(4, SPRING.astimezone(east), SPRING), (5, datetime(2024, 3, 31, 3, 30), None), (6, "2024-03-31 03:30", None)],
    )
    assert at.execute("select moment, clock from at where k > 3 order by k").fetchall() == [
        (SPRING, datetime(2024, 3, 31, 3, 30)),
        (SPRING, None),
        (SPRING, None),
    ]
    assert at.execute("select count(*) from at where moment = ?", (SPRING.astimezone(east),)).fetchone() == (4,)
    assert at.execute("select count(*) from at where moment = ?", (datetime(2024, 3, 31, 3, 30),)).fetchone() == (4,)


def test_it_is_set_shown_and_reset(at: Connection) -> None:
    def shown() -> str:
        return str(at.execute("show time zone").fetchone()[0])

    assert shown() == "UTC"
    for statement, zone in (
        ("set timezone = 'europe/vienna'", "Europe/Vienna"),
        ("set time zone -3", "<-03>+03"),
        ("set time zone '5.5'", "<+05:30>-05:30"),
        ("set timezone to default", "UTC"),
        ("set time zone 'EST5EDT'", "EST5EDT"),
        ("reset timezone", "UTC"),
    ):
        at.execute(statement)
        assert shown() == zone
    with pytest.raises(Error, match="Atlantis"):
        at.execute("set time zone 'Atlantis'")
    assert shown() == "UTC"
    at.execute("set time zone 2")
    assert at.execute("select timestamptz '2024-01-01 00:00'").fetchone() == (datetime(2023, 12, 31, 22, tzinfo=UTC),)
    assert zone_setting("utc") == "UTC"


def test_a_prepared_statement_goes_by_the_zone_of_now(at: Connection) -> None:
    text = "select cast(moment as text) from at where k = ?"
    assert at.execute(text, (1,)).fetchone() == at.execute(text, (1,)).fetchone() == ("2024-03-31 01:30:00+00",)
    at.execute("set time zone 'Asia/Tokyo'")
    assert at.execute(text, (1,)).fetchone() == ("2024-03-31 10:30:00+09",)


def test_now_is_an_instant_and_a_default_of_clocks_too(at: Connection) -> None:
    at.execute("set time zone 'Asia/Tokyo'")
    at.execute("insert into at (k, moment) values (7, now())")
    ((moment, clock),) = at.execute("select moment, clock from at where k = 7").fetchall()
    assert moment.tzinfo is not None
    assert clock - moment.replace(tzinfo=None) == timedelta(hours=9)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=10)
    assert at.execute("select localtimestamp = now()::timestamp, current_date = now()::date").fetchone() == (True, True)


def test_a_partial_index_does_not_depend_on_it(at: Connection) -> None:
    at.execute("create index late on at (k) where moment > '2024-06-01 00:00+00'")
    assert at.execute("select k from at where moment > '2024-06-01 00:00+00'").fetchall() == [(2,)]
    with pytest.raises(UnsupportedExpression):
        at.execute("create index by_clock on at (k) where clock > timestamptz '2024-06-01 00:00+00'")


def test_what_is_written_in_a_definition_is_the_same_in_other_sessions(db: Connection) -> None:
    db.execute("set time zone 'America/New_York'")
    db.execute("""create table t (k int, at timestamptz default '2024-05-01 10:00' check (at < '2024-06-01 00:00'),
        since interval generated always as (at - '2024-01-01 00:00') stored)""")
    db.execute("create index on t ((at - timestamptz '2024-02-01 00:00'))")
    db.execute("create index late on t (k) where at > '2024-05-01 12:00'")
    view = "select k, at > '2024-05-01 10:30' from t where at >= timestamptz '2024-05-01 10:00'"
    db.execute(f"create view v as {view} union all select 9, exists (select 1 from t where at = '2024-05-01 10:00')")
    db.execute("alter table t add check (at <> '2024-05-31 00:00')")
    for number, zone in enumerate(("UTC", "Asia/Tokyo")):
        db.execute(f"set time zone '{zone}'")
        db.execute("insert into t (k) values (?)", (number,))
        db.execute("insert into t (k, at) values (?, '2024-06-01 03:59+00')", (number + 5,))
        for wrong in ("2024-06-01 04:00+00", "2024-05-31 04:00+00"):
            with pytest.raises(CheckViolation):
                db.execute("insert into t (k, at) values (8, ?)", (wrong,))
    since = (datetime(2024, 5, 1, 14, tzinfo=UTC), Interval(0, 121, 9 * 3600 * 10**6))
    assert db.execute("select at, since from t where k < 5").fetchall() == [since, since]
    assert both(db, "select k from t where at > '2024-05-01 12:00' order by 1") == [(0,), (1,), (5,), (6,)]
    assert both(db, "select * from v order by 1") == [(0, False), (1, False), (5, True), (6, True), (9, True)]
    db.execute("alter table t add column g interval generated always as ('2024-05-02 00:00' - at) stored")
    db.execute("set time zone 'UTC'")
    db.execute("insert into t (k) values (7)")
    assert {row for (row,) in db.execute("select g from t where k in (0, 7)")} == {Interval(0, 0, 3600 * 10**6)}


def test_parameters_of_many_rows_go_by_it(at: Connection) -> None:
    at.execute("set time zone 'Asia/Tokyo'")
    clock = datetime(2024, 5, 1, 10)
    insert = "insert into at (k, moment) values (?, ?)"
    at.executemany(insert, [(10, clock), (11, "2024-05-01 10:00")])
    at.executemany(insert, pa.table({"k": [12], "moment": [clock]}))
    at.executemany(insert, [(n, clock) for n in range(100, 1200)])
    asked = "select distinct moment from at where k > 9"
    assert both(at, asked) == [(datetime(2024, 5, 1, 1, tzinfo=UTC),)]
    instants = pa.table({"k": [1200], "clock": pa.array([datetime(2024, 5, 1, 1)], pa.timestamp("us", "UTC"))})
    at.executemany("insert into at (k, clock) values (?, ?)", instants)
    assert at.execute("select clock from at where k = 1200").fetchall() == [(clock,)]


def test_extremes_are_refused_where_a_zone_has_no_place_for_them(at: Connection) -> None:
    at.execute("insert into at (k, moment) values (8, '0001-01-01 00:00+00'), (9, '9999-12-31 23:59:59.999999+00')")
    at.execute("set time zone 'America/New_York'")
    for executor in (ROWS, DUCK):
        at._statements.executor = executor  # type: ignore[attr-defined]
        with pytest.raises(ValueOutOfRange):
            at.execute("select moment::timestamp from at where k = 8").fetchall()
    assert at.execute("select min(moment), max(moment) from at").fetchone() == (
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    )


def test_a_time_of_day_has_no_end(db: Connection) -> None:
    assert both(db, "select time '23:00' + interval '2 hours', time '01:00' - interval '2 hours'") == [
        (time(1), time(23))
    ]
