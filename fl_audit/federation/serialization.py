"""Send federations to client processes: each process receives the data that its clients may know, and no other.

The part that all clients share is sent once. A client's shard is sent only to processes that run this client. So a
client's machine needs neither the data files nor the user's modules, and a data owner receives only its own shard.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fl_audit.array_types import Floats32, Integers
from fl_audit.federation.federation import Federation
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation, register_federation
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning.fast_path_checks import ModelExecutionProfile
from fl_audit.learning.frozen_backbones import VggCore
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.torch_device import settle_device, to_device


@dataclass(frozen=True)
class SentExamples:
    """Examples (features and labels) as NumPy arrays, the form in which they are sent to other processes."""

    features: Floats32  # (n, *shape)
    labels: Integers  # (n,)
    user: Integers | None = None  # user of each example, (n,); None if users are no units

    @classmethod
    def of(cls, examples: Examples) -> "SentExamples":
        """Convert examples from tensors to the form in which they are sent."""
        user = None if examples.user is None else examples.user.cpu().numpy()
        return cls(examples.features.cpu().numpy(), examples.labels.cpu().numpy(), user)

    def to_examples(self, federation: Federation) -> Examples:
        """Convert the examples back to tensors on the federation's device, in the receiving process."""
        # The arrays may be views of read-only shared memory.
        features, labels = (to_device(array, federation.device) for array in (self.features, self.labels))
        user = None if self.user is None else to_device(self.user, federation.device)
        return Examples(features, labels, user)


def sent_federation(federation: LoadedFederation, knows_all: bool, knows_differing: bool) -> Callable[[], None]:
    """Return a picklable function that registers a federation, without its clients' shards, in another process."""
    replacement = federation.replacement if knows_all or knows_differing else None
    training = federation.training if knows_all else federation.training.take(np.empty(0, np.int64))
    return partial(
        _register,
        public=federation.public.to_json(),
        shards=np.concatenate(federation.shards),
        sizes=np.array([len(shard) for shard in federation.shards]),
        user=federation.user,
        victim=federation.victim,
        spec=federation.spec,
        profile=federation.model.properties,
        core=federation.core if federation.raw is not None and isinstance(federation.core, VggCore) else None,
        training=SentExamples.of(training),
        replacement=None if replacement is None else SentExamples.of(replacement),
    )


def _register(
    *,
    public: str,
    shards: Integers,
    sizes: Integers,
    user: Integers | None,
    victim: int,
    spec: ModelSpec,
    profile: ModelExecutionProfile,
    core: VggCore | None,
    training: SentExamples,
    replacement: SentExamples | None,
) -> None:
    """Register a federation in the receiving process.

    `public` is the public federation as JSON, `shards` the positions in D of all clients' records, client after client,
    and `sizes` the number of records of each client: the division of D is public. `user` has the user of each record,
    and is None if users are no units. `profile` are properties of the model that were found on records of the data.
    `core` is the frozen network of `vgg16` where clients randomise their records. `training` is D, without records if
    the receiver may not know all of D; `replacement` is None if it may not know that.
    """
    description = Federation.from_json(public)
    settle_device(description.device)
    model = StackedModel.of(spec, profile=profile).sized_for_device(description.device)
    model = model.clipping_in(description.mechanism.clipping.measured_in).trained_with(description.mechanism.loss)
    register_federation(
        LoadedFederation(
            public=description,
            training=training.to_examples(description),
            replacement=None if replacement is None else replacement.to_examples(description),
            shards=tuple(np.split(shards, np.cumsum(sizes)[:-1])),
            victim=victim,
            held_out=None,
            classes=spec.classes,
            inputs=spec.inputs,
            model=model,
            core=model.frozen_module if core is None else core,
            user=user,
        )
    )


def sent_shard(federation: LoadedFederation, client: int) -> Callable[[], None]:
    """Return a picklable function that adds a client's records to the federation that another process has received."""
    raw = None if federation.raw is None else federation.raw_features(client)
    shard = SentExamples.of(federation.training.take(federation.shards[client]))
    return partial(_receive_shard, federation.public.to_json(), client, shard, raw)


def _receive_shard(public: str, client: int, shard: SentExamples, raw: Floats32 | None) -> None:
    """Add a shard, with its features before the client randomises them, to the registered federation."""
    federation = load_federation(Federation.from_json(public))
    federation.receive(client, shard.to_examples(federation.public), None if raw is None else raw.copy())
