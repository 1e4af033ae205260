#!/usr/bin/env bash
# What run.sh, pack.sh and torch_steps.py can show without a GPU: the folder packs, every path is there, a wrong argument and
# a missing file are named, a machine without a GPU is told so, and PyTorch's models are ours to the parameter.
# usage: script_test.sh BUILD_DIR
set -euo pipefail
build=${1:?usage: script_test.sh BUILD_DIR}
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
fail() { echo "script_test: $*" >&2; exit 1; }

"$here/pack.sh" "$build" "$place/folder"
[ "$(du -sk --apparent-size "$place/folder" | cut -f1)" -le $((60 * 1024)) ] || fail "the folder is too large"
env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH="$place/folder/lib" "$place/folder/bin/rehearse" --version > /dev/null || fail "the packed program does not start"

"$place/folder/gpu/run.sh" --folder "$place/folder" --out "$place/out" --dry > "$place/dry.txt" || fail "dry: $(cat "$place/dry.txt")"
grep -q '^dry: every path is there' "$place/dry.txt" || fail "dry does not say so: $(cat "$place/dry.txt")"
for part in smoke test_gpu steps torch gpt-tiny-ddp memcheck steps_again; do
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

# The whole flow, with programs that only look like those: results are kept between calls, a hang and a failure stop nothing.
pretend=$place/pretend
mkdir -p "$pretend/bin" "$pretend/tools"
cp -r "$place/folder/scenarios" "$place/folder/calibrate" "$place/folder/gpu" "$pretend/"
cat > "$pretend/bin/rehearse" <<'END'
#!/usr/bin/env bash
echo "$*" >> "$PRETEND_LOG"
out=""; for a in "$@"; do [ "$previous" = -o ] && out=$a; previous=$a; done
case "$*" in
  *gpt-tiny-2x2x2*nccl*) sleep 60 ;;
  execute*) mkdir -p "$out"; echo '{"loss": [5.0, 4.0]}' > "$out/result.json" ;;
  validate*) mkdir -p "$out/a"; echo calibration > "$out/calibration.yaml"; echo "log of a" > "$out/a/execute.log"
    { echo id,class; grep -o 'id: [^,]*' "$REHEARSE_ROOT/scenarios/gpu/plans.yaml" | cut -c5- | sed 's/$/,step,0.1,0.1,0/'; } > "$out/ledger.csv" ;;
esac
END
printf '#!/usr/bin/env bash\necho "[  PASSED  ] 1 test."\n' > "$pretend/bin/test_gpu"
printf '#!/usr/bin/env bash\necho "GPU, 1"\n' > "$pretend/tools/nvidia-smi"
printf '#!/usr/bin/env bash\necho "========= ERROR SUMMARY: 3 errors"\nexit 9\n' > "$pretend/tools/compute-sanitizer"
chmod +x "$pretend"/bin/* "$pretend"/tools/*
sed -i 's/part \$plan 90/part $plan 6/' "$pretend/gpu/run.sh"
export PRETEND_LOG=$pretend/calls
for call in first second; do
  PATH=$pretend/tools:$PATH "$pretend/gpu/run.sh" --folder "$pretend" --out "$pretend/$call" --work "$pretend/work" --seconds 120 \
    > "$pretend/$call.txt" 2>&1 || fail "the pretended $call call: $(cat "$pretend/$call.txt")"
done
for line in 'PASSED  smoke (' 'PASSED  smoke: 2 losses' 'PASSED  test_gpu' '4 \[  PASSED  \] 1 test' 'PASSED  steps (' 'PASSED  gpt-tiny-ddp:' \
  'TIMEOUT gpt-tiny-2x2x2' 'FAILED  memcheck (exit 9' 'ERROR SUMMARY: 3' 'PASSED  steps_again'; do
  grep -q -- "$line" "$pretend/first/summary.txt" || fail "pretended: no '$line' in $(cat "$pretend/first/summary.txt")"
done
grep -q '^SKIPPED steps: all' "$pretend/second/summary.txt" || fail "the second call measures again: $(cat "$pretend/second/summary.txt")"
grep -q 'validate --gpu --budget' "$PRETEND_LOG" || fail "no calibration: $(cat "$PRETEND_LOG")"
for file in calibration.yaml ledger.csv results.tar.gz log.txt; do [ -s "$pretend/second/$file" ] || fail "no $file"; done
[ "$(find "$pretend/second" -type f | wc -l)" -le 8 ] || fail "more than 8 files"

"$place/folder/gpu/run.sh" --out "$place/bad" --work "$place/work" --parts tests,nonsense > /dev/null 2>&1 && fail "an unknown part is taken"
rm "$place/folder/scenarios/gpu/plans.yaml"
"$place/folder/gpu/run.sh" --folder "$place/folder" --out "$place/gone" --dry > "$place/gone.txt" 2>&1 && fail "a missing file is not seen"
grep -q 'MISSING scenarios' "$place/gone.txt" || fail "a missing file is not named"

python3 "$here/torch_steps.py" --self-check --program "$place/folder/bin/rehearse" > "$place/torch.txt" || fail "torch_steps.py: $(cat "$place/torch.txt")"
echo "script_test: passed"
