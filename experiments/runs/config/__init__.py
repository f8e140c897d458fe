"""The configuration of a run: a TOML file, checked whole before anything is done; a module for each of its sections."""

from experiments.runs.config.audit import LossSource as LossSource
from experiments.runs.config.data import DataSection as DataSection
from experiments.runs.config.privacy import PRIVACY_TARGETS as PRIVACY_TARGETS
from experiments.runs.config.privacy import PROMISE_ONLY as PROMISE_ONLY
from experiments.runs.config.privacy import RANDOMISER_KEYS as RANDOMISER_KEYS
from experiments.runs.config.privacy import PrivacySection as PrivacySection
from experiments.runs.config.training import TrainingSection as TrainingSection
from experiments.runs.config.values import Scalar as Scalar
from experiments.runs.config.whole import RunConfig as RunConfig
from experiments.runs.config.whole import parse_config as parse_config
