"""Dataclasses that cost next to nothing where they are declared: methods are shared, or made when first called.

The library's ``dataclass`` writes and compiles half a dozen methods for each class while its module is imported, and
imports ``inspect``: for all classes of a start these are more than its statements.  Here a class gets an
``__init__`` of its own when several objects of it were made; until then, and in other methods, its fields are gone
through as they are.

What gmdb uses of ``dataclasses`` has the same names and means the same; that library's own functions take these
classes, too.  No module imports the other one (tests/test_starts.py).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

__all__ = ["asdict", "dataclass", "field", "fields", "is_dataclass", "replace"]

if TYPE_CHECKING:
    from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
else:
    _NOTHING = object()
    _FIELDS = "_fields_of_dataclass"
    _UNCOMPILED = 8  # objects of a class that are made before it is worth compiling its ``__init__``

    class _Field:
        """What is known of a field; ``type`` is its annotation, as text."""

        __slots__ = ("compare", "default", "default_factory", "metadata", "name", "repr", "type")

        def __init__(self, default=_NOTHING, default_factory=_NOTHING, compare=True, repr=True, metadata=None):
            self.default = default
            self.default_factory = default_factory
            self.compare = compare
            self.repr = repr
            self.metadata = metadata or {}

    field = _Field

    def dataclass(cls=None, /, *, frozen=False, eq=True, order=False, repr=True, slots=False):
        if cls is None:
            return lambda cls: _finished(cls, frozen, eq, order, repr, slots)
        return _finished(cls, frozen, eq, order, repr, slots)

    def is_dataclass(what):
        return hasattr(what if isinstance(what, type) else type(what), _FIELDS)

    def fields(what):
        return tuple(getattr(what, _FIELDS).values())

    def replace(instance, /, **changes):
        for name in getattr(instance, _FIELDS):
            if name not in changes:
                changes[name] = getattr(instance, name)
        return type(instance)(**changes)

    def asdict(instance):
        return {name: _plain(getattr(instance, name)) for name in getattr(instance, _FIELDS)}

    def _plain(value):
        kind = type(value)
        if hasattr(kind, _FIELDS):
            return asdict(value)
        if kind in (list, tuple):
            return kind(map(_plain, value))
        if kind is dict:
            return {_plain(name): _plain(one) for name, one in value.items()}
        return value

    # ---- A class gets its methods.

    def _finished(cls, frozen, eq, order, with_repr, slots):
        known = {}
        for base in reversed(cls.__mro__[1:]):
            known.update(base.__dict__.get(_FIELDS, ()))
        own = [name for name, kind in cls.__annotations__.items() if "ClassVar[" not in str(kind)]
        for name in own:
            known[name] = _declared(cls, name)
        if slots:
            cls = _slotted(cls, own, known)
        setattr(cls, _FIELDS, known)
        cls.__dataclass_fields__ = _AS_THE_LIBRARY_HAS_THEM
        cls.__match_args__ = tuple(known)
        methods = {"__init__": _first_init(cls, known, frozen)}
        compared = _getter([name for name, one in known.items() if one.compare])
        if with_repr:
            methods["__repr__"] = _repr
        if eq:
            methods["__eq__"] = _comparison(operator.eq, compared)
        if order:
            for name in ("__lt__", "__le__", "__gt__", "__ge__"):
                methods[name] = _comparison(getattr(operator, name), compared)
        if frozen:
            methods.update(__setattr__=_refuse_to_set, __delattr__=_refuse_to_delete)
            if slots:
                methods.update(__getstate__=_state, __setstate__=_set_state)
        own_hash = cls.__dict__.get("__hash__", _NOTHING)
        has_hash = own_hash is not _NOTHING and not (own_hash is None and "__eq__" in cls.__dict__)
        for name, method in methods.items():
            if name not in cls.__dict__:
                setattr(cls, name, method)
        if eq and not has_hash:
            cls.__hash__ = (lambda self: hash(compared(self))) if frozen else None
        return cls

    def _declared(cls, name):
        """A field, as the class's body declares it; its default stays an attribute of the class."""
        default = cls.__dict__.get(name, _NOTHING)
        one = default if isinstance(default, _Field) else _Field(default)
        one.name, one.type = name, cls.__annotations__[name]
        if one is default:
            if one.default is _NOTHING:
                delattr(cls, name)
            else:
                setattr(cls, name, one.default)
        return one

    def _slotted(cls, own, known):
        """The class with slots for its own fields: it must be made once more for that."""
        inherited = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
        body = {name: value for name, value in cls.__dict__.items() if name not in known}
        body.pop("__dict__", None)
        body.pop("__weakref__", None)
        body["__slots__"] = tuple(name for name in own if name not in inherited)
        made = type(cls)(cls.__name__, cls.__bases__, body)
        made.__qualname__ = cls.__qualname__
        return made

    def _first_init(cls, known, frozen):
        """The ``__init__`` of a class of which there are few objects yet; then it gives way to one that is compiled."""
        left = _UNCOMPILED

        def first(self, /, *arguments, **named):
            nonlocal left
            left -= 1
            given = dict(zip(known, arguments, strict=False))
            if left < 0 or len(arguments) > len(known) or not known.keys() - given.keys() >= named.keys():
                compiled = cls.__init__ = _compiled_init(cls, known, frozen)
                compiled(self, *arguments, **named)
                return
            given.update(named)
            for name, one in known.items():
                value = given.get(name, _NOTHING)
                if value is _NOTHING:
                    value = one.default if one.default_factory is _NOTHING else one.default_factory()
                    if value is _NOTHING:
                        raise TypeError(f"{cls.__qualname__}.__init__() misses the argument {name!r}")
                object.__setattr__(self, name, value)
            if hasattr(cls, "__post_init__"):
                self.__post_init__()

        return first

    def _compiled_init(cls, known, frozen):
        used = {"_NOTHING": _NOTHING, "_set": object.__setattr__}
        parameters, lines = [], []
        for number, (name, one) in enumerate(known.items()):
            value = name
            if one.default_factory is not _NOTHING:
                used[f"_make_{number}"] = one.default_factory
                parameters.append(f"{name}=_NOTHING")
                value = f"_make_{number}() if {name} is _NOTHING else {name}"
            elif one.default is not _NOTHING:
                used[f"_default_{number}"] = one.default
                parameters.append(f"{name}=_default_{number}")
            else:
                parameters.append(name)
            lines.append(f" _set(self, {name!r}, {value})\n" if frozen else f" self.{name} = {value}\n")
        if hasattr(cls, "__post_init__"):
            lines.append(" self.__post_init__()\n")
        made = {}
        exec(f"def __init__({', '.join(['self', *parameters])}):\n{''.join(lines) or ' pass'}", used, made)
        compiled = made["__init__"]
        compiled.__qualname__ = f"{cls.__qualname__}.__init__"
        return compiled

    # ---- What all classes share.

    def _getter(names):
        """A function that gives these attributes of an object, as a tuple."""
        if len(names) > 1:
            return operator.attrgetter(*names)
        if not names:
            return lambda _: ()
        only = operator.attrgetter(names[0])
        return lambda instance: (only(instance),)

    def _comparison(compare, compared):
        """A method that compares objects of the same class by their fields."""

        def method(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            return compare(compared(self), compared(other))

        return method

    def _repr(self):
        shown = (f"{name}={getattr(self, name)!r}" for name, one in getattr(self, _FIELDS).items() if one.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _refuse_to_set(self, name, _value):
        raise AttributeError(f"cannot assign to field {name!r} of {type(self).__qualname__}: it is frozen")

    def _refuse_to_delete(self, name):
        raise AttributeError(f"cannot delete field {name!r} of {type(self).__qualname__}: it is frozen")

    def _state(self):
        return [getattr(self, name) for name in getattr(self, _FIELDS)]

    def _set_state(self, state):
        for name, value in zip(getattr(self, _FIELDS), state, strict=True):
            object.__setattr__(self, name, value)

    class _AsTheLibraryHasThem:
        """``__dataclass_fields__``, by which the library's functions know its classes: made when one asks."""

        def __get__(self, _instance, owner):
            import dataclasses

            def declared(one):
                given = {"compare": one.compare, "repr": one.repr, "metadata": one.metadata}
                if one.default is not _NOTHING:
                    given["default"] = one.default
                if one.default_factory is not _NOTHING:
                    given["default_factory"] = one.default_factory
                return one.name, one.type, dataclasses.field(**given)

            alike = dataclasses.make_dataclass(owner.__name__, map(declared, getattr(owner, _FIELDS).values()))
            return alike.__dataclass_fields__

    _AS_THE_LIBRARY_HAS_THEM = _AsTheLibraryHasThem()
