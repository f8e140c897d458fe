"""Tensors that are worth keeping between calls, within a bound of memory."""

import threading
from collections import OrderedDict

from torch import Tensor

BYTES_HELD = 2**29
"""Bytes that a process holds at most: 512 MiB, such as 600 bits, a byte each, of 1,000 records in 894 worlds."""


class HeldTensors:
    """Tensors by key, those that were not asked for longest given up first once they take too many bytes.

    Whoever asks makes anew what is not held, so nothing but time depends on the bound. Threads may share it.

    Parameters
    ----------
    most
        Bytes that the tensors may take together.
    """

    def __init__(self, most: int = BYTES_HELD) -> None:
        self._most = most
        self._bytes = 0
        self._held: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes that the tensors take, at most those that they may."""
        return self._bytes

    def find(self, key: tuple[int, ...]) -> Tensor | None:
        """Return what is held under a key, None if nothing is."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def hold(self, key: tuple[int, ...], tensor: Tensor) -> None:
        """Hold a tensor under a key that had none, unless it takes too many bytes by itself.

        Parameters
        ----------
        key
            What it is asked for with.
        tensor
            A tensor of any shape; it is not copied.
        """
        with self._lock:
            if key in self._held or tensor.nbytes > self._most:
                return
            self._held[key] = tensor
            self._bytes += tensor.nbytes
            while self._bytes > self._most:
                _, oldest = self._held.popitem(last=False)
                self._bytes -= oldest.nbytes
