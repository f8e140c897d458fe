"""The complete configuration: all sections, and the defaults that depend on other sections."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError, model_validator

from fl_audit.adjacency import Adjacency
from fl_audit.audits.registry import AUDITS
from fl_audit.errors import InputError
from fl_audit.learning.training_enums import ServerOptimizerKind
from fl_audit.runs.config.audit_section import AuditSection
from fl_audit.runs.config.config_section import ConfigSection
from fl_audit.runs.config.data_section import DataSection
from fl_audit.runs.config.model_section import ModelSection
from fl_audit.runs.config.privacy_section import GUARANTEE_ONLY, PRIVACY_TARGETS, PrivacySection
from fl_audit.runs.config.run_section import RunSection
from fl_audit.runs.config.training_section import TrainingSection
from fl_audit.runs.config_errors import first_problem
from fl_audit.strategies.aggregation_registry import AGGREGATIONS
from fl_audit.words import name_list


class RunConfig(ConfigSection):
    """The complete configuration of a run, with one field for each section of the configuration file."""

    data: DataSection = Field(default_factory=DataSection)
    model: ModelSection = Field(default_factory=ModelSection)
    training: TrainingSection = Field(default_factory=TrainingSection)
    privacy: PrivacySection
    audit: AuditSection = Field(default_factory=AuditSection)
    run: RunSection = Field(default_factory=RunSection)

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, values: Any) -> Any:
        """Fill in the defaults that depend on other sections."""
        if not isinstance(values, dict):
            return values
        sections = {name: values.get(name, {}) for name in ("training", "privacy", "audit")}
        # A value that is no table is refused later, and decides nothing.
        tables = {name: table if isinstance(table, dict) else {} for name, table in sections.items()}
        return values | {name: table for name, table in _filled(**tables).items() if isinstance(sections[name], dict)}

    def changed(self, **sections: Mapping[str, Any]) -> "RunConfig":
        """Return a copy of the configuration with changed values, which are not validated.

        Parameters
        ----------
        sections
            For each section to change, by name: the new values, by field name.
        """
        copies = {name: getattr(self, name).model_copy(update=values) for name, values in sections.items()}
        return self.model_copy(update=copies)

    @property
    def is_ordinary_training(self) -> bool:
        """Whether the run is an ordinary training, and no audit: a single trial, or no insider who attacks."""
        is_about_one_pair = AUDITS[self.audit.kind].chooses_pair  # other kinds attack the models of every run
        return is_about_one_pair and (self.audit.trials == 1 or not self.audit.insider)

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration with defaults as JSON values by section and key, as in a configuration file.

        Settings of the claim are left out if there is no claim.
        """
        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if not self.privacy.private:
            values["privacy"] = {key: value for key, value in values["privacy"].items() if key not in GUARANTEE_ONLY}
        return values

    def as_public_dict(self) -> dict[str, Any]:
        """Return the configuration with defaults as JSON values by section and key, without the secret seed."""
        values = self.as_dict()
        values["run"].pop("seed", None)
        return values


_Table = dict[str, Any]
_WHERE_CLIENTS_TRAIN = {"learning-rate": 1.0, "local-batch": 10, "local-learning-rate": 0.1}
_PRIVACY_OF = {
    "dp-fedavg": {"adjacency": str(Adjacency.ADD_REMOVE_CLIENT)},
    # The noise has the name that a user would write, because defaults are filled in before any noise is made.
    "dp-sgd-clients": {"adjacency": str(Adjacency.ADD_REMOVE_RECORD), "noise": "inside-training"},
}
"""Defaults of settings that a configuration leaves out, by its strategy."""
_ADAPTIVE_RATE = 0.01
"""Learning rate where the server takes adaptive steps and none is given."""


def _filled(training: _Table, privacy: _Table, audit: _Table) -> dict[str, _Table]:
    """Add defaults to the sections of a configuration, and return the changed sections, keyed by name.

    Defaults depend on the strategy, the local randomizer and the kind of audit. Given settings replace them.
    """
    filled: dict[str, _Table] = {}
    is_private = privacy.get("private") is not False
    if not is_private and training.get("aggregation") is not None:
        # A Flower strategy averages models, which clients have trained.
        training = filled["training"] = {"strategy": "dp-fedavg"} | training
    strategy = training.get("strategy", "dp-fedsgd")
    if isinstance(strategy, str) and strategy in _PRIVACY_OF:
        adaptive = {"learning-rate": _ADAPTIVE_RATE} if _has_adaptive_steps(training) else {}
        epochs = {} if {"local-steps", "local-epochs"} & training.keys() else {"local-epochs": 1}
        training = _WHERE_CLIENTS_TRAIN | adaptive | training | epochs
        # A guarantee names its adjacency; without one, nothing that makes a guarantee is filled in.
        idle = ("adjacency",) if is_private else GUARANTEE_ONLY
        privacy = {name: value for name, value in _PRIVACY_OF[strategy].items() if name not in idle} | privacy
        filled = {"training": training, "privacy": privacy}
    if privacy.get("local-randomizer") is not None:
        # An insider cannot compute log-odds if owners randomise their records in secret.
        audit = filled["audit"] = {"insider": False} | audit
    kind = audit.get("kind")
    if isinstance(kind, str) and kind in AUDITS:
        of_audit, of_privacy = AUDITS[kind].defaults(strategy, privacy)
        filled["audit"], filled["privacy"] = of_audit | audit, of_privacy | privacy
    return filled


def _has_adaptive_steps(training: _Table) -> bool:
    """Return whether the server's steps have about the size of its learning rate, whatever clients send."""
    aggregation = training.get("aggregation")
    aggregation_kind = AGGREGATIONS.get(aggregation) if isinstance(aggregation, str) else None
    adaptive = [kind for kind in ServerOptimizerKind if kind.is_adaptive]
    return training.get("optimizer") in adaptive or (aggregation_kind is not None and aggregation_kind.is_adaptive)


_MISSING = f"it names what is claimed ({name_list(PRIVACY_TARGETS, 'or')})"


def parse_config(values: dict[str, Any]) -> RunConfig:
    """Check the values of a configuration, given by section and key as in a file, and return them as a `RunConfig`.

    Raises
    ------
    InputError
        If a key or value is not accepted. The message names the first problem and the accepted keys or values.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(first_problem(error, RunConfig, _MISSING)) from None
