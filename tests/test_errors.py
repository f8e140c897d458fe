"""What is taken for a number, and what is refused in one line."""

import numpy as np
import pytest

from fl_audit.errors import InputError, as_whole


def test_whole_numbers_are_taken_however_they_are_written_and_keep_every_digit() -> None:
    assert as_whole("labels", ["1.0", "2"]).tolist() == [1, 2]
    assert as_whole("labels", np.array([3.0], dtype=np.float32)).tolist() == [3]
    assert as_whole("labels", [2**60 + 1]).tolist() == [2**60 + 1]


@pytest.mark.parametrize(
    ("value", "said"), [("x", "accepted are numbers"), (1.5, "labels have 1.5: accepted are whole")]
)
def test_what_is_no_whole_number_is_refused(value: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        as_whole("labels", [value])  # type: ignore[list-item]
