#!/usr/bin/env bash
# What the scripts of a borrowed half-hour can show without a GPU: the folder packs and relinks, every path is there, a wrong
# argument and a missing file are named, a machine without a GPU is told so; the five calls, a call that is killed and one that
# goes on from it, with programs that only look like those; what comes back is installed and printed; PyTorch's steps with a
# PyTorch that is made up.
# usage: script_test.sh BUILD_DIR
set -euo pipefail
build=$(cd "${1:?usage: script_test.sh BUILD_DIR}" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
place=$(mktemp -d)
running=""  # the session of a call
kill_call() { # every process of it
  local stat
  [ -n "$running" ] || return 0
  for stat in /proc/[0-9]*/stat; do
    # The name, in brackets, may hold blanks; the session is the fourth field behind it.
    sed 's/^\([0-9]*\) .*) /\1 /' "$stat" 2> /dev/null | awk -v session="$running" '$5 == session { print $1 }'
  done | xargs -r kill -9 2> /dev/null || true
  running=""
}
trap 'kill_call; rm -rf "$place" || true' EXIT
trap 'echo "script_test: line $LINENO fails: $BASH_COMMAND" >&2' ERR
fail() { echo "script_test: $*" >&2; exit 1; }
export PYTHONDONTWRITEBYTECODE=1

# --- packing, relinking
"$here/pack.sh" "$build" "$place/folder"
[ "$(du -sk --apparent-size "$place/folder" | cut -f1)" -le $((60 * 1024)) ] || fail "the folder is too large"
env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH="$place/folder/lib" "$place/folder/bin/rehearse" --version > /dev/null || fail "the packed program does not start"
if [ -n "$(find "$build/tests" -maxdepth 3 -name rehearse-cuda-bench -type f)" ]; then
  [ -s "$place/folder/more.tar.xz" ] || fail "no more.tar.xz"
  tar tJf "$place/folder/more.tar.xz" > "$place/more.txt"
  for file in ./bin/rehearse-cuda-bench ./relink/links ./relink/source/kernels/cuda/launch.h ./relink/source/sim/base/dtype.h; do
    grep -qx "$file" "$place/more.txt" || fail "more.tar.xz has no $file"
  done
  if PATH=$PATH:/usr/local/cuda/bin command -v nvcc > /dev/null; then
    "$place/folder/gpu/relink.sh" --folder "$place/folder" --bin "$place/relinked" --work "$place/relink" --source "$root" kernels/cuda/mse.cu \
      > "$place/relink.txt" 2>&1 || fail "relink.sh: $(cat "$place/relink.txt")"
    for program in rehearse test_gpu rehearse-cuda-bench; do
      grep -q "^relinked .*/$program for sm_" "$place/relink.txt" || fail "$program is not relinked: $(cat "$place/relink.txt")"
    done
    env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH="$place/folder/lib" "$place/relinked/rehearse" --version > /dev/null || fail "relinked, it does not start"
    "$place/folder/gpu/relink.sh" --folder "$place/folder" --bin "$place/relinked" --work "$place/relink" kernels/cuda/none.cu > /dev/null 2>&1 && fail "a file that is not there is compiled"
    rm -rf "$place/relinked" "$place/relink"
  fi
fi

# --- without a GPU
"$place/folder/gpu/run.sh" --folder "$place/folder" --out "$place/out" --dry > "$place/dry.txt" || fail "dry: $(cat "$place/dry.txt")"
grep -q '^dry: every path is there' "$place/dry.txt" || fail "dry does not say so: $(cat "$place/dry.txt")"
for part in clocks smoke test_gpu steps torch flash kernels memcheck counters two-ranks-mps-off eight-ranks-mps-on killed walk steps_again epilogues-all; do
  grep -q "^would run $part " "$place/dry.txt" || grep -q "^SKIPPED" "$place/dry.txt" || fail "dry names no $part"
done
[ "$(find "$place/out" -type f | wc -l)" -le 8 ] || fail "more than 8 files"
[ -s "$place/out/summary.txt" ] || fail "no summary"

if ! nvidia-smi -L > /dev/null 2>&1; then
  grep -q '^gpu: no GPU' "$place/dry.txt" || fail "dry does not say that there is no GPU"
  "$place/folder/gpu/run.sh" --folder "$place/folder" --out "$place/none" --work "$place/work" > "$place/none.txt" 2>&1 && fail "without a GPU it succeeds"
  grep -q '^no GPU: nothing was run' "$place/none.txt" || fail "without a GPU: $(cat "$place/none.txt")"
  code=0
  "$place/folder/bin/rehearse" calibrate --device cuda > "$place/calibrate.txt" 2>&1 || code=$?
  [ "$code" = 2 ] || fail "calibrate --device cuda exits $code, expected 2"
  grep -q 'no CUDA device: ' "$place/calibrate.txt" || fail "calibrate says: $(cat "$place/calibrate.txt")"
fi
"$place/folder/gpu/run.sh" --out "$place/bad" --work "$place/work" --parts tests,nonsense > /dev/null 2>&1 && fail "an unknown part is taken"

# --- programs that only look like those, in a checkout that is none
checkout=$place/checkout
pretend=$checkout/build/gpu/pack
mkdir -p "$pretend/bin" "$place/tools" "$checkout/tests" "$checkout/calibrate"
cp -r "$place/folder/scenarios" "$place/folder/calibrate" "$place/folder/gpu" "$pretend/"
cp -r "$here" "$checkout/tests/gpu"
cp -r "$root/topologies" "$root/scenarios" "$checkout/"
cp -r "$root/calibrate/devices" "$checkout/calibrate/"
{
  echo "# NVIDIA H100 80GB HBM3, measured by \`rehearse calibrate --device cuda\`; see provenance at the end."
  sed 's/^name: .*/name: h100-80gb-hbm3/' "$root/tests/fuzz/corpus/device/calibrated.yaml"
  printf '\nattention:\n  forward: {rate: 300TFLOPS, tail: 1, ramp: 100, head_dim_64: 0.8}\n  backward: {rate: 200TFLOPS, tail: 1, ramp: 100, head_dim_64: 0.8}\n'
} > "$place/calibration.yaml"
cat > "$pretend/bin/rehearse" <<'END_OF_PROGRAM'
#!/bin/bash
echo "$*" >> "$PRETEND_LOG"
out="" filter=""
for a in "$@"; do
  [ "$previous" = -o ] && out=$a
  [ "$previous" = --filter ] && filter=$a
  previous=$a
done
rank() { while true; do sleep 1; done; }
rows() { grep -o 'id: [^,]*' "$REHEARSE_ROOT/scenarios/gpu/plans.yaml" | cut -c5- | grep -F "$filter" | sed 's/$/,step,0.1,0.1,0,1,1,0,/'; }
case "$*" in
  --version) [ "$PRETEND_BROKEN" != version ] || exit 127 ;;
  *gpt-tiny-text*cuda*) [ "$PRETEND_BROKEN" != smoke ] || exit 1 ;;
  *gpt-tiny-2x2x2*nccl*180*) sleep 60 ;;
  *1000000*)
    rank & first=$!
    rank & second=$!
    wait -n
    echo "rehearse: error: rank 1 was killed by signal 9 (Killed)"
    kill $first $second
    exit 1 ;;
esac
case "$*" in
  execute*) mkdir -p "$out"; echo '{"step_time_s": 0.05, "loss": [5.0, 4.0]}' > "$out/result.json"; echo "2 ranks share 1 GPU, by slices of time (REHEARSE_MPS is $REHEARSE_MPS): losses" ;;
  simulate*) echo '{"step_time_s": 0.001}' > "$out/result.json" ;;
  validate*)
    sleep 1
    mkdir -p "$out/a"
    cp "$PRETEND_CALIBRATION" "$out/calibration.yaml"
    echo "log of a" > "$out/a/execute.log"
    echo "id,class,measured_s,simulated_s,error,measured_bytes,simulated_bytes,memory_error,reason" > "$out/ledger.csv"
    if [ -n "$PRETEND_SLOW" ]; then rows | head -n 2 >> "$out/ledger.csv"; echo "performing the third plan"; sleep 60; fi
    rows >> "$out/ledger.csv" ;;
esac
END_OF_PROGRAM
cat > "$pretend/bin/rehearse-cuda-bench" <<'END_OF_PROGRAM'
#!/bin/bash
for a in "$@"; do case "$a" in --benchmark_out=*) out=${a#*=} ;; esac; done
echo '{"benchmarks": [{"name": "flash/forward/iterations:1", "real_time": 10.0, "FLOP/s": 2.5e14}, {"name": "stream/add", "real_time": 5.0, "of_copy": 0.91}]}' > "${out:-/dev/null}"
echo "flash/forward 10 us"
END_OF_PROGRAM
printf '#!/bin/bash\necho "[  PASSED  ] 1 test."\n' > "$pretend/bin/test_gpu"
cat > "$place/tools/nvidia-smi" <<'END_OF_PROGRAM'
#!/bin/bash
case "$*" in
  *--loop-ms*) while true; do echo "2026/01/01 00:00:00.000, 1755, 2619, 612.50, 61, 99, 0x4"; sleep 0.2; done ;;
  *) echo "NVIDIA H100 80GB HBM3, 1" ;;
esac
END_OF_PROGRAM
printf '#!/bin/bash\necho "========= ERROR SUMMARY: 3 errors"\nexit 9\n' > "$place/tools/compute-sanitizer"
printf '#!/bin/bash\necho "flash_forward: 70%% of the peak"\n' > "$place/tools/ncu"
chmod +x "$pretend"/bin/* "$place"/tools/*
# shellcheck disable=SC2016  # as the script has it
sed -i 's/part "$name-mps-$mps" "$limit"/part "$name-mps-$mps" $((limit == 100 ? 6 : limit))/' "$pretend/gpu/parts.sh"
export PRETEND_LOG=$place/calls PRETEND_CALIBRATION=$place/calibration.yaml PRETEND_BROKEN="" PRETEND_SLOW="" KILL_AFTER=1
called=("env" "PATH=$place/tools:$PATH" "PYTHONPATH=$here/made_up_torch")

# The calls as they are printed, each on a machine that has nothing but what is carried there.
cd "$checkout"
tests/gpu/calls.sh > "$place/printed.txt"
grep -q '^26 minutes together' "$place/printed.txt" || fail "the calls: $(cat "$place/printed.txt")"
for call in A B C D E; do
  command=$(tests/gpu/calls.sh $call)
  [ ${#command} -le 2000 ] || fail "call $call has more than 2,000 characters"
  grep -qF "$command" "$place/printed.txt" || fail "call $call is not among the printed ones"
  limit=$(grep -A 1 "^$call: " "$place/printed.txt" | grep -o 'timeout_s [0-9]*' | grep -o '[0-9]*')
  [ "$limit" -le 600 ] || fail "call $call takes more than ten minutes"
  command=${command/--parts/--work $place/machine-$call --parts}
  OUT=$place/out-$call "${called[@]}" bash -c "$command" > "$place/call-$call.txt" 2>&1 || fail "call $call: $(cat "$place/call-$call.txt")"
  rm -rf "$place/machine-$call" || true
  [ "$(find "$place/out-$call" -type f | wc -l)" -le 8 ] || fail "call $call returns more than 8 files"
  tests/gpu/calls.sh --keep $call "$place/out-$call" > /dev/null
done
for expected in 'A:PASSED  clocks' 'A:PASSED  smoke (' 'A:PASSED  smoke: 2 losses' 'A:PASSED  test_gpu' 'A:4 \[  PASSED  \] 1 test' 'A:PASSED  steps (.*SM 1755 MHz .* W' \
  'B:seed: calibration.yaml' 'B:PASSED  attention' 'B:PASSED  torch' \
  'B:cudnn (16, 1024, 12, 12, 64): forward 100.0 us, backward 200.0 us' \
  'C:PASSED  flash' 'C:PASSED  kernels' 'C:FAILED  memcheck (exit 9' 'C:ERROR SUMMARY: 3' 'C:PASSED  counters' \
  'D:PASSED  two-ranks-mps-off:' 'D:REHEARSE_MPS is off' 'D:PASSED  two-ranks-mps-on:' 'D:TIMEOUT eight-ranks-mps-off' 'D:PASSED  interleaved-mps-on:' \
  'D:PASSED  killed: .*signal 9' 'E:PASSED  walk' 'E:PASSED  steps_again' \
  'E:"step_time_s": 0.05 with gelu' 'E:PASSED  epilogues-all: 2 losses' 'E:PASSED  epilogues-measured-products: 2 losses' \
  'E:PASSED  epilogues-cudnn-attention: 2 losses'; do
  grep -q -- "${expected#*:}" "build/gpu/back/${expected%%:*}/summary.txt" || fail "no '$expected' in $(cat "build/gpu/back/${expected%%:*}/summary.txt")"
done
grep -q 'validate --gpu --budget' "$PRETEND_LOG" || fail "no calibration: $(cat "$PRETEND_LOG")"
for file in A/calibration.yaml A/ledger.csv A/results.tar.gz A/log.txt B/torch.json E/walk_ledger.csv seed/ledger.csv seed/torch.json; do
  [ -s "build/gpu/back/$file" ] || fail "no $file"
done
tests/gpu/calls.sh --keep A "$place/tools" > /dev/null 2>&1 && fail "a folder that no call returned is kept"
tests/gpu/calls.sh F > /dev/null 2>&1 && fail "there is no call F"

# --- home
sed -i '/^h100/d' "$PRETEND_LOG"
tests/gpu/bring_back.sh --program "$build/cli/rehearse" build/gpu/back > "$place/home.txt" 2>&1 || fail "bring_back.sh: $(cat "$place/home.txt")"
for expected in '^installed: calibrate/devices/h100-80gb-hbm3.yaml, measured on NVIDIA H100 80GB HBM3' \
  '^attention: 26 rows of cudnn' '^attention: 26 rows of sdpa_flash' \
  '^presets with h100-sxm.*dgx-h100' '^| gpt2-124m-b16-s1024 | 100.00 ms | 100.00 ms | +0.0% |' \
  '^All: 16 plans: median 0.0%' '^ours/eager-bf16: median' '| flash/forward | 10.0 us | 250 |' '| stream/add | 5.0 us | 0.91 |' 'A: PASSED  steps (.*SM 1755 MHz'; do
  grep -q -- "$expected" "$place/home.txt" || fail "bring_back.sh prints no '$expected': $(cat "$place/home.txt")"
done
for section in 'power:' 'attention:' '  others:' '    cudnn:' '    sdpa_flash:'; do
  grep -q "^$section" calibrate/devices/h100-80gb-hbm3.yaml || fail "installed without $section"
done
records=$(echo tests/gpu/records/*-h100-80gb-hbm3)
for file in A.txt E.txt ledger.csv walk_ledger.csv torch.json flash.json kernels.json attention-cudnn.yaml; do [ -s "$records/$file" ] || fail "no record $file in $(ls "$records")"; done
# Plans take the rows of the library that their framework runs, ours those of neither.
step_of() { # framework
  REHEARSE_ROOT=$checkout "$build/cli/rehearse" simulate scenarios/gpu/gpt2.yaml --calibration h100-80gb-hbm3 --set "framework=$1" --json |
    grep -m 1 -o '"step_time_s": *[0-9.e-]*'
}
cp calibrate/devices/h100-80gb-hbm3.yaml "$place/installed.yaml"
for pair in megatron-core:cudnn torch-fsdp:sdpa_flash; do
  with=$(step_of "${pair%:*}") ours=$(step_of rehearse)
  sed -i "/,${pair#*:}\$/d" calibrate/devices/h100-80gb-hbm3.yaml
  [ "$with" != "$(step_of "${pair%:*}")" ] || fail "${pair%:*} does not take the rows of ${pair#*:}: $with"
  [ "$ours" = "$(step_of rehearse)" ] || fail "our plans take rows of ${pair#*:}"
  cp "$place/installed.yaml" calibrate/devices/h100-80gb-hbm3.yaml
done
tests/gpu/bring_back.sh --presets --program "$build/cli/rehearse" build/gpu/back > "$place/presets.txt" 2>&1 || fail "--presets: $(cat "$place/presets.txt")"
grep -q '^device: h100-80gb-hbm3' topologies/dgx-h100.yaml || fail "the preset does not name the device: $(cat "$place/presets.txt")"
mkdir -p "$place/broken"
cp build/gpu/back/A/* "$place/broken/"
sed -i 's/^sms: .*/sms: many/' "$place/broken/calibration.yaml"
git_state=$(find calibrate topologies -type f -exec md5sum {} + | sort)
tests/gpu/bring_back.sh --program "$build/cli/rehearse" "$place/broken" > "$place/broken.txt" 2>&1 && fail "a calibration that cannot be read is installed"
grep -q 'cannot be simulated with it' "$place/broken.txt" || fail "a broken calibration: $(cat "$place/broken.txt")"
[ "$git_state" = "$(find calibrate topologies -type f -exec md5sum {} + | sort)" ] || fail "a broken calibration changes files"

# --- a call that is killed returns what it has; the next goes on from it, on another machine
setsid "${called[@]}" PRETEND_SLOW=1 "$pretend/gpu/run.sh" --folder "$pretend" --out "$place/killed" --work "$place/machine-K" --seconds 200 --parts smoke,steps \
  > "$place/killed.txt" 2>&1 &
running=$!
disown "$running"  # nobody is told of its end
waited=0
until [ "$(grep -c ',step,' "$place/killed/ledger.csv" 2> /dev/null)" = 2 ] && [ -s "$place/killed/calibration.yaml" ]; do
  sleep 1
  waited=$((waited + 1))
  [ $waited -lt 60 ] || fail "a running call leaves no ledger: $(cat "$place/killed.txt")"
done
kill_call
rm -rf "$place/machine-K" || true  # what was being killed may have written there yet
grep -q 'performing the third plan' "$place/killed/log.txt" || fail "the killed part's output is lost: $(cat "$place/killed/log.txt")"
grep -q 'PASSED  smoke' "$place/killed/summary.txt" || fail "the summary is lost"
[ "$(grep -c ',step,' "$place/killed/ledger.csv")" = 2 ] || fail "the killed call's ledger: $(cat "$place/killed/ledger.csv")"
: > "$PRETEND_LOG"
"${called[@]}" "$pretend/gpu/run.sh" --folder "$pretend" --out "$place/next" --seed "$place/killed" --work "$place/machine-N" --seconds 200 --parts steps \
  > "$place/next.txt" 2>&1 || fail "the next call: $(cat "$place/next.txt")"
[ "$(grep -c 'validate --gpu --calibration' "$PRETEND_LOG")" = 14 ] || fail "not the 14 plans that were left: $(cat "$PRETEND_LOG")"
grep -q -- '--budget' "$PRETEND_LOG" && fail "it calibrates again"
grep -q '^steps: 16 of 16 plans are performed' "$place/next/summary.txt" || fail "the next call: $(cat "$place/next/summary.txt")"
[ "$(grep -c ',step,' "$place/next/ledger.csv")" = 16 ] || fail "the next call's ledger: $(cat "$place/next/ledger.csv")"

# --- it stops where nothing can work
for broken in version smoke; do
  "${called[@]}" PRETEND_BROKEN=$broken "$pretend/gpu/run.sh" --folder "$pretend" --out "$place/stop" --work "$place/machine-S" --seconds 100 --parts smoke,tests \
    > "$place/stop.txt" 2>&1 && fail "with a broken $broken it succeeds"
  grep -q 'test_gpu' "$place/stop/summary.txt" && fail "with a broken $broken it goes on: $(cat "$place/stop/summary.txt")"
  rm -rf "$place/machine-S" || true
done
grep -q '^smoke failed: nothing else is run' "$place/stop/summary.txt" || fail "smoke: $(cat "$place/stop/summary.txt")"

# --- PyTorch's steps
python3 "$here/torch_steps.py" --self-check --program "$place/folder/bin/rehearse" > "$place/torch.txt" || fail "torch_steps.py: $(cat "$place/torch.txt")"
steps() { # what goes wrong, more arguments
  MADE_UP_TORCH=$1 PYTHONPATH=$here/made_up_torch python3 "$here/torch_steps.py" --each 0 --out "$place/steps.json" "${@:2}" > "$place/steps.txt" 2>&1 ||
    fail "torch_steps.py: $(cat "$place/steps.txt")"
}
steps profiler --filter 124m-b16
[ "$(grep -c 'tokens/s' "$place/steps.txt")" = 4 ] || fail "a profiler that throws costs the step's time: $(cat "$place/steps.txt")"
grep -q 'not profiled: RuntimeError: CUPTI' "$place/steps.txt" || fail "nothing says why there is no profile"
rm "$place/steps.json"
steps memory --filter 1.5b-b4
[ "$(grep -c 'failed: RuntimeError: CUDA out of memory' "$place/steps.txt")" = 4 ] || fail "no plan is out of memory: $(cat "$place/steps.txt")"
steps ""
[ "$(grep -c 'tokens/s' "$place/steps.txt")" = 64 ] || fail "not 16 plans of four kinds: $(cat "$place/steps.txt")"
grep -q 'predicted 1.00 ms' build/gpu/back/B/log.txt || fail "eager steps are not predicted"
grep -q '  attention: flash_bwd_kernel' "$place/steps.txt" || fail "the attention kernel has no name"
steps ""
[ "$(grep -c 'measured in an earlier call' "$place/steps.txt")" = 64 ] || fail "what was measured is measured again"

rm "$place/folder/scenarios/gpu/plans.yaml"
"$place/folder/gpu/run.sh" --folder "$place/folder" --out "$place/gone" --dry > "$place/gone.txt" 2>&1 && fail "a missing file is not seen"
grep -q 'MISSING scenarios' "$place/gone.txt" || fail "a missing file is not named"
echo "script_test: passed"
