"""The steps of a server from the sums of a round to its release and models, which a subclass may change.

A class of somebody else's may draw the noise in another way, or round, clamp or project what is released. Every such
change is repeated with exchanged trials, which tells post-processing from a rule that follows the secret.
"""

from functools import partial

import numpy as np
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.federation.federation import Federation
from fl_audit.mechanisms.noise_draws import add_noise
from fl_audit.mechanisms.noises.mechanism_noise import ServerNoiseDraws
from fl_audit.mechanisms.threat_model import InsiderView
from fl_audit.strategies.noised_sums import (
    NoisedSums,
    NoisingServer,
    RecordedDraws,
    ReleaseOrigin,
    StepReplay,
    copy_of,
    noised_sums,
)
from fl_audit.strategies.round_secrets_log import RoundSecretsLog
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.trial_batches import TrialBatch


class ReleaseSteps(Strategy):
    """Flower strategy with the steps of a server that adds the noise, and tests of what a subclass makes of them."""

    federation: Federation  # public facts of the federation: clients, training and mechanism
    challenger: SeededChallenger  # source of membership, samples and noise
    parameters: int  # number of scalar parameters of one model
    opening: RoundSecretsLog | None  # the challenger's log of secrets for the verdict; None logs nothing
    noise_draws: dict[str, ServerNoiseDraws]  # the server's draws of noise, by batch name
    _replays: dict[str, StepReplay]  # of a server's own steps, by batch name

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        """Add the server's noise to the sums of a batch of trials in place, and return them.

        A subclass may draw the noise in another way. What it does to the noised sums belongs into `post_process_sums`,
        or into this method after a call of ours. Then it is told apart from missing noise, see
        `fl_audit.strategies.noised_sums`.

        Parameters
        ----------
        batch
            The batch of trials.
        server_round
            Number of the round, from 1.
        total
            Sums of the contributions, shape (trials, parameters).
        sigma
            Standard deviation of the noise for each trial, shape (trials,), as the mechanism prescribes.
        """
        normals = partial(self.challenger.standard_normals, batch.trials, server_round, self.parameters)
        draws = self.noise_draws[batch.name]
        if isinstance(draws, RecordedDraws):
            draws.deviations.append(sigma)
        return add_noise(total, draws(normals, server_round), sigma)

    def post_process_sums(self, batch: TrialBatch, server_round: int, noised: Tensor) -> Tensor:
        """Return what the server releases of noised sums; a subclass may round, clamp or project them.

        It is called after the noise, whether the server or the clients added it.

        Parameters
        ----------
        batch
            The batch of trials.
        server_round
            Number of the round, from 1.
        noised
            Noised sums, float32 (trials, parameters); they may be overwritten.
        """
        return noised

    def post_process_models(self, batch: TrialBatch, server_round: int, models: Tensor) -> Tensor:
        """Return the models that the server releases, from those of the optimizer's step; a subclass may change them.

        Parameters
        ----------
        batch
            The batch of trials.
        server_round
            Number of the round, from 1.
        models
            Models after the step, float32 (trials, parameters); they may be overwritten.
        """
        return models

    def _has_own(self, *names: str) -> bool:
        """Return whether a subclass has put a method of its own in the place of one of these of ours."""
        return any(getattr(type(self), name) is not getattr(ReleaseSteps, name) for name in names)

    @property
    def _has_own_changes(self) -> bool:
        return self._has_own("noise", "post_process_sums", "post_process_models")

    def _replay_of(self, batch: TrialBatch, server_round: int) -> StepReplay:
        """Return the copies that repeat the server's steps; they are made before its first one."""
        if batch.name not in self._replays:
            # Coins of canaries differ from round to round; a rule that follows them shows in the first.
            coins = self.challenger.coins(batch.trials, server_round, self.federation.canaries)
            members = self.challenger.membership(batch.trials).is_in
            secrets = np.concatenate([members, coins], axis=1).astype(np.int64)
            self._replays[batch.name] = StepReplay.of(self, batch, secrets)
        return self._replays[batch.name]

    def noised_release(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> NoisedSums:
        """Return the release of a round by `noise`, and the noised sums if it follows from them.

        Parameters
        ----------
        batch
            The batch of trials, as `noise` takes it.
        server_round
            Number of the round, from 1.
        total
            Sums of the contributions, float32 (trials, parameters); they may be overwritten.
        sigma
            Standard deviation of the noise for each trial, (trials,).
        """
        if not self._has_own("noise"):
            release = self.noise(batch, server_round, total, sigma)
            return NoisedSums(release, release, ReleaseOrigin.NOISED_SUM)
        return noised_sums(self, batch, server_round, total, sigma, self._replay_of(batch, server_round))

    def _noised_once(self, batch: TrialBatch, server_round: int, sigma: Floats, total: Tensor) -> NoisedSums:
        """Return what `noised_release` would return for other sums, without any effect on later rounds."""
        if not self._has_own("noise"):
            return self.noised_release(batch, server_round, total, sigma)
        twin = copy_of(self, batch, self.federation.mechanism.noise.server_draws())
        return noised_sums(twin, batch, server_round, total, sigma, StepReplay.of(self, batch, None))

    def _log_origin(
        self, batch: TrialBatch, server_round: int, origin: ReleaseOrigin, changed: int, of_models: bool = False
    ) -> None:
        if self.opening is not None and self.opening.exact is not None:
            self.opening.exact.note_origin(batch, server_round, origin, changed, of_models)

    def _post_processed(self, batch: TrialBatch, server_round: int, noised: NoisedSums) -> NoisedSums:
        """Return the release that `post_process_sums` makes of noised sums, beside the sums that the tests look at."""
        if not self._has_own("post_process_sums"):
            return noised
        sums = noised.release.clone()

        def change(server: NoisingServer, order: Tensor) -> Tensor:
            return server.post_process_sums(batch, server_round, sums[order].clone())

        release = self.post_process_sums(batch, server_round, noised.release)
        origin = self._replays[batch.name].origin_of_change(change, release)
        if changed := int((release != sums).any(dim=1).sum()):
            self._log_origin(batch, server_round, origin, changed)
        before = sums if noised.noised is None or noised.noised is noised.release else noised.noised
        return NoisedSums(release, before, noised.origin, max(noised.changed, changed))

    def _released_models(self, batch: TrialBatch, server_round: int, stepped: Tensor) -> Tensor:
        """Return the models that `post_process_models` makes of those of the optimizer's step."""
        if not self._has_own("post_process_models"):
            return stepped

        def change(server: NoisingServer, order: Tensor) -> Tensor:
            return server.post_process_models(batch, server_round, stepped[order].clone())

        moved = self.post_process_models(batch, server_round, stepped.clone())
        origin = self._replays[batch.name].origin_of_change(change, moved)
        if changed := int((moved != stepped).any(dim=1).sum()):
            self._log_origin(batch, server_round, origin, changed, of_models=True)
        return moved

    def _shown(self, noised: NoisedSums) -> Tensor | None:
        """Return the noised sums that adversaries are shown beside the release; None if they see the release alone.

        A strategy that changes releases shows sums in every round, or its rounds could not be replayed from them.
        """
        if not self._has_own_changes:
            return None
        if self.federation.view is InsiderView.MODEL and not self._has_own("post_process_models"):
            return noised.noised if noised.changed else None
        return noised.before_changes
