"""The faulty mechanisms: for each the false claim, the real mechanism, the place where it was seen, and the fix."""

import math
import random
from dataclasses import replace

import numpy as np
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, Krum

from tests.validation.faulty_mechanisms import clients, honest_twins, parts
from tests.validation.faulty_mechanisms.honest_twins import NO_INCIDENT, FaultyMechanism, flowers_fixed, system

_FLOWER = "Flower 1.41"
_ONE_VECTOR = "Treat the model as one vector."
_NO_NUMBER = "Release no number that was not noised and accounted for."
_ONE_NUMBER = "Divide sum and noise by one and the same public number."
_ON_A_GRID = "Add in float64 and round to a fixed grid, or draw discrete noise on a grid."


def _one_round(
    name: str, wrong: str, source: str, fix: str, /, is_rounding: bool = False, **changed: object
) -> FaultyMechanism:
    """Return the honest mechanism of one round with some parts changed."""
    return FaultyMechanism(
        name, honest_twins.CENTRAL, system(honest_twins.ONE_ROUND.with_(**changed)), wrong, source, fix, is_rounding
    )


_NOISE = (
    _one_round(
        "wrong-denominator",
        "The mean is taken over the clients that take part, the noise is divided by all that are registered.",
        'Tramèr et al. 2022, "Debugging Differential Privacy": a factor of the batch size was wrong in the '
        "sensitivity, and an epsilon of 0.21 was at least 2.79.",
        _ONE_NUMBER,
        # Twice as many are registered as take part.
        deviation=lambda multiplier, this, _: multiplier * this.norm / this.asked / 2,
    ),
    FaultyMechanism(
        "replaced-as-removed",
        honest_twins.REPLACED,
        system(honest_twins.ONE_ROUND),
        "The noise is for a client that comes or goes, the claim is about one that is replaced.",
        f'The fixed-clipping wrappers of {_FLOWER} add noise for removal; Ponomareva et al. 2023, "How to DP-fy ML", '
        "warn that the two relations differ by a factor of two.",
        "Double the noise, or claim removal.",
    ),
    _one_round(
        "bare-bias",
        "One parameter gets no noise.",
        NO_INCIDENT,
        "Add noise to everything that is released, in one place.",
        is_noised=lambda name, axes: name != "bias",
    ),
    _one_round(
        "bare-scalar",
        "Parameters without axes get no noise.",
        f"In the wrappers of {_FLOWER} parameters without axes escape clipping.",
        _ONE_VECTOR,
        is_noised=lambda name, axes: axes > 0,
    ),
    _one_round(
        "unclipped-scalar",
        "Parameters without axes get noise, but are not clipped.",
        f"In the wrappers of {_FLOWER} parameters without axes escape clipping.",
        _ONE_VECTOR,
        clip=parts.all_but_scalars,
    ),
    FaultyMechanism(
        "same-noise-every-round",
        honest_twins.SHORT_RUN,
        system(honest_twins.TWO_ROUNDS.with_(source=lambda secret, round: parts.fresh(secret, 0))),
        "The generator starts anew in every round, so the difference of two releases has no noise.",
        NO_INCIDENT,
        "Keep one generator for the whole run, or derive a key from the round.",
    ),
    FaultyMechanism(
        "same-noise-every-client",
        honest_twins.DISTRIBUTED,
        replace(
            system(honest_twins.SUMMING.with_(said=lambda last, norm: {"noise-seed": random.getrandbits(32)})),
            mods=(clients.noising(1.0, honest_twins.SHARE, clients.noise_of_everybody),),
        ),
        "Every client draws its share of the noise from the seed that the server sends, so each knows all shares.",
        "An analogue: the workers of PyTorch's data loaders returned identical numpy random numbers for years "
        '(PyTorch FAQ, "My data loader workers return identical random numbers").',
        "Let every client draw on the randomness of its own operating system.",
    ),
    _one_round(
        "predictable-noise",
        "The noise is seeded with the number of the round: whoever runs the code can take it away.",
        'Garfinkel & Leclerc 2020, "Randomness Concerns When Deploying Differential Privacy"; Opacus offers a '
        "secure mode for this reason.",
        "Seed with the operating system's randomness, and use a cryptographic generator.",
        source=parts.seeded_with_round,
    ),
    _one_round(
        "half-precision",
        "Noise is added in float16, and the low bits of the result tell what it was added to.",
        'Mironov 2012, "On Significance of the Least Significant Bits for Differential Privacy".',
        _ON_A_GRID,
        is_rounding=True,
        add=parts.in_half,
    ),
    _one_round(
        "low-bits",
        "Noise is added in float32, and the low bits of the result tell whether it was added to next to nothing. Shown "
        "where all others contribute at most a millionth of the norm; how much the low bits tell beside larger "
        "contributions is not shown.",
        'Mironov 2012, "On Significance of the Least Significant Bits for Differential Privacy"; Jin et al. 2022, '
        '"Are We There Yet? Timing and Floating-Point Attacks on Differential Privacy Systems".',
        _ON_A_GRID,
        is_rounding=True,
        add=parts.in_single,
    ),
)

_SENSITIVITY = (
    _one_round(
        "weighted-by-examples",
        "Updates are weighted by the number of examples that clients name, the noise is for equal weights.",
        f'The default of FedAvg inside the wrappers of {_FLOWER}; McMahan et al. 2018, "Learning Differentially '
        'Private Recurrent Language Models", cap the weights for this reason.',
        "Weigh equally, or cap the weights and count the cap in the sensitivity.",
        weights=parts.by_examples,
    ),
    _one_round(
        "clipped-layer-by-layer",
        "Every layer is clipped to the norm that the noise counts for the whole model.",
        NO_INCIDENT + "; McMahan et al. 2018 divide the norm among layers.",
        "Clip the whole, or give each of m layers the norm over the square root of m.",
        clip=parts.every_layer,
    ),
    _one_round(
        "clipped-after-averaging",
        "Not the updates but their mean is clipped: one client can move it from end to end.",
        NO_INCIDENT,
        "Clip every update before it is added.",
        clip=parts.untouched,
        clip_mean=parts.whole_update,
    ),
    FaultyMechanism(
        "clipped-batch",
        honest_twins.RECORDS,
        replace(honest_twins.RECORDS.system, local=clients.clipped_batch),
        "The gradient of a batch is clipped, the noise is as if each record's had been.",
        '"Finding Private Bugs: Debugging Implementations of Differentially Private Stochastic Gradient Descent" '
        "(submitted to ICLR 2023) looks for such improper gradient computations.",
        "Clip the gradient of every record by itself, as Opacus does.",
    ),
    FaultyMechanism(
        "divided-by-true-size",
        honest_twins.RECORDS,
        replace(honest_twins.RECORDS.system, local=clients.mean_of_those_there),
        "Sums are divided by the true number of records, which differs by the record that comes or goes.",
        'Cebere et al. 2026, "Privacy in Theory, Bugs in Practice", found scales that depend on the data set in '
        "libraries in use. Opacus 1.6 divides by int(len(dataset) / len(loader)), which is 20 for 100 records in "
        "batches of 20, and 19 for 99 (issues 571 and 819 of Opacus).",
        "Divide by a public number: with Opacus, set `expected_batch_size` of the private optimizer to one.",
    ),
    _one_round(
        "clipped-model",
        "The models of clients are clipped and not their updates: from a model that is not zero, one client moves the "
        "sum by twice the norm.",
        NO_INCIDENT,
        "Subtract the model that was sent before clipping.",
        clip_round=parts.models_in_place_of_updates,
    ),
    _one_round(
        "median-length-as-norm",
        "Updates are clipped to the median of their lengths, and the noise is for this median: both follow from what "
        "one client sends.",
        NO_INCIDENT,
        "Clip to a norm that is known beforehand, or release a noised quantile of the lengths and account for it.",
        clip_round=parts.to_median_length,
        deviation=parts.of_the_median_length,
    ),
    FaultyMechanism(
        "clipping-factor-of-the-last-round",
        honest_twins.SHORT_RUN,
        system(honest_twins.TWO_ROUNDS.with_(clip_round=parts.by_last_lengths)),
        "Every update is scaled by the factor that its client's update of the round before needed.",
        NO_INCIDENT,
        "Take the factor from the update that it scales.",
    ),
    _one_round(
        "client-counted-twice",
        "One of the clients counts twice, the noise is for equal weights.",
        NO_INCIDENT,
        "Give every client the same weight, and check that no reply is added twice.",
        weights=parts.third_twice,
    ),
    _one_round(
        "missing-reply-averaged-away",
        "The mean is taken over the replies that came, the noise is for all that were asked.",
        f"In the wrappers of {_FLOWER} a missing reply changes the denominator and not the noise.",
        "Divide by the number of clients asked, or refuse the round.",
        weights=lambda this: np.full(len(this.replies), 1 / max(1, len(this.replies))),
    ),
    _one_round(
        "crash-on-zero",
        "An update of exactly zero ends the run with a division by zero, and everybody sees it end.",
        f"The fixed-clipping wrappers of {_FLOWER} raise ZeroDivisionError.",
        "Take the larger of the length and the norm before dividing.",
        clip=parts.dividing_by_length,
    ),
    FaultyMechanism(
        "noised-for-the-next-norm",
        honest_twins.ADAPTIVE_CLIPPING,
        system(honest_twins.ADAPTIVE.with_(deviation=lambda multiplier, this, norm: multiplier * norm / this.asked)),
        "Updates are clipped to one norm, and the noise is for the smaller one that was just worked out.",
        f"The adaptive-clipping wrappers of {_FLOWER} move the norm before they add noise.",
        "Move the norm after the noise is added.",
    ),
)

_BESIDE = (
    FaultyMechanism(
        "bare-quantile-bit",
        honest_twins.ADAPTIVE_CLIPPING,
        system(honest_twins.ADAPTIVE.with_(next_norm=parts.towards_median(honest_twins.RATE, 0.0))),
        "The share of clients within the clipping norm gets no noise, and the next norm tells it.",
        'Geyer et al. 2017, "Differentially Private Federated Learning: A Client Level Perspective", clip at the '
        "median of the lengths without noise; Andrew et al. 2021 add it.",
        "Add noise to the count of bits, and account for it.",
    ),
    _one_round(
        "examples-in-metrics",
        "The total number of examples is released beside the model.",
        NO_INCIDENT,
        _NO_NUMBER,
        metrics=lambda this: {parts.EXAMPLES: sum(reply.numbers[parts.EXAMPLES] for reply in this.replies)},
    ),
    _one_round(
        "loss-in-metrics",
        "The mean training loss is released beside the model.",
        f"FedAvg of {_FLOWER} averages whatever metrics clients send, and its wrappers add no noise to them.",
        _NO_NUMBER,
        metrics=lambda this: {parts.LOSS: float(np.mean([reply.numbers[parts.LOSS] for reply in this.replies]))},
    ),
    _one_round(
        "norm-in-metrics",
        "The mean length of the updates before clipping is released beside the model.",
        NO_INCIDENT,
        _NO_NUMBER,
        metrics=parts.mean_length,
    ),
    FaultyMechanism(
        "running-statistics",
        honest_twins.RECORDS,
        replace(
            system(honest_twins.OF_RECORDS.with_(buffers=parts.running_means), honest_twins.RECORDS.system),
            local=clients.with_running_mean,
        ),
        "The running mean of a batch normalisation is averaged and released without clipping and noise.",
        "Opacus refuses models with batch normalisation; its documentation says why.",
        "Use group normalisation, or keep the statistics on the clients.",
    ),
    FaultyMechanism(
        "message-size",
        honest_twins.SHORT_RUN,
        system(
            honest_twins.TWO_ROUNDS.with_(said=lambda last, norm: {"padding": "-" * len(last.replies) if last else ""})
        ),
        "The next round's message has one byte for every reply: its length tells who took part.",
        NO_INCIDENT,
        "Send messages whose size does not depend on who took part.",
    ),
)

_ACCOUNTING = (
    FaultyMechanism(
        "fixed-batches",
        honest_twins.POISSON,
        replace(
            system(honest_twins.SAMPLED, honest_twins.POISSON.system),
            local=clients.fixed_batches(honest_twins.POISSON_ROUNDS),
        ),
        "Amplification by sampling is claimed, while records go through fixed batches in order.",
        'Chua et al. 2024, "How Private are DP-SGD Implementations?"; Annamalai et al. 2024, "To Shuffle or not to '
        'Shuffle: Auditing DP-SGD with Shuffling".',
        "Sample batches as the accountant assumes, or claim no amplification.",
    ),
    FaultyMechanism(
        "wrong-sampling-rate",
        honest_twins.POISSON,
        replace(
            system(honest_twins.SAMPLED, honest_twins.POISSON.system),
            local=clients.poisson_batches(2 * honest_twins.SAMPLING_RATE),
        ),
        "The accountant divides the batch by twice as many records as there are.",
        NO_INCIDENT,
        "Take the rate from the sampler that runs.",
    ),
    FaultyMechanism(
        "epsilon-reset-every-round",
        honest_twins.LONG_RUN,
        system(honest_twins.ONE_ROUND),
        "The epsilon of one round is claimed of all four.",
        'Tang et al. 2017, "Privacy Loss in Apple\'s Implementation of Differential Privacy on MacOS 10.12": the '
        "budget was renewed every day.",
        "Compose over all rounds.",
    ),
    FaultyMechanism(
        "uncomposed-local-privacy",
        honest_twins.LOCAL,
        replace(honest_twins.LOCAL.system, mods=(clients.noising(1.0, honest_twins.MESSAGE_DEVIATION),)),
        "Every message of a client has the claimed epsilon, and it sends four.",
        f"LocalDpMod of {_FLOWER} calibrates its noise for one message.",
        "Divide the budget among the rounds.",
    ),
    FaultyMechanism(
        "off-by-one",
        honest_twins.SHORT_RUN,
        system(honest_twins.ONE_ROUND),
        "The accountant starts counting at zero, and leaves one of the two rounds out.",
        NO_INCIDENT,
        "Count releases where they are made.",
    ),
)

_MEANS_ONLY = (
    "Noise over the norm and the number of clients covers the mean alone: take the mean of the clipped updates, or "
    "find out how far one client can move what you release, and scale the noise to that."
)


def _around(name: str, inner: type[FedAvg], wrong: str, **settings: object) -> FaultyMechanism:
    """Return Flower's wrapper around another aggregation than the mean."""
    runs = replace(honest_twins.FLOWERS.system, strategy=flowers_fixed(inner, **settings))
    return FaultyMechanism(
        name,
        honest_twins.FLOWERS,
        runs,
        wrong,
        f"The fixed-clipping wrappers of {_FLOWER} take any strategy.",
        _MEANS_ONLY,
    )


_STAGED = (
    _around("private-median", FedMedian, "Its noise is for a mean, and the strategy inside takes the median."),
    _around(
        "private-trimmed-mean",
        FedTrimmedAvg,
        "Its noise is for a mean of all, and the strategy inside leaves out the smallest and the largest fifth.",
    ),
    _around(
        "private-krum",
        Krum,
        "The wrapper's noise is for a mean, and the strategy inside chooses one reply.",
        num_malicious_nodes=1,
    ),
    _one_round(
        "outliers-left-out",
        "Updates far from the mean are left out, and who is far depends on everybody's update.",
        NO_INCIDENT,
        "Leave nobody out for what the others sent; clipping bounds outliers already.",
        combine=parts.without_outliers,
    ),
    _one_round(
        "running-means-unclipped",
        "Tensors named running_* get noise, but are not clipped.",
        NO_INCIDENT,
        "Clip the whole state together, or keep the statistics on the clients.",
        clip=parts.all_but(lambda name, _: "running_" in name),
    ),
    _one_round(
        "counters-passed-on",
        "The counters of batch normalisations are averaged without clipping and noise.",
        f"Under the wrappers of {_FLOWER} num_batches_tracked tells whether a client took part.",
        "Release no counter: leave whole numbers out of what clients send.",
        clip=parts.all_but(lambda name, _: "num_batches_" in name),
        is_noised=lambda name, axes: "num_batches_" not in name,
    ),
    _one_round(
        "noise-by-replies",
        "The sum is divided by the clients that were asked, and the noise by those that replied.",
        f"In the wrappers of {_FLOWER} a missing reply changes the denominator and not the noise.",
        _ONE_NUMBER,
        deviation=lambda multiplier, this, _: multiplier * this.norm / max(1, len(this.replies)),
    ),
    _one_round(
        "sparse-noise",
        "Noise of a fixed length is added to the first thousand values of a tensor, and the others get none.",
        NO_INCIDENT,
        "Draw noise of the shape of what it is added to.",
        add=parts.sparsely,
    ),
    FaultyMechanism(
        "decaying-noise",
        honest_twins.LONG_RUN,
        system(honest_twins.ONE_ROUND.with_(multiplier=math.sqrt(honest_twins.LONG), deviation=parts.decaying(0.7))),
        "The noise becomes smaller by three tenths from round to round, and the accountant believes that it stays.",
        NO_INCIDENT,
        "Account for the noise of every round where it is drawn.",
    ),
)

FAULTY_MECHANISMS: tuple[FaultyMechanism, ...] = (
    *_NOISE,
    *_SENSITIVITY,
    *_BESIDE,
    *_ACCOUNTING,
    *_STAGED,
)  # all of them
