"""An index's tree as an outline of text, and as a graph for Graphviz; large ones with a note of what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gmdb.format.address import page_name
from gmdb.inspect.canvas import printable
from gmdb.inspect.index_view import IndexView, Key, Node, sibling

VALUE_CHARACTERS = 30


class Cut(NamedTuple):
    """How much of a tree is shown: levels below the root, and children of a page; None for all."""

    depth: int | None = 1
    children: int | None = 12


def _shown(node: Node, cut: Cut) -> tuple[list[tuple[Key, Node]], int, list[tuple[Key, Node]]]:
    """A page's children: the first, how many are left out, and the last."""
    pairs = list(zip(node.separators, node.children, strict=True))
    if cut.depth is not None and cut.depth <= 0:
        return [], len(pairs), []
    if cut.children is None or len(pairs) <= cut.children:
        return pairs, 0, []
    return pairs[: cut.children - 1], len(pairs) - cut.children, pairs[-1:]


def _below(cut: Cut) -> Cut:
    return cut._replace(depth=None if cut.depth is None else cut.depth - 1)


def key_text(key: Key) -> str:
    if key is None:
        return "?"
    shown = []
    for value in key:
        text = "NULL" if value is None else str(value) if not isinstance(value, str | bytes) else repr(value)
        shown.append(text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}…")
    return printable(f"({', '.join(shown)})")


def _range(node: Node) -> str:
    return f"{key_text(node.first)} … {key_text(node.last)}" if node.first is not None else "no keys"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what if number == 1 else what[:-1] + 'ies' if what.endswith('y') else what + 's'}"


# ---- text


def outline(view: IndexView, cut: Cut) -> Iterator[str]:
    """The tree, a page a line, children indented below their parent."""
    if view.root is None:
        return
    yield from _outline(view.root, "root", 0, cut)
    depth = view.root.level if cut.depth is None else cut.depth
    below = sum(level.pages for level in view.levels() if level.level < view.root.level - depth)
    if below:
        yield f"… {_count(below, 'page')} further down; --depth {depth + 1} shows some of them, --full all"


def _outline(node: Node, name: str, indent: int, cut: Cut) -> Iterator[str]:
    kind = "leaf" if node.level == 0 else f"level {node.level}"
    size = f"{_count(node.entries, 'entry')}, {node.fill:.0f} % full"
    yield f"{'  ' * indent}{name}  {page_name(node.page_id)}  {kind}, {size}  {_range(node)}"
    if not node.children or cut.depth == 0:
        return
    first, left_out, last = _shown(node, cut)
    for key, child in first:
        yield from _outline(child, _bound(key), indent + 1, _below(cut))
    if left_out:
        yield f"{'  ' * (indent + 1)}… {left_out:,} more; --full shows them"
    for key, child in last:
        yield from _outline(child, _bound(key), indent + 1, _below(cut))


def _bound(key: Key) -> str:
    return "the rest" if key is None else f"up to {key_text(key)}"


# ---- Graphviz


def dot(view: IndexView, cut: Cut) -> Iterator[str]:
    """The tree in Graphviz' language: pages as boxes, dotted lines between siblings."""
    columns = ", ".join(column.name for column in view.columns)
    yield f"digraph {_quoted(view.definition.name)} {{"
    yield f"  label={_quoted(f'index {view.definition.name} of {view.table.name} ({columns})')};"
    yield '  node [shape=box, fontname="monospace"];'
    yield '  edge [fontname="monospace"];'
    drawn: dict[int, Node] = {}
    if view.root is not None:
        yield from _dot_node(view.root, cut, drawn)
    for node in drawn.values():
        right = sibling(node)
        if right in drawn:
            yield f"  p{node.page_id} -> p{right} [style=dotted, dir=both, constraint=false];"
    yield "}"


def _dot_node(node: Node, cut: Cut, drawn: dict[int, Node]) -> Iterator[str]:
    drawn[node.page_id] = node
    kind = "leaf" if node.level == 0 else f"level {node.level}"
    text = f"{page_name(node.page_id)}\n{kind}\n{_count(node.entries, 'entry')}, {node.fill:.0f} %\n{_range(node)}"
    yield f"  p{node.page_id} [label={_quoted(text)}];"
    if not node.children:
        return
    first, left_out, last = _shown(node, cut)
    for key, child in first:
        yield from _dot_edge(node, key, child, cut, drawn)
    if left_out:
        yield f"  more{node.page_id} [shape=plaintext, label={_quoted(f'… {left_out:,} more')}];"
        yield f"  p{node.page_id} -> more{node.page_id} [style=dashed];"
    for key, child in last:
        yield from _dot_edge(node, key, child, cut, drawn)


def _dot_edge(node: Node, key: Key, child: Node, cut: Cut, drawn: dict[int, Node]) -> Iterator[str]:
    yield from _dot_node(child, _below(cut), drawn)
    label = "the rest" if key is None else f"≤ {key_text(key)}"
    yield f"  p{node.page_id} -> p{child.page_id} [label={_quoted(label)}];"


def _quoted(text: str) -> str:
    """A string as Graphviz reads it: quotes and backslashes escaped, lines centred."""
    lines = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '"' + "\\n".join(lines) + '"'
