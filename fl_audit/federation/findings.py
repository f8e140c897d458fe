"""Findings about a run: the results of its analyses, looked up by their type."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from fl_audit.array_types import finite


class FindingBase(Protocol):
    """Protocol of a finding: a frozen dataclass with the numbers of one analysis, which can be converted to JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the entries that this finding adds to the run's `summary.json`, keyed by top-level key."""


Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class Findings:
    """Findings about a run, at most one of each type."""

    by_type: Mapping[type, object]

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the finding of the type `kind`; None if the run has none."""
        numbers_found = self.by_type.get(kind)
        assert numbers_found is None or isinstance(numbers_found, kind)
        return numbers_found

    def replaced(self, finding: object) -> "Findings":
        """Return these findings with another one in place of the one of the same type."""
        return Findings({**self.by_type, type(finding): finding})


def json_of(value: Any) -> Any:
    """Convert a value to JSON types: dataclasses to dicts, enum members to strings, infinity and NaN to None."""
    if isinstance(value, float):
        return finite(value)
    if is_dataclass(value):
        return {field.name: json_of(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): json_of(element) for name, element in value.items()}
    if isinstance(value, list | tuple):
        return [json_of(element) for element in value]
    return str(value) if isinstance(value, Enum) else value
