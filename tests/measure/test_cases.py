from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from calc.errors import MeasurementError, UsageError
from calc.measure.cases import PHASES, list_cases, number_plan, workload
from calc.measure.session import measure
from calc.operators import work as step_work
from calc.operators.sharding import Sharding
from calc.operators.step import step_operators
from calc.profiles.model import Block, ChunkedAttention, Experts, LatentAttention, LayerKind, SlidingAttention
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
        "from calc.measure.detect import detect_local\nd = detect_local()\nprint(d.kind, d.source, d.torch_version, bool(d.name))"
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
    experts = Experts(num_experts=8, num_experts_per_token=2, intermediate_size=128)
    model = tiny_model(layer_kinds={"decoder": LayerKind(mixers=[ATTENTION], feed_forwards=[experts])})
    work = workload(model, "bf16", tensor_parallel_size=2)
    named = " ".join(work.not_measured)
    assert "moe_permute: no kernel" in named
    products = [c for c in work.cases if c.op_class == "experts"]
    assert {(c.phase, c.shape["active"]) for c in products} == {("prefill", 8), ("decode", 2)}
    assert all(c.shape["rows"] == (1024 if c.phase == "prefill" else 2) for c in products)
    assert "collectives need several devices" in named
    measured = {e.operator.name for e in work.entries if e.case_id}
    missing = {e.operator.name for e in work.entries if not e.case_id}
    assert measured | missing == {e.operator.name for e in work.entries}


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
