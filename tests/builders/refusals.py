"""Checks of refusals: of single calls, and of tables with the input and the names that the message must have."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fl_audit.errors import InputError


def assert_refused(named: str | None, call: Callable[..., object], /, *arguments: Any, **options: Any) -> InputError:
    """Assert that a call raises an `InputError` of one line, which a pattern is found in, and return it."""
    with pytest.raises(InputError, match=named) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return caught.value


class Refusal(NamedTuple):
    """A call that is refused."""

    given: Callable[[], object]
    named: str | None  # pattern that the message must match


def refusals(call: Callable[..., object], *rows: tuple[Any, ...]) -> list[Refusal]:
    """Return a refusal for each row: the arguments of the call, and last what the message must name."""
    return [Refusal(partial(call, *row[:-1]), row[-1]) for row in rows]


def refusal_test(rows: Sequence[Refusal]) -> Callable[..., None]:
    """Return a test that each call raises an `InputError` of one line that names what is wrong."""

    @pytest.mark.parametrize("refusal", rows, ids=[str(refusal.named) for refusal in rows])
    def test_it_is_refused(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert_refused(refusal.named, refusal.given)

    return test_it_is_refused
