"""Search of an app's code and configuration for signs of privacy, and for numbers that are stronger than those in use.

Signs of record-level privacy are libraries such as Opacus, and names such as `dp_sgd`. It is a matter of the clients'
code, which a review does not run in its trials. The code is parsed, so comments, strings and docstrings do not count.
"""

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, sqrt
from pathlib import Path

from fl_audit.app_audits.review.claims import StatedAppClaim
from fl_audit.ordinary_files import LARGEST_TEXT, read_file, read_text_file
from fl_audit.privacy.gaussian import gdp_epsilon
from fl_audit.words import plural

LIBRARIES = {
    "opacus": "Opacus",
    "tensorflow_privacy": "TensorFlow Privacy",
    "jax_privacy": "JAX-Privacy",
    "dp_accounting": "dp-accounting",
    "fastDP": "fastDP",
    "private_transformers": "private-transformers",
    "dp_transformers": "dp-transformers",
    "private_vision": "private-vision",
    "pyvacy": "PyVacy",
    "diffprivlib": "diffprivlib",
    "opendp": "OpenDP",
    "pydp": "PyDP",
    "prv_accountant": "prv-accountant",
    "autodp": "autodp",
    "tmlt": "Tumult",
    "snsynth": "SmartNoise",
    "mlx_privacy": "mlx-privacy",
}
"""Names of libraries for record-level privacy, keyed by the Python package."""
_BY_HAND = re.compile(
    r"dp_?sgd|dp_?adam|dp_?(sgd_?)?optimi[sz]er|dp_?keras|privacy_?engine|make_private"
    r"|per_?(sample|example|record)_?(grad|clip|norm)|clip_?(per|each)_?(sample|example|record)"
    r"|(sample|example|record)_?wise_?(grad|clip)|grad_?sample|ghost_?clip",
    re.IGNORECASE,
)
"""Pattern of names that are usual in handwritten code for DP-SGD."""
_SETTING = re.compile(r"noise[-_.]?multiplier|(target|dp|privacy)[-_.]?(epsilon|budget)", re.IGNORECASE)
"""Pattern of names of settings for noise multipliers and privacy budgets."""
_LEFT_OUT = {".git", ".venv", "venv", "env", "node_modules", "__pycache__", "site-packages"}
_MOST_PLACES = 3  # largest number of places that a phrase lists


@dataclass(frozen=True)
class RecordPrivacyMention:
    """A place in an app's code or settings that mentions record-level privacy."""

    what: str  # name of the library, name in handwritten code, or setting with its value
    file: str  # path of the file, relative to the app's directory
    line: int  # line number, from 1
    is_library: bool  # whether a library for record-level privacy is mentioned


def find_record_privacy_mentions(directory: Path) -> tuple[RecordPrivacyMention, ...]:
    """Return the places where an app's code mentions record-level privacy, ordered by file and line.

    Such places are imports and calls of libraries for DP, and names that are usual in code for DP-SGD. Folders of
    installed packages, such as virtual environments, are left out.
    """
    mentions = list[RecordPrivacyMention]()
    for path in sorted(directory.rglob("*.py")):
        inner = path.relative_to(directory)
        if _LEFT_OUT.isdisjoint(inner.parts):
            mentions += sorted(_in_file(path, str(inner)), key=lambda mention: mention.line)
    return tuple(dict.fromkeys(mentions))


def of_settings(file: Path, config: Mapping[str, object]) -> tuple[RecordPrivacyMention, ...]:
    """Return the settings in an app's `pyproject.toml` that switch on a noise multiplier or a privacy budget."""
    lines = read_text_file(file, errors="replace").split("\n")
    mentions = list[RecordPrivacyMention]()
    for name, value in config.items():
        last = name.rpartition(".")[2]
        line = next((index for index, text in enumerate(lines, 1) if last in text.partition("=")[0]), None)
        if _SETTING.search(name) and is_on(value) and line is not None:
            mentions.append(RecordPrivacyMention(f"{name} = {value}", file.name, line, is_library=False))
    return tuple(mentions)


def mentions_phrase(mentions: tuple[RecordPrivacyMention, ...]) -> str:
    """Return a phrase that lists mentions with their places, such as `Opacus (app.py:3)`; empty if there are none.

    If a library is mentioned, only libraries are listed.
    """
    sentences = list[str]()
    # If a library is used, other names are usually parts of it.
    mentions_shown = [mention for mention in mentions if mention.is_library] or mentions
    for subject in dict.fromkeys(mention.what for mention in mentions_shown):
        locations = [f"{mention.file}:{mention.line}" for mention in mentions_shown if mention.what == subject]
        suffix = f" and {len(locations) - _MOST_PLACES} more" if len(locations) > _MOST_PLACES else ""
        sentences.append(f"{subject} ({', '.join(locations[:_MOST_PLACES])}{suffix})")
    suffix = f" and {len(sentences) - _MOST_PLACES} more names" if len(sentences) > _MOST_PLACES else ""
    return f"{', '.join(sentences[:_MOST_PLACES])}{suffix}"


def _in_file(path: Path, name: str) -> Iterator[RecordPrivacyMention]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences in the app's strings
            tree = ast.parse(read_file(path, LARGEST_TEXT))
    except (OSError, SyntaxError, ValueError, RecursionError):  # files that Python cannot run either
        return
    aliases = dict[str, str]()
    for node in ast.walk(tree):
        for package, alias in _imported(node):
            library = LIBRARIES.get(package.partition(".")[0])
            if library is not None:
                aliases[alias] = library
                yield RecordPrivacyMention(library, name, node.lineno, is_library=True)  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        for written, line in _named(node):
            library = aliases.get(written.partition(".")[0])
            if library is not None and isinstance(node, ast.Call):
                yield RecordPrivacyMention(library, name, line, is_library=True)
            elif library is None and _BY_HAND.search(written.rpartition(".")[2]):
                yield RecordPrivacyMention(written.rpartition(".")[2], name, line, is_library=False)


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the package of each import in a syntax node, with the name that the import defines in the module.

    The name is "" for an import by a function call, which defines none.
    """
    match node:
        case ast.Import(names=names):
            for name in names:
                yield name.name, name.asname or name.name.partition(".")[0]
        case ast.ImportFrom(module=str(module), names=names, level=0):
            for name in names:
                yield module, name.asname or name.name
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(module)), *_],
        ):
            yield module, ""


def _named(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a syntax node defines, calls or uses as keyword, with their lines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, node.lineno
        case ast.Call(func=func):
            yield _dotted(func), node.lineno
        case ast.keyword(arg=str(name)):
            yield name, node.lineno
        case ast.Attribute(attr="grad_sample"):
            yield "grad_sample", node.lineno


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name):
            return f"{_dotted(inner)}.{name}"
        case _:
            return ""


_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # the places in "noiseMultiplier" at which a word begins
_WORDS_OF_PRIVACY = frozenset({"noise", "epsilon", "dp", "privacy", "private"})
_LEAST_CLAIM = 1e-3  # largest number that switches no privacy on
_OF_OPTIMIZERS = frozenset({"adam", "adagrad", "optimizer", "optim", "yogi", "greedy"})


def named_in(config: Mapping[str, object]) -> str:
    """Return a phrase with the privacy settings that a run configuration, keyed by name, switches on; "" if none."""
    settings = [f"{name} = {value}" for name, value in config.items() if _is_of_privacy(name) and is_on(value)]
    text = f"the app's configuration names {', '.join(settings)}, which was seen in nothing that was played"
    return text if settings else ""


def _is_of_privacy(name: str) -> bool:
    return bool(_WORDS_OF_PRIVACY & set(re.split(r"[^a-z]+", name.lower())))


def is_on(value: object) -> bool:
    """Return whether the value of a privacy setting switches privacy on.

    A number switches it on if it is above 0.001. Any other value switches it on, unless it is empty or one of the words
    none, no, off and false.
    """
    # A smaller epsilon belongs to an optimizer such as Adam, where it prevents a division by 0.
    if isinstance(value, (bool, int, float)):
        return value > _LEAST_CLAIM
    return str(value).strip().lower() not in ("", "none", "no", "off", "false")


def weaker_than_configured(app_claim: StatedAppClaim, config: Mapping[str, object], rounds: int) -> tuple[str, ...]:
    """Return a phrase for each number in an app's configuration that claims more privacy than the strategy has.

    Compared are noise multipliers, clipping norms and epsilons. An epsilon is compared with that of the strategy's
    noise over all rounds, or with that of `LocalDpMod`.
    """
    weaker = []
    for name, value in config.items():
        number = _number(value)
        if number is None or not is_on(number):
            continue
        words = frozenset(re.split(r"[^a-z0-9]+", _CAMEL.sub("-", name).lower()))
        if used := _weaker(app_claim, words, number, rounds):
            weaker.append(f"the configuration names {name} {value}; {used}")
    return tuple(weaker)


def _number(value: object) -> float | None:
    """Return a number, or a text that is one, as a float; None for other values."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isfinite(value) else None  # type: ignore[arg-type]


def _weaker(app_claim: StatedAppClaim, words: frozenset[str], number: float, rounds: int) -> str:
    """Return what the app uses if it is weaker than a configured number, otherwise ""; `words` are of its name."""
    if {"noise", "multiplier"} <= words and app_claim.noise is not None:
        return f"the strategy uses {app_claim.noise:g}" if _is_below(app_claim.noise, number) else ""
    if words & {"clip", "clipping"} and "norm" in words and app_claim.clip is not None:
        return f"the app clips to {app_claim.clip:g}" if _is_below(number, app_claim.clip) else ""
    if "epsilon" not in words or words & _OF_OPTIMIZERS:
        return ""
    if app_claim.epsilon is not None:
        return f"LocalDpMod uses {app_claim.epsilon:g}" if _is_below(number, app_claim.epsilon) else ""
    # The claim of a reviewer says nothing of the app's own noise.
    mu = app_claim.mu if app_claim.is_of_reviewer else app_claim.mu_of_round
    if mu is None or app_claim.claim is None:
        return ""
    whole = gdp_epsilon(app_claim.claim.delta, mu * sqrt(max(rounds, 1)))
    over = f"the strategy's noise comes to {whole:.4g} over {plural(rounds, 'round')} (sampling not counted)"
    return over if _is_below(number, whole) else ""


def _is_below(value: float, reference: float) -> bool:
    """Return whether a number is smaller than another by more than rounding, such as that to float32."""
    return value < reference * (1 - 1e-3)
