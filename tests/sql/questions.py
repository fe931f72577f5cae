"""What is asked in three ways: a statement with parameters, as gmdb and as PostgreSQL are given it.

A parameter stands in the text as ``«0»``; gmdb gets ``?`` and the value, PostgreSQL the value written out, since a
parameter is to mean what its value would mean there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

from sqlglot.dialects.postgres import Postgres
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

_MARK = re.compile(r"«(\d+)»")
_TYPES = {"date", "timestamp", "interval"}  # whose literal is one word with them
_SIZED = {"numeric", "decimal", "varchar", "char"}  # whose parentheses hold no values


@dataclass(frozen=True)
class Question:
    """``ordered``: its rows come in an order that is told.  ``table``: the one that it changes, if it does.
    ``before``: what is to be run before it, in its transaction."""

    text: str
    values: tuple[Any, ...] = ()
    ordered: bool = False
    table: str = ""
    before: tuple[str, ...] = ()

    @property
    def gmdb(self) -> tuple[str, tuple[Any, ...]]:
        return _MARK.sub("?", self.text), tuple(self.values[int(one)] for one in _MARK.findall(self.text))

    @property
    def postgres(self) -> str:
        return _MARK.sub(lambda mark: written(self.values[int(mark[1])]), self.text)

    @property
    def late(self) -> str:
        """``postgres`` with values that are not known before the statement runs, as far as they have types."""
        return _MARK.sub(lambda mark: _late(self.values[int(mark[1])]), self.text)

    def __str__(self) -> str:
        text, values = self.gmdb
        text = "\n".join((*self.before, text))
        return f"{text}\n  with {values!r}" if values else text


def written(value: Any) -> str:
    """A value as PostgreSQL reads it, of the type that it has as a parameter."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | Decimal):
        return f"({value})"
    if isinstance(value, float):
        return f"'{value}'::double precision"
    if isinstance(value, datetime):
        return f"timestamp '{value}'"
    if isinstance(value, date):
        return f"date '{value}'"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(written, value))}]" + (
            "::text[]" if any(isinstance(v, str) for v in value) else ""
        )
    return "'" + str(value).replace("'", "''") + "'"


def _late(value: Any) -> str:
    text = written(value)
    return text if value is None or isinstance(value, str) else f"(SELECT {text})"


def with_parameters(text: str, random: Random, share: float) -> tuple[str, tuple[Any, ...]]:
    """Some of the literals as parameters: the text with marks, and their values."""
    pieces: list[str] = []
    values: list[Any] = []
    end = 0
    tokens = Postgres().tokenize(text)
    for at, token in enumerate(tokens):
        if token.token_type not in (TokenType.NUMBER, TokenType.STRING) or _is_part_of_type(tokens, at):
            continue
        if random.random() < share:
            pieces += [text[end : token.start], f"«{len(values)}»"]
            values.append(token.text if token.token_type == TokenType.STRING else _number(token.text))
            end = token.end + 1
    return "".join(pieces) + text[end:], tuple(values)


def _is_part_of_type(tokens: list[Token], at: int) -> bool:
    before = [token.text.lower() for token in tokens[max(at - 4, 0) : at]]
    return bool(before) and (before[-1] in _TYPES or ("(" in before[-3:] and not _SIZED.isdisjoint(before)))


def _number(text: str) -> int | float | Decimal:
    """Digits with a point are a numeric, as in a statement."""
    return int(text) if text.isdigit() else Decimal(text)
