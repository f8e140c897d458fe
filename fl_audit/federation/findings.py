"""The findings about a run, looked up by their type."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from fl_audit.array_types import finite


class FindingBase(Protocol):
    """A finding: a frozen dataclass of numbers that can be converted to JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the top-level keys that this finding adds to `summary.json`, with their values."""


Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class Findings:
    """The findings about a run, by type."""

    by_type: Mapping[type, object]

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the finding of a type; None if the run has none."""
        found = self.by_type.get(kind)
        assert found is None or isinstance(found, kind)
        return found


def json_of(value: Any) -> Any:
    """Return a value in JSON types: a dataclass becomes a dict, an infinite number or NaN becomes None."""
    if isinstance(value, float):
        return finite(value)
    if is_dataclass(value):
        return {one.name: json_of(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): json_of(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_of(one) for one in value]
    return str(value) if isinstance(value, Enum) else value
