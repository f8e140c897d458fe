"""Pictures of reproductions are made as ever in tests, and drawn only where a test is about the drawing."""

import pytest

from fl_audit.experiments.papers import reproduce
from tests.one_pixel import ONE_PIXEL


@pytest.fixture(autouse=True)
def _undrawn_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a picture of one pixel in the place of each, other than in tests that are marked `drawn`."""
    if request.node.get_closest_marker("drawn") is None:
        monkeypatch.setattr(reproduce, "to_png", lambda figure: ONE_PIXEL)
        monkeypatch.setattr(reproduce, "to_svg", lambda figure: '<svg xmlns="http://www.w3.org/2000/svg"/>')
