"""The configuration of a run: a TOML file, checked whole before anything is done; a module for each of its sections."""

from experiments.runs.config.audit import AuditSection, LossSource
from experiments.runs.config.data import DataSection, ModelSection
from experiments.runs.config.privacy import PRIVACY_TARGETS, PROMISE_ONLY, RANDOMISER_KEYS, PrivacySection
from experiments.runs.config.training import RunSection, TrainingSection
from experiments.runs.config.values import Scalar
from experiments.runs.config.whole import RunConfig, parse_config

__all__ = [
    "PRIVACY_TARGETS",
    "PROMISE_ONLY",
    "RANDOMISER_KEYS",
    "AuditSection",
    "DataSection",
    "LossSource",
    "ModelSection",
    "PrivacySection",
    "RunConfig",
    "RunSection",
    "Scalar",
    "TrainingSection",
    "parse_config",
]
