"""Attacks beside those of packages: the study's way to ask another interpreter, with scripts that need no package."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from fl_audit.audits.membership.attacks.lira import lira_scores
from fl_audit.data.catalogue import DataSpec
from fl_audit.errors import InputError
from fl_audit.experiments.studies.study_runs import arrays_of_script
from tests.validation import attack_packages
from tests.validation.attack_packages import PACKAGES, Package, PackageComparison, Trained, compare, compared, train

LIRA_SCRIPT = """
import sys
import numpy as np

table = np.load(sys.argv[1])
phi, is_in = table["confidences"], table["is_in"]
scores = np.zeros(phi.shape)
for w in range(len(phi)):
    rest = np.arange(len(phi)) != w
    for t in range(phi.shape[1]):
        parts = phi[rest & is_in[:, t], t], phi[rest & ~is_in[:, t], t]
        a, b = (-np.log(x.std()) - ((phi[w, t] - x.mean()) / x.std()) ** 2 / 2 for x in parts)
        scores[w, t] = a - b
np.savez(sys.argv[2], right=scores, wrong=-scores, noisy=scores + 1e-3)
"""


def online(trained: Trained) -> np.ndarray:
    return lira_scores(trained.confidences, trained.membership)


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train(DataSpec("digits"), trials=20, targets=60, steps=40)


def test_models_are_trained_on_the_records_of_their_coins(trained: Trained) -> None:
    assert trained.logits.shape == (20, 60, 10)
    assert trained.log_p[trained.is_in].mean() > trained.log_p[~trained.is_in].mean() + 0.3
    assert trained.population_log_p.mean() < trained.log_p[trained.is_in].mean() - 0.3
    sure = np.exp(trained.log_p)
    assert np.log(sure / (1 - sure)) == pytest.approx(trained.confidences, rel=1e-3, abs=1e-3)


def test_an_attack_in_another_interpreter_is_compared_score_by_score(trained: Trained) -> None:
    comparisons = tuple(PackageComparison("LiRA", key, online, equal=online) for key in ("right", "wrong", "noisy"))
    package = Package("fake", "a package", LIRA_SCRIPT, comparisons)
    right, wrong, noisy = compare(trained, {"fake": sys.executable}, [package])
    assert right.problem is None
    assert right.ours == right.theirs > 0.6
    assert wrong.theirs == pytest.approx(1 - wrong.ours)
    assert re.search(r"LiRA .*wrong: .*differ by \d", str(wrong.problem))
    assert re.search(r"noisy: .*differ by \d", str(noisy.problem))
    assert compare(trained, {"fake": None}, [package]) == []


def test_areas_must_agree_within_a_standard_error_but_where_a_reason_is_named(trained: Trained) -> None:
    attack = PackageComparison("LiRA", "key", online)
    scores = online(trained)
    order = np.argsort(np.argsort(scores, axis=1), axis=1).astype(float)
    assert compared("a package", attack, trained, order).problem is None
    row = compared("a package", attack, trained, -scores)
    assert "standard error" in str(row.problem)
    explained = replace(attack, reason="theirs is upside down")
    assert compared("a package", explained, trained, -scores).problem is None
    assert compared("a package", replace(explained, equal=lambda _: -scores), trained, -scores).problem is None
    assert "scores differ" in str(compared("a package", replace(explained, equal=online), trained, -scores).problem)


def test_what_an_interpreter_says_is_told_in_one_line(trained: Trained) -> None:
    with pytest.raises(InputError, match=r"ModuleNotFoundError: .*'no_such_package'"):
        arrays_of_script(sys.executable, "import no_such_package", {}, "an attack")
    with pytest.raises(InputError, match=r"/no/python .*no interpreter: .*of a Python"):
        arrays_of_script("/no/python", "", {}, "an attack")
    with pytest.raises(InputError, match="accepted are 4000 or more"):
        train(DataSpec("digits"), trials=2, targets=2000, steps=1)


def test_packages_without_an_interpreter_are_skipped_and_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attack_packages"])
    attack_packages.main()
    written = capsys.readouterr()
    assert written.err.count("is skipped") == 3
    assert "mialibrary is skipped: " in written.err
    assert written.out == ""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.option)
def test_every_key_that_is_compared_is_written_by_its_script(package: Package) -> None:
    compile(package.script, package.option, "exec")
    for one in package.comparisons:
        assert f'"{one.key}"' in package.script
