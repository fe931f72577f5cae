"""Constants are computed once, while a statement is bound, by the function that would compute them for a row.

Invariants
 1. A constant that cannot be computed is an error of the whole statement, as in PostgreSQL, unless constants exclude
    the branch that it stands in: ``case when false then 1 / 0 end``, ``false and …``, ``coalesce(1, …)``.
 2. What is NULL whatever its other arguments are is not computed for rows: ``null + x``.
 3. Types stay as they are; so do columns, which are the same objects afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from gmdb.sql import operations, tree

_BOTH = (tree.Expression, tree.Relation)


def fold(expression: tree.Expression) -> tree.Expression:
    """The expression with its constants computed, those of queries within it too."""
    if isinstance(expression, tree.Junction):
        return _junction(expression)
    if isinstance(expression, tree.Case):
        return _case(expression)
    if isinstance(expression, tree.Coalesce):
        return _coalesce(expression)
    if isinstance(expression, tree.Call):
        return _call(expression)
    return tree.rebuilt(expression, _folded, _BOTH)


def fold_relation(relation: tree.Relation) -> tree.Relation:
    """A relation with the constants of all its expressions computed, all the way down."""
    changed = tree.rebuilt(relation, _folded, _BOTH)
    if isinstance(changed, tree.With) and isinstance(relation, tree.With):
        _move_cells(relation, changed)
    return changed


def _folded(part: tree.Expression | tree.Relation) -> tree.Expression | tree.Relation:
    return fold(part) if isinstance(part, tree.Expression) else fold_relation(part)


def _move_cells(before: tree.With, after: tree.With) -> None:
    """Let those who read the shared queries read the folded ones."""
    moved = {id(old): new for old, new in zip(before.shared, after.shared, strict=True)}
    for one in tree.everything(after):
        if isinstance(one, tree.Reading) and one.cell:
            one.cell[0] = moved.get(id(one.cell[0]), one.cell[0])


def _call(call: tree.Call) -> tree.Expression:
    operation = call.operation
    arguments, constants = [], []
    for argument in call.arguments:
        one = fold(argument)
        arguments.append(one)
        if isinstance(one, tree.Constant):
            constants.append(one.value)
    if operation.strict and any(value is None for value in constants):
        return tree.Constant(call.type, None)
    if operation.volatile or len(constants) < len(arguments):
        return tree.Call(call.type, operation, tuple(arguments))
    return tree.Constant(call.type, operations.apply(operation, *constants))


def _junction(junction: tree.Junction) -> tree.Expression:
    absorbing = junction.absorbing
    parts: list[tree.Expression] = []
    for part in junction.parts:
        one = fold(part)
        if not isinstance(one, tree.Constant):
            parts.append(one)
        elif one.value is absorbing:
            return one
        elif one.value is None:
            parts.append(one)
    if all(isinstance(one, tree.Constant) for one in parts):
        return tree.Constant(junction.type, None if parts else not absorbing)
    return parts[0] if len(parts) == 1 else replace(junction, parts=tuple(parts))


def _case(case: tree.Case) -> tree.Expression:
    branches: list[tuple[tree.Expression, tree.Expression]] = []
    default = None
    for condition, result in case.branches:
        test = fold(condition)
        if not isinstance(test, tree.Constant):
            branches.append((test, fold(result)))
        elif test.value is True:
            default = fold(result)
            break
    if default is None:
        default = fold(case.default)
    return tree.Case(case.type, tuple(branches), default) if branches else _as(default, case)


def _coalesce(coalesce: tree.Coalesce) -> tree.Expression:
    parts: list[tree.Expression] = []
    for part in coalesce.parts:
        one = fold(part)
        if not isinstance(one, tree.Constant):
            parts.append(one)
        elif one.value is not None:
            parts.append(one)
            break
    if not parts:
        return tree.Constant(coalesce.type, None)
    return _as(parts[0], coalesce) if len(parts) == 1 else tree.Coalesce(coalesce.type, tuple(parts))


def _as(expression: tree.Expression, whole: tree.Expression) -> tree.Expression:
    """The part that is left of an expression, in its place."""
    if isinstance(expression, tree.Constant):
        return tree.Constant(whole.type, expression.value)
    return expression
