"""Imports of a client's process that Ray starts before anybody asks for one, while its program still gets ready.

Modules are some hundred thousand objects that stay. Python's collector would look through them again and again while
they are made, which takes a tenth of the time, and later whenever it runs. So it waits until they are there, and leaves
them alone from then on.
"""

import gc
from importlib import import_module

gc.disable()
try:
    import_module("fl_audit.clients.app")
finally:
    gc.freeze()
    gc.enable()
