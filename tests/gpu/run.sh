#!/usr/bin/env bash
# One call of a borrowed half-hour: parts that want a GPU, in the order of their value, within a time limit. The machine has a
# GPU, CUDA 13 and perhaps PyTorch, but no package manager and no network; the program comes in a folder that
# tests/gpu/pack.sh made. Nothing of the GPU's settings is changed. tests/gpu/calls.sh says which call runs which parts.
#
#   run.sh --folder FOLDER --out DIR [--seed DIR] [--work DIR] [--bin DIR] [--seconds N] [--parts LIST] [--dry]
#
# Parts, in this order: clocks smoke tests steps attention torch_kernels torch kernels sanitize counters ranks killed walk again
# epilogues. Each has a limit of its own and may fail without stopping the next; but where the program does not start, or smoke
# fails, nothing else is run. What they make lies in --work (/tmp/rehearse-gpu) and serves a later call on the same machine; on another one --seed goes on
# from the calibration, the ledger and torch.json that an earlier call brought back: what they hold is not measured again.
# DIR has everything within seconds, so that a call that is killed returns what it has; at most 8 files of at most 16 MiB:
# summary.txt, log.txt, calibration.yaml, ledger.csv, torch.json, those of walk, results.tar.gz (all else).
# --bin: programs to run in place of FOLDER's (tests/gpu/relink.sh). --dry needs no GPU: it checks every path and says what
# would run.
set -uo pipefail
export LC_ALL=C PYTHONUNBUFFERED=1

all_parts="clocks smoke tests steps attention torch_kernels torch kernels sanitize counters ranks killed walk again epilogues"
folder="" out="" seed="" work=/tmp/rehearse-gpu bin="" seconds=570 parts=$all_parts dry=0
usage() { sed -n '2,15p' "$0" | sed 's/^# \{0,1\}//'; }
while [ $# -gt 0 ]; do
  case "$1" in
    --folder) folder=${2:?}; shift 2 ;;
    --out) out=${2:?}; shift 2 ;;
    --seed) seed=${2:?}; shift 2 ;;
    --work) work=${2:?}; shift 2 ;;
    --bin) bin=${2:?}; shift 2 ;;
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
  case " $all_parts " in *" $part "*) ;; *) echo "run.sh: no part '$part'" >&2; exit 2 ;; esac
done
folder=$(cd "$folder" 2>/dev/null && pwd) || { echo "run.sh: no folder" >&2; exit 2; }
bin=$(cd "${bin:-$folder/bin}" 2>/dev/null && pwd) || { echo "run.sh: no folder of programs" >&2; exit 2; }

began=$SECONDS
left() { echo $((seconds - (SECONDS - began))); }
[ "$dry" = 0 ] || work=$(mktemp -d "${TMPDIR:-/tmp}/rehearse-dry.XXXXXX") || exit 2
mkdir -p "$out" "$work/steps" || exit 2
out=$(cd "$out" && pwd)
work=$(cd "$work" && pwd)
summary=$out/summary.txt log=$out/log.txt  # written where they are brought back from, as they grow
: > "$summary"; : > "$log"
say() { echo "$*" | tee -a "$summary"; }

# --- what an earlier call has left
if [ -n "$seed" ]; then
  for file in calibration.yaml ledger.csv; do
    if [ -s "$seed/$file" ] && [ ! -s "$work/steps/$file" ]; then cp "$seed/$file" "$work/steps/$file"; say "seed: $file"; fi
  done
  if [ -s "$seed/torch.json" ] && [ ! -s "$work/torch.json" ]; then cp "$seed/torch.json" "$work/torch.json"; say "seed: torch.json"; fi
fi

# --- what comes back, every few seconds and at the end
keep() { # file name
  [ -s "$1" ] || return 0
  if [ "$(stat -c %s "$1")" -le $((16 * 1024 * 1024)) ]; then cmp -s "$1" "$out/$2" || cp "$1" "$out/$2"; else echo "too large to bring back: $2" >> "$log"; fi
}
keep_small() {
  keep "$work/steps/calibration.yaml" calibration.yaml
  keep "$work/steps/ledger.csv" ledger.csv
  keep "$work/walk/calibration.yaml" walk_calibration.yaml
  keep "$work/walk/ledger.csv" walk_ledger.csv
  keep "$work/torch.json" torch.json
}
keep_rest() { # without traces, which are the bulk, and programs
  local file=$work.$BASHPID.tar.gz
  tar czf "$file" -C "$work" --exclude trace.json.gz --exclude ./more . 2>/dev/null
  keep "$file" results.tar.gz
  rm -f "$file"
}
keeper=0 monitor=0
keep_on() {
  local turn=0
  while sleep 3 && kill -0 $$ 2>/dev/null; do
    keep_small
    turn=$((turn + 1))
    [ $((turn % 7)) = 0 ] && keep_rest
  done
}
end_helpers() {
  local helper
  for helper in $keeper $monitor; do [ "$helper" = 0 ] || kill "$helper" 2>/dev/null; done
  [ "$keeper" = 0 ] || wait "$keeper" 2>/dev/null
  keeper=0 monitor=0
}
trap end_helpers EXIT
trap 'keep_small; keep_rest; exit 143' TERM INT

missing=0
need() { # what path
  if [ -e "$2" ]; then echo "ok      $1: $2" >> "$log"; else say "MISSING $1: $2"; missing=$((missing + 1)); fi
}

# --- what is there
export REHEARSE_ROOT=$folder
program=$bin/rehearse
need program "$program"
need scenarios "$folder/scenarios/gpu/plans.yaml"
need devices "$folder/calibrate/devices/h100-sxm.yaml"
need torch_steps "$folder/gpu/torch_steps.py"
need torch_models "$folder/gpu/torch_models.py"
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
[ -n "$gpu" ] || gpu=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | tr '\n' ' ')  # nvidia-smi does not answer, but there is one
if [ -n "$gpu" ]; then say "gpu: $gpu"; else say "gpu: no GPU (no answer from nvidia-smi, no /dev/nvidia0)"; fi
starts=0
if [ -e "$program" ]; then
  timeout 20 "${ours[@]}" "$program" --version >> "$log" 2>&1 || { starts=1; say "the program does not start: $(tail -n 1 "$log")"; }
fi
python=$(command -v python3 || true)
# What pack.sh packed more tightly: the bench.
more=$work/more
unpack_more() {
  [ -d "$more" ] && return
  [ -e "$folder/more.tar.xz" ] || return
  mkdir -p "$more"
  tar xJf "$folder/more.tar.xz" -C "$more" 2>> "$log" ||
    "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$folder/more.tar.xz" "$more" 2>> "$log" ||
    say "more.tar.xz cannot be unpacked: $(tail -n 1 "$log")"
}
program_of() { # name: the file, of --bin, the folder or more.tar.xz
  for place in "$bin" "$folder/bin" "$more/bin"; do
    if [ -x "$place/$1" ]; then echo "$place/$1"; return 0; fi
  done
  return 1
}

# --- parts
# The clock and the power while a part ran, of the moments in which the GPU was busy (clocks.csv from a line on).
clocks_since() {
  [ -s "$work/clocks.csv" ] || return 0
  tail -n "+$1" "$work/clocks.csv" | awk -F', *' '$6 + 0 >= 50 { print $2 + 0, $4 + 0 }' | sort -n |
    awk '{ clock[NR] = $1; power += $2 } END { if (NR) printf ", SM %d MHz (%d to %d), %.0f W", clock[int((NR + 1) / 2)], clock[1], clock[NR], power / NR }'
}
most_of_a_part=$((2 * 1024 * 1024))  # of its output, in the log
# part NAME LIMIT COMMAND...: at most LIMIT seconds, and never past the whole; its output goes to the log as it comes, its end
# into the summary.
part() {
  local name=$1 limit=$2; shift 2
  local room=$(($(left) - 8)) code=0 start=$SECONDS file=$work/$name.txt from=1 offset took
  if [ "$limit" -gt "$room" ]; then limit=$room; fi
  if [ "$dry" = 1 ]; then say "would run $name (${limit} s): $*"; return 0; fi
  if [ "$limit" -lt 5 ]; then say "SKIPPED $name: no time left"; return 1; fi
  [ -e "$work/clocks.csv" ] && from=$(($(wc -l < "$work/clocks.csv") + 1))
  echo "===== $name: $*" >> "$log"
  offset=$(stat -c %s "$log")
  timeout --kill-after=10 "$limit" "$@" >> "$log" 2>&1 || code=$?  # no pipe: what outlives the part must not hold it
  tail -c "+$((offset + 1))" "$log" > "$file"
  if [ "$(stat -c %s "$file")" -gt "$most_of_a_part" ]; then
    truncate -s "$((offset + most_of_a_part / 2))" "$log"
    { printf '\n[...]\n'; tail -c $((most_of_a_part / 2)) "$file"; } >> "$log"
  fi
  took="$((SECONDS - start)) s$(clocks_since "$from")"
  echo "===== $name: exit $code, $took" >> "$log"
  case $code in
    0) say "PASSED  $name ($took)" ;;
    124|137) say "TIMEOUT $name (${limit} s)" ;;
    *) say "FAILED  $name (exit $code, $took): $(grep -v '^ *$' "$file" | tail -n 1 | cut -c1-200)" ;;
  esac
  return "$code"
}

# shellcheck source=tests/gpu/parts.sh
. "$(dirname "${BASH_SOURCE[0]}")/parts.sh" || exit 2

code=0
if [ "$missing" -gt 0 ]; then
  say "run.sh: $missing of what it needs is missing"
  code=1
elif [ "$starts" != 0 ]; then
  say "nothing was run"
  code=1
elif [ "$dry" = 0 ] && [ -z "$gpu" ]; then
  say "no GPU: nothing was run"
  code=1
else
  if [ "$dry" = 0 ]; then
    keep_on &
    keeper=$!
    # Beside all parts: which clock and power their numbers were taken at. Reads only.
    timeout "$seconds" nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,clocks_event_reasons.active \
      --format=csv,noheader,nounits --loop-ms=500 > "$work/clocks.csv" 2>> "$log" &
    monitor=$!
  fi
  for name in $parts; do
    if ! "${name}_part" && [ "$name" = smoke ] && [ "$dry" = 0 ]; then
      say "smoke failed: nothing else is run"
      code=1
      break
    fi
  done
fi
[ "$dry" = 1 ] && [ "$missing" = 0 ] && say "dry: every path is there; nothing was run"

say "took $((SECONDS - began)) s of $seconds"
if [ "$dry" = 0 ]; then
  end_helpers
  keep_small
  keep_rest
fi
echo "----- summary"
cat "$summary"
[ "$dry" = 1 ] && rm -rf "$work"
exit $code
