"""A whole configuration: its sections, and what one of them decides about another."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError, model_validator

from experiments.runs.config.audit import AuditSection
from experiments.runs.config.data import DataSection, ModelSection
from experiments.runs.config.privacy import PRIVACY_TARGETS, PROMISE_ONLY, PrivacySection
from experiments.runs.config.training import RunSection, TrainingSection
from experiments.runs.config.values import ConfigSection
from experiments.runs.config_errors import first_problem
from fl_audit.adjacency import Adjacency
from fl_audit.adversaries.membership.names import OF_ANY_UNIT, USUAL
from fl_audit.errors import InputError


class RunConfig(ConfigSection):
    """A whole configuration."""

    data: DataSection = Field(default_factory=DataSection)
    model: ModelSection = Field(default_factory=ModelSection)
    training: TrainingSection = Field(default_factory=TrainingSection)
    privacy: PrivacySection
    audit: AuditSection = Field(default_factory=AuditSection)
    run: RunSection = Field(default_factory=RunSection)

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_strategy(cls, values: Any) -> Any:
        """Fill in what the strategy decides, so that a stored configuration names it."""
        if not isinstance(values, dict):
            return values
        return _with_game_defaults(_with_randomiser_defaults(_with_strategy_defaults(values)))

    def changed(self, **sections: Mapping[str, Any]) -> "RunConfig":
        """Return the configuration with other values in some of its sections, which are not checked again."""
        copies = {name: getattr(self, name).model_copy(update=values) for name, values in sections.items()}
        return self.model_copy(update=copies)

    def as_dict(self) -> dict[str, Any]:
        """Return the configuration with all defaults filled in, as JSON values under the names of the file."""
        values = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        if not self.privacy.private:
            values["privacy"] = {key: value for key, value in values["privacy"].items() if key not in PROMISE_ONLY}
        return values

    def as_public_dict(self) -> dict[str, Any]:
        """Return the same without the challenger's seed."""
        values = self.as_dict()
        values["run"].pop("seed", None)
        return values


_WHERE_CLIENTS_TRAIN = {"learning-rate": 1.0, "local-batch": 10, "local-learning-rate": 0.1}
_PRIVACY_OF = {
    "dp-fedavg": {"adjacency": str(Adjacency.ADD_REMOVE_CLIENT)},
    "dp-sgd-clients": {"adjacency": str(Adjacency.ADD_REMOVE_RECORD), "noise": "inside-training"},
}
"""What a configuration has that leaves these settings out, by its strategy."""
_ADAM_RATE = 0.01


def _with_strategy_defaults(values: dict[str, Any]) -> dict[str, Any]:
    training, privacy = values.get("training", {}), values.get("privacy", {})
    is_table = isinstance(training, dict) and isinstance(privacy, dict)
    strategy = training.get("strategy") if is_table else None
    if not isinstance(strategy, str) or strategy not in _PRIVACY_OF:
        return values
    adam = {"learning-rate": _ADAM_RATE} if training.get("optimizer") == "adam" else {}
    filled = _WHERE_CLIENTS_TRAIN | adam | training
    if "local-steps" not in training and "local-epochs" not in training:
        filled["local-epochs"] = 1
    # A promise names its adjacency; without one, nothing that makes a promise is filled in.
    idle = PROMISE_ONLY if privacy.get("private") is False else ("adjacency",)
    of_strategy = {name: value for name, value in _PRIVACY_OF[strategy].items() if name not in idle}
    return values | {"training": filled, "privacy": of_strategy | privacy}


def _with_randomiser_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in that nobody weighs what owners draw in secret, where they randomise their records."""
    audit, privacy = values.get("audit", {}), values.get("privacy", {})
    if not isinstance(audit, dict) or not isinstance(privacy, dict) or privacy.get("randomiser") is None:
        return values
    return values | {"audit": {"insider": False} | audit}


def _with_game_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in what a game decides that a configuration leaves out."""
    tables = [values.get(name, {}) for name in ("audit", "privacy", "training")]
    if not all(isinstance(one, dict) for one in tables):
        return values
    filled = _DEFAULTS_OF_GAME.get(str(tables[0].get("game")))
    return values if filled is None else filled(values, *tables)


def _with_one_run_defaults(
    values: dict[str, Any], audit: dict[str, Any], privacy: dict[str, Any], training: dict[str, Any]
) -> dict[str, Any]:
    """Fill in that one training is the audit, whose canaries are in question and no pair."""
    # Noise inside training hides a record from the server, which is told what each client sends.
    at = {"place": "server"} if training.get("strategy") == "dp-sgd-clients" else {}
    return values | {"audit": {"insider": False, "worlds": 1, "canaries": 10} | at | audit}


def _with_membership_defaults(
    values: dict[str, Any], audit: dict[str, Any], privacy: dict[str, Any], training: dict[str, Any]
) -> dict[str, Any]:
    """Fill in what a game of many units decides: what is protected comes or goes, and who can attack does."""
    is_private, of_records = privacy.get("private") is not False, training.get("strategy", "dp-fedsgd") == "dp-fedsgd"
    of_unit = str(Adjacency.ADD_REMOVE_RECORD if of_records else Adjacency.ADD_REMOVE_CLIENT)
    relation = privacy.get("adjacency", of_unit)
    attacks = [str(one) for one in (USUAL if str(relation).endswith("record") else OF_ANY_UNIT)]
    filled: dict[str, Any] = {"insider": is_private, "membership": False}
    if audit.get("game") == "membership":
        filled["attacks"] = attacks
    return values | {"audit": filled | audit, "privacy": privacy if is_private else {"adjacency": relation} | privacy}


_DEFAULTS_OF_GAME = {
    "membership": _with_membership_defaults,
    "reconstruction": _with_membership_defaults,
    "one-run": _with_one_run_defaults,
}
_MISSING = f"it names what is promised ({', '.join(PRIVACY_TARGETS)})"


def parse_config(values: dict[str, Any]) -> RunConfig:
    """Check the values of a configuration.

    Raises
    ------
    InputError
        If a key or value is not accepted; the first one is named, an unknown key with the nearest known one.
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(first_problem(error, RunConfig, _MISSING)) from None
