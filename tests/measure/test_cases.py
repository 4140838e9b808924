from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.errors import MeasurementError, UsageError
from calc.measure.cases.formats import number_plan
from calc.measure.cases.grid import Grid
from calc.measure.cases.operators import PHASES, Case, list_cases, selects, workload
from calc.measure.kernels.experts import loads
from calc.measure.session import measure
from calc.operators import work as step_work
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.profiles.model import Block, ChunkedAttention, Experts, Extra, LatentAttention, LayerKind, SlidingAttention
from tests.measure.simulated_device import ATTENTION, GATED, tiny_model

#: Makes torch and numpy unimportable in a child process.
_BLOCK = (
    "import sys\n"
    "class Block:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name.split('.')[0] in ('torch', 'numpy'): raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
    "sys.meta_path.insert(0, Block())\n"
)


def child(code: str) -> subprocess.CompletedProcess[str]:
    """Run code without torch, in the checkout, with a tiny model at hand."""
    setup = _BLOCK + "from tests.measure.simulated_device import tiny_model\n"
    root = Path(__file__).parents[2]
    return subprocess.run([sys.executable, "-c", setup + code], cwd=root, capture_output=True, text=True, timeout=60, check=False)


def test_listing_needs_no_torch():
    done = child(
        "from calc.measure.session import list_cases\nprint(len(list_cases(tiny_model()).cases))\nassert 'torch' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


def test_without_torch_measuring_says_how_to_get_it():
    code = (
        "from calc.measure.session import measure\nfrom calc.errors import MeasurementError\n"
        "try: measure(tiny_model())\nexcept MeasurementError as e: print(e.exit_code, e.hint)"
    )
    done = child(code)
    assert done.stdout.strip() == "4 pip install 'roofcast[measure]'", done.stderr


def test_without_torch_the_processor_still_has_a_name():
    done = child(
        "from calc.measure.device.detect import detect_local\nd = detect_local()\nprint(d.kind, d.source, d.torch_version, bool(d.name))"
    )
    assert done.stdout.split()[0] in ("cpu", "cuda")
    assert done.stdout.split()[2:] == ["None", "True"], done.stderr


def test_cases_are_the_operators_of_the_prediction():
    model = tiny_model()
    work = workload(model, "fp16", batch_size=2, input_len=64, context_len=96)
    steps = (step_work.prefill(2, 64), step_work.decode(2, 96))
    for step in steps:
        operators = step_operators(model, Sharding(), number_plan("fp16"), step)
        cases = [c for c in work.cases if c.phase == step.phase]
        assert sum(c.flops * c.calls for c in cases) == sum(o.flops * o.count for o in operators)
        assert sum(c.bytes * c.calls for c in cases) == sum(o.bytes * o.count for o in operators)
    assert work.not_measured == ()
    assert len({c.id for c in work.cases}) == len(work.cases)
    assert all(c.flops > 0 or c.bytes > 0 for c in work.cases)
    assert {c.phase for c in work.cases} == set(PHASES)


def test_layers_of_one_shape_are_one_case():
    sliding = SlidingAttention(num_attention_heads=4, num_key_value_heads=2, head_dim=64, window=32)
    kinds = {
        "full": LayerKind(mixers=[ATTENTION], feed_forwards=[GATED]),
        "local": LayerKind(mixers=[sliding], feed_forwards=[GATED]),
    }
    model = tiny_model(layer_kinds=kinds, stack=[Block(repeat=3, layers=["local", "full"])])
    work = workload(model, "bf16", input_len=128, context_len=64)
    gate = [c for c in work.cases if c.operation == "gate_up_proj"]
    assert [(c.phase, c.calls) for c in gate] == [("prefill", 6), ("decode", 6)]
    masks = {
        (c.phase, c.parameters["mask"], c.parameters.get("limit"), c.shape["kv"]) for c in work.cases if c.kernel == "attention"
    }
    assert masks == {
        ("prefill", "causal", None, 128),
        ("prefill", "window", 32, 128),
        ("decode", "none", None, 64),
        ("decode", "none", None, 32),
    }


def test_a_chunked_mask_is_told_from_its_pairs():
    chunked = ChunkedAttention(num_attention_heads=4, num_key_value_heads=2, head_dim=64, chunk=16)
    model = tiny_model(layer_kinds={"decoder": LayerKind(mixers=[chunked], feed_forwards=[GATED])})
    attention = [c for c in workload(model, "bf16", input_len=40).cases if c.kernel == "attention"]
    assert attention[0].parameters == {"mask": "chunk", "limit": 16}


def test_what_has_no_kernel_is_named():
    extra = Extra(name="adapter", elements=4096, kind="matrix")
    experts = Experts(num_experts=8, num_experts_per_token=2, intermediate_size=128)
    kinds = {"decoder": LayerKind(mixers=[ATTENTION], feed_forwards=[experts], extras=[extra])}
    work = workload(tiny_model(layer_kinds=kinds), "bf16", tensor_parallel_size=2)
    products = [c for c in work.cases if c.op_class == "experts"]
    assert {(c.phase, c.shape["active"]) for c in products} == {("prefill", 8), ("decode", 2)}
    assert all(c.shape["rows"] == (1024 if c.phase == "prefill" else 2) for c in products)
    named = " ".join(work.not_measured)
    assert "adapter: the profile gives the number of these weights, not their shape" in named
    assert "collectives need several devices" in named
    measured = {e.operator.name for e in work.entries if e.case_id}
    missing = {e.operator.name for e in work.entries if not e.case_id}
    assert measured | missing == {e.operator.name for e in work.entries}
    assert missing == {"adapter", "all_reduce", "logits_all_gather"}


def test_a_skewed_draw_stands_beside_the_balanced_one():
    experts = Experts(num_experts=16, num_experts_per_token=2, intermediate_size=128)
    model = tiny_model(layer_kinds={"decoder": LayerKind(mixers=[ATTENTION], feed_forwards=[experts])})
    single = workload(model, "bf16", grid=Grid(skews=(1.0,)))
    assert not [c for c in single.cases if c.phase == "decode" and "zipf" in c.id]  # two rows for two experts in any draw
    plain = workload(model, "bf16", batch_size=8)
    work = workload(model, "bf16", batch_size=8, grid=Grid(skews=(1.0,)))
    skewed = [c for c in work.cases if c.id.endswith("/zipf1")]
    assert {(c.phase, c.operation) for c in skewed} == {
        (p, o) for p in PHASES for o in ("experts_gate_up_proj", "experts_down_proj")
    }
    assert {c.calls for c in skewed} == {0}
    assert [c for c in work.cases if c not in skewed] == list(plain.cases)
    for case in skewed:
        assert sum(loads(case)) == case.shape["rows"]
        assert max(loads(case)) >= case.shape["rows"] / case.shape["active"]
    prefill = next(c for c in skewed if c.phase == "prefill")
    even = next(c for c in plain.cases if c.phase == "prefill" and c.operation == prefill.operation)
    assert max(loads(prefill)) > 3 * max(loads(even))
    assert selects("experts:prefill", prefill)


@given(st.integers(1, 64), st.integers(0, 2000), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.integers(1, 8))
def test_loads_are_all_rows_and_fall(active, spare, skew, per_token):
    sizes = {"rows": active + spare, "active": active, "n": 8, "k": 8}
    own = {"skew": skew, "experts": 64, "per_token": per_token}
    found = loads(Case("id", "experts", "experts", "decode", "experts", sizes, "bf16", 1, 1, parameters=own))
    assert len(found) == active
    assert sum(found) == active + spare
    assert min(found) >= 1
    if skew:
        assert all(a >= b - 1 for a, b in pairwise(found))  # rounding moves a row at most
    else:
        assert max(found) - min(found) <= 1


def test_a_prompt_in_parts_is_attention_of_its_last_tokens():
    plain = workload(tiny_model(), "bf16")
    found = [c for c in workload(tiny_model(), "bf16", grid=Grid(chunks=((64, 192),))).cases if c not in plain.cases]
    assert [(c.operation, c.phase, c.calls) for c in found] == [("attention", "prefill", 0)]
    assert (found[0].shape["q"], found[0].shape["kv"], found[0].parameters) == (64, 256, {"mask": "causal"})
    assert found[0].flops == 4 * 4 * 64 * step_work.causal_pairs(64, 192)


def test_sampling_is_no_part_of_a_step():
    found = [c for c in workload(tiny_model(), "bf16", batch_size=3, grid=Grid(sampling=True)).cases if c.op_class == "sampling"]
    assert [(c.phase, c.shape, c.calls, c.parameters) for c in found] == [
        (phase, {"m": 3, "n": 1000}, 0, {"top": 50}) for phase in PHASES
    ]
    headless = tiny_model(vocab_size=None, has_lm_head=False)
    assert not [c for c in workload(headless, "bf16", grid=Grid(sampling=True)).cases if c.op_class == "sampling"]


def test_latent_attention_does_not_pass_for_attention_over_heads():
    latent = LatentAttention(
        num_attention_heads=4, q_lora_rank=None, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32
    )
    model = tiny_model(layer_kinds={"decoder": LayerKind(mixers=[latent], feed_forwards=[GATED])})
    work = workload(model, "bf16")
    prefill, decode = [c for c in work.cases if c.op_class == "attention"]
    assert (prefill.shape["hkv"], prefill.shape["d"], prefill.parameters) == (4, 48, {"mask": "causal"})
    # Absorbed: one head of keys, whose first part are the values; its bytes are counted once.
    assert (decode.shape["hkv"], decode.shape["d"], decode.shape["dv"]) == (1, 80, 64)
    assert decode.parameters["shared"]


def test_shapes_are_those_of_one_rank():
    one, two = (workload(tiny_model(), "bf16", tensor_parallel_size=n) for n in (1, 2))

    def width(work, name):
        return next(c.shape["n"] for c in work.cases if c.operation == name)

    assert width(two, "gate_up_proj") * 2 == width(one, "gate_up_proj")
    assert all(c.id.endswith("/tp2") for c in two.cases)


def test_patterns_select():
    model = tiny_model()
    assert {c.op_class for c in list_cases(model, only="gemm:*").cases} == {"gemm"}
    assert {c.phase for c in list_cases(model, only="decode").cases} == {"decode"}
    assert {(c.operation, c.phase) for c in list_cases(model, only="rope, attention:decode").cases} == {
        ("rope", "prefill"), ("rope", "decode"), ("attention", "decode"),
    }  # fmt: skip
    with pytest.raises(UsageError) as fault:
        list_cases(model, only="gem:*")
    assert "gemm:qkv_proj" in fault.value.hint


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"dtype": "fp8"}, "fp16"),
        ({"dtype": "fp8"}, "-q fp8"),
        ({"quantization": "q4_k_m"}, "fp8-block"),
        ({"quantization": "nonsense"}, "int8"),
        ({"dtype": "nonsense"}, "bf16"),
        ({"suite": "huge"}, "quick"),
        ({"device": "tpu"}, "cpu"),
        ({"device": "cpu:x"}, "cpu"),
        ({"batch_size": 0}, ""),
        ({"budget_s": 0.0}, ""),
        ({"budget_s": float("nan")}, ""),
        ({"tensor_parallel_size": 3}, "1, 2, 4"),
    ],
)
def test_wrong_words_are_refused_with_what_there_is(options, word):
    with pytest.raises(UsageError) as fault:
        measure(tiny_model(), **options)
    assert word in (fault.value.hint or "")


def test_a_device_that_is_not_here():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(MeasurementError) as fault:
        measure(tiny_model(), device="cuda")
    assert fault.value.exit_code == 4
    assert "cpu" in fault.value.hint


def test_a_file_that_cannot_be_written_is_refused_first(tmp_path):
    for path in (tmp_path, tmp_path / "missing" / "run.json"):
        with pytest.raises(UsageError):
            measure(tiny_model(), output=path)
