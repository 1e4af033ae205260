#!/usr/bin/env bash
# One borrowed half-hour: everything that wants a GPU, in the order of its value, within a time limit. The machine has a GPU,
# CUDA 13 and perhaps PyTorch, but no package manager and no network; the program comes in a folder that tests/gpu/pack.sh
# made. Nothing of the GPU's settings is changed.
#
#   run.sh --folder FOLDER --out DIR [--work DIR] [--seconds N] [--parts LIST] [--dry]
#
# Parts, in this order: smoke tests steps torch ranks sanitize more. Each has a limit of its own and may fail without
# stopping the next. What they make lies in --work (/tmp/rehearse-gpu) and serves a later call on the same machine: a
# calibration and a whole ledger are not made again. DIR gets at most 8 files of at most 16 MiB: summary.txt,
# calibration.yaml, ledger.csv, torch.json, torch.txt, results.tar.gz, log.txt. --dry needs no GPU: it checks every path and
# says what would run.
set -uo pipefail
export LC_ALL=C PYTHONUNBUFFERED=1

folder="" out="" work=/tmp/rehearse-gpu seconds=570 parts="smoke tests steps torch ranks sanitize more" dry=0
usage() { sed -n '2,14p' "$0" | sed 's/^# \{0,1\}//'; }
while [ $# -gt 0 ]; do
  case "$1" in
    --folder) folder=${2:?}; shift 2 ;;
    --out) out=${2:?}; shift 2 ;;
    --work) work=${2:?}; shift 2 ;;
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
  case "$part" in smoke|tests|steps|torch|ranks|sanitize|more) ;; *) echo "run.sh: no part '$part'" >&2; exit 2 ;; esac
done
folder=$(cd "$folder" 2>/dev/null && pwd) || { echo "run.sh: no folder" >&2; exit 2; }

began=$SECONDS
left() { echo $((seconds - (SECONDS - began))); }
[ "$dry" = 0 ] || work=$(mktemp -d "${TMPDIR:-/tmp}/rehearse-dry.XXXXXX") || exit 2
mkdir -p "$out" "$work" || exit 2
summary=$work/summary.txt log=$work/log.txt
: > "$summary"; : > "$log"
say() { echo "$*" | tee -a "$summary"; }

missing=0
need() { # what path
  if [ -e "$2" ]; then echo "ok      $1: $2" >> "$log"; else say "MISSING $1: $2"; missing=$((missing + 1)); fi
}

# --- what is there
export REHEARSE_ROOT=$folder
program=$folder/bin/rehearse
need program "$program"
need scenarios "$folder/scenarios/gpu/plans.yaml"
need devices "$folder/calibrate/devices/h100-sxm.yaml"
need torch_steps "$folder/gpu/torch_steps.py"
need text "$folder/gpu/text.txt"
export REHEARSE_DATA=$folder/gpu/text.txt
[ -f "$folder/MANIFEST" ] && say "packed: $(grep -E '^(commit|needs)' "$folder/MANIFEST" | tr '\n' ' ')on $(uname -r), glibc $(ldd --version 2>/dev/null | head -n 1 | grep -o '[0-9.]*$'), $(nproc) cores"

# Where our programs look for libraries, and nobody else: Python and compilers keep the machine's own.
paths=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for dir in /usr/local/nvidia/lib64 /usr/local/nvidia/lib; do [ -d "$dir" ] && paths=$paths:$dir; done
PATH=$PATH:/usr/local/nvidia/bin:/usr/local/cuda/bin
# cuBLAS, cuDNN and NCCL: the toolkit's, or those that PyTorch brought.
libraries() {
  local site
  for site in $(timeout 20 python3 -c 'import site, sysconfig; print(*site.getsitepackages(), sysconfig.get_paths()["purelib"])' 2>/dev/null); do
    ls -d "$site"/nvidia/*/lib "$site"/nvidia/*/*/lib 2>/dev/null
  done
  ls -d /usr/local/cuda/lib64 /usr/local/cuda*/targets/*/lib /usr/lib/x86_64-linux-gnu 2>/dev/null
}
candidates=$(libraries | awk '!seen[$0]++')
cache=$(ldconfig -p 2>/dev/null)
found_library() { # name, as it is loaded: its folder, or the loader's cache
  local dir
  case "$cache" in *"$1 "*) echo "the loader's cache"; return 0 ;; esac
  for dir in $candidates; do
    if [ -e "$dir/$1" ]; then echo "$dir"; return 0; fi
  done
  return 1
}
for name in libcuda.so.1 libnvidia-ml.so.1 libcublasLt.so.13 libcudnn.so.9 libnccl.so.2; do
  if where=$(found_library $name); then
    say "library $name: $where"
    case ":$paths:" in *":$where:"*) ;; *) [ -d "$where" ] && paths=$paths:$where ;; esac
  elif (IFS=:; for dir in $paths; do [ -e "$dir/$name" ] && exit 0; done; exit 1); then
    say "library $name: in the loader's path"
  else
    say "library $name: not found"
  fi
done
ours=(env "LD_LIBRARY_PATH=$paths")
gpu=""
if command -v nvidia-smi > /dev/null; then
  gpu=$(timeout 30 nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,clocks.max.sm,power.limit,temperature.gpu --format=csv,noheader 2>> "$log" | head -n 8)
  [ -n "$gpu" ] || gpu=$(timeout 30 nvidia-smi -L 2>> "$log" | head -n 8)
fi
[ -n "$gpu" ] || gpu=$(ls /dev/nvidia[0-9]* 2>/dev/null | tr '\n' ' ')  # nvidia-smi does not answer, but there is one
if [ -n "$gpu" ]; then say "gpu: $gpu"; else say "gpu: no GPU (no answer from nvidia-smi, no /dev/nvidia0)"; fi
if [ -e "$program" ]; then
  timeout 20 "${ours[@]}" "$program" --version >> "$log" 2>&1 || say "the program does not start: $(tail -n 1 "$log")"
fi
python=$(command -v python3 || true)

# --- parts
# part NAME LIMIT COMMAND...: at most LIMIT seconds, and never past the whole; its output in the log, its end in the summary.
part() {
  local name=$1 limit=$2; shift 2
  local room=$(($(left) - 12)) code=0 start=$SECONDS file=$work/$name.txt
  if [ "$limit" -gt "$room" ]; then limit=$room; fi
  if [ "$dry" = 1 ]; then say "would run $name (${limit} s): $*"; return 0; fi
  if [ "$limit" -lt 5 ]; then say "SKIPPED $name: no time left"; return 1; fi
  timeout --kill-after=10 "$limit" "$@" > "$file" 2>&1 || code=$?
  { echo "===== $name: exit $code, $((SECONDS - start)) s: $*"; cat "$file"; } >> "$log"
  case $code in
    0) say "PASSED  $name ($((SECONDS - start)) s)" ;;
    124|137) say "TIMEOUT $name (${limit} s)" ;;
    *) say "FAILED  $name (exit $code, $((SECONDS - start)) s): $(grep -v '^ *$' "$file" | tail -n 1 | cut -c1-200)" ;;
  esac
  return $code
}
has() { [ -x "$folder/bin/$1" ]; }

smoke_part() { # does anything run at all: one rank of a tiny model, its losses those of the CPU
  part smoke 60 "${ours[@]}" "$program" execute gpt-tiny-text --device cuda --steps 20 -o "$work/smoke"
  [ "$dry" = 1 ] && return
  timeout 60 "${ours[@]}" "$program" execute gpt-tiny-text --device cpu --steps 20 -o "$work/smoke_cpu" >> "$log" 2>&1
  same_losses smoke "$work/smoke" "$work/smoke_cpu" 1e-3
}
same_losses() { # name, two results, tolerance: fp32 sums in another order
  [ -n "$python" ] || return 0
  "$python" - "$@" 2>> "$log" <<'END' | tee -a "$summary"
import json, sys
name, a, b, tolerance = sys.argv[1:]
a, b = (json.load(open(d + "/result.json"))["loss"] for d in (a, b))
worst = max(abs(x - y) / abs(y) for x, y in zip(a, b)) if len(a) == len(b) and a else float("nan")
print(f"{'PASSED ' if worst <= float(tolerance) else 'FAILED '} {name}: {len(a)} losses, at most {worst:.2e} from the CPU's")
END
}
tests_part() { # in four shards: references are computed on the CPU
  has test_gpu || { say "SKIPPED test_gpu: not in the folder"; return; }
  part test_gpu 150 bash -c 'for i in 0 1 2 3; do GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$i "$@" & pids="$pids $!"; done
    code=0; for p in $pids; do wait $p || code=1; done; exit $code' shards \
    "${ours[@]}" "$folder/bin/test_gpu" --gtest_color=no --gtest_brief=1
  [ -e "$work/test_gpu.txt" ] && grep -E '^\[  (PASSED|FAILED|SKIPPED)' "$work/test_gpu.txt" | sort | uniq -c | tail -n 25 | tee -a "$summary"
}
# Calibrates for all plans, then simulates and performs each; the ledger is written after each plan.
steps_part() {
  local calibration=$work/steps/calibration.yaml given=(--budget 170) limit=400 plans measured
  plans=$(grep -c '^ *- {id: ' "$folder/scenarios/gpu/plans.yaml")
  measured=$([ -e "$work/steps/ledger.csv" ] && awk -F, '$2 == "step" && $3 != ""' "$work/steps/ledger.csv" | wc -l)
  if [ "${measured:-0}" -ge "$plans" ]; then say "SKIPPED steps: all $plans plans were performed in an earlier call"; return; fi
  [ -s "$calibration" ] && cp "$calibration" "$work/calibration.yaml" && given=(--calibration "$work/calibration.yaml") limit=240
  part steps $limit "${ours[@]}" "$program" validate --gpu "${given[@]}" --seconds 2.5 -o "$work/steps"
  if [ -e "$work/steps.txt" ] && grep -q 'worst class' "$work/steps.txt"; then
    tail -n 40 "$work/steps.txt" | tee -a "$summary"
  elif [ -e "$work/steps/ledger.csv" ]; then # cut off: what there is (id,class,measured_s,simulated_s,error,...)
    awk -F, '$2 == "step" { print "  " $1 ": measured " $3 " s, simulated " $4 " s, error " $5 }' "$work/steps/ledger.csv" | tee -a "$summary"
  fi
  tail -qn 2 "$work"/steps/*/execute.log >> "$log" 2>/dev/null
}
torch_part() {
  local torch=none limit=420
  [ -n "$python" ] && torch=$(timeout 120 "$python" -c 'import torch; print(torch.__version__, "CUDA", torch.version.cuda, "GPU", torch.cuda.is_available())' 2>> "$log" || echo none)
  say "torch: $torch"
  if [ "$torch" = none ] && [ "$dry" = 0 ]; then say "SKIPPED torch: it is not there"; return; fi
  [ "$limit" -gt $(($(left) - 12)) ] && limit=$(($(left) - 12))
  part torch $limit "${python:-python3}" "$folder/gpu/torch_steps.py" --plans "$folder/scenarios/gpu/plans.yaml" --out "$work/torch.json" \
    --ledger "$work/steps/ledger.csv" --seconds $((limit - 25)) --program "$program" --libraries "$paths" \
    --calibration "$work/steps/calibration.yaml"
  [ -e "$work/torch.txt" ] && grep -v '^#' "$work/torch.txt" | tail -n 48 | tee -a "$summary"
}
ranks_part() { # real NCCL between ranks that share the GPU; losses are the CPU's
  local plan
  for plan in gpt-tiny-ddp gpt-tiny-2x2x2; do
    part $plan 90 "${ours[@]}" "$program" execute $plan --device cuda --ranks nccl --steps 5 --timeout 30 -o "$work/$plan" || continue
    [ "$dry" = 1 ] && continue
    timeout 60 "${ours[@]}" "$program" execute $plan --device cpu --steps 5 -o "$work/${plan}_cpu" >> "$log" 2>&1
    same_losses $plan "$work/$plan" "$work/${plan}_cpu" 1e-4
  done
}
sanitize_part() {
  local tool
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
  if [ -z "$tool" ] && [ "$dry" = 0 ]; then say "SKIPPED sanitize: no compute-sanitizer"; return; fi
  has test_gpu || { say "SKIPPED sanitize: no test_gpu"; return; }
  for check in memcheck racecheck; do
    part $check 150 "${ours[@]}" "${tool:-compute-sanitizer}" --tool $check --error-exitcode 9 "$folder/bin/test_gpu" --gtest_color=no --gtest_brief=1
    [ -e "$work/$check.txt" ] && grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|not supported' "$work/$check.txt" | tail -n 3 | tee -a "$summary"
  done
}
more_part() { # what is left: do the steps repeat, from the same calibration
  [ -s "$work/steps/calibration.yaml" ] || [ "$dry" = 1 ] || return
  part steps_again 200 "${ours[@]}" "$program" validate --gpu --calibration "$work/steps/calibration.yaml" --seconds 2 --filter gpt2-124m -o "$work/again"
  [ -e "$work/steps_again.txt" ] && tail -n 14 "$work/steps_again.txt" | tee -a "$summary"
}

code=0
if [ "$missing" -gt 0 ]; then
  say "run.sh: $missing of what it needs is missing"
  code=1
elif [ "$dry" = 0 ] && [ -z "$gpu" ]; then
  say "no GPU: nothing was run"
  code=1
else
  for name in $parts; do ${name}_part || true; done
fi
[ "$dry" = 1 ] && [ "$missing" = 0 ] && say "dry: every path is there; nothing was run"

# --- what comes back
keep() { # file name
  [ -e "$1" ] || return 0
  if [ "$(stat -c %s "$1")" -le $((16 * 1024 * 1024)) ]; then cp "$1" "$out/$2"; else say "too large to bring back: $2"; fi
}
say "took $((SECONDS - began)) s of $seconds"
keep "$work/steps/calibration.yaml" calibration.yaml
keep "$work/steps/ledger.csv" ledger.csv
keep "$work/torch.json" torch.json
keep "$work/torch.txt" torch.txt
keep "$log" log.txt
if [ "$dry" = 0 ]; then # everything else, without traces, which are the bulk
  tar czf "$work.tar.gz" -C "$work" --exclude trace.json.gz . 2>/dev/null && keep "$work.tar.gz" results.tar.gz
  rm -f "$work.tar.gz"
fi
keep "$summary" summary.txt
echo "----- summary"
cat "$summary"
[ "$dry" = 1 ] && rm -rf "$work"
exit $code
