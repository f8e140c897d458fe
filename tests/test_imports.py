"""Properties that the source must not have: circles, imports that run upward, and files that `flwr run` leaves behind.

Nor has it two public classes of one name, questions about the kind of audit outside `audits/`, or questions about the
kind of noise or the membership attack outside the modules of these kinds.
"""

import re
from collections import defaultdict
from dataclasses import fields
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
from flwr.common.constant import FAB_EXCLUDE_PATTERNS, FAB_INCLUDE_PATTERNS
from pathspec import PathSpec

from fl_audit.audits.membership.attacks.registry import ATTACKS
from fl_audit.mechanisms.noises.registry import NOISES, names_of_noises

ROOT = Path(__file__).parents[1]
PACKAGES = ("fl_audit", "clients", "server", "strategies", "experiments")


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("fl_audit", cache_dir=None, exclude_type_checking_imports=True)
    assert "fl_audit.cli.main" in graph.modules
    # `prepare` raises CycleError and names the circle.
    drawing = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(drawing).prepare()
    assert len(drawing) > 450


_KINDS = "identifiability|membership|reconstruction|canaries"
QUESTIONS = re.compile(
    r"\.(plays_membership|exactly_one|with_insider|judges_canaries|names_candidates)\b|\bcanaries (>|==|!=) 0|"
    r"\bkind (([!=]= |(not )?in \()\"(" + _KINDS + r")\"|is (not )?Audit(?!ed))|\.audit [!=]= |"
    r"membership_scheme (is|[!=]=) |isinstance\([^)]*(" + _KINDS.title() + r"|Canary)Audit\b"
)
MOST_QUESTIONS = 0
"""Number of questions outside `audits/` about the kind of audit that is played; it is only ever made smaller."""


def test_questions_about_the_kind_of_audit_become_fewer() -> None:
    """A kind of audit answers for itself; `fl_audit.audits.registry` alone says which one it is."""
    asking = (
        "if a.with_insider:",
        'config.audit.kind == "membership"',
        "public.membership_scheme is X",
        "canaries > 0",
    )
    assert all(map(QUESTIONS.search, asking))
    outside = [path for path in source_files() if (ROOT / "fl_audit" / "audits") not in path.parents]
    question_counts = {
        path.relative_to(ROOT): len(QUESTIONS.findall(path.read_text(encoding="utf-8"))) for path in outside
    }
    nonzero_counts = {str(path): count for path, count in sorted(question_counts.items()) if count}
    assert sum(nonzero_counts.values()) <= MOST_QUESTIONS, nonzero_counts


def source_files() -> set[Path]:
    """Return the modules of all packages, each once."""
    return {path.resolve() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def asked_outside(questions: re.Pattern[str], *homes: Path) -> set[str]:
    """Return where questions are asked outside of some directories."""
    return {
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in source_files()
        if not set(homes) & set(path.parents)
        for match in questions.finditer(path.read_text(encoding="utf-8"))
    }


def _noise_questions() -> re.Pattern[str]:
    """Return what asks which noise it is: by its class, by its name, or by a field that only some noises have."""
    classes = "|".join(kind.__name__ for kind in NOISES.values())
    names = "|".join({*NOISES, *names_of_noises()})
    numbers = {noise_field.name for kind in NOISES.values() for noise_field in fields(kind)} - {"multiplier", "scaling"}  # type: ignore[arg-type]
    return re.compile(
        rf"\b({classes})\b|\bmatch [\w.]*noise\b|\b(isinstance|type|hasattr|getattr)\([\w.]*noise\b(?!, Tensor)|"
        rf"\bnoise(\.kind|\.name)? [!=]= [\"']|(\.noise|\bnoise\.kind|\bnoise\.name) ([!=]=|(not )?in) |"
        rf"\.noise is (?!(not )?None\b)|\bnoise\.({'|'.join(numbers)})\b|(\bcase|[!=]=) [\"']({names})[\"']"
    )


def test_only_a_kind_of_noise_asks_which_it_is() -> None:
    """Each noise has its behaviour in its own module; `fl_audit.mechanisms.noises.registry` alone lists the kinds."""
    questions = _noise_questions()
    asking = (
        "if isinstance(mechanism.noise, CorrelatedGaussian):",
        "case noises.DistributedGaussian(_, clients):",
        "match facts.federation.mechanism.noise:",
        "if isinstance(noise, tuple(kinds)):",
        "type(self.noise) is kind",
        'if privacy.noise == "central" or wide:',
        "noise.kind in CORRELATED",
        'case "inside-training":',
        "rounds = mechanism.noise.rounds",
    )
    assert [question for question in asking if not questions.search(question)] == []
    noise_package = ROOT / "fl_audit" / "mechanisms" / "noises"
    assert asked_outside(questions, noise_package) == set()
    assert len([*noise_package.rglob("*.py")]) > len(NOISES)


def _attack_questions() -> re.Pattern[str]:
    """Return what asks which attack it is: by its module or by its name."""
    modules = "|".join({attack.scores.__module__.split(".")[-1] for attack in ATTACKS.values()})
    names = "|".join(ATTACKS)
    return re.compile(
        rf"attacks\.({modules}|own_attack) import\b|"
        rf"\battack(\.name|_name)? (is( not)? [A-Z](?!one\b)|[!=]= |(not )?in [\[({{\"'])|"
        rf"[\"']({names})[\"'] (not )?in [\w.]*attacks\b"
    )


def test_only_an_attack_asks_which_it_is() -> None:
    """Each membership attack has its facts in its own module; their registry alone lists them."""
    questions = _attack_questions()
    asking = (
        "from fl_audit.audits.membership.attacks.own_attack import own_attack",
        'if attack.name == "lira":',
        'attack in ("loss", "rmia")',
        "attack is ATTRIBUTE",
        'if "active" in config.audit.attacks:',
        "from fl_audit.audits.membership.attacks.lira import LIRA",
    )
    assert [question for question in asking if not questions.search(question)] == []
    attack_package = ROOT / "fl_audit" / "audits" / "membership" / "attacks"
    papers = ROOT / "experiments" / "papers"
    assert asked_outside(questions, attack_package, papers) == set()


def test_no_two_public_classes_have_one_name() -> None:
    homes = defaultdict(list)
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            homes[name].append(str(path.relative_to(ROOT)))
    assert len(homes) > 500
    assert {name: class_paths for name, class_paths in homes.items() if len(class_paths) > 1} == {}


_NOT_OF_A_RUN = (".patch", ".csv")
"""Ends of names of files that no run reads: changes of examples, and tables of the numbers that papers print."""


def test_flowers_own_command_takes_every_file_along() -> None:
    """Flower packs an app by patterns, which take a module named after tests for a test of the app."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if "__pycache__" not in path.parts]
    names = [str(path.relative_to(ROOT)) for path in files if path.is_file() and path.suffix not in _NOT_OF_A_RUN]
    include_spec, exclude_spec = (
        PathSpec.from_lines("gitignore", item) for item in (FAB_INCLUDE_PATTERNS, FAB_EXCLUDE_PATTERNS)
    )
    assert [item for item in names if not include_spec.match_file(item) and not item.endswith("py.typed")] == []
    # The app's own description is made again, as part of what is packed.
    assert [item for item in names if exclude_spec.match_file(item) and not item.endswith("pyproject.toml")] == []
    assert len(names) > 400
