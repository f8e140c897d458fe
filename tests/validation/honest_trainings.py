"""Honest private trainings, many times over: `python -m tests.validation honest_trainings [--trainings N] [--first K]`.

Every form of honest training in `private_trainings` is played with records, weights and draws of its own, in turn, and
is looked into as `fl-audit training` does. Nobody is to be accused: the exit status is 1 where somebody was.
"""

import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import count, islice, product
from typing import NamedTuple

import torch
from rich.console import Console

from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.errors import InputError
from fl_audit.experiments.studies.study_commands import exit_with, parser_of
from fl_audit.value_checks import require_number
from fl_audit.verdict.verdict import Verdict
from tests.validation.faulty_mechanisms.private_trainings import EXAMPLES, HONEST

_EMPTY_FIRST_BATCH = "zeros(): argument 'dtype' must be torch.dtype"


class Played(NamedTuple):
    """The outcome of one honest training."""

    number: int  # its place among all trainings
    name: str  # its form, and which example has it
    verdict: Verdict
    named: tuple[str, ...]  # pitfalls that it is said to have


def played(first: int = 0) -> Iterator[Played]:
    """Yield the outcomes of honest trainings without end, the forms in turn, each time with other draws.

    A training is left out if Opacus itself ends it: of records that are dictionaries it cannot make an empty batch as
    long as no other came before, and some draws begin with one. The first so many are passed over. `InputError` is
    raised if a training fails for another reason.
    """
    forms = ((seed, *form) for seed in count() for form in product(EXAMPLES, HONEST.items()))
    for number, (seed, example, (name, train)) in enumerate(islice(forms, first, None), first):
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")  # of Opacus and torch, about every training
            torch.manual_seed(seed)
            function = partial(train, example)
            model = example.model()
            data = example.dataset(seed)
            try:
                audit_result = audit_training(function, "train", model, data, TrainingAuditOptions(1, 2))
            except InputError as error:
                if _EMPTY_FIRST_BATCH not in str(error):
                    raise
                continue
        yield Played(
            number,
            f"{example.name}, {name}",
            audit_result.verdict,
            tuple(finding.pitfall.value for finding in audit_result.pitfalls),
        )


def main() -> None:
    """Play, and tell what every accused training was accused of."""
    parser = parser_of(__doc__)
    parser.add_argument("--trainings", type=int, default=500, help="how many are played")
    parser.add_argument("--first", type=int, default=0, help="how many are passed over, to go on after an earlier call")
    options = parser.parse_args()
    require_number("trainings are", options.trainings, "whole numbers from 1")
    require_number("first is", options.first, "whole numbers from 0")
    console = Console(width=120)
    verdicts = Counter[str]()
    wrong = list[str]()
    for times, outcome in enumerate(islice(played(options.first), options.trainings), 1):
        verdicts[outcome.verdict] += 1
        if outcome.named or outcome.verdict is not Verdict.CONSISTENT:
            named_pitfalls = ", ".join(outcome.named) or "nothing"
            wrong.append(f"training {outcome.number} ({outcome.name}) is called {outcome.verdict}: {named_pitfalls}")
            console.print(wrong[-1])
        elif times % 20 == 0:
            console.print(f"{times} played, the last one is number {outcome.number}", style="dim")
    verdict_counts = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
    exit_with(wrong, f"{options.trainings} honest trainings: {verdict_counts}; none is accused")
