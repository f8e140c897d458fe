"""The configuration of a run: a TOML file that is checked completely before the run; one module for each section."""

from fl_audit.runs.config.audit_section import AuditSection as AuditSection
from fl_audit.runs.config.data_section import DataSection as DataSection
from fl_audit.runs.config.privacy_section import GUARANTEE_ONLY as GUARANTEE_ONLY
from fl_audit.runs.config.privacy_section import PRIVACY_TARGETS as PRIVACY_TARGETS
from fl_audit.runs.config.privacy_section import RANDOMIZER_KEYS as RANDOMIZER_KEYS
from fl_audit.runs.config.privacy_section import PrivacySection as PrivacySection
from fl_audit.runs.config.run_config import RunConfig as RunConfig
from fl_audit.runs.config.run_config import parse_config as parse_config
from fl_audit.runs.config.setting_types import Scalar as Scalar
from fl_audit.runs.config.training_section import TrainingSection as TrainingSection
