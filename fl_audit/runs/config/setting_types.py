"""Types of values of settings, with the checks of these values."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, Strict
from pydantic_core import PydanticCustomError

from fl_audit.errors import InputError
from fl_audit.user_modules import require_named


def own_name(value: str) -> str:
    """Return a name `package.module:name` if its form is right and its top-level module exists."""
    try:
        require_named(value)
    except InputError as error:
        raise PydanticCustomError("own", "{said}", {"said": str(error)}) from error
    return value


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
