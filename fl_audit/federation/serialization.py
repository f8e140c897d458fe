"""Send federations to client processes: each process receives the data that its clients may know, and no other.

The part that all clients share is sent once. A client's shard is sent only to processes that run this client. So a
client's machine needs neither the data files nor the user's modules, and a data owner receives only its own shard.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class SentFederation:
    """The part of a federation that is the same for all clients, in the form in which it is sent."""

    public: str  # the public federation, as JSON
    shards: Integers  # indices of D, client after client: the division of D is public
    sizes: Integers  # number of records of each client
    user: Integers | None  # user of each record of D, which is public; None if users are no units
    victim: int  # number of the client that holds the differing unit, see `LoadedFederation`
    spec: ModelSpec  # specification of the model
    known: ModelExecutionProfile  # properties of the model, found on records of the data
    core: VggCore | None  # frozen network of `vgg16`, sent where clients randomise their records; else None
    training: SentExamples  # D; empty if the receiver may not know all of D
    replacement: SentExamples | None  # replacement of the differing unit in D'; None if the receiver may not know it

    def __call__(self) -> None:
        """Register the federation in the receiving process."""
        public = Federation.from_json(self.public)
        settle_device(public.device)
        model = StackedModel.of(self.spec, profile=self.known).sized_for_device(public.device)
        model = model.clipping_in(public.mechanism.clipping.measured_in).trained_with(public.mechanism.loss)
        register_federation(
            LoadedFederation(
                public=public,
                training=self.training.to_examples(public),
                replacement=None if self.replacement is None else self.replacement.to_examples(public),
                shards=tuple(np.split(self.shards, np.cumsum(self.sizes)[:-1])),
                victim=self.victim,
                held_out=None,
                classes=self.spec.classes,
                inputs=self.spec.inputs,
                model=model,
                core=model.frozen_module if self.core is None else self.core,
                user=self.user,
            )
        )


@dataclass(frozen=True)
class SentShard:
    """Shard of one client, in the form in which it is sent to the process that runs the client."""

    public: str  # the public federation, as JSON
    client: int
    shard: SentExamples  # its records
    raw: Floats32 | None  # features before the client randomises them; None if it does not

    def __call__(self) -> None:
        """Add the shard to the federation that the process has received."""
        federation = load_federation(Federation.from_json(self.public))
        federation.receive(
            self.client, self.shard.to_examples(federation.public), None if self.raw is None else self.raw.copy()
        )


def sent_federation(federation: LoadedFederation, knows_all: bool, knows_differing: bool) -> SentFederation:
    """Return the part of a federation that is sent to every client, without the clients' shards."""
    replacement = federation.replacement if knows_all or knows_differing else None
    training = federation.training if knows_all else federation.training.take(np.empty(0, np.int64))
    return SentFederation(
        public=federation.public.to_json(),
        shards=np.concatenate(federation.shards),
        sizes=np.array([len(shard) for shard in federation.shards]),
        user=federation.user,
        victim=federation.victim,
        spec=federation.spec,
        known=federation.model.properties,
        core=federation.core if federation.raw is not None and isinstance(federation.core, VggCore) else None,
        training=SentExamples.of(training),
        replacement=None if replacement is None else SentExamples.of(replacement),
    )


def sent_shard(federation: LoadedFederation, client: int) -> SentShard:
    """Return a client's records as an object to be sent to the process that runs the client."""
    raw, shard = (
        None if federation.raw is None else federation.raw_features(client),
        federation.training.take(federation.shards[client]),
    )
    return SentShard(federation.public.to_json(), client, SentExamples.of(shard), raw)
