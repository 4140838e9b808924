#!/usr/bin/env bash
# Measure, fit and report on a GPU machine: one prepared run of about six minutes.
#
#   benchmarks/gpu_check.sh FOLDER [--device cuda|cpu] [--seconds N] [--hardware NAME] [--models "FIT CHECK [MORE]"]
#
# Needs a Python (PYTHON, default: the first that has all) with torch and the packages of the project; no installation and no network.
# Everything lands in FOLDER: run files, the efficiency profile, pages, times of links, and check.txt with what passed. Settings of the
# device stay as they are. `--device cpu` is a rehearsal with small models in three minutes. Exit 1: a step failed; 2: it cannot start.
set -u
usage='usage: benchmarks/gpu_check.sh FOLDER [--device cuda|cpu] [--seconds N] [--hardware NAME] [--models "FIT CHECK [MORE]"]'
die() { printf 'error: %s\n' "$1" >&2; exit 2; }

[ $# -ge 1 ] && [ "${1#-}" = "$1" ] || die "$usage"
folder=$1 device=cuda seconds='' hardware='' models=''
shift
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || die "$usage"
  case $1 in
    --device) device=$2 ;;
    --seconds) seconds=$2 ;;
    --hardware) hardware=$2 ;;
    --models) models=$2 ;;
    *) die "$usage" ;;
  esac
  shift 2
done
case $device in
  cuda) : "${seconds:=40}" "${models:=llama-3.1-8b qwen3-14b olmoe-1b-7b-0924}"; sizes=(-i 2048 --context-len 4096) ;;
  cpu) : "${seconds:=15}" "${models:=qwen2.5-0.5b qwen3-0.6b}"; sizes=(-i 64 --context-len 256) ;;
  *) die "$usage" ;;
esac
case $seconds in '' | *[!0-9]*) die "--seconds takes a whole number, not $seconds" ;; esac
read -r first second others <<< "$models"
[ -n "${second:-}" ] || die "two models are needed: the first is fitted, the second checks the fit"

cd "$(dirname "$0")/.." || exit 2
root=$PWD
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || die "cannot make the folder"
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 NO_COLOR=1
python=''
for candidate in ${PYTHON:-python3 python .venv/bin/python}; do
  if missing=$("$candidate" - 2>/dev/null <<< 'from importlib.util import find_spec
print(*(m for m in ("torch", "typer", "rich", "yaml", "msgspec", "numpy") if find_spec(m) is None))'); then
    [ -z "$missing" ] && python=$candidate && break
    lacking="$candidate lacks: $missing"
  fi
done
[ -n "$python" ] || die "no Python with all packages; ${lacking:-none was found}"
has() { "$python" -c "import $1" > /dev/null 2>&1; }
log=$folder/check.txt
: > "$log" || exit 2
failed=0

step() {  # step LIMIT NAME COMMAND...: run, limit, time and note it; the next step goes on whatever happens
  local limit=$1 name=$2 begin=$SECONDS code
  shift 2
  timeout --signal=INT --kill-after=20 "$limit" "$@" > "$folder/$name.txt" 2>&1
  code=$?
  echo "$name: exit $code after $((SECONDS - begin)) s" | tee -a "$log"
  if [ "$code" -ne 0 ]; then
    failed=1
    tail -n 3 "$folder/$name.txt" | tee -a "$log"
  fi
  return 0
}

measure() {  # measure MODEL SUITE SECONDS NAME
  rm -f "$folder/$4.json" "$folder/$4.html"  # of an earlier check
  # shellcheck disable=SC2086 - an empty HARDWARE must vanish
  step "$(($3 + 90))" "measure-$4" "$python" cli.py measure "$1" ${hardware:+"$hardware"} --suite "$2" --budget "$3" --device "$device" \
    "${sizes[@]}" -o "$folder/$4.json"
  step 60 "report-$4" "$python" cli.py report "$folder/$4.json" -o "$folder/$4.html"
}

if [ -z "$hardware" ] && [ "$device" = cuda ]; then  # the profile that carries the device's own name, if the library has one
  name=$("$python" -c 'import torch; print(torch.cuda.get_device_name())' 2>/dev/null)
  if [ -n "$name" ] && "$python" cli.py hardware show "$name" > /dev/null 2>&1; then hardware=$name; fi
fi
{
  echo "device: $device ${name:-}"
  echo "hardware profile: ${hardware:-none, the measured ceilings stand alone}"
  has pynvml && echo "clock and power: nvml" || echo "clock and power: the vendor's tool around each case, or none (pynvml is missing)"
} | tee -a "$log"

step 60 environment "$python" cli.py env
if [ "$device" = cuda ] && has pytest && has xdist && has hypothesis; then
  step 180 gpu-tests "$python" -m pytest -q -n0 -p no:cacheprovider -m gpu tests/measure
elif [ "$device" = cuda ]; then
  echo "gpu-tests: left out, pytest, pytest-xdist or hypothesis is missing" | tee -a "$log"
fi
for model in $first $second ${others:-}; do
  measure "$model" quick "$seconds" "$model"
done
measure "$first" standard "$((2 * seconds))" "$first-standard"  # more sizes, a whole layer and a stack: a fit needs the first

gpus=2  # processes that speak gloo on a CPU
[ "$device" = cuda ] && gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null || echo 0)
if [ "$gpus" -gt 1 ]; then
  largest=$((1 << 28))
  [ "$device" = cpu ] && largest=$((1 << 16))
  step 180 links "$python" -m torch.distributed.run --standalone --nproc-per-node "$gpus" -m calc.measure.collectives \
    --largest "$largest" -o "$folder/links.json" --merge "$folder/$first-standard.json"
fi
rm -f "$folder/efficiency.yaml"  # of an earlier check
step 60 fit "$python" cli.py fit "$folder/$first.json" "$folder/$first-standard.json" -o "$folder/efficiency.yaml"
if [ -s "$folder/efficiency.yaml" ]; then
  step 60 fitted "$python" cli.py report "$folder/$first-standard.json" --efficiency "$folder/efficiency.yaml" -o "$folder/fitted.html"
  # The second model was not fitted: this is the validation. A CPU shared with others passes no gate, so there it is only reported.
  gate=(--max-error 15%)
  [ "$device" = cpu ] && gate=()
  step 60 validation "$python" cli.py report "$folder/$second.json" --efficiency "$folder/efficiency.yaml" ${gate[@]+"${gate[@]}"}
else
  echo "fitted, validation: left out, there is no fit" | tee -a "$log"
fi
echo "all in $folder: $([ $failed -eq 0 ] && echo 'every step passed' || echo 'a step failed, see check.txt') after $SECONDS s" | tee -a "$log"
exit $failed
