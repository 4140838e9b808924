#!/usr/bin/env bash
# Measure, fit and report on a GPU machine: one prepared run of a few minutes.
#
#   benchmarks/gpu_check.sh FOLDER [SECONDS-PER-MODEL] [HARDWARE]
#
# Needs a Python with torch and the packages of the project (PYTHON, default python3), and no network. Everything lands in FOLDER: the
# run files, the efficiency profile, the pages, the times of the links, and check.txt with what passed. Device settings stay as they are.
set -u
folder=${1:?usage: benchmarks/gpu_check.sh FOLDER [SECONDS-PER-MODEL] [HARDWARE]}
seconds=${2:-60}
hardware=${3:-}
python=${PYTHON:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
log=$folder/check.txt
: > "$log"
cd "$root" || exit 2
failed=0

step() {  # step NAME COMMAND...: run, time and note it; the next step goes on whatever happens
  local name=$1 begin=$SECONDS code
  shift
  "$@" > "$folder/$name.txt" 2>&1
  code=$?
  echo "$name: exit $code after $((SECONDS - begin)) s" | tee -a "$log"
  [ "$code" -eq 0 ] || { failed=1; tail -n 3 "$folder/$name.txt" | tee -a "$log"; }
  return 0
}

if [ -z "$hardware" ]; then  # the profile that carries the device's own name, if the library has one
  name=$("$python" -c 'import torch; print(torch.cuda.get_device_name())' 2>/dev/null)
  if [ -n "$name" ] && "$python" cli.py hardware show "$name" > /dev/null 2>&1; then hardware=$name; fi
fi
echo "hardware: ${hardware:-none, the measured ceilings stand alone}" | tee -a "$log"

step environment "$python" cli.py env
step gpu-tests "$python" -m pytest -q -n0 -m gpu tests/measure
for model in llama-3.1-8b qwen3-14b olmoe-1b-7b-0924; do  # fitted, validation, experts
  # shellcheck disable=SC2086 - an empty HARDWARE must vanish
  step "measure-$model" "$python" cli.py measure "$model" ${hardware:+"$hardware"} --suite standard --budget "$seconds" \
    -i 2048 --context-len 4096 --quiet -o "$folder/$model.json"
  step "report-$model" "$python" cli.py report "$folder/$model.json" -o "$folder/$model.html"
done
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null || echo 0)
if [ "${gpus:-0}" -gt 1 ]; then
  step links "$python" -m torch.distributed.run --standalone --nproc-per-node "$gpus" -m calc.measure.collectives -o "$folder/links.json" \
    --merge "$folder/llama-3.1-8b.json"
fi
step fit "$python" cli.py fit "$folder/llama-3.1-8b.json" -o "$folder/efficiency.yaml"
# The second model was not fitted: this is the validation.
step validation "$python" cli.py report "$folder/qwen3-14b.json" --efficiency "$folder/efficiency.yaml" --max-error 15%
step fitted "$python" cli.py report "$folder/llama-3.1-8b.json" --efficiency "$folder/efficiency.yaml" -o "$folder/fitted.html"
exit $failed
