"""``hf:org/name[@revision]`` against a local server: what is asked, what is not, and what an absent Hub is answered with."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from calc.errors import UsageError
from calc.operators.numbers import plan
from calc.operators.parameters import count_parameters, model_weights
from calc.operators.stored import counted_bytes
from calc.profiles import sources
from tests.support.cli import Outcome, run
from tests.support.configs import import_text
from tests.support.gguf_models import config
from tests.support.hub_server import COMMIT, Hub, Repository, safetensors

needs_library = pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None, reason="huggingface_hub is not installed (extra hub)"
)
HUGE = 5 << 30
PLAIN = config("qwen3", torch_dtype="bfloat16", use_sliding_window=False)
AWQ = PLAIN | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}}


def as_bytes(data: dict[str, Any]) -> bytes:
    return json.dumps(data).encode()


def tensors_of(layers: int = 4, *, attention_in_16_bit: bool = False) -> dict[str, tuple[str, list[int], int]]:
    """Tensors of the AWQ checkpoint: packed words, zeros and scales beside what stayed in 16 bit."""
    found: dict[str, tuple[str, list[int], int]] = {}

    def plain(name: str, *shape: int) -> None:
        size = 2
        for width in shape:
            size *= width
        found[f"{name}.weight"] = ("BF16", list(shape), size)

    def packed(name: str, d_in: int, d_out: int) -> None:
        found[f"{name}.qweight"] = ("I32", [d_in, d_out // 8], d_in * d_out // 2)
        found[f"{name}.qzeros"] = ("I32", [d_in // 128, d_out // 8], d_in // 128 * d_out // 2)
        found[f"{name}.scales"] = ("F16", [d_in // 128, d_out], d_in // 128 * d_out * 2)

    plain("model.embed_tokens", 1024, 512)
    plain("lm_head", 1024, 512)
    plain("model.norm", 512)
    for i in range(layers):
        at = f"model.layers.{i}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            plain(f"{at}.{name}", 512)
        for name in ("q_norm", "k_norm"):
            plain(f"{at}.self_attn.{name}", 64)
        for name, d_in, d_out in (("q_proj", 512, 512), ("k_proj", 512, 128), ("v_proj", 512, 128), ("o_proj", 512, 512)):
            (plain if attention_in_16_bit else packed)(f"{at}.self_attn.{name}", d_in, d_out)
        for name, d_in, d_out in (("gate_proj", 512, 1024), ("up_proj", 512, 1024), ("down_proj", 1024, 512)):
            packed(f"{at}.mlp.{name}", d_in, d_out)
    return found


def sharded(tensors: dict[str, tuple[str, list[int], int]], count: int = 3) -> Repository:
    """The checkpoint over several files, whose data is never to be asked for."""
    names = list(tensors)
    files: dict[str, bytes] = {"config.json": as_bytes(AWQ)}
    holes: dict[str, int] = {}
    places: dict[str, str] = {}
    for number in range(count):
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        own = {name: tensors[name] for name in names[number::count]}
        files[file], size = safetensors(own)
        holes[file] = size
        places |= dict.fromkeys(own, file)
    total = sum(size for _, _, size in tensors.values())
    files["model.safetensors.index.json"] = as_bytes({"metadata": {"total_size": total}, "weight_map": places})
    return Repository(files, holes)


def repositories() -> dict[str, Repository]:
    single, size = safetensors(tensors_of())
    return {
        "org/plain": Repository({"config.json": as_bytes(PLAIN)}),
        "org/single": Repository({"config.json": as_bytes(AWQ), "model.safetensors": single}, {"model.safetensors": size + HUGE}),
        "org/stubborn": Repository(
            {"config.json": as_bytes(AWQ), "model.safetensors": single}, {"model.safetensors": HUGE}, ignores_ranges=True
        ),
        "org/sharded": sharded(tensors_of()),
        "org/mixed": sharded(tensors_of(attention_in_16_bit=True)),
        "org/broken": Repository({"config.json": as_bytes(AWQ), "model.safetensors": b"\xff" * 64}),
        "org/gated": Repository({}, gated=True),
        "org/private": Repository({"config.json": as_bytes(PLAIN)}, token="hf_secret"),
        "org/gguf-only": Repository({"model.gguf": b"GGUF"}),
        "org/unknown": Repository(
            {"config.json": as_bytes({"model_type": "qwen4", "hidden_size": 8, "auto_map": {"AutoModel": "x.py"}})}
        ),
    }


class Online:
    """The server and a cache that huggingface_hub keeps its files in."""

    def __init__(self, folder: Path) -> None:
        self.hub = Hub(repositories())
        self.folder = folder

    def show(self, source: str, **env: str) -> tuple[Outcome, list[tuple[str, str, str | None, int]]]:
        """(outcome of models show, what was asked of the server)."""
        self.hub.requests.clear()
        return run("models", "show", source, "--json", env=self.environment(**env)), list(self.hub.requests)

    def environment(self, **env: str) -> dict[str, str]:
        clean = {"HF_TOKEN": "", "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0"}
        return {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.folder), **clean, **env}


@pytest.fixture
def online(tmp_path: Path) -> Iterator[Online]:
    found = Online(tmp_path / "hf")
    yield found
    found.hub.close()


def exact(tensors: dict[str, tuple[str, list[int], int]]) -> int:
    return sum(size for _, _, size in tensors.values())


@needs_library
def test_config_alone_gives_the_numbers_of_the_config(online):
    outcome, asked = online.show("hf:org/plain")
    assert outcome.code == 0, outcome.stderr
    assert outcome.stderr == ""
    results = outcome.json["results"]
    twin, _ = import_text(json.dumps(PLAIN))
    assert results["parameters"] == count_parameters(twin).total
    assert results["weights_bytes"] == 2 * results["parameters"]
    assert results["hub_id"] == "org/plain"
    assert results["sources"] == [f"{online.hub.url}/org/plain/blob/{COMMIT}/config.json"]
    assert {path.rpartition("/")[2].partition(".")[2] for _, path, *_ in asked} <= {"json", "safetensors.index.json", "safetensors"}


@needs_library
def test_a_second_look_asks_for_the_revision_only_and_offline_for_nothing(online):
    first, _ = online.show("hf:org/sharded@v1")
    again, asked = online.show("hf:org/sharded@v1")
    assert again.json == first.json
    assert [(m, p) for m, p, *_ in asked if p.endswith("json")] == [("HEAD", "/org/sharded/resolve/v1/config.json")]
    offline, asked = online.show("hf:org/sharded@v1", HF_HUB_OFFLINE="1")
    assert asked == []
    assert offline.code == 0
    assert offline.json["results"]["weights_bytes"] == pytest.approx(first.json["results"]["weights_bytes"], abs=2)


@needs_library
@pytest.mark.parametrize("name", ["single", "sharded"])
def test_headers_give_exact_bytes_and_no_data_is_fetched(name, online):
    outcome, asked = online.show(f"hf:org/{name}")
    assert outcome.code == 0, outcome.stderr
    assert outcome.json["results"]["weights_bytes"] == exact(tensors_of())
    weights = [request for request in asked if request[1].endswith(".safetensors")]
    assert len(weights) == (1 if name == "single" else 3)
    assert all(method == "GET" and wanted and sent <= 100_000 for method, _, wanted, sent in weights)


@needs_library
def test_a_server_that_ignores_ranges_is_hung_up_on(online):
    outcome, asked = online.show("hf:org/stubborn")
    assert outcome.code == 0, outcome.stderr
    assert outcome.json["results"]["weights_bytes"] == exact(tensors_of())
    assert max(sent for *_, sent in asked) < 64 << 20


@needs_library
def test_headers_tell_what_the_config_does_not(online):
    """The config says that attention is quantised; the files hold it in 16 bit."""
    outcome, _ = online.show("hf:org/mixed")
    assert outcome.json["results"]["weights_bytes"] == exact(tensors_of(attention_in_16_bit=True))


@needs_library
def test_broken_headers_leave_the_config_and_are_said(online):
    outcome, _ = online.show("hf:org/broken")
    assert outcome.code == 0
    assert "headers of the safetensors files were not read" in outcome.stderr


@needs_library
@pytest.mark.parametrize(
    ("source", "env", "code", "says"),
    [
        ("hf:org/absent", {}, 2, "no such repository"),
        ("hf:org/plain@v9", {}, 2, "no revision 'v9'"),
        ("hf:org/private", {}, 2, "HF_TOKEN"),
        ("hf:org/gated", {}, 3, "is gated"),
        ("hf:org/gguf-only", {}, 3, "holds no config.json"),
        ("hf:org/unknown", {}, 3, "model_type 'qwen4' is unknown"),
        ("hf:org/plain", {"HF_HUB_OFFLINE": "1"}, 3, "HF_HUB_OFFLINE is set"),
        ("hf:org/plain", {"HF_ENDPOINT": "http://127.0.0.1:9"}, 3, "cannot be fetched"),
        ("hf:plain", {}, 2, "is not hf:org/name"),
        ("hf:org/../plain", {}, 2, "is not hf:org/name"),
    ],
)
def test_failures_say_what_to_do(source, env, code, says, online):
    outcome, _ = online.show(source, **env)
    assert (outcome.code, outcome.stdout) == (code, "")
    assert says in outcome.stderr
    error, hint = outcome.stderr.strip().splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")


@needs_library
def test_the_token_of_the_environment_is_used(online):
    outcome, _ = online.show("hf:org/private", HF_TOKEN="hf_secret")
    assert outcome.code == 0, outcome.stderr


@needs_library
def test_import_writes_a_profile_that_loads_to_the_same_numbers(online, tmp_path):
    target = tmp_path / "model.yaml"
    done = run("models", "import", "hf:org/sharded", "-o", str(target), env=online.environment())
    assert done.code == 0, done.stderr
    text = target.read_text(encoding="utf-8")
    assert "hub_id: org/sharded" in text
    assert COMMIT in text
    shown = run("models", "show", str(target), "--json").json["results"]
    assert shown["weights_bytes"] == exact(tensors_of())
    assert run("estimate", str(target), "rtx-4090").code == 0


def test_without_the_library_the_install_line_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", None)
    with pytest.raises(UsageError) as caught:
        sources.read_source("hf:org/name")
    assert "roofcast[hub]" in (caught.value.hint or "")
    assert "config.json" in (caught.value.hint or "")


def test_the_library_is_not_loaded_for_other_sources(tmp_path):
    (tmp_path / "config.json").write_bytes(as_bytes(PLAIN))
    code = f"import sys; from calc.profiles import sources; sources.read_source({str(tmp_path)!r}); print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_index_alone_is_spread_over_a_quantised_checkpoint():
    profile, _ = import_text(json.dumps(AWQ))
    numbers = plan(profile.storage.dtype, profile.storage.roles, compute="bf16", group_size=profile.storage.group_size)
    computed = count_parameters(profile, numbers).weights_bytes

    def with_total(total: int) -> int:
        storage = msgspec.structs.replace(profile.storage, total_bytes=total)
        changed = msgspec.structs.replace(profile, storage=storage)
        counted = plan(
            storage.dtype, storage.roles, compute="bf16", group_size=storage.group_size, counted_bytes=counted_bytes(changed)
        )
        return count_parameters(changed, counted).weights_bytes

    assert with_total(computed + 1_000_000) == computed + 1_000_000
    assert with_total(3 * computed) == computed  # that far off, the files hold something else


def test_roles_that_names_confuse_share_their_bytes():
    """What stands under another role's name is not lost: the two together keep their bytes."""
    profile, _ = import_text(json.dumps(PLAIN))
    sizes: dict[str, int] = {}
    for held in model_weights(profile):
        sizes[held.weight.role] = sizes.get(held.weight.role, 0) + 2 * held.weight.elements * held.count
    total = sum(sizes.values())
    confused = {**sizes, "other": sizes["attention"]}
    del confused["attention"]
    storage = msgspec.structs.replace(profile.storage, total_bytes=total, role_bytes=confused)
    changed = msgspec.structs.replace(profile, storage=storage)
    counted = plan("bf16", {}, compute="bf16", counted_bytes=counted_bytes(changed))
    assert count_parameters(changed, counted).weights_bytes == total
