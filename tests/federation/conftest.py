"""Fixtures that tests of federations share."""

from collections.abc import Iterator

import pytest
from ray import cloudpickle

import tests
from tests.federation.elsewhere import AppElsewhere

# Other processes cannot import `tests`: its functions and classes are sent to them with their code.
cloudpickle.register_pickle_by_value(tests)


@pytest.fixture(scope="session")
def app_elsewhere() -> Iterator[AppElsewhere]:
    """Clients in another process, one for all tests of a worker, because each start imports everything again."""
    app = AppElsewhere()
    yield app
    app.end()
