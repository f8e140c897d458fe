"""Tables of what is refused: what is given, and what the message must name."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fl_audit.errors import InputError


class Refusal(NamedTuple):
    """A call that is refused."""

    given: Callable[[], object]
    named: str | None  # pattern that the message must match


def refusals(call: Callable[..., object], *rows: tuple[Any, ...]) -> list[Refusal]:
    """Return a refusal for each row: the arguments of the call, and last what the message must name."""
    return [Refusal(partial(call, *row[:-1]), row[-1]) for row in rows]


def refusal_test(rows: Sequence[Refusal]) -> Callable[..., None]:
    """Return a test that each call raises an `InputError` whose message names what is wrong."""

    @pytest.mark.parametrize("refusal", rows, ids=[str(refusal.named) for refusal in rows])
    def test_it_is_refused(refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError, match=refusal.named):
            refusal.given()

    return test_it_is_refused
