"""Section [report]: what the annex for a data-protection officer says beside the numbers, in the operator's words."""

from typing import Annotated

from pydantic import Field

from fl_audit.experiments.runs.config.values import ConfigSection

Line = Annotated[str, Field(min_length=1, max_length=400)]


class ReportSection(ConfigSection):
    """Declarations of the operator for the annex of the report, unchecked; what is left out is filled in by hand."""

    controller: Line | None = None
    """Who decides why and how the data are processed."""
    purpose: Line | None = None
    """What the model is for."""
    system: Line | None = None
    """Name and version of the system that is audited."""
    data_set: Line | None = None
    """Name of the data set, as its owner calls it."""
    persons: Line | None = None
    """Whose data these are, such as patients of four hospitals since 2019."""
    retention: Line | None = None
    """How long model, data and this report are kept."""
    signer: Line | None = None
    """Who signs."""
    role: Line | None = None
    """In which role."""
