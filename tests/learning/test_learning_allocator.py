"""Memory freed by training goes back to the system when asked for, also that between blocks still in use."""

import sys
from pathlib import Path

import pytest
import torch

from fl_audit.learning.glibc_allocator import give_back_freed_memory, keep_freed_memory

_BLOCK = 2**20


def _resident() -> int:
    """Return resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_holes_are_given_back() -> None:
    keep_freed_memory()
    blocks = []
    pins = []
    for _ in range(64):
        blocks.append(torch.ones(_BLOCK // 4))
        pins.append(torch.ones(4096))
    blocks.clear()
    resident_bytes = _resident()
    give_back_freed_memory()
    assert resident_bytes - _resident() > 32 * _BLOCK
    assert all(bool((pin == 1).all()) for pin in pins)
