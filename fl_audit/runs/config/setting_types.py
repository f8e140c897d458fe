"""Types of values of settings, with the checks of these values."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fl_audit.errors import InputError
from fl_audit.user_modules import require_named


def own_name(value: str) -> str:
    """Return a name `package.module:name` if its form is right and its top-level module exists."""
    try:
        require_named(value)
    except InputError as error:
        raise PydanticCustomError("own", "{said}", {"said": str(error)}) from error
    return value


class RegisteredOrOwn:
    """Annotation of a setting whose value is a name in a registry, or `package.module:name` of the user's own.

    The registry is read when a value is checked or a schema is made, so that later entries count too.

    Parameters
    ----------
    registry
        Registry, keyed by name.
    noun
        What the names stand for, such as "attack".
    """

    def __init__(self, registry: Mapping[str, object], noun: str) -> None:
        self._registry = registry
        self._noun = noun

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"enum": [*self._registry], "type": "string"}, {"pattern": ".:.", "type": "string"}]}

    def _checked(self, value: str) -> str:
        if value in self._registry:
            return value
        if ":" not in value:
            # The schema says what is accepted.
            raise PydanticCustomError(self._noun, "no name of an {noun}", {"noun": self._noun})
        return own_name(value)


class NamesInSchema:
    """Annotation of a setting whose JSON schema has all names that are registered when the schema is made.

    Parameters
    ----------
    names
        Function that returns the names.
    """

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": [*self._names()], "type": "string"}


Scalar = bool | int | float | str
T = TypeVar("T")
Choice = Annotated[T, Strict(False)]
"""One of the values of an enumeration, which a file writes as a string."""
OwnName = Annotated[str, Field(pattern=".:."), AfterValidator(own_name)]
"""`package.module:name` of an object of the user's own."""
OneOr = Annotated[Annotated[T, Strict(False)] | OwnName, Field(union_mode="left_to_right")]
"""A value of an enumeration, or `package.module:name` of an object of the user's own."""
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SMALLEST_SIZE = 1e-20
"""Smallest step size or length."""
Size = Annotated[float, Field(ge=SMALLEST_SIZE, le=1e20)]
"""A length or a step size, which 32-bit numbers can hold together with what it is multiplied by."""
Words = Annotated[tuple[str, ...], Strict(False)]
Count = Annotated[int, Field(ge=1, le=10**9)]
