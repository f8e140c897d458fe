"""Fixtures that tests of federations share."""

from collections.abc import Iterator

import pytest
from elsewhere import AppElsewhere


@pytest.fixture(scope="session")
def app_elsewhere() -> Iterator[AppElsewhere]:
    """Clients in another process, one for all tests of a worker, because each start imports everything again."""
    app = AppElsewhere()
    yield app
    app.end()
