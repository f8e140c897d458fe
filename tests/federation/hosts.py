"""Further hosts on this machine for tests, which are skipped where none can be made."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from tests.validation import network_hosts
from tests.validation.network_hosts import Host, NoHostsError


@contextmanager
def other_hosts(count: int) -> Iterator[Sequence[Host]]:
    """Make hosts that can reach this machine."""
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(network_hosts.other_hosts(count))
        except NoHostsError as error:
            pytest.skip(str(error))
        yield hosts
