"""Classes of ``late_dataclasses`` beside those of the library: declared alike, they do alike."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from gmdb.process import late_dataclasses

FORMS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"frozen": True, "order": True},
    {"frozen": True, "repr": False},
]


def declared(library: Any, form: dict[str, bool]) -> SimpleNamespace:
    """A class, one with defaults of all kinds, one that inherits, and one of a single field."""

    @library.dataclass(**form)
    class Point:
        x: int
        y: int = 2

    @library.dataclass(**form)
    class Labelled(Point):
        known: ClassVar[int] = 0
        labels: list[str] = library.field(default_factory=list)
        secret: str = library.field(default="s", repr=False, compare=False, metadata={"kept": True})

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x is negative")

    @library.dataclass(**form)
    class Named:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

    return SimpleNamespace(Point=Point, Labelled=Labelled, Named=Named)


def refuses(act: Callable[[], Any]) -> bool:
    try:
        act()
    except (AttributeError, TypeError):  # the library's frozen classes with slots raise the latter by mistake
        return True
    return False


TRIALS: dict[str, Callable[[SimpleNamespace], Any]] = {
    "reprs": lambda c: [
        repr(one).partition(" at ")[0] for one in (c.Point(1), c.Labelled(1, labels=["a"]), c.Named("n"))
    ],
    "equal": lambda c: (c.Point(1) == c.Point(1, 2), c.Point(1) == c.Point(2), c.Point(1) == c.Labelled(1)),
    "compared": lambda c: c.Labelled(1, secret="a") == c.Labelled(1, secret="b"),
    "hash": lambda c: len({hash(one) for one in [c.Point(1), c.Point(1)]}),  # both there: none has the other's place
    "set": lambda c: len({c.Named("a"), c.Named("a")}),
    "sorted": lambda c: [one.x for one in sorted([c.Point(3), c.Point(1)])],
    "missing": lambda c: c.Point(),
    "too many": lambda c: c.Point(1, 2, 3),
    "unknown": lambda c: c.Point(1, z=3),
    "twice": lambda c: c.Point(1, x=2),
    "post init": lambda c: c.Labelled(-1),
    "factory": lambda c: c.Labelled(1).labels is c.Labelled(1).labels,
    "class default": lambda c: c.Point.y if isinstance(c.Point.y, int) else "a slot",
    "set a field": lambda c: setattr(c.Point(1), "x", 5),
    "delete a field": lambda c: delattr(c.Point(1), "x"),
    "set another": lambda c: refuses(lambda: setattr(c.Point(1), "other", 5)),
    "match": lambda c: (c.Point.__match_args__, c.Labelled.__match_args__),
    "slots": lambda c: (hasattr(c.Labelled(1), "__dict__"), getattr(c.Labelled, "__slots__", None)),
    "many": lambda c: [c.Labelled(n, 1, ["l"], "s").x for n in range(20)],
    "copy": lambda c: (copy.copy(c.Point(4, 5)).y, copy.deepcopy(c.Labelled(4, 5, ["x"])).labels),
}


def outcome(trial: Callable[[SimpleNamespace], Any], classes: SimpleNamespace) -> tuple[str, Any]:
    try:
        return "value", trial(classes)
    except (TypeError, AttributeError, ValueError) as error:
        return "error", TypeError if isinstance(error, TypeError) else type(error).__mro__[-4:]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: ",".join(form) or "plain")
@pytest.mark.parametrize("name", TRIALS)
def test_a_class_does_what_the_librarys_would(name: str, form: dict[str, bool]) -> None:
    ours, theirs = declared(late_dataclasses, form), declared(dataclasses, form)
    assert outcome(TRIALS[name], ours) == outcome(TRIALS[name], theirs)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: ",".join(form) or "plain")
def test_the_librarys_functions_take_our_classes(form: dict[str, bool]) -> None:
    made = declared(late_dataclasses, form).Labelled(1, labels=["a"])
    assert dataclasses.is_dataclass(made)
    assert [(f.name, f.type, f.repr, dict(f.metadata)) for f in dataclasses.fields(made)] == [
        ("x", "int", True, {}),
        ("y", "int", True, {}),
        ("labels", "list[str]", True, {}),
        ("secret", "str", False, {"kept": True}),
    ]
    changed = dataclasses.replace(made, y=7)
    assert dataclasses.asdict(changed) == {"x": 1, "y": 7, "labels": ["a"], "secret": "s"}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: ",".join(form) or "plain")
def test_our_functions_do_what_the_librarys_do(form: dict[str, bool]) -> None:
    ours, theirs = declared(late_dataclasses, form), declared(dataclasses, form)
    for library, classes in ((late_dataclasses, ours), (dataclasses, theirs)):
        nested = classes.Labelled(1, labels=[classes.Point(2), (classes.Named("n"),), {"k": classes.Point(3)}])
        assert library.asdict(nested)["labels"] == [{"x": 2, "y": 2}, ({"name": "n"},), {"k": {"x": 3, "y": 2}}]
        assert library.replace(nested, x=5).x == 5
        fields = library.fields(classes.Labelled)
        assert [(f.name, dict(f.metadata)) for f in fields[2:]] == [("labels", {}), ("secret", {"kept": True})]
        assert (library.is_dataclass(nested), library.is_dataclass(ours), library.is_dataclass(int)) == (1, 0, 0)
        with pytest.raises(TypeError):
            library.replace(nested, nothing=1)


@late_dataclasses.dataclass(frozen=True, slots=True)
class Pickled:
    number: int
    text: str = "t"


def test_a_frozen_object_with_slots_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pickled(5))) == Pickled(5, "t")
