#!/usr/bin/env bash
# One borrowed half-hour: everything that wants a GPU, in the order of its value, within a time limit. The machine has a GPU,
# CUDA 13 and perhaps PyTorch, but no package manager and no network; the program comes in a folder that tests/gpu/pack.sh
# made. Nothing of the GPU's settings is changed.
#
#   run.sh --folder FOLDER --out DIR [--seconds N] [--parts LIST] [--dry]
#
# Parts: tests calibrate steps torch sanitize ranks more. Each has a limit of its own and may fail without stopping the
# next. DIR gets at most 8 files of at most 16 MiB: summary.txt, calibration.yaml, ledger.csv, torch.json, torch.txt,
# results.tar.gz, log.txt. --dry needs no GPU: it checks every path and says what would run.
set -uo pipefail
export LC_ALL=C PYTHONUNBUFFERED=1

folder="" out="" seconds=570 parts="tests calibrate steps torch sanitize ranks more" dry=0
usage() { sed -n '2,13p' "$0" | sed 's/^# \{0,1\}//'; }
while [ $# -gt 0 ]; do
  case "$1" in
    --folder) folder=${2:?}; shift 2 ;;
    --out) out=${2:?}; shift 2 ;;
    --seconds) seconds=${2:?}; shift 2 ;;
    --parts) parts=${2//,/ }; shift 2 ;;
    --dry) dry=1; shift ;;
    -h|--help) usage; exit 0 ;;
    *) echo "run.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
done
[ -n "$folder" ] || folder=$(cd "$(dirname "$0")/.." && pwd)
[ -n "$out" ] || { echo "run.sh: --out DIR says where results go" >&2; exit 2; }
case "$seconds" in ''|*[!0-9]*) echo "run.sh: --seconds is '$seconds', expected a whole number" >&2; exit 2 ;; esac
for part in $parts; do
  case "$part" in tests|calibrate|steps|torch|sanitize|ranks|more) ;; *) echo "run.sh: no part '$part'" >&2; exit 2 ;; esac
done

began=$SECONDS
left() { echo $((seconds - (SECONDS - began))); }
mkdir -p "$out" || exit 2
work=$(mktemp -d "${TMPDIR:-/tmp}/rehearse-gpu.XXXXXX") || exit 2
summary=$work/summary.txt log=$work/log.txt
: > "$summary"; : > "$log"
say() { echo "$*" | tee -a "$summary"; }

missing=0
need() { # what path
  if [ -e "$2" ]; then echo "ok      $1: $2" >> "$log"; else say "MISSING $1: $2"; missing=$((missing + 1)); fi
}

# --- what is there
export REHEARSE_ROOT=$folder
export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
program=$folder/bin/rehearse
need program "$program"
need scenarios "$folder/scenarios/gpu/plans.yaml"
need devices "$folder/calibrate/devices/h100-sxm.yaml"
need torch_steps "$folder/gpu/torch_steps.py"

# cuBLAS, cuDNN and NCCL: the toolkit's, or those that PyTorch brought.
libraries() {
  local site
  for site in $(timeout 20 python3 -c 'import site, sysconfig; print(*site.getsitepackages(), sysconfig.get_paths()["purelib"])' 2>/dev/null); do
    ls -d "$site"/nvidia/*/lib "$site"/nvidia/*/*/lib 2>/dev/null
  done
  ls -d /usr/local/cuda/lib64 /usr/local/cuda*/targets/*/lib /usr/lib/x86_64-linux-gnu 2>/dev/null
}
found_library() { # name: its folder, in the loader's cache or the candidates
  local dir
  if ldconfig -p 2>/dev/null | grep -q "$1"; then echo "the loader's cache"; return 0; fi
  for dir in $(libraries | awk '!seen[$0]++'); do
    if ls "$dir"/$1* > /dev/null 2>&1; then echo "$dir"; return 0; fi
  done
  return 1
}
for name in libcublasLt.so libcudnn.so libnccl.so; do
  if where=$(found_library $name); then
    say "library $name: $where"
    [ -d "$where" ] && export LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$where
  else
    say "library $name: not found"
  fi
done
nvidia_smi=$(command -v nvidia-smi || true)
gpu=""
if [ -n "$nvidia_smi" ]; then
  gpu=$(timeout 30 "$nvidia_smi" --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit,mig.mode.current --format=csv,noheader 2>/dev/null | head -n 8)
fi
if [ -n "$gpu" ]; then say "gpu: $gpu"; else say "gpu: no GPU (nvidia-smi $([ -n "$nvidia_smi" ] && echo "names none" || echo "is not there"))"; fi
[ -e "$program" ] && timeout 20 "$program" --version >> "$log" 2>&1
python=$(command -v python3 || true)
if [ -n "$python" ]; then
  torch=$(timeout 120 "$python" -c 'import torch; print(torch.__version__, "CUDA", torch.version.cuda, "GPU", torch.cuda.is_available())' 2>/dev/null || echo none)
  say "torch: $torch"
else
  torch=none; say "torch: no python3"
fi

# --- parts
# part NAME LIMIT COMMAND...: at most LIMIT seconds, and never past the whole; its output in the log, its end in the summary.
part() {
  local name=$1 limit=$2; shift 2
  local room=$(($(left) - 15)) code=0 start=$SECONDS file=$work/$name.txt
  if [ "$limit" -gt "$room" ]; then limit=$room; fi
  if [ "$dry" = 1 ]; then say "would run $name (${limit} s): $*"; return 0; fi
  if [ "$limit" -lt 5 ]; then say "SKIPPED $name: no time left"; return 0; fi
  timeout --kill-after=10 "$limit" "$@" > "$file" 2>&1 || code=$?
  { echo "===== $name: exit $code, $((SECONDS - start)) s: $*"; cat "$file"; } >> "$log"
  case $code in
    0) say "PASSED  $name ($((SECONDS - start)) s)" ;;
    124|137) say "TIMEOUT $name (${limit} s)" ;;
    *) say "FAILED  $name (exit $code, $((SECONDS - start)) s): $(grep -v '^ *$' "$file" | tail -n 1 | cut -c1-200)" ;;
  esac
  return 0
}
has() { [ -x "$folder/bin/$1" ]; }

tests_part() {
  if has test_gpu; then
    part test_gpu 150 "$folder/bin/test_gpu" --gtest_color=no --gtest_brief=1
    [ -e "$work/test_gpu.txt" ] && grep -E '^\[  (PASSED|FAILED|SKIPPED)' "$work/test_gpu.txt" | tail -n 25 | tee -a "$summary"
  else say "SKIPPED test_gpu: not in the folder"; fi
}
calibrate_part() {
  part calibrate 200 "$program" calibrate --device cuda --budget 150 -o "$work/calibration.yaml" \
    --for "$folder/scenarios/gpu/gpt2.yaml" "$folder/scenarios/gpu/llama.yaml"
  [ -e "$work/calibrate.txt" ] && tail -n 14 "$work/calibrate.txt" | tee -a "$summary"
}
steps_part() {
  local given=()
  part steps 260 "$program" validate --gpu --budget 100 --seconds 3 -o "$work/steps" "${given[@]}"
  [ -e "$work/steps.txt" ] && tail -n 36 "$work/steps.txt" | tee -a "$summary"
}
torch_part() {
  if [ "$torch" = none ] && [ "$dry" = 0 ]; then say "SKIPPED torch: it is not there"; return 0; fi
  part torch 240 "$python" "$folder/gpu/torch_steps.py" --plans "$folder/scenarios/gpu/plans.yaml" --out "$work/torch.json" \
    --ledger "$work/steps/ledger.csv" --seconds 220
  [ -e "$work/torch.txt" ] && grep -v '^#' "$work/torch.txt" | tail -n 30 | tee -a "$summary"
}
sanitize_part() {
  local tool
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
  if [ -z "$tool" ] && [ "$dry" = 0 ]; then say "SKIPPED sanitize: no compute-sanitizer"; return 0; fi
  has test_gpu || { say "SKIPPED sanitize: no test_gpu"; return 0; }
  local small='--gtest_filter=-*[Ll]arge*:*[Bb]ench*'
  part memcheck 120 "${tool:-compute-sanitizer}" --tool memcheck --error-exitcode 9 "$folder/bin/test_gpu" "$small" --gtest_brief=1
  part racecheck 120 "${tool:-compute-sanitizer}" --tool racecheck --error-exitcode 9 "$folder/bin/test_gpu" "$small" --gtest_brief=1
}
ranks_part() {
  if has test_gpu_ranks; then part test_gpu_ranks 120 "$folder/bin/test_gpu_ranks" --gtest_color=no --gtest_brief=1; fi
  part one_rank 60 "$program" execute gpt-tiny-text --device cuda --steps 20 --set cluster.gpus=1 --set plan.tensor=1 -o "$work/one_rank"
  part shared_gpu 90 "$program" execute gpt-tiny-ddp --device cuda --ranks nccl --steps 5 --set cluster.gpus=2 -o "$work/shared_gpu"
}
more_part() { # what is left, spent on the steps of the calibration that was made
  [ -e "$work/calibration.yaml" ] || [ "$dry" = 1 ] || return 0
  part steps_again 200 "$program" validate --gpu --calibration "$work/calibration.yaml" --seconds 2 --filter gpt2-124m -o "$work/again"
}

code=0
if [ "$missing" -gt 0 ]; then
  say "run.sh: $missing of what it needs is missing"
  code=1
elif [ "$dry" = 0 ] && [ -z "$gpu" ]; then
  say "no GPU: nothing was run"
  code=1
else
  for name in $parts; do ${name}_part; done
fi
[ "$dry" = 1 ] && [ "$missing" = 0 ] && say "dry: every path is there; nothing was run"

# --- what comes back
keep() { # file name
  [ -e "$1" ] || return 0
  if [ "$(stat -c %s "$1")" -le $((16 * 1024 * 1024)) ]; then cp "$1" "$out/$2"; else say "too large to bring back: $2"; fi
}
say "took $((SECONDS - began)) s of $seconds"
calibration=$work/calibration.yaml
[ -e "$calibration" ] || calibration=$work/steps/calibration.yaml
keep "$calibration" calibration.yaml
keep "$work/steps/ledger.csv" ledger.csv
keep "$work/torch.json" torch.json
keep "$work/torch.txt" torch.txt
keep "$log" log.txt
if [ "$dry" = 0 ]; then # everything else, without traces, which are the bulk
  (cd "$work" && find . -name 'trace.json.gz' -delete; tar czf "$work.tar.gz" . 2>/dev/null) && keep "$work.tar.gz" results.tar.gz
fi
keep "$summary" summary.txt
echo "----- summary"
cat "$summary"
rm -rf "$work" "$work.tar.gz"
exit $code
