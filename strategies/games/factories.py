"""What a name on the command line puts on trial."""

from collections.abc import Sequence
from inspect import signature

from fl_audit.errors import InputError
from fl_audit.user_modules import import_function
from strategies.games.bridge import as_strategy, initial_model
from strategies.games.subject import Mod, Observer, Subject

_DEFAULT_NORM = 1.0


def subject_of(
    factory: str, mods: Sequence[str], clients: int, norm: float | None, is_clipped: bool, observer: str
) -> Subject:
    """Return the subject that a factory makes, or that is made around its strategy.

    Parameters
    ----------
    factory
        `package.module:name` of a function that returns a strategy of either interface or a subject; if it takes an
        argument, that is the number of clients.
    mods
        `package.module:name` of modifiers of the client app, outermost first.
    clients, is_clipped, observer
        As of `Subject`; a subject that the factory returns has its own.
    norm
        The clipping norm; None takes `clipping_norm` of the strategy, or 1.

    Raises
    ------
    InputError
        If a name cannot be imported, or the factory returns something else.
    """
    make = import_function(factory, "factory")
    made = make(clients) if signature(make).parameters else make()
    if isinstance(made, Subject):
        return made
    try:
        as_strategy(made)
    except InputError as error:
        raise InputError(f"factory {factory!r} returned {type(made).__name__}: {error}, or a Subject") from error
    own = getattr(made, "clipping_norm", _DEFAULT_NORM)
    chosen = norm if norm is not None else float(own) if isinstance(own, (int, float)) else _DEFAULT_NORM
    if observer not in list(Observer):
        raise InputError(f"--observer {observer!r}: accepted are {' and '.join(Observer)}")
    modifiers: tuple[Mod, ...] = tuple(import_function(mod, "modifier") for mod in mods)
    model = initial_model(made)
    return Subject(make, modifiers, None, clients, chosen, is_clipped, Observer(observer), model)
