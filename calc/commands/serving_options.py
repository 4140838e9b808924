"""Options of speculative decoding and of stated loads, shared by the commands that serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from calc.commands import options as opt

if TYPE_CHECKING:
    from calc.serving.deployment import Deployment
    from calc.serving.load.objectives import Demand
    from calc.serving.speculation import Draft, Drafting

SPECULATION = (
    opt.text("acceptance", "--acceptance", help="Share of drafts kept, 0 to 1; by position: 0.8,0.6,0.5.", metavar="SHARE"),
    opt.text("draft_model", "--draft-model", help="Model that drafts, or ngram. Default: the model's next-token layers.", metavar="MODEL"),
)  # fmt: skip

LOAD = (
    opt.text("request_rate", "--request-rate", help="Requests per second of independent users.", metavar="RATE"),
    opt.text("concurrency", "--concurrency", help="Users at once, each asking again when answered.", metavar="N"),
)


def draft(options: dict[str, Any], deployment: Deployment) -> Draft | None:
    """The draft of a deployment, where drafts are asked for. Raises UsageError where nothing would draft."""
    from calc.errors import UsageError

    asked = drafting(options)
    model = deployment.model.profile
    if asked is None and deployment.memory.speculative_tokens and model.next_token_layers is None:
        raise UsageError(
            f"--speculative-tokens: {model.id} has no next-token layers to draft with",
            "name what drafts and what is kept of it: --draft-model MODEL or ngram, and --acceptance 0.7",
        )
    return asked.draft(deployment) if asked else None


def drafting(options: dict[str, Any]) -> Drafting | None:
    """What drafts, where drafts are asked for. Raises UsageError for rates outside 0..1 and options that do not go together."""
    import calc
    from calc import units
    from calc.errors import UsageError
    from calc.serving.speculation import NGRAM, Drafting

    given, model = options.get("acceptance"), options.get("draft_model")
    if given is None and model is None:
        return None
    if given is None:
        raise UsageError("--draft-model needs --acceptance", "the share of its drafts that the model keeps, e.g. --acceptance 0.7")
    if options.get("speculative_tokens") is None:
        raise UsageError("--acceptance needs --speculative-tokens", "how many tokens are drafted a round, e.g. 3")
    rates = tuple(units.parse_fraction(part, "--acceptance", zero=True) for part in given.split(","))
    loaded = None if model in (None, NGRAM) else calc.load_model(model, options.get("profiles_dir"))
    return Drafting(rates, loaded, looked_up=model == NGRAM)


def one_load(options: dict[str, Any]) -> None:
    """Refuse both kinds of load at once."""
    from calc.errors import UsageError

    if options.get("request_rate") is not None and options.get("concurrency") is not None:
        raise UsageError("--request-rate and --concurrency contradict each other", "say one: independent users, or a fixed number")


def demand(options: dict[str, Any]) -> Demand | None:
    """The load that was stated; None where none was. Raises UsageError for both kinds at once and for a rate that is not above 0."""
    from calc import units
    from calc.errors import UsageError
    from calc.serving.load.objectives import Demand

    one_load(options)
    rate, users = options.get("request_rate"), options.get("concurrency")
    if rate is not None:
        found = units.parse_rate(rate, "--request-rate")
        if found <= 0:
            raise UsageError(f"--request-rate must be above 0, not {rate}", "leave it out to ask about a batch alone")
        return Demand(found, None, 0.0)
    return None if users is None else Demand(None, units.parse_count(users, "--concurrency", maximum=units.MAX_BATCH), 0.0)
