"""The challenger's exact checks of some rounds: it recomputes what no secret of anybody else is needed for.

In a few trials and rounds, which the challenger draws, it computes the contribution of every unit alone. It compares
their lengths with the clipping norm, and their sums with what each client sent and with what the server summed. It also
compares the models before the first round with the public initial ones, and runs the server's step from sum to release
with the sum of D and with that of D'. What it measures is stored in the table of tallies, see
`fl_audit.verdict.exact_questions`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from flwr.app import Message
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.audits.audit import ClientRole
from fl_audit.audits.registry import audit_of
from fl_audit.federation.contributions import RoundContext
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.local_dpsgd import ClientRandomness, trained_privately
from fl_audit.federation.unit_contributions import (
    CheckedCell,
    ContributionTotals,
    operations,
    recompute,
    rounding_of_passes,
)
from fl_audit.mechanisms.contribution import LocalTraining, PrivateTraining
from fl_audit.mechanisms.noise_draws import noise_share
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.changed_contributions import ReplayedClient, origin_of_contribution
from fl_audit.strategies.noised_sums import NoisedSums, ReleaseOrigin
from fl_audit.strategies.received_contributions import UnnoisedRoundSum
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.exact_questions import MODELS, WHOLE, ExactRow, ExactRowKind

_EVERY = 150  # one trial-round of so many is checked, which costs about 2 % of the time of a run
_MOST = 6  # most trial-rounds of one batch that are checked
_MOST_MODELS = 16  # most initial models of one batch that are compared
_KINDS_OF_ORIGIN = {
    ReleaseOrigin.POST_PROCESSED: ExactRowKind.POST_PROCESSED,
    ReleaseOrigin.ONE_SECRET: ExactRowKind.ONE_SECRET,
    ReleaseOrigin.FOLLOWS_SECRET: ExactRowKind.FOLLOWS_SECRET,
    ReleaseOrigin.OWN_RULE: ExactRowKind.OWN_RULE,
    ReleaseOrigin.UNKNOWN: ExactRowKind.UNKNOWN_STEP,
    ReleaseOrigin.NOT_A_SUM: ExactRowKind.NOT_A_SUM,
}
_UNCHANGED = (ReleaseOrigin.NOISED_SUM, ReleaseOrigin.UNKNOWN)
"""Origins of contributions that no client changes after the noise."""
_EDGE = 1e-4  # relative distance from the clipping norm within which a quantile bit may go either way by rounding


ReleaseOfSums = Callable[[Tensor], NoisedSums]
"""The server's step from the sums of a round to its releases, without its model step."""
RequestTo = Callable[[int], Message]
"""Function from a client's number to the message by which it was asked to contribute to a round."""


@dataclass
class ExactChecks:
    """The exact checks of a run; it draws the checked trials and rounds from a stream of its own."""

    federation: LoadedFederation  # the federation with all its data
    challenger: SeededChallenger  # challenger, which knows the secrets of every trial
    initial: Callable[[Sequence[int]], Tensor]  # from numbers of trials to their public initial models
    replayed_client: ReplayedClient | None = None  # app of the clients; None if it cannot be called again
    _rows: dict[str, list[ExactRow]] = field(init=False, default_factory=dict)  # measured values, by name of a batch
    _chosen: dict[str, frozenset[tuple[int, int]]] = field(init=False, default_factory=dict)
    _has_released: bool = field(init=False, default=False)  # whether the server's step was run with D and D'
    # What clients' contributions follow from, by name of a batch, round and client.
    _origins: dict[tuple[str, int, int], ReleaseOrigin] = field(init=False, default_factory=dict)
    _has_broken: bool = field(init=False, default=False)  # whether a sum was wrong, so that no other is looked into

    def __post_init__(self) -> None:
        # A challenger of its own, whose methods no server can have replaced.
        challenger = self.challenger
        self._honest_challenger = SeededChallenger(
            challenger.seed, challenger.targets, challenger.who, challenger.prior
        )

    def chosen_rows(self, batch: TrialBatch, server_round: int) -> list[int]:
        """Return the indices, within a batch, of the trials whose sums are checked in a round."""
        if batch.name not in self._chosen:
            self._chosen[batch.name] = self._choose(batch)
        return sorted(row for row, number in self._chosen[batch.name] if number == server_round)

    def _choose(self, batch: TrialBatch) -> frozenset[tuple[int, int]]:
        """Draw trials and rounds; of the first batch also the first round with one secret and the last with another."""
        draw = generator(self._honest_challenger.seed, Purpose.EXACT_CHECKS, trial=batch.first)
        rounds = self.federation.public.rounds
        count = batch.count * rounds
        number = min(_MOST, count, int(count / _EVERY + draw.random()))
        chosen = {divmod(int(cell), rounds) for cell in draw.choice(count, size=number, replace=False)}
        cells = {(row, round_index + 1) for row, round_index in chosen}
        if batch.first == 0:
            is_in = self._honest_challenger.membership(batch.trials).is_in[:, 0]
            for side, server_round in ((True, 1), (False, rounds)):
                if (rows := np.flatnonzero(is_in == side)).size:
                    cells.add((int(draw.choice(rows)), server_round))
        return frozenset(cells)

    def check_start(self, batch: TrialBatch, models: Tensor) -> None:
        """Compare models before the first round with the public initial models, to the last bit."""
        looked_at = min(batch.count, _MOST_MODELS)
        expected = self.initial(list(batch.trials)[:looked_at])
        wrong = (models[:looked_at] != expected).sum(dim=1).tolist()
        worst = int(np.argmax(wrong))
        self._note(batch, ExactRowKind.START, batch.first + worst, 0, WHOLE, float(wrong[worst]))
        self._note(batch, ExactRowKind.STARTS, batch.first, 0, WHOLE, float(looked_at))

    def note_origin(self, batch: TrialBatch, number: int, origin: ReleaseOrigin, changed: int, of_models: bool) -> None:
        """Note what the releases of a round follow from, if they are not the sums with the claimed noise.

        `of_models`: Whether the models were changed after the optimizer's step, and not the sums.
        """
        if origin in _KINDS_OF_ORIGIN:
            where = MODELS if of_models else WHOLE
            self._note(batch, _KINDS_OF_ORIGIN[origin], batch.first, number, where, float(changed))

    def note_draws_in_common(self, batch: TrialBatch, shares: Mapping[int, float], is_anew: bool) -> None:
        """Note which shares of draws are the same with another secret seed.

        `shares`: Keyed by the number of a kind of draws.

        `is_anew`: Whether generators in modules began anew for both seeds.
        """
        for kind, share in shares.items():
            self._note(batch, ExactRowKind.SECOND, batch.first, 0, int(kind), share)
        if not is_anew:
            self._note(batch, ExactRowKind.MODULES_WENT_ON, batch.first, 0, WHOLE, 1.0)

    def check_sums(
        self, batch: TrialBatch, sums: UnnoisedRoundSum, release: ReleaseOfSums | None, request: RequestTo
    ) -> None:
        """Check the sums of a round in the drawn trials of a batch.

        `release`: None if clients add the noise, or if another release of the round would change later rounds.
        """
        torch.set_num_threads(self.federation.public.threads)
        for row in self.chosen_rows(batch, sums.number):
            if isinstance(self.federation.public.mechanism.contribution, PrivateTraining):
                self._check_updates(batch, sums, row, request)
            else:
                self._check_cell(batch, sums, row, release, request)

    def _note(self, batch: TrialBatch, kind: ExactRowKind, trial: int, number: int, where: int, value: float) -> None:
        self._rows.setdefault(batch.name, []).append(ExactRow(kind, trial, number, where, value))

    def rows(self, batch: TrialBatch) -> list[ExactRow]:
        """Return all that was measured of a batch, and forget it."""
        return self._rows.pop(batch.name, [])

    def _cell(self, batch: TrialBatch, sums: UnnoisedRoundSum, row: int, is_in: bool | None = None) -> CheckedCell:
        """Return what determines the sum of a trial; `is_in` puts the other secret in the place of the true one."""
        rows = torch.tensor([row])
        members = self._honest_challenger.membership([batch.first + row]).is_in[0].copy()
        if is_in is not None:
            members[0] = is_in
        device, norms = self.federation.public.device, None if sums.norms is None else sums.norms[rows]
        moment = RoundContext(sums.number, None if norms is None else norms.to(device))
        sample = None if sums.taking_part is None else sums.taking_part[row].numpy()
        public, victim = self.federation.public, self.federation.victim
        is_pair = audit_of(public).role(self.federation, victim) is ClientRole.VICTIM
        return CheckedCell(sums.models[rows].to(device), moment, members, sample, is_pair)

    def _check_cell(
        self, batch: TrialBatch, sums: UnnoisedRoundSum, row: int, release: ReleaseOfSums | None, request: RequestTo
    ) -> None:
        """Recompute the sum of one trial, and compare it with what clients sent and with what the server summed."""
        federation, public, trial = self.federation, self.federation.public, batch.first + row
        cell, size = self._cell(batch, sums, row), sums.total.shape[1]
        norm = public.mechanism.clipping_norm if sums.norms is None else float(sums.norms[row])
        whole, tensor = ContributionTotals.zero(size), torch.zeros(size, dtype=torch.float64)
        worst, longest, seen_units = (0.0, 1.0, WHOLE), (0.0, WHOLE), set[int]()
        for client in range(public.clients):
            if (sent := _sent_in(sums, client, row)) is None:
                continue
            totals = recompute(federation, client, cell)
            longest = max(longest, totals.longest)
            share = self._share(client, trial, sums.number, size)
            if public.ascent > 0 and client == federation.insider:
                share = sent - totals.total  # it adds what it likes, and protects nobody by that
            extent = ContributionTotals(totals.total, totals.sizes + share.abs(), 0.0, totals.lengths, totals.numbers)
            difference = sent - totals.total - share
            is_apart = float(difference.norm()) > extent.rounding(operations(federation)) + 1e-30
            if self._is_changed_after_noise(batch, sums, client, request, is_apart):
                share = share + difference
                difference = torch.zeros_like(difference)
            gap = self._gap(difference, extent, (client,), cell, norm)
            worst = max(worst, (*gap, client), key=_excess)
            tensor += share
            self._add_once(whole, totals, seen_units, client, cell)
        for canary in range(public.clients, public.nodes):
            if (sent := _sent_in(sums, canary, row)) is not None:
                tensor += sent
                longest = max(longest, (float(sent.norm()), canary))
        extent = ContributionTotals(whole.total, whole.sizes + tensor.abs(), 0.0, whole.lengths, whole.numbers)
        clients = tuple(range(public.clients))
        gap = self._gap(sums.total[row].double() - whole.total - tensor, extent, clients, cell, norm)
        worst = max(worst, (*gap, WHOLE), key=_excess)
        self._note(batch, ExactRowKind.SUM, trial, sums.number, worst[2], worst[0])
        self._note(batch, ExactRowKind.SUM_ALLOWED, trial, sums.number, worst[2], worst[1])
        self._note(batch, ExactRowKind.LENGTH, trial, sums.number, longest[1], longest[0] / norm)
        self._note(batch, ExactRowKind.UNITS, trial, sums.number, WHOLE, float(whole.count))
        if public.mechanism.is_adaptive:
            self._check_bits(batch, sums, row, cell, whole.centred_bits)
        if release is not None and not self._has_released:
            self._check_release(batch, sums, row, whole.total + tensor, release)

    def _is_changed_after_noise(
        self, batch: TrialBatch, sums: UnnoisedRoundSum, client: int, request: RequestTo, is_apart: bool
    ) -> bool:
        """Return whether a client changes its noised contribution, and note by which kind of rule.

        A contribution that does not follow from the noised one is no such change, and its sum tells by how much. Each
        client is asked once with all trials of a batch, and again where a contribution is apart from the noised one.
        """
        noise = self.federation.public.mechanism.noise
        is_replayed = is_apart or not any(client == replayed_client for _, _, replayed_client in self._origins)
        if (
            self.replayed_client is None
            or not is_replayed
            or noise.origin not in (NoiseOrigin.CLIENTS, NoiseOrigin.TRAINING)
        ):
            return False
        key = (batch.name, sums.number, client)
        if key not in self._origins:
            array = sums.sent[client].values
            origin = origin_of_contribution(self.replayed_client, request(client), client, sums.number, array)
            self._origins[key] = origin
            if origin not in _UNCHANGED:
                self._note(batch, _KINDS_OF_ORIGIN[origin], batch.first, sums.number, client, float(len(array)))
        return self._origins[key] not in _UNCHANGED

    def _share(self, client: int, trial: int, number: int, size: int) -> Tensor:
        """Return the share of the noise that a client was to add, float64 (parameters,); 0 if clients add none."""
        mechanism = self.federation.public.mechanism
        if mechanism.noise.origin is not NoiseOrigin.CLIENTS:
            return torch.zeros(size, dtype=torch.float64)
        seed = self._honest_challenger.noise_seed(client)
        return mechanism.share_scale * noise_share(seed, [trial], number, size)[0].double()

    def _add_once(
        self,
        totals: ContributionTotals,
        client_totals: ContributionTotals,
        visited: set[int],
        client: int,
        cell: CheckedCell,
    ) -> None:
        """Add a client's contributions to the sum over D, without those of units that another client counted."""
        numbers = [number for part in client_totals.numbers for number in part.tolist()]
        if not visited.isdisjoint(numbers):
            taking_part = np.ones(self.federation.units, bool) if cell.taking_part is None else cell.taking_part.copy()
            taking_part[sorted(visited)] = False
            client_totals = recompute(self.federation, client, replace(cell, taking_part=taking_part))
        visited.update(numbers)
        totals.total += client_totals.total
        totals.sizes += client_totals.sizes
        totals.centred_bits += client_totals.centred_bits
        totals.lengths += client_totals.lengths
        totals.numbers += client_totals.numbers

    def _gap(
        self, apart: Tensor, totals: ContributionTotals, clients: Sequence[int], cell: CheckedCell, norm: float
    ) -> tuple[float, float]:
        """Return the length of a difference and what rounding may make of it, both in clipping norms."""
        gap, allowed = float(apart.norm()), totals.rounding(operations(self.federation)) + 1e-30
        # Looked into once: a difference that rounding explains is rare, and one that it does not ends the question.
        if gap > allowed and not self._has_broken:
            contribution = self.federation.public.mechanism.contribution
            draw = generator(0, Purpose.EXACT_CHECKS, round=cell.moment.number)
            for client in clients:
                steps = 1
                if isinstance(contribution, LocalTraining):
                    steps = contribution.schedule.steps_on(len(self.federation.shards[client]))
                allowed += rounding_of_passes(self.federation, client, cell, draw, steps)
            self._has_broken = gap > allowed
        return gap / norm, allowed / norm

    def _check_bits(
        self, batch: TrialBatch, sums: UnnoisedRoundSum, row: int, cell: CheckedCell, centred_bits: float
    ) -> None:
        """Compare the sum of quantile bits with that of the units; bits at the edge of the norm may go either way."""
        apart, allowed = abs(float(sums.centred_bits[row]) - centred_bits), 0.0
        if apart > 0 and cell.moment.norms is not None:
            ends = [RoundContext(cell.moment.number, cell.moment.norms * (1 + sign * _EDGE)) for sign in (1, -1)]
            clients = [
                client for client in range(self.federation.public.clients) if _sent_in(sums, client, row) is not None
            ]
            bit_rows = [
                sum(recompute(self.federation, client, replace(cell, moment=end)).centred_bits for client in clients)
                for end in ends
            ]
            allowed = abs(bit_rows[0] - bit_rows[1])
        self._note(batch, ExactRowKind.BITS, batch.first + row, sums.number, WHOLE, apart)
        self._note(batch, ExactRowKind.BITS_ALLOWED, batch.first + row, sums.number, WHOLE, allowed)

    def _check_release(
        self, batch: TrialBatch, sums: UnnoisedRoundSum, row: int, total: Tensor, release: ReleaseOfSums
    ) -> None:
        """Run the server's step from sums to releases with the sum of D and with that of D', under the same noise."""
        public, trial = self.federation.public, batch.first + row
        sides = [self._cell(batch, sums, row, is_in) for is_in in (True, False)]
        if sides[0].taking_part is not None and not sides[0].taking_part[self._target]:
            return
        self._has_released, victim = True, self.federation.victim
        true = recompute(self.federation, victim, self._cell(batch, sums, row)).total
        tensors = [total - true + recompute(self.federation, victim, side).total for side in sides]
        try:
            present, again, absent = (_released(release, sums.total, row, tensors[at]) for at in (0, 0, 1))
        except Exception:  # a server of somebody else may keep anything between its rounds
            return
        if present is None or again is None or absent is None or not torch.equal(present, again):
            return
        norm = public.mechanism.clipping_norm if sums.norms is None else float(sums.norms[row])
        largest = public.mechanism.adjacency.sensitivity_of_sum(norm)
        if public.mechanism.scaling is SensitivityKind.LOCAL:
            largest = float(sums.local_sensitivity[row])
        order = public.mechanism.clipping.measured_in.order
        moved = float((present - absent).norm(p=order))
        rounding = 4 * 2.0**-24 * float(present.norm(p=order) + absent.norm(p=order))
        self._note(batch, ExactRowKind.MOVED, trial, sums.number, WHOLE, moved / norm)
        self._note(
            batch, ExactRowKind.MOVED_ALLOWED, trial, sums.number, WHOLE, (largest * (1 + 1e-4) + rounding) / norm
        )

    @property
    def _target(self) -> int:
        is_client = self.federation.unit is Unit.CLIENT
        return self.federation.victim if is_client else self.federation.target

    def _check_updates(self, batch: TrialBatch, sums: UnnoisedRoundSum, row: int, request: RequestTo) -> None:
        """Repeat the private training of every client, and compare its update with what it sent.

        Samples and noise are drawn inside of the training, from the seed that the client was given.
        """
        federation, trial, worst = self.federation, batch.first + row, (0.0, 1.0, WHOLE)
        if federation.public.canaries:
            return
        cell, total = self._cell(batch, sums, row), torch.zeros(sums.total.shape[1], dtype=torch.float64)
        norm = federation.public.mechanism.clipping_norm
        for client in range(federation.public.clients):
            if (sent := _sent_in(sums, client, row)) is None:
                continue
            draws = ClientRandomness(self._honest_challenger.noise_seed(client), (trial,))
            targets = federation.targets_of(client)
            is_in = cell.members[list(targets)][:1] if targets else None
            updates = trained_privately(federation, client, cell.model, sums.number, draws, is_in).updates
            expected = updates[0].double().cpu()
            total += sent
            allowed = 4 * 2.0**-24 * float(expected.norm()) * operations(federation) ** 0.5 + 1e-30
            distance = float((sent - expected).norm())
            if self._is_changed_after_noise(batch, sums, client, request, distance > allowed):
                distance = 0.0
            worst = max(worst, (distance / norm, allowed / norm, client), key=_excess)
        rounding = 4 * 2.0**-24 * federation.public.clients**0.5 * float(sums.total[row].norm() + total.norm()) + 1e-30
        distance = float((sums.total[row].double() - total).norm())
        worst = max(worst, (distance / norm, rounding / norm, WHOLE), key=_excess)
        self._note(batch, ExactRowKind.SUM, trial, sums.number, worst[2], worst[0])
        self._note(batch, ExactRowKind.SUM_ALLOWED, trial, sums.number, worst[2], worst[1])


def _excess(gap: tuple[float, float, int]) -> float:
    return gap[0] / gap[1]


def _sent_in(sums: UnnoisedRoundSum, client: int, row: int) -> Tensor | None:
    """Return what a client sent in a trial, float64 (parameters,); None if it was not asked."""
    contribution = sums.sent.get(client)
    values = None if contribution is None else contribution.in_trial(row)
    return None if values is None else torch.from_numpy(values.astype(np.float64))


def _released(release: ReleaseOfSums, sums: Tensor, row: int, total: Tensor) -> Tensor | None:
    """Return the release of a trial, float64 (parameters,), if the sum `total` stood in the place of its own.

    It is the noised sum, if the release follows from it: what is done to it afterwards may move it further. None if the
    release is no sum with noise.
    """
    changed_sums = sums.clone()
    changed_sums[row] = total.float()
    released = release(changed_sums)
    if released.origin is ReleaseOrigin.NOT_A_SUM:
        return None
    return released.before_changes[row].double().clone()
