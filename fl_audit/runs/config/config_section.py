"""Base class of the sections of a configuration."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class ConfigSection(BaseModel):
    """Base class of the sections of a configuration file; keys have hyphens, and unknown keys are refused."""

    # Strict: a quoted number or a truth value where a number is meant is refused, never converted. The line under a key
    # is its explanation, here as in `fl-audit settings`.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=False,
        strict=True,
        use_attribute_docstrings=True,
    )

    def given_keys(self, names: Sequence[str]) -> list[str]:
        """Return the given keys that have a value in this section, in their order; keys are written with hyphens."""
        return [name for name in names if getattr(self, name.replace("-", "_")) is not None]

    def named(self, names: Sequence[str]) -> str:
        """Return keys of this section with their values as text, such as "epsilon = 1.0 and delta = 0.1"."""
        return " and ".join(f"{name} = {getattr(self, name.replace('-', '_'))}" for name in names)
