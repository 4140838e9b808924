"""Steps of prefill and decode apart: the cache on its way, the balance of both kinds, and what they carry together."""

from __future__ import annotations

from calc.formula import formula_of
from calc.report.explain import places
from calc.report.explain.step import Section, Step, Value
from calc.serving import disaggregation
from calc.serving.plan.apart import Apart


def section(found: Apart) -> Section:
    """The best way to run both apart, at the judged end of the range."""
    rules, sent = found.prefill.rules, found.transfer
    sure = f"{rules.part}, {found.tpot_s.evidence}"
    link = places.hardware(found.prefill.deployment, "interconnect", "scale_out_gb_per_s_per_direction_per_device")
    cache = (
        Value("cache_bytes", sent.bytes_per_rank, "B", f"of {rules.traffic.tail.input_len:,} tokens on the rank that holds most"),
        Value("bandwidth", sent.bandwidth_bytes_per_s, "B/s", link),
    )
    pace = (
        Value("prefill_s", found.prompt_s, "s", "a prompt on one prefill replica"),
        Value("decode_s", found.step_s, "s", f"a step of {found.batch_limit:,} requests under load"),
        Value("batch", float(found.batch_limit), "requests", "most at which the objectives hold"),
        Value("decode_steps", rules.traffic.mean_decode_steps, "", "of a request: prefill makes its first token"),
    )
    machines = (
        Value("prefill_machines", float(found.prefill_replicas)),
        Value("decode_machines", float(found.decode_replicas)),
    )
    of = disaggregation
    return Section(
        "Prefill and decode apart",
        (
            Step("KV transfer", formula_of(of.transfer_s), cache, sent.time_s, "s", places.name(of.transfer_s), "datasheet"),
            Step("prefill per decode replica", formula_of(of.ratio), pace, found.prefill_per_decode, "", places.name(of.ratio), sure),
            Step(
                "both carry", formula_of(of.request_rate), (*machines, *pace), found.sustainable_rate, "requests/s",
                places.name(of.request_rate), sure,
            ),
        ),
    )  # fmt: skip
