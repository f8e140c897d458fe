"""The membership attacks: one module for each, and the registry from which a configuration and a run take them."""

from fl_audit.audits.membership.attacks.model_outputs import ModelOutputs as ModelOutputs
