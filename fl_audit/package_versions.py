"""Versions of fl_audit and of the main packages that it uses."""

from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("fl_audit", "flwr", "ray", "torch", "opacus", "numpy", "scipy")


@cache
def package_versions() -> dict[str, str]:
    """Return the versions of fl_audit and of the main packages that it uses, by name; missing packages are left out."""
    versions = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
