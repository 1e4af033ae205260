#!/usr/bin/env bash
# Fuzzes by hand, for as long as is asked for: every reader and random plans in turn, with libFuzzer under clang's address
# and undefined-behaviour sanitizers where clang++ and its runtime are there (Debian: clang-14 libclang-rt-14-dev), else
# with the plain mutator under g++'s.
#
#   tests/fuzz/run.sh [--minutes 60] [--plain] [--seed N] [READER...]     READER: a name of `rehearse-fuzz --list`
#
# Builds in build-fuzz/ (with --plain in build-fuzz-plain/). Inputs that break the promise (tests/fuzz/harness.h) are left
# in FOLDER/finds/READER, what libFuzzer learnt in FOLDER/corpus/READER, and goes on from there the next time. Exit
# code 1: something was found.
set -euo pipefail
cd "$(dirname -- "${BASH_SOURCE[0]}")/../.."

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

minutes=60 seed=$RANDOM plain=0 readers=()
while (($#)); do
  case $1 in
    --minutes) minutes=${2:?--minutes takes a number} && shift 2 ;;
    --seed) seed=${2:?--seed takes a number} && shift 2 ;;
    --plain) plain=1 && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) readers+=("$1") && shift ;;
  esac
done

has_libfuzzer() {
  command -v clang++ >/dev/null && clang++ -fsanitize=fuzzer -x c++ - -o /dev/null 2>/dev/null \
    <<<'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
}

if ((!plain)) && ! has_libfuzzer; then
  echo "run.sh: no clang++ with libFuzzer here (clang-14 libclang-rt-14-dev): the plain mutator" >&2
  plain=1
fi
if ((plain)); then
  build=build-fuzz-plain compiler=${CXX:-g++} fuzz=AUTO
else
  build=build-fuzz compiler=clang++ fuzz=ON
fi
cached=()
if command -v ccache >/dev/null; then cached=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DREHEARSE_FUZZ=$fuzz -DREHEARSE_SANITIZE=address \
  -DREHEARSE_CUDA=OFF -DREHEARSE_BENCH=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" \
  "${cached[@]}" >/dev/null
cmake --build "$build" --target rehearse-fuzz
program=$PWD/$build/tests/fuzz/rehearse-fuzz

((${#readers[@]})) || mapfile -t readers < <("$program" --list)
cores=$(nproc)
seconds=$((minutes * 60 * cores / ${#readers[@]}))
((seconds > 0)) || seconds=1
export ASAN_OPTIONS=detect_leaks=1:${ASAN_OPTIONS-} UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS-}

# One reader; its report is a line.
fuzz_one() {
  local reader=$1 dictionary=() finds=$PWD/$build/finds/$1 corpus=$PWD/$build/corpus/$1 log=$PWD/$build/$1.log outcome=ok
  mkdir -p "$finds" "$corpus" "$build/seeds"
  if ((plain)); then
    (cd "$finds" && "$program" --target="$reader" -seed="$seed" -seconds="$seconds") >"$log" 2>&1 || outcome=FOUND
  else
    "$program" --target="$reader" --seeds="$build/seeds/$reader" --dictionary >"$build/seeds/$reader.dict"
    [[ -s $build/seeds/$reader.dict ]] && dictionary=(-dict="$build/seeds/$reader.dict")
    # In a process of its own each time, so that a find does not end the hour. The timeout is of wall-clock, for waits; the
    # harness counts processor time.
    "$program" --target="$reader" -fork=1 -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 -seed="$seed" \
      -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -max_len=65536 "${dictionary[@]}" \
      -artifact_prefix="$finds/" "$corpus" "$build/seeds/$reader" >"$log" 2>&1 || true
    grep -aq '^INFO: exiting' "$log" || outcome=BROKEN
    [[ -n $(find "$finds" -type f ! -name 'slow-unit-*' -newer "$build/seeds/$reader.dict" -print -quit) ]] && outcome=FOUND
  fi
  printf '%-24s %-6s %s\n' "$reader" "$outcome" "$log"
  [[ $outcome == ok ]]
}
export -f fuzz_one
export build program plain seed seconds

echo "run.sh: ${#readers[@]} readers, $seconds s each, seed $seed"
if printf '%s\n' "${readers[@]}" | xargs -P "$cores" -I{} bash -c 'fuzz_one {}'; then
  echo "run.sh: nothing found"
else
  echo "run.sh: see $build/finds; to keep a find as a test put it, as small as it gets, into tests/fuzz/corpus/READER" >&2
  exit 1
fi
