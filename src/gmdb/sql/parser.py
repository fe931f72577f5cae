"""From text to a statement: the dialect's, or one of the few that are gmdb's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from gmdb.errors import InvalidSyntax, ProgrammingError
from gmdb.format.columns import encode_text
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.late_patterns import late_pattern
from gmdb.sql import dialect
from gmdb.sql.syntax import QUALIFIED

_WORD = r'("(?:[^"]|"")+"|[^\W\d]\w*)'
_NAME = f"({QUALIFIED})"
_OWN = {
    "savepoint": late_pattern(rf"savepoint\s+{_WORD}", re.I),
    "release": late_pattern(rf"release\s+(?:savepoint\s+)?{_WORD}", re.I),
    "autocommit": late_pattern(r"set\s+autocommit\s*(?:=|\bto\b)?\s*(on|off|true|false|1|0)", re.I),
    "tablespace": late_pattern(
        rf"create\s+tablespace\s+{_WORD}((?:\s+(?:page_?size|devices|device_pages)\s*=?\s*\d+)*)", re.I
    ),
    "drop_tablespace": late_pattern(rf"drop\s+tablespace\s+(if\s+exists\s+)?{_WORD}", re.I),
    "rename_constraint": late_pattern(
        rf"alter\s+table\s+(if\s+exists\s+)?(?:only\s+)?{_NAME}\s+rename\s+constraint\s+{_WORD}\s+to\s+{_WORD}", re.I
    ),
    "validate": late_pattern(
        rf"alter\s+table\s+(if\s+exists\s+)?(?:only\s+)?{_NAME}\s+validate\s+constraint\s+{_WORD}", re.I
    ),
    "constraints": late_pattern(
        rf"set\s+constraints\s+({QUALIFIED}(?:\s*,\s*{QUALIFIED})*)\s+(deferred|immediate)", re.I
    ),
    "create_sequence": late_pattern(
        rf"create\s+((?:temp|temporary)\s+)?sequence\s+(if\s+not\s+exists\s+)?{_NAME}(.*)", re.I | re.S
    ),
    "alter_sequence": late_pattern(rf"alter\s+sequence\s+(if\s+exists\s+)?{_NAME}(.*)", re.I | re.S),
    "drop_sequence": late_pattern(
        rf"drop\s+sequence\s+(if\s+exists\s+)?({QUALIFIED}(?:\s*,\s*{QUALIFIED})*)(?:\s+(cascade|restrict))?", re.I
    ),
    "create_schema": late_pattern(rf"create\s+schema\s+(if\s+not\s+exists\s+)?{_WORD}", re.I),
    "drop_schema": late_pattern(
        rf"drop\s+schema\s+(if\s+exists\s+)?({_WORD}(?:\s*,\s*{_WORD})*)(?:\s+(cascade|restrict))?", re.I
    ),
    "alter_schema": late_pattern(rf"alter\s+schema\s+{_WORD}\s+rename\s+to\s+{_WORD}", re.I),
    "move": late_pattern(
        rf"alter\s+(table|view|sequence)\s+(if\s+exists\s+)?(?:only\s+)?{_NAME}\s+set\s+schema\s+{_WORD}", re.I
    ),
    "comment": late_pattern(
        rf"comment\s+on\s+(?:(table|index|schema)\s+{_NAME}|(column)\s+{_NAME}\s*\.\s*{_WORD}"
        rf"|(constraint)\s+{_WORD}\s+on\s+{_NAME})\s+is\s+(null|'(?:[^']|'')*')",
        re.I,
    ),
    "begin": late_pattern(
        r"(?:begin(?:\s+(?:work|transaction))?|start\s+transaction)\s+((?:isolation|read|not|deferrable)\b.*)",
        re.I | re.S,
    ),
    "set_transaction": late_pattern(r"set\s+(?:local\s+)?transaction\s+(.*)", re.I | re.S),
    "set_all_transactions": late_pattern(r"set\s+session\s+characteristics\s+as\s+transaction\s+(.*)", re.I | re.S),
    "set": late_pattern(rf"set\s+(?:session\s+)?(?!local\b){_WORD}\s*(?:=|\bto\b)\s*(\S.*)", re.I | re.S),
    "set_schema": late_pattern(r"set\s+schema\s+('[^']*')", re.I),
    "set_time_zone": late_pattern(r"set\s+(?:session\s+)?time\s+zone\s+('[^']*'|[+-]?[\d.]+|\w+)", re.I),
    "show": late_pattern(rf"show\s+(transaction\s+isolation\s+level|time\s+zone|{_WORD})", re.I),
    "reset": late_pattern(rf"reset\s+{_WORD}", re.I),
    "explain": late_pattern(r"explain\s+(.*)", re.I | re.S),
    "copy": late_pattern(r"copy\b.*", re.I | re.S),
    "describe": late_pattern(rf"desc(?:ribe)?\s+{_NAME}", re.I),
}
_OWN_WORDS = {  # with which they begin
    **{
        name: (name,)
        for name in ("savepoint", "release", "explain", "describe", "comment", "begin", "show", "reset", "copy")
    },
    **{
        "alter": ("rename_constraint", "validate", "move", "alter_sequence", "alter_schema"),
        "set": (
            *("autocommit", "constraints", "set_transaction", "set_all_transactions", "set_schema", "set_time_zone"),
            "set",
        ),
        "create": ("tablespace", "create_sequence", "create_schema"),
        "drop": ("drop_tablespace", "drop_sequence", "drop_schema"),
        "desc": ("describe",),
        "start": ("begin",),
    },
}
_OPTION = late_pattern(rf"\s+(tablespace|pctfree)\s*=?\s*(\d+|{_WORD})\s*$", re.I)
_CREATE_VIEW = late_pattern(r"\bcreate\b.*\bview\b", re.I | re.S)
_CREATE_TABLE = late_pattern(r"\s*create\s+table\b", re.I)
_TEMPORARY = late_pattern(
    r"\s*create\s+(?:or\s+replace\s+)?((?:(?:local|global)\s+)?(?:temp|temporary)\s+)(?:table|view)\b", re.I
)
_ON_COMMIT = ("on", "commit")


@dataclass(frozen=True)
class Command:
    """A statement that is gmdb's own: its name, and what was written behind it."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Parsed:
    """A statement, and what its parameters are called; those without names have numbers."""

    text: str
    statement: exp.Expr | Command
    names: frozenset[str] = frozenset()
    count: int = 0
    options: dict[str, str] = field(default_factory=dict)

    def check(self, parameters: Any) -> Sequence[Any] | Mapping[str, Any]:
        """The parameters, if they are those that the statement needs."""
        if type(parameters) is tuple and len(parameters) == self.count and not self.names:
            return parameters  # the usual case
        is_mapping = isinstance(parameters, Mapping)
        if self.names:
            if not is_mapping:
                raise ProgrammingError("the statement has named parameters: give a mapping")
            missing = sorted(self.names - parameters.keys())
            if missing:
                raise ProgrammingError(f"there is no value for parameter :{missing[0]}")
        elif is_mapping and (parameters or self.count):
            raise ProgrammingError("the statement's parameters have no names: give a sequence")
        elif len(parameters) != self.count:
            raise ProgrammingError(f"the statement has {self.count} parameters, but {len(parameters)} were given")
        return parameters


def split(text: str) -> list[str]:
    """The statements of a script, as they were written."""
    try:
        tokens = dialect.tokens_of(text)
    except InvalidSyntax:
        return [text]  # parsing it says what is wrong
    statements, start, empty = [], 0, True
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            if not empty:
                statements.append(text[start : token.start].strip())
            start, empty = token.end + 1, True
        else:
            empty = False
    return statements if empty else [*statements, text[start:].strip()]


def parse(text: str) -> Parsed:
    """The one statement of a text."""
    encode_text(text)  # or it is none
    statements = split(text)
    if not statements:
        raise InvalidSyntax("there is no statement")
    if len(statements) > 1:
        raise InvalidSyntax("there is more than one statement; give them one by one, or use executescript")
    bare = _without_comments_around(statements[0])
    for name in _OWN_WORDS.get(bare.split(maxsplit=1)[0].lower(), ()):
        match = _OWN[name].fullmatch(bare)
        if match is not None:
            return Parsed(text, Command(name, tuple(match.groups(""))))
    body, options = _take_options(statements[0])
    trees = dialect.parse(body)
    if len(trees) != 1:
        raise InvalidSyntax(f"syntax error: this is not a statement: {' '.join(body.split())[:60]}")
    (tree,) = trees
    if isinstance(tree, exp.Command):
        raise unknown_statement(body)
    return Parsed(text, tree, *_parameters(tree), options)


def unknown_statement(text: str) -> InvalidSyntax:
    return InvalidSyntax(f"gmdb does not know this statement: {' '.join(text.split())[:60]}")


def _parameters(tree: exp.Expr) -> tuple[frozenset[str], int]:
    """The names of a statement's parameters, or how many there are without names."""
    nodes = list(tree.find_all(exp.Placeholder))
    names = frozenset(node.name for node in nodes if node.args.get("this"))
    numbers = {node.meta[dialect.NUMBER] for node in nodes if not node.args.get("this")}
    dollars = {node.meta[dialect.NUMBER] for node in nodes if node.meta.get(dialect.IS_DOLLAR)}
    marks = sum(1 for node in nodes if not node.args.get("this") and not node.meta.get(dialect.IS_DOLLAR))
    if bool(names) + bool(dollars) + bool(marks) > 1:
        raise InvalidSyntax("parameters are either question marks, or $1, $2 and so on, or names")
    missing = min(set(range(len(numbers))) - numbers, default=None)
    if missing is not None:
        raise InvalidSyntax(f"there is no ${missing + 1}: parameters are numbered from 1, without a gap")
    return names, len(numbers)


def _without_comments_around(statement: str) -> str:
    if "--" not in statement and "/*" not in statement:
        return statement
    tokens = dialect.tokens_of(statement)
    return statement[tokens[0].start : tokens[-1].end + 1]


def _take_options(text: str) -> tuple[str, dict[str, str]]:
    """The options behind a table's definition, which PostgreSQL's grammar does not have."""
    options: dict[str, str] = {}
    temporary = _TEMPORARY.match(text)
    if temporary is not None:
        options["temporary"] = "on"
        text = _blanked(text, *temporary.span(1))
    if _CREATE_TABLE.match(text):
        text = _take_on_commit(text, options)
    while _CREATE_TABLE.match(text):
        match = _OPTION.search(text)
        if match is None:
            break
        options[match.group(1).lower()] = match.group(2)
        text = text[: match.start()]
    if _CREATE_VIEW.search(text):
        return _take_query(text, options)
    return text, options


def _blanked(text: str, start: int, end: int) -> str:
    """The text without a part; what is behind that keeps its place."""
    return f"{text[:start]}{' ' * (end - start)}{text[end:]}"


def _take_on_commit(text: str, options: dict[str, str]) -> str:
    """What stands behind the columns of a table, or before its query: ON COMMIT PRESERVE ROWS, DELETE ROWS or DROP."""
    if "commit" not in text.lower():
        return text
    tokens, depth = dialect.tokens_of(text), 0
    words = [token.text.lower() for token in tokens]
    for n, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0 and tokens[n].token_type == TokenType.ALIAS:
            break  # what follows is the query
        if depth == 0 and tuple(words[n : n + 2]) == _ON_COMMIT:
            action, length = (" ".join(words[n + 2 : n + 4]), 4) if words[n + 2 : n + 3] != ["drop"] else ("drop", 3)
            if action not in ("preserve rows", "delete rows", "drop"):
                raise InvalidSyntax("syntax error: ON COMMIT is followed by PRESERVE ROWS, DELETE ROWS or DROP")
            options["on_commit"] = {"preserve rows": ""}.get(action, action.split()[0])
            return _blanked(text, tokens[n].start, tokens[n + length - 1].end + 1)
    return text


def _take_query(text: str, options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Of CREATE VIEW, the query as it was written, and WITH CHECK OPTION, which sqlglot does not read."""
    tokens = dialect.tokens_of(text)
    words = [token.text.lower() for token in tokens]
    if words[:2] != ["create", "view"] and words[:4] != ["create", "or", "replace", "view"]:
        return text, options
    if words[-2:] == ["check", "option"]:
        option = words[-3] if words[-3] in ("local", "cascaded") else ""
        first = -4 if option else -3
        if words[first] == "with":
            options["check_option"] = option or "cascaded"
            text, tokens = text[: tokens[first].start].rstrip(), tokens[:first]
    begin = next((token for token in tokens if token.token_type == TokenType.ALIAS), None)
    if begin is not None:
        options["query"] = text[begin.end + 1 :].strip()
    return text, options
