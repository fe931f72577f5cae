"""Every error that gmdb raises, as one tree.

The upper part is PEP 249's, so that a program written for any DB-API driver catches what it expects.
Below it, one family per layer.  A message says what was wrong, where, and what to do.
Whether a caller may try again is a question of type: ``isinstance(error, Transient)``.
"""

from __future__ import annotations


class Warning(Exception):
    """PEP 249 asks for it; gmdb raises none."""


class Error(Exception):
    """The root: catches everything that gmdb raises on purpose."""


class Transient(Exception):
    """Mixed into errors after which the same work, tried again, may succeed: ``except gmdb.errors.Transient``."""


class InterfaceError(Error):
    """The program called gmdb in a wrong way or order."""


class DatabaseError(Error):
    """Something about the database or what was asked of it."""


class DataError(DatabaseError):
    """A value does not fit where it should go."""


class OperationalError(DatabaseError):
    """The database's surroundings: files, space, other processes."""


class IntegrityError(DatabaseError):
    """A constraint of the schema would not hold."""


class InternalError(DatabaseError):
    """gmdb found itself in a state that it should not be in."""


class EngineFault(InternalError):
    """DuckDB has failed at a query by a fault of its own, and there is no way to do without it."""


class ProgrammingError(DatabaseError):
    """A name or a statement is wrong."""


class NotSupportedError(DatabaseError):
    """The request is sound, but gmdb has no such feature."""


# ---- values: raised by format/ and tables/arrow/ when data is checked, before any page is changed


class ValueTooLong(DataError):
    """A text or binary value has more bytes than its column allows."""


class ValueOutOfRange(DataError):
    """A number, date or decimal lies outside what its type can hold."""


class TypeMismatch(DataError):
    """A value or an Arrow column has a type that the column cannot take without loss."""


class InvalidText(DataError):
    """A text is not the way a value of the type is written."""


class DivisionByZero(DataError):
    """A number was divided by zero."""


class UndefinedResult(DataError):
    """A function has no value for what it was given: the root or logarithm of a negative number, for instance."""


class RowTooLarge(DataError):
    """A row has more bytes than a page of its tablespace can hold."""


class NullNotAllowed(IntegrityError):
    """A NOT NULL column was given no value."""


class UniqueViolation(IntegrityError):
    """Another row, ``row_id`` if known, has the key already, in the unique index ``index``."""

    index: str = ""
    row_id: object = None


class CheckViolation(IntegrityError):
    """A row does not fulfil a CHECK constraint."""


class GeneratedAlways(ProgrammingError):
    """A generated column was given a value that is not the one which it gets."""


class ForeignKeyViolation(IntegrityError):
    """A row refers to one that does not exist, or would, if a row went or got another key."""


# ---- names and definitions: raised by tables/catalog/ and engine


class SchemaError(ProgrammingError):
    """A definition is wrong: a type, an option, a list of columns."""


class NoSuchTable(SchemaError):
    """No table of that name exists."""


class NoSuchSequence(SchemaError):
    """No sequence of that name exists."""


class TableExists(SchemaError):
    """A table of that name exists already."""


class NoSuchSchema(SchemaError):
    """No schema of that name exists."""


class SchemaExists(SchemaError):
    """A schema of that name exists already."""


class DependentObjects(SchemaError):
    """A table, a view or a column is to go or to change, and a view uses it."""


class NoSuchColumn(SchemaError):
    """The table has no column of that name."""


class SchemaMismatch(SchemaError):
    """An Arrow batch's columns are not the table's."""


class NoSuchIndex(SchemaError):
    """No index of that name exists, or none serves."""


class NoSuchConstraint(SchemaError):
    """The table has no constraint of that name."""


class NoSuchTablespace(SchemaError):
    """No tablespace of that name exists."""


class NoSuchRow(ProgrammingError):
    """A row id leads to no row: never given out, or its row is deleted."""


class NoSuchStream(ProgrammingError):
    """No batch of a stream of that name was ever brought."""


class StreamConflict(OperationalError):
    """Batches of two queries come under one name: which of them are there already cannot be told."""


class TableNotEmpty(OperationalError):
    """A table has rows that what comes knows nothing of."""


# ---- statements: raised by sql/


class StatementError(ProgrammingError):
    """Something is wrong at a place of a statement.  ``line`` and ``column`` count from 1, and are None if unknown."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None, hint: str = "") -> None:
        place = f"line {line}, column {column}: " if line is not None else ""
        super().__init__(f"{place}{message}{'. ' + hint if hint else ''}")
        self.line = line
        self.column = column
        self.hint = hint


class InvalidSyntax(StatementError):
    """A statement cannot be read."""


class IllTyped(StatementError):
    """An operator or a function does not take values of these types."""


class NoSuchFunction(StatementError):
    """No function of that name exists."""


class AmbiguousColumn(StatementError):
    """Several tables of the statement have a column of that name."""


class UnsupportedExpression(StatementError, NotSupportedError):
    """The expression is sound, but gmdb cannot evaluate it there."""


class SubqueryTooManyRows(ProgrammingError):
    """A query that stands for a value gave more than one row."""


class StatementInterrupted(OperationalError):
    """Another thread stopped the statement."""


# ---- transactions: raised by transaction/ and tables/access/


class TransactionError(OperationalError):
    """The family of all that goes wrong between transactions."""


class Deadlock(TransactionError, Transient):
    """Transactions wait for each other in a circle; this one was chosen to give way.  Roll back and try again."""


class ReadOnlyTransaction(TransactionError):
    """A change was asked of a transaction that is for reading only."""


class LockTimeout(TransactionError, Transient):
    """Another transaction held a row or table for longer than ``lock_timeout``."""


class RowLocked(TransactionError, Transient):
    """A row is held by another transaction, and the caller chose not to wait."""


class WriteConflict(TransactionError, Transient):
    """Under repeatable read: another transaction has changed the row, or the table's definition, since the snapshot."""


class SerializationFailure(TransactionError, Transient):
    """Under serializable: no order of the transactions explains what they have read and changed.  Start over."""


class DefinitionChanged(TransactionError, Transient):
    """A table's definition changed between the preparation of a statement and its beginning.  Nothing was done."""


class SnapshotTooOld(TransactionError, Transient):
    """A snapshot was given up, because keeping what it needs would have stopped writers."""


class LocksExhausted(TransactionError, Transient):
    """No lock id is free; transactions must end first."""


class UndoExhausted(TransactionError, Transient):
    """The undo space is used up by transactions that are still running."""


class CursorInvalid(InterfaceError):
    """A read is still open, but changes that it had seen were rolled back."""


class NoSuchSavepoint(ProgrammingError):
    """No savepoint of that name is set."""


# ---- processes: raised by server/


class OwnerGone(OperationalError):
    """The process that had the database open has closed it or died; which of the two below says what that means.

    The connection goes on with whoever opens the database next.
    """


class LostWithOwner(OwnerGone, Transient):
    """What was open there, a transaction or a read, is gone with it, and nothing of it counts: roll back, try again."""


class OutcomeUnknown(OwnerGone):
    """It was gone before it had answered: what it was asked for is done or is not; look before doing it again."""


class ForkedProcess(InterfaceError):
    """A forked child used what only its parent can use; start processes with spawn instead."""


class NoServer(OperationalError, Transient):
    """Nobody answers at the address of a server, or not at all of its ports."""


class NotAServer(OperationalError):
    """What answers at the address is no gmdb server, or none of this version."""


class TokenRefused(OperationalError):
    """The server wants a token and was shown none, or a wrong one."""


class TlsFailed(OperationalError):
    """One side wants TLS and the other does not, or the server's certificate does not hold."""


class CannotListen(OperationalError):
    """A server's port is taken, its host is none of this machine's, or its certificate cannot be used."""


class UnsafeListening(CannotListen):
    """A server would be reached from other machines without TLS or without a token."""


# ---- files: raised by storage/


class StorageError(OperationalError):
    """The family of all that goes wrong with files."""


class KernelsUnavailable(OperationalError):
    """There are no kernels that could be run: none compiled ahead that fit, and no compiler, or what was named."""


class UnsafeDirectory(StorageError):
    """Compiled code was to be kept where other users could put code of theirs."""


class NotADatabase(StorageError):
    """The path holds something that is not a gmdb database."""


class NotClosed(StorageError):
    """The files of a database that was not closed properly were to be read as they are; open it once, to recover it."""


class TargetExists(StorageError):
    """A copy of a database was to be made where something is already."""


class UnsupportedVersion(StorageError):
    """The database was written in a format that this version of gmdb does not know."""


class DatabaseInUse(StorageError, Transient):
    """Another process has the database open."""


class DatabaseClosed(InterfaceError):
    """The database was closed before it was used."""


class ReadOnly(StorageError):
    """A change was asked of a database that is open for reading only."""


class DiskFull(StorageError):
    """The file system has no room for another page; the statement changed nothing."""


class SpaceFull(StorageError):
    """Every device of the tablespace has as many pages as a device can have."""


class SnapshotExpired(StorageError, Transient):
    """The database changed since the read was planned."""


class NotABackup(StorageError):
    """A path that is to be restored from is no backup, or one that was opened since and has gone its own way."""


class RestoreError(StorageError):
    """A backup cannot be brought to the time asked for: it is newer, or log is missing from the archive."""


class Corruption(StorageError):
    """Bytes on disk are not what gmdb wrote.  Carries the page, and the offset in it where known."""

    def __init__(self, message: str, page_id: int | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.page_id = page_id
        self.offset = offset


# ---- change feeds: raised by storage/log/, and by those who read changes


class FeedError(OperationalError):
    """Changes cannot be read on from where a reader stands."""


class PositionGone(FeedError):
    """The log is not kept any more from where a reader wants to go on."""


class PositionUnknown(FeedError):
    """A position is none, or none of this database's log."""


class TableChanged(FeedError):
    """The table was dropped, or its definition changed, while somebody reads its changes."""


class NoChangeFeed(ProgrammingError):
    """The table's changes are not logged for readers."""


class NoSuchFeedReader(ProgrammingError):
    """No reader of changes has this name."""
