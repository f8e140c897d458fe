"""The report of a run has no words of another noise, clipping or origin of noise than its own."""

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin, NoiseSettings
from fl_audit.mechanisms.noises.registry import names_of_noises, noise_of
from fl_audit.privacy.accounting_enums import NoiseDistribution, SensitivityKind, VectorNorm
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.run import run_audit
from tests.builders.runs import small_plan

CASES: dict[str, dict[str, Mapping[str, Any]]] = {
    **{name: {"privacy": {"noise": name}} for name in names_of_noises()},
    "inside-training": {
        "privacy": {"noise": None, "adjacency": "add-remove-record"},
        "training": {"strategy": "dp-sgd-clients", "local-batch": 20, "local-steps": 2},
    },
    "no noise": {"privacy": {"private": False, "noise-multiplier": None, "delta": None, "clipping-norm": None}},
    "adaptive clipping": {
        "privacy": {"clipping": "adaptive", "adjacency": "add-remove-client"},
        "training": {"strategy": "dp-fedavg", "local-batch": 5},
    },
}

MU = r"\bmu\b|μ|mu-GDP"


def phrases_of(name: str) -> set[str]:
    """Return the phrases by which a registered noise says who adds it."""
    noise = noise_of(NoiseSettings(name, 2.0, SensitivityKind.GLOBAL, clients=3, rounds=2, separation=None))
    return {phrase for phrase in noise.source_words().split(": ") if " " in phrase}


def foreign_to(mechanism: Mechanism) -> list[str]:
    """Return patterns of words that the report of a mechanism may not have."""
    noise = mechanism.noise
    # A distribution is no word by itself: a model may be called logistic, too.
    other_noises = [
        distribution
        for distribution in NoiseDistribution
        if distribution not in (noise.distribution, NoiseDistribution.NONE)
    ]
    patterns = [rf"\b{distribution} (noise|releases?|mechanism|distribution|DP)\b" for distribution in other_noises]
    phrases = set().union(*map(phrases_of, set(names_of_noises()) - {noise.name}))
    patterns += sorted(re.escape(phrase) for phrase in phrases if phrase not in noise.source_words())
    patterns += ["its own share"] * (noise.origin is not NoiseOrigin.CLIENTS)
    patterns += [rf"\b{norm} norm" for norm in VectorNorm if norm is not mechanism.clipping.measured_in]
    if noise.distribution is not NoiseDistribution.GAUSSIAN:
        patterns += [MU, "Opacus"]
    if not mechanism.is_adaptive:
        patterns += ["adaptive norm", "Andrew et al"]
    return patterns


def text_of(page: Path) -> str:
    """Return what a reader reads of a page: no styles, pictures or names of elements."""
    text = re.sub(r"<(style|script)\b.*?</\1>", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"data:[^\"')]*", "", text)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


@pytest.mark.few_cases(4)
@pytest.mark.parametrize("name", ["laplace", *(name for name in CASES if name != "laplace")])
def test_a_report_has_no_words_of_another_mechanism(name: str, tmp_path: Path) -> None:
    sections = {section: dict(values) for section, values in CASES[name].items()}
    privacy = {"belief": None, "sensitivity": None, "accountant": None, "noise-multiplier": 2.0}
    audit = {"trials": 4, "epsilon-star": False, "insider": name != "no noise"}
    run = {"trials-per-batch": 4, "client-time-limit": 600.0}
    training = {"rounds": 2} | sections.pop("training", {})
    plan = small_plan(privacy=privacy | sections["privacy"], training=training, audit=audit, run=run)
    run_audit(plan, tmp_path / "run", Engine.LOCAL)
    mechanism = plan.federation.mechanism
    report_text = text_of(tmp_path / "run" / "report.html")
    report_text += json.dumps(json.loads((tmp_path / "run" / "summary.json").read_text()), ensure_ascii=False)
    # Keys of the summary are the same for all, and the list of settings names what others need.
    report_text = re.sub(r"\"[a-z_]+\": ", "", report_text)
    foreign_words = {
        pattern: report_text[max(0, at.start() - 60) : at.end() + 40]
        for pattern in foreign_to(mechanism)
        if (at := re.search(pattern, report_text))
    }
    assert not foreign_words
    noise_name = str(mechanism.noise.distribution)
    assert noise_name in report_text or not plan.has_guarantee


def test_every_registered_noise_is_played() -> None:
    assert set(names_of_noises()) <= set(CASES)
