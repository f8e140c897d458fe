"""Section [report]: statements of the operator, the party that runs the audit, for a data-protection officer."""

from typing import Annotated

from pydantic import Field

from fl_audit.runs.config.config_section import ConfigSection

Line = Annotated[str, Field(min_length=1, max_length=400)]


class OperatorStatementsSection(ConfigSection):
    """Section [report]: statements of the operator for the report's annex, which are copied without a check.

    The annex has a blank to be filled in by hand for each statement that is left out.
    """

    controller: Line | None = None
    """The party that decides why and how the data are processed."""
    purpose: Line | None = None
    """Purpose of the model."""
    system: Line | None = None
    """Name and version of the audited system."""
    data_set: Line | None = None
    """Name of the data set, as its owner calls it."""
    persons: Line | None = None
    """The people whose data these are, such as patients of four hospitals since 2019."""
    retention: Line | None = None
    """Period for which model, data and this report are kept."""
    signer: Line | None = None
    """Name of the signer."""
    role: Line | None = None
    """Role of the signer."""
