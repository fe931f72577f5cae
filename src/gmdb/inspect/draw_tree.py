"""An index's pages as an outline in text, or as a graph for Graphviz; of large indexes a part, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gmdb.format.address import page_name
from gmdb.inspect.canvas import printable
from gmdb.inspect.index_view import HashPage, IndexView, Key, Node, sibling, walk

VALUE_CHARACTERS = 30


class Cut(NamedTuple):
    """How much of a tree is shown: levels below the root, and children of a page; None for all."""

    depth: int | None = 1
    children: int | None = 12


class Edge(NamedTuple):
    text: str  # in an outline
    label: str  # in a graph
    child: Node | HashPage


class Drawn(NamedTuple):
    """A page of an index of any kind, as text."""

    kind: str
    size: str
    about: str
    edges: list[Edge]


def _drawn(node: Node | HashPage) -> Drawn:
    if isinstance(node, HashPage):
        return _drawn_directory(node) if node.is_directory else _drawn_bucket(node)
    kind = "leaf" if node.level == 0 else f"level {node.level}"
    about = f"{key_text(node.first)} … {key_text(node.last)}" if node.first is not None else "no keys"
    pairs = zip(node.separators, node.children, strict=True)
    edges = [Edge(_bound(key), "the rest" if key is None else f"≤ {key_text(key)}", child) for key, child in pairs]
    return Drawn(kind, f"{_count(node.entries, 'entry')}, {node.fill:.0f} %", about, edges)


def _drawn_bucket(node: HashPage) -> Drawn:
    return Drawn("bucket", f"{_count(node.entries, 'entry')}, {node.fill:.0f} %", f"depth {node.depth}", [])


def _drawn_directory(node: HashPage) -> Drawn:
    size = f"{_count(node.slots, 'slot')}, {node.free_slots:,} free"
    edges = [Edge(f"bits {child.bits}" if child.bits else "all", child.bits or "all", child) for child in node.children]
    return Drawn("directory", size, f"level {node.level}, {_count(len(node.children), 'page')} below", edges)


def _shown(edges: list[Edge], cut: Cut) -> tuple[list[Edge], int, list[Edge]]:
    """The first children of a page that are shown, how many are left out, and the last ones shown."""
    if cut.depth is not None and cut.depth <= 0:
        return [], len(edges), []
    if cut.children is None or len(edges) <= cut.children:
        return edges, 0, []
    return edges[: cut.children - 1], len(edges) - cut.children, edges[-1:]


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


def _count(number: int, what: str) -> str:
    return f"{number:,} {what if number == 1 else what[:-1] + 'ies' if what.endswith('y') else what + 's'}"


# ---- text


def outline(view: IndexView, cut: Cut) -> Iterator[str]:
    """One line per page, children indented below their parent."""
    if view.root is None:
        return
    yield from _outline(view.root, "root", 0, cut)
    if cut.depth is not None:
        below = sum(abs(node.level - view.root.level) > cut.depth for node in walk(view.root))
        if below:
            yield f"… {_count(below, 'page')} further down; --depth {cut.depth + 1} shows some of them, --full all"


def _outline(node: Node | HashPage, name: str, indent: int, cut: Cut) -> Iterator[str]:
    drawn = _drawn(node)
    full = "" if drawn.kind == "directory" else " full"
    yield f"{'  ' * indent}{name}  {page_name(node.page_id)}  {drawn.kind}, {drawn.size}{full}  {drawn.about}"
    if not drawn.edges or cut.depth == 0:
        return
    first, left_out, last = _shown(drawn.edges, cut)
    for edge in first:
        yield from _outline(edge.child, edge.text, indent + 1, _below(cut))
    if left_out:
        yield f"{'  ' * (indent + 1)}… {left_out:,} more; --full shows them"
    for edge in last:
        yield from _outline(edge.child, edge.text, indent + 1, _below(cut))


def _bound(key: Key) -> str:
    return "the rest" if key is None else f"up to {key_text(key)}"


# ---- Graphviz


def dot(view: IndexView, cut: Cut) -> Iterator[str]:
    """The pages in the language of Graphviz: boxes, with dotted lines between siblings."""
    columns = ", ".join(column.name for column in view.columns)
    yield f"digraph {_quoted(view.definition.name)} {{"
    yield f"  label={_quoted(f'index {view.definition.name} of {view.table.name} ({columns})')};"
    yield '  node [shape=box, fontname="monospace"];'
    yield '  edge [fontname="monospace"];'
    seen: dict[int, Node | HashPage] = {}
    if view.root is not None:
        yield from _dot_node(view.root, cut, seen)
    for node in seen.values():
        right = sibling(node) if isinstance(node, Node) else None
        if right in seen:
            yield f"  p{node.page_id} -> p{right} [style=dotted, dir=both, constraint=false];"
    yield "}"


def _dot_node(node: Node | HashPage, cut: Cut, seen: dict[int, Node | HashPage]) -> Iterator[str]:
    seen[node.page_id] = node
    drawn = _drawn(node)
    text = f"{page_name(node.page_id)}\n{drawn.kind}\n{drawn.size}\n{drawn.about}"
    yield f"  p{node.page_id} [label={_quoted(text)}];"
    first, left_out, last = _shown(drawn.edges, cut)
    for edge in first:
        yield from _dot_edge(node, edge, cut, seen)
    if left_out:
        yield f"  more{node.page_id} [shape=plaintext, label={_quoted(f'… {left_out:,} more')}];"
        yield f"  p{node.page_id} -> more{node.page_id} [style=dashed];"
    for edge in last:
        yield from _dot_edge(node, edge, cut, seen)


def _dot_edge(node: Node | HashPage, edge: Edge, cut: Cut, seen: dict[int, Node | HashPage]) -> Iterator[str]:
    yield from _dot_node(edge.child, _below(cut), seen)
    yield f"  p{node.page_id} -> p{edge.child.page_id} [label={_quoted(edge.label)}];"


def _quoted(text: str) -> str:
    """A string as Graphviz reads it: quotes and backslashes escaped, lines centred."""
    lines = (printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '"' + "\\n".join(lines) + '"'
