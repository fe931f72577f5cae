"""Playing .slt files on PostgreSQL, as a check that what they expect is not merely what gmdb answers."""

from __future__ import annotations

from bench.postgres import Connection, PostgresError, Rows

from gmdb import errors
from tests.sql.slt import DIGITS, NULL, Record, nearly

_FLOATS = ("double precision", "real")
# What a class of SQLSTATEs is in PEP 249's terms, and what the errors of gmdb are called there.
FAMILIES: dict[str, type[errors.Error]] = {
    "0A": errors.NotSupportedError,
    "21": errors.ProgrammingError,
    "22": errors.DataError,
    "23": errors.IntegrityError,
    "25": errors.OperationalError,
    "2B": errors.ProgrammingError,
    "3B": errors.ProgrammingError,
    "40": errors.OperationalError,
    "42": errors.ProgrammingError,
    "44": errors.IntegrityError,
    "54": errors.DataError,  # limits of what a function makes
    "55": errors.OperationalError,
    "55000": errors.NotSupportedError,  # a view through which no rows are changed
}
_STATES: dict[str, tuple[str, ...]] = {
    "21000": ("SubqueryTooManyRows", "ProgrammingError"),
    "22001": ("ValueTooLong",),
    "22003": ("ValueOutOfRange",),
    "22007": ("InvalidText",),
    "22008": ("ValueOutOfRange",),
    "22012": ("DivisionByZero",),
    "22P02": ("InvalidText",),
    "23502": ("NullNotAllowed",),
    "23505": ("UniqueViolation",),
    "23514": ("CheckViolation",),
    "3B001": ("NoSuchSavepoint",),
    "40P01": ("Deadlock",),
    "428C9": ("GeneratedAlways", "ProgrammingError"),
    "42601": ("InvalidSyntax", "IllTyped", "SchemaError"),
    "42702": ("AmbiguousColumn",),
    "42703": ("NoSuchColumn",),
    "42883": ("NoSuchFunction", "IllTyped", "InvalidSyntax"),
    "42804": ("IllTyped",),
    "42P01": ("NoSuchTable",),
    "42P07": ("TableExists", "SchemaError"),
    "55P03": ("LockTimeout", "RowLocked"),
}


def family_of(state: str) -> type[errors.Error]:
    """What an SQLSTATE is in PEP 249's terms."""
    return FAMILIES.get(state) or FAMILIES.get(state[:2], errors.Error)


class PostgresPlayer:
    """Plays records on a database of PostgreSQL's that is empty.

    Sessions are as gmdb's: a transaction begins by itself, and a statement that fails leaves it alive.
    """

    def __init__(self, server: Connection) -> None:
        self._server = server
        self._sessions: dict[str, Connection] = {}

    def close(self) -> None:
        for session in self._sessions.values():
            session.ask("rollback")
            session.close()
        self._server.ask("drop schema public cascade")
        self._server.ask("create schema public")

    def _session(self, name: str) -> Connection:
        if name not in self._sessions:
            self._sessions[name] = self._server.another()
            for setting in ("lock_timeout = '200ms'", "client_min_messages = error"):
                self._sessions[name].ask(f"set {setting}")
            self._sessions[name].ask("begin")
        return self._sessions[name]

    def play(self, record: Record) -> None:
        if record.only_gmdb:
            return
        session = self._session(record.session)
        try:
            answer = self._ask(session, record.text)
        except PostgresError as error:
            self._refused(record, error)
            return
        assert not record.is_refused, "PostgreSQL does not refuse it"
        if record.kind == "query":
            self._compare(answer, record)
        elif record.argument.startswith("count"):
            assert answer.tag.split()[-1] == record.argument.split()[1], f"PostgreSQL: {answer.tag}"

    def _ask(self, session: Connection, text: str) -> Rows:
        words = text.lower().split()[:2]
        if words[0] in ("commit", "rollback", "begin") and words[-1] != "to":
            session.ask("commit" if words[0] == "begin" else words[0])
            return session.ask("begin")
        if words[0] in ("savepoint", "release", "rollback"):
            return session.ask(text)
        session.ask("savepoint slt_statement")
        try:
            return session.ask(text)
        except PostgresError:
            session.ask("rollback to slt_statement")
            raise
        finally:
            session.ask("release slt_statement")

    def _refused(self, record: Record, error: PostgresError) -> None:
        assert record.is_refused, f"PostgreSQL refuses it: {error}"
        expected, _ = record.error
        family = family_of(error.state)
        assert issubclass(getattr(errors, expected), family), f"PostgreSQL: {error}, a {family.__name__}"
        names = _STATES.get(error.state)
        assert names is None or expected in names, f"PostgreSQL: {error}, so one of {', '.join(names or ())}"

    def _compare(self, answer: Rows, record: Record) -> None:
        rows = [line.split("|") for line in record.expected]
        theirs = [list(map(_shown, row, answer.types)) for row in answer.rows]
        if record.argument == "sorted":
            rows, theirs = sorted(rows), sorted(theirs)
        same = len(rows) == len(theirs) and all(
            len(mine) == len(other) and all(map(_equal, mine, other, answer.types))
            for mine, other in zip(rows, theirs, strict=True)
        )
        assert same, "\n".join(["PostgreSQL found:", *("|".join(row) for row in theirs), "expected:", *record.expected])


def _shown(value: str | None, type_: str) -> str:
    """A value of PostgreSQL's as the files write it."""
    if value is None:
        return NULL
    if type_ == "boolean":
        return {"t": "true", "f": "false"}[value]
    return repr(float(value)) if type_ in _FLOATS else value


def _equal(expected: str, theirs: str, type_: str) -> bool:
    """Whether two values are the same; quotients have 16 decimal places here and a varying number there."""
    if expected == theirs or NULL in (expected, theirs):
        return expected == theirs
    if type_ in _FLOATS:
        return abs(float(expected) - float(theirs)) <= 10.0**-DIGITS * abs(float(theirs))
    if type_ == "numeric":
        return nearly(expected, theirs)
    if type_.startswith("timestamp"):
        return expected.rstrip("0").rstrip(".") == theirs.removesuffix("+00").rstrip("0").rstrip(".")
    return False
