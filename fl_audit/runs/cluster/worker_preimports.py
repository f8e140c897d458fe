"""Imports for the worker processes that Ray starts in advance, while the driver still prepares the run.

Imported modules consist of some hundred thousand long-lived objects. The garbage collector would scan them repeatedly
during the imports, and at every later collection. It is therefore disabled during the imports, and the objects are then
excluded from collection (`gc.freeze`).
"""

import gc

gc.disable()
try:
    import fl_audit.clients.app  # noqa: F401
finally:
    gc.freeze()
    gc.enable()
