"""Imports in worker processes that Ray starts in advance, while the driver is still getting ready.

Modules consist of some hundred thousand long-lived objects. The garbage collector would scan them again and again
during the imports, which takes a tenth of the time, and at every later collection. It is therefore disabled during the
imports, and the objects are then frozen (`gc.freeze`).
"""

import gc
from importlib import import_module

gc.disable()
try:
    import_module("fl_audit.clients.app")
finally:
    gc.freeze()
    gc.enable()
