"""Profiles to fill in: every figure that is asked for stands there as null, or as TODO where null would be an answer, with what it
means and where to read it.

No figure is made up: `roofcast check` names each line that is still open, and a profile that is filled in loads.
"""

from __future__ import annotations

from calc.profiles.writer import HARDWARE_SCHEMA_LINE, SCHEMA_LINE

_TASK = (
    "# Put a figure in place of each null and TODO below, then run `roofcast check` on this file: it names what is missing.\n"
    "# Where there is none, a null may stand in place of a TODO.\n"
)
_MODEL = """\
id: {id}  # the file's name, lower case with hyphens
name: {id}  # as its makers write it
# hub_id: organisation/name
# aliases: [other names it is known by]
family: null  # model_type of its config.json
hidden_size: null  # width of a token
vocab_size: TODO
# max_position_embeddings: longest sequence it was made for
layer_kinds:
  decoder:  # each kind of layer once; `roofcast schema model` lists the other mixers and feed-forward parts
    mixers:
      - kind: full  # every token sees all earlier ones; sliding has a window, latent a compressed cache
        num_attention_heads: null
        num_key_value_heads: null  # as many as heads where the config does not say
        head_dim: null  # hidden_size / num_attention_heads where the config does not say
    feed_forwards:
      - kind: dense  # experts: with num_experts, num_experts_per_token
        intermediate_size: null
stack:
  - repeat: null  # num_hidden_layers
    layers: [decoder]
# tie_word_embeddings: true where the output layer is the embedding
storage:
  dtype: null  # bf16, fp16 or fp32: torch_dtype of the checkpoint
# parameters:
#   total: elements that the checkpoint lists; `roofcast models show` must come to the same
sources:
  - url: null  # where the figures were read
    date: null  # when, as 2026-11-29
    fields: [all]
"""

_HARDWARE = """\
id: {id}  # the file's name, lower case with hyphens
name: {id}  # as its vendor writes it
vendor: null
# aliases: [what torch.cuda.get_device_name or nvidia-smi calls it]
class: null  # datacenter_gpu, workstation_gpu, consumer_gpu, apu, edge_soc, asic, tpu or cpu
unit_of_account: one device  # what one of --gpus is
# compute_capability: 'as CUDA numbers it: 9.0'
memory_capacity_gb: null  # as the vendor sells it
# memory_reported_mib: what nvidia-smi shows as total; without it 98 % of the above is taken
memory_bandwidth_gb_per_s: TODO  # 10^9 bytes per second, from the datasheet; with null no times are answered
peak_dense_tflops:  # DENSE matrix rates in 10^12 per second: half of what a sheet prints "with sparsity"; null: no such path
  fp32: TODO
  fp16: TODO
  bf16: TODO
  fp8: TODO
  int8: TODO
# interconnect:  # per direction, of one device
#   scale_up_name: NVLink, Infinity Fabric, ...
#   scale_up_gb_per_s_per_direction: half of what sheets print for both directions
#   scale_up_domain_size: devices that reach each other at that rate
#   pcie_gb_per_s_per_direction: 63.0 for PCIe 5 x16
# tdp_w: board power
sources:  # two at least, or the arithmetic that confirms the figures
  - url: null  # where the figures were read
    date: null  # when, as 2026-11-29
    fields: [all]
  - url: null
    date: null
    fields: [all]
"""


def model_text(identifier: str) -> str:
    """A model profile of a plain decoder to fill in."""
    return f"{SCHEMA_LINE}\n{_TASK}{_MODEL.format(id=identifier)}"


def hardware_text(identifier: str) -> str:
    """A hardware profile to fill in."""
    return f"{HARDWARE_SCHEMA_LINE}\n{_TASK}{_HARDWARE.format(id=identifier)}"
