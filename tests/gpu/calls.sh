#!/usr/bin/env bash
# The half-hour with a borrowed GPU as five calls of at most ten minutes each, 26 minutes together: prints each call's time
# limit, what it carries and its command, which runs in a checkout's root. Each goes on from what those before brought back,
# on whatever machine it meets. In the order of their value: if time runs out, what is there can be used.
#
#   calls.sh [A|B|C|D|E]        # all, or the command of one alone
#   calls.sh --keep CALL DIR    # what call CALL returned, in DIR: to where the next call and bring_back.sh look for it
#
# Before: pack.sh BUILD build/gpu/pack. Between: --keep. After: bring_back.sh build/gpu/back. build/ is not tracked, so both
# folders are carried by name. A machine stays warm for half a minute: called one after the other, the five start it once.
set -euo pipefail
pack=build/gpu/pack back=build/gpu/back

# call: seconds, parts, what it is for
calls() {
  cat <<'LIST'
A 420 clocks,smoke,tests,steps   clocks, a first run, the kernels' tests, calibration and the steps of all plans
B 440 attention,torch_kernels,torch   frameworks' attention and kernels, and the same steps in PyTorch
C 260 kernels,sanitize,counters  every kernel against its bound, compute-sanitizer and ncu on products and attention
D 150 ranks,killed               2 and 8 ranks that share the GPU, MPS off and on, interleaved, one killed
E 340 walk,again,epilogues       calibrated anew, plans held out; do steps repeat; what epilogues, measured algorithms, cuDNN gain
LIST
}
command_of() { # seconds parts: it ends 20 s before its limit
  # shellcheck disable=SC2016  # OUT is the other machine's
  printf '%s/gpu/run.sh --folder %s --seed %s/seed --out "$OUT" --seconds %d --parts %s\n' "$pack" "$pack" "$back" $(($1 - 20)) "$2"
}

case "${1:-}" in
  -h|--help) sed -n '2,11p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
  --keep)
    call=${2:?usage: calls.sh --keep CALL DIR} dir=${3:?usage: calls.sh --keep CALL DIR}
    calls | grep "^$call " > /dev/null || { echo "calls.sh: no call '$call'" >&2; exit 2; }
    [ -s "$dir/summary.txt" ] || { echo "calls.sh: no summary.txt in $dir: not what a call returned" >&2; exit 1; }
    mkdir -p "$back/$call" "$back/seed"
    cp -f "$dir"/* "$back/$call/"
    chmod u+w "$back/$call"/*
    for file in calibration.yaml ledger.csv torch.json; do
      if [ -s "$back/$call/$file" ]; then cp "$back/$call/$file" "$back/seed/$file"; fi
    done
    echo "kept in $back/$call: $(cd "$back/$call" && echo *)" ;;
  "")
    total=0
    while read -r call seconds parts what; do
      total=$((total + seconds))
      echo "$call: $what"
      echo "   timeout_s $seconds, carry $pack $back/seed"
      echo "   $(command_of "$seconds" "$parts")"
    done < <(calls)
    echo "$((total / 60)) minutes together. After each: tests/gpu/calls.sh --keep CALL DIR, at the end tests/gpu/bring_back.sh $back" ;;
  *)
    line=$(calls | grep "^$1 ") || { echo "calls.sh: no call '$1'" >&2; exit 2; }
    read -r _ seconds parts _ <<< "$line"
    command_of "$seconds" "$parts" ;;
esac
