"""Make Python's parser safe for threads, for the Python versions in which it is not.

In Python 3.11.0 to 3.11.7, `ast.parse` counts its depth of recursion in a variable that all threads share. If the
garbage collector runs in it and another thread parses meanwhile, it raises "SystemError: AST constructor recursion
depth mismatch" (python/cpython#106905, mended in 3.11.8). `numpy.load` parses the header of an array in this way, and
Flower reads every array with it: clients in threads would fail now and then, and their replies would be missing.
"""

import ast
import sys
import threading
from functools import wraps

_FIRST_SAFE_VERSION = (3, 11, 8)
_lock = threading.RLock()


def make_parsing_thread_safe() -> None:
    """Replace `ast.parse` in this process by a function that one thread at a time carries out, where that is needed."""
    parse = ast.parse
    if sys.version_info >= _FIRST_SAFE_VERSION or hasattr(parse, "__wrapped__"):
        return

    @wraps(parse)
    def locked_parse(*arguments: object, **named_arguments: object) -> ast.AST:
        with _lock:
            return parse(*arguments, **named_arguments)  # type: ignore[call-overload]

    ast.parse = locked_parse  # type: ignore[assignment]
