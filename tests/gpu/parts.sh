# The parts of run.sh, which reads this: each NAME_part runs commands with part() and says what it found.
# shellcheck shell=bash
# shellcheck disable=SC2154  # run.sh sets: dry folder log more ours paths program python seed summary work

clocks_part() { # read only
  part clocks 30 nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE,MEMORY,COMPUTE
  return 0
}
smoke_part() { # does anything run at all: one rank of a tiny model, its losses those of the CPU
  part smoke 60 "${ours[@]}" "$program" execute gpt-tiny-text --device cuda --steps 20 -o "$work/smoke" || return 1
  [ "$dry" = 1 ] && return
  timeout 60 "${ours[@]}" "$program" execute gpt-tiny-text --device cpu --steps 20 -o "$work/smoke_cpu" >> "$log" 2>&1
  same_losses smoke "$work/smoke" "$work/smoke_cpu" 1e-3
}
same_losses() { # name, two results, tolerance: fp32 sums in another order
  [ -n "$python" ] || return 0
  local said
  said=$("$python" - "$@" 2>> "$log" <<'END'
import json, sys
name, a, b, tolerance = sys.argv[1:]
a, b = (json.load(open(d + "/result.json"))["loss"] for d in (a, b))
worst = max(abs(x - y) / abs(y) for x, y in zip(a, b)) if len(a) == len(b) and a else float("nan")
print(f"{'PASSED ' if worst <= float(tolerance) else 'FAILED '} {name}: {len(a)} losses, at most {worst:.2e} from the CPU's")
END
  ) || said="FAILED  $1: no losses to compare"
  say "$said"
  case "$said" in PASSED*) ;; *) return 1 ;; esac
}
tests_part() { # in four shards: references are computed on the CPU
  local test_gpu
  test_gpu=$(program_of test_gpu) || { say "SKIPPED test_gpu: not in the folder"; return; }
  # shellcheck disable=SC2016  # for the shell that runs it
  part test_gpu 120 bash -c 'for i in 0 1 2 3; do GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$i "$@" & pids="$pids $!"; done
    code=0; for p in $pids; do wait $p || code=1; done; exit $code' shards \
    "${ours[@]}" "$test_gpu" --gtest_color=no --gtest_brief=1
  [ -e "$work/test_gpu.txt" ] && grep -E '^\[  (PASSED|FAILED|SKIPPED)' "$work/test_gpu.txt" | sort | uniq -c | tail -n 25 | tee -a "$summary"
}
ledger_lines() { # ledger: what there is of it (id,class,measured_s,simulated_s,error,...)
  awk -F, '$2 == "step" { print "  " $1 ": measured " $3 " s, simulated " $4 " s, error " $5 }' "$1" | tee -a "$summary"
}
# Calibrates for all plans, then simulates and performs each; the ledger is written after each plan. What an earlier call has
# measured stays: only the plans that its ledger lacks are performed, with its calibration.
steps_part() {
  local ledger=$work/steps/ledger.csv calibration=$work/steps/calibration.yaml plans id measured=""
  plans=$(sed -n 's/^ *- {id: \([^,]*\),.*/\1/p' "$folder/scenarios/gpu/plans.yaml")
  [ -e "$ledger" ] && measured=$(awk -F, '$2 == "step" && $3 != "" { print $1 }' "$ledger")
  if [ -z "$measured" ]; then
    local given=(--budget 150)
    [ -s "$calibration" ] && cp "$calibration" "$work/calibration.yaml" && given=(--calibration "$work/calibration.yaml")
    part steps 400 "${ours[@]}" "$program" validate --gpu "${given[@]}" --seconds 2.5 -o "$work/steps"
    if [ -e "$work/steps.txt" ] && grep -q 'worst class' "$work/steps.txt"; then
      tail -n 40 "$work/steps.txt" | tee -a "$summary"
    elif [ -e "$ledger" ]; then
      ledger_lines "$ledger"
    fi
    tail -qn 2 "$work"/steps/*/execute.log >> "$log" 2>/dev/null
    return
  fi
  for id in $plans; do
    grep -qxF "$id" <<< "$measured" && continue
    part "steps_$id" 90 "${ours[@]}" "$program" validate --gpu --calibration "$calibration" --seconds 2.5 --filter "$id" -o "$work/one/$id"
    [ -s "$work/one/$id/ledger.csv" ] || continue
    { grep -v "^$id," "$ledger"; grep "^$id," "$work/one/$id/ledger.csv"; } > "$ledger.new" && mv "$ledger.new" "$ledger"
  done
  say "steps: $(awk -F, '$2 == "step" && $3 != ""' "$ledger" | wc -l) of $(wc -w <<< "$plans") plans are performed"
  ledger_lines "$ledger"
}
torch_part() {
  local torch=none limit=420
  [ -n "$python" ] && torch=$(timeout 120 "$python" -c 'import torch; print(torch.__version__, "CUDA", torch.version.cuda, "GPU", torch.cuda.is_available())' 2>> "$log" || echo none)
  say "torch: $torch"
  if [ "$torch" = none ] && [ "$dry" = 0 ]; then say "SKIPPED torch: it is not there"; return; fi
  [ "$limit" -gt $(($(left) - 8)) ] && limit=$(($(left) - 8))
  part torch $limit "${python:-python3}" "$folder/gpu/torch_steps.py" --plans "$folder/scenarios/gpu/plans.yaml" --out "$work/torch.json" \
    --ledger "$work/steps/ledger.csv" --seconds $((limit - 25)) --program "$program" --libraries "$paths" \
    --calibration "$work/steps/calibration.yaml"
  [ -e "$work/torch.txt" ] && grep -v '^#' "$work/torch.txt" | tail -n 100 | tee -a "$summary"
}
attention_part() { # frameworks' attention, by library: files of measurements for simulations of their plans
  local script=$folder/gpu/torch_attention.py
  [ -e "$script" ] || { say "SKIPPED attention: no torch_attention.py in the folder"; return; }
  if [ ! -s "$work/steps/calibration.yaml" ] && [ "$dry" = 0 ]; then say "SKIPPED attention: no calibration whose GPU it is for"; return; fi
  mkdir -p "$work/attention"
  part attention 90 "${python:-python3}" "$script" --plans "$folder/scenarios/gpu/plans.yaml" --out "$work/attention" --seconds 60 \
    --calibration "$work/steps/calibration.yaml"
  [ -e "$work/attention.txt" ] && grep 'TFLOP/s' "$work/attention.txt" | tee -a "$summary"
}
torch_kernels_part() { # what single kernels of PyTorch reach, and the host's time an operation
  local script=$folder/gpu/torch_kernels.py
  [ -e "$script" ] || { say "SKIPPED torch_kernels: no torch_kernels.py in the folder"; return; }
  part torch_kernels 110 "${python:-python3}" "$script" --out "$work/torch_kernels.csv" --seconds 95
}
tool_of() { # name: a tool of the toolkit
  command -v "$1" || find /usr/local/cuda*/bin -name "$1" 2>/dev/null | sed -n 1p
}
kernels_part() { # bytes and operations a second of every kernel, the attention kernels first
  local bench
  unpack_more
  bench=$(program_of rehearse-cuda-bench) || { say "SKIPPED kernels: no rehearse-cuda-bench"; return; }
  part flash 60 "${ours[@]}" "$bench" --benchmark_filter=^flash --benchmark_out="$work/flash.json" --benchmark_out_format=json
  part kernels 120 "${ours[@]}" "$bench" --benchmark_filter='^stream/.*bf16' --benchmark_out="$work/kernels.json" --benchmark_out_format=json
  [ "$dry" = 1 ] || grep -hE '^(flash|stream)/' "$work/flash.txt" "$work/kernels.txt" 2>/dev/null | cut -c1-200 | tee -a "$summary"
}
counters_part() { # what holds the attention kernels up, by the hardware's counters
  local bench tool
  unpack_more
  bench=$(program_of rehearse-cuda-bench) || { say "SKIPPED counters: no rehearse-cuda-bench"; return; }
  tool=$(tool_of ncu)
  if [ -z "$tool" ] && [ "$dry" = 0 ]; then say "SKIPPED counters: no ncu"; return; fi
  part counters 60 "${ours[@]}" "${tool:-ncu}" --clock-control none --kernel-name regex:flash --launch-count 4 --section SpeedOfLight \
    --section Occupancy --section WarpStateStats --section MemoryWorkloadAnalysis "$bench" --benchmark_filter=^flash.*bf16
}
ranks_run() { # plan, name, limit, settings...: ranks that share the GPU, joined by NCCL, with MPS and without; losses are the CPU's
  local plan=$1 name=$2 limit=$3; shift 3
  local mps cpu=$work/${name}_cpu
  for mps in off on; do
    part "$name-mps-$mps" "$limit" env REHEARSE_MPS=$mps "${ours[@]}" "$program" execute "$plan" --device cuda --ranks nccl --steps 5 \
      --timeout $((limit >= 70 ? 180 : 120)) "$@" -o "$work/$name-mps-$mps" || continue
    [ "$dry" = 1 ] && continue
    [ -e "$cpu/result.json" ] || timeout 60 "${ours[@]}" "$program" execute "$plan" --device cpu --steps 5 "$@" -o "$cpu" >> "$log" 2>&1
    same_losses "$name-mps-$mps" "$work/$name-mps-$mps" "$cpu" 1e-4
    grep -hoE '[0-9]+ ranks share [^:]*' "$work/$name-mps-$mps.txt" | sed -n 1p | sed 's/^/  /' | tee -a "$summary"
  done
}
ranks_part() {
  ranks_run gpt-tiny-ddp two-ranks 50
  ranks_run gpt-tiny-2x2x2 eight-ranks 100
  ranks_run gpt-tiny-2x2x2 interleaved 50 --set cluster.gpus=2 --set plan.tensor=1 --set plan.schedule=interleaved --set plan.chunks=2
}
children_of() { # process: those of this program that it started, ranks by way of /proc/self/exe
  local status
  for status in /proc/[0-9]*/status; do
    awk -v parent="$1" '/^Name:/ { name = $2 } /^Pid:/ { pid = $2 } /^PPid:/ && $2 == parent && (name == "rehearse" || name == "exe") { print pid }' "$status" 2>/dev/null
  done
}
killed_part() { # a rank that is killed ends the run, which names it, and nothing is left
  local file=$work/killed.txt run ranks="" waited=0 code=0 rank
  if [ "$dry" = 1 ]; then say "would run killed (60 s): $program execute gpt-tiny-ddp --device cuda --ranks nccl, one rank killed"; return; fi
  if [ "$(left)" -lt 70 ]; then say "SKIPPED killed: no time left"; return; fi
  timeout 65 "${ours[@]}" "$program" execute gpt-tiny-ddp --device cuda --ranks nccl --steps 1000000 --timeout 120 > "$file" 2>&1 &
  run=$!
  while [ $waited -lt 30 ] && kill -0 $run 2>/dev/null; do
    sleep 1
    waited=$((waited + 1))
    # timeout is the parent of the program, which is the ranks' parent.
    for rank in $(children_of $run); do ranks=$(children_of "$rank"); done
    [ "$(wc -w <<< "$ranks")" -ge 2 ] && [ $waited -ge "${KILL_AFTER:-15}" ] && break
  done
  rank=$(tail -n 1 <<< "$ranks")
  if [ -z "$rank" ]; then
    say "FAILED  killed: no ranks to kill: $(tail -n 1 "$file")"
  else
    kill -9 "$rank"
    wait $run
    code=$?
    if [ $code = 1 ] && grep -q 'killed by signal 9' "$file"; then
      say "PASSED  killed: $(grep -m 1 'killed by signal 9' "$file")"
    else
      say "FAILED  killed (exit $code): $(tail -n 1 "$file")"
    fi
    for rank in $ranks; do [ -e "/proc/$rank" ] && say "FAILED  killed: rank's process $rank is left"; done
  fi
  kill $run 2>/dev/null
  { echo "===== killed: exit $code"; cat "$file"; } >> "$log"
}
sanitize_part() {
  local tool test_gpu
  tool=$(tool_of compute-sanitizer)
  if [ -z "$tool" ] && [ "$dry" = 0 ]; then say "SKIPPED sanitize: no compute-sanitizer"; return; fi
  test_gpu=$(program_of test_gpu) || { say "SKIPPED sanitize: no test_gpu"; return; }
  for check in memcheck racecheck; do
    part $check 100 "${ours[@]}" "${tool:-compute-sanitizer}" --tool $check --error-exitcode 9 "$test_gpu" --gtest_color=no --gtest_brief=1 \
      --gtest_filter='CudaFlash*:CudaGemm*'
    [ -e "$work/$check.txt" ] && grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|not supported' "$work/$check.txt" | tail -n 3 | tee -a "$summary"
  done
}
walk_part() { # calibrated anew; half of the plans are held out of what the calibration walks
  part walk 280 "${ours[@]}" "$program" validate --gpu --budget 120 --seconds 2 -o "$work/walk"
  if [ -e "$work/walk.txt" ] && grep -q 'worst class' "$work/walk.txt"; then
    tail -n 40 "$work/walk.txt" | tee -a "$summary"
  elif [ -e "$work/walk/ledger.csv" ]; then
    ledger_lines "$work/walk/ledger.csv"
  fi
}
again_part() { # do the steps repeat, from the same calibration
  [ -s "$work/steps/calibration.yaml" ] || [ "$dry" = 1 ] || return
  part steps_again 120 "${ours[@]}" "$program" validate --gpu --calibration "$work/steps/calibration.yaml" --seconds 2 --filter gpt2-124m -o "$work/again"
  [ -e "$work/steps_again.txt" ] && tail -n 14 "$work/steps_again.txt" | tee -a "$summary"
}
epilogues_part() { # what plan.fused_epilogues, --products and --attention gain, by the steps of GPT-2; losses are those without
  local kind args
  for kind in none bias_gradient gelu all measured-products cudnn-attention; do
    case $kind in
      measured-products) args=(--products measured) ;;
      cudnn-attention) args=(--attention cudnn) ;;
      *) args=(--set "plan.fused_epilogues=$kind") ;;
    esac
    part "epilogues-$kind" 25 "${ours[@]}" "$program" execute "$folder/scenarios/gpu/gpt2.yaml" --device cuda --steps 20 \
      "${args[@]}" -o "$work/epilogues_$kind"
    [ "$dry" = 1 ] && continue
    say "  $(grep -m 1 -o '"step_time_s": *[0-9.e-]*' "$work/epilogues_$kind/result.json" 2> /dev/null || echo 'no step time') with $kind"
    [ -e "$work/epilogues-$kind.txt" ] && grep -E '^ *(Products|Attention) ' "$work/epilogues-$kind.txt" | tee -a "$summary"
    [ $kind = none ] || same_losses "epilogues-$kind" "$work/epilogues_$kind" "$work/epilogues_none" 1e-2
  done
}
