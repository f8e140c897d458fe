"""The configuration of a run: a TOML file, checked whole before anything is done; a module for each of its sections."""

from fl_audit.experiments.runs.config.audit import LossSource as LossSource
from fl_audit.experiments.runs.config.data import DataSection as DataSection
from fl_audit.experiments.runs.config.privacy import PRIVACY_TARGETS as PRIVACY_TARGETS
from fl_audit.experiments.runs.config.privacy import PROMISE_ONLY as PROMISE_ONLY
from fl_audit.experiments.runs.config.privacy import RANDOMISER_KEYS as RANDOMISER_KEYS
from fl_audit.experiments.runs.config.privacy import PrivacySection as PrivacySection
from fl_audit.experiments.runs.config.training import TrainingSection as TrainingSection
from fl_audit.experiments.runs.config.values import Scalar as Scalar
from fl_audit.experiments.runs.config.whole import RunConfig as RunConfig
from fl_audit.experiments.runs.config.whole import parse_config as parse_config
