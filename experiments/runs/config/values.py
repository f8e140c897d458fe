"""Shared parts of the sections of a configuration: their base class and types of values."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

from fl_audit.errors import InputError
from fl_audit.user_modules import require_named


def _own(value: str) -> str:
    try:
        require_named(value)
    except InputError as error:
        raise PydanticCustomError("own", "{said}", {"said": str(error)}) from error
    return value


Scalar = bool | int | float | str
T = TypeVar("T")
Choice = Annotated[T, Strict(False)]
"""One of the values of an enumeration, which a file writes as a string."""
OwnName = Annotated[str, Field(pattern=".:."), AfterValidator(_own)]
"""`package.module:name` of an object of the user's own."""
OneOr = Annotated[Annotated[T, Strict(False)] | OwnName, Field(union_mode="left_to_right")]
"""A value of an enumeration, or `package.module:name` of an object of the user's own."""
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Words = Annotated[tuple[str, ...], Strict(False)]
Count = Annotated[int, Field(ge=1, le=10**9)]


class ConfigSection(BaseModel):
    """Base class of the sections of a configuration file; keys have hyphens, and unknown keys are refused."""

    # Strict: a quoted number or a truth value where a number is meant is refused, never converted. The line under a key
    # is its explanation, here as in `fl-audit settings`.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=False,
        strict=True,
        use_attribute_docstrings=True,
    )

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Return the given keys that have a value in this section, in their order; keys are written with hyphens."""
        return [name for name in names if getattr(self, name.replace("-", "_")) is not None]

    def named(self, names: Sequence[str]) -> str:
        """Return keys of this section with their values as text, such as "epsilon = 1.0 and delta = 0.1"."""
        return " and ".join(f"{name} = {getattr(self, name.replace('-', '_'))}" for name in names)
