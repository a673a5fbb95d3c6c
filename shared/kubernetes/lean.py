"""Imported before `kubernetes.aio`, keeps the official client's other parts out: 9 MiB of 68, a quarter of a second.

The operators use a few of its modules. But the import of any first runs the __init__ of the packages it is in, and
these load the synchronous client with all it depends on. So the packages stand in sys.modules as they are before that:
whatever is in them can still be imported by its name.
"""

import importlib.util
import sys

for _name in ("kubernetes", "kubernetes.aio"):
    _spec = importlib.util.find_spec(_name)
    if _name not in sys.modules and _spec is not None:
        sys.modules[_name] = importlib.util.module_from_spec(_spec)
