"""Stored form of a mechanism's noise and participation: a dict of the fields, whose key `kind` names the class."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from fl_audit.errors import require
from fl_audit.words import name_list

Part = TypeVar("Part")


def read_part(value: Any, base: type, kinds: Mapping[str, type[Part]], name: str) -> Part:
    """Return a part of a mechanism, built from its stored form."""
    if isinstance(value, base):
        return value  # type: ignore[return-value]  # `base` is abstract, so it cannot be annotated as type[Part]
    kind = value.get("kind") if isinstance(value, dict) else None
    require(kind in kinds, f"stored {name} is of kind {kind!r}: accepted are {name_list(kinds)}")
    kind_class: Any = kinds[str(kind)]  # mypy takes no type[Part] for hashable
    return _reader(kind_class).validate_python(value)  # type: ignore[no-any-return]


@lru_cache(maxsize=16)
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def stored_part(value: Any) -> dict[str, Any]:
    """Return a noise or a participation, which is a frozen dataclass, as a dict of its fields."""
    return asdict(value)
