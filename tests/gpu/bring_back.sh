#!/usr/bin/env bash
# Takes home what the calls of tests/gpu/calls.sh have returned: reads the calibration by simulating with it, installs it as
# a device of calibrate/devices, stores ledgers, torch.json and all other records under tests/gpu/records, and prints the
# tables of the docs.
#
#   bring_back.sh [--presets] [--device NAME] [--program FILE] [--root DIR] DIR
#
# DIR: as calls.sh --keep fills it, a folder a call; or what one call returned. --presets: the topologies whose device is the
# shipped one of this GPU name the measured one from now on; without it, --calibration or costs.calibration does.
# --device: the shipped device of this GPU, where its name does not say so: from it comes what no calibration of one GPU
# measures (power, other attention kernels, collectives). --root: the checkout; this one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
program="" presets=0 shipped="" dir=""
usage() { sed -n '2,13p' "$0" | sed 's/^# \{0,1\}//'; }
fail() { echo "bring_back.sh: $*" >&2; exit 1; }
while [ $# -gt 0 ]; do
  case "$1" in
    --presets) presets=1; shift ;;
    --device) shipped=${2:?}; shift 2 ;;
    --program) program=${2:?}; shift 2 ;;
    --root) root=$(cd "${2:?}" && pwd); shift 2 ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "bring_back.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
    *) dir=$1; shift ;;
  esac
done
if [ -z "$dir" ]; then usage >&2; exit 2; fi
[ -n "$program" ] || program=$root/build/cli/rehearse
[ -x "$program" ] || fail "no $program: build rehearse-cli first, or name it with --program"
export REHEARSE_ROOT=$root

# --- the calls, in their order
calls=()
if [ -s "$dir/summary.txt" ]; then
  calls=("$dir")
else
  for call in "$dir"/*/; do [ -s "$call/summary.txt" ] && calls+=("${call%/}"); done
fi
[ ${#calls[@]} -gt 0 ] || fail "no summary.txt in $dir or a folder of it: not what calls returned"
latest() { # file: of the last call that has it
  local call found=""
  for call in "${calls[@]}"; do [ -s "$call/$1" ] && found=$call/$1; done
  [ -n "$found" ] && echo "$found"
}

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
calibration=$(latest walk_calibration.yaml || latest calibration.yaml || true)
name="" gpu=""
if [ -n "$calibration" ]; then
  name=$(sed -n 's/^name: *//p' "$calibration" | sed -n 1p)
  [[ $name =~ ^[a-z0-9-]+$ ]] || fail "$calibration names no device"
  gpu=$(sed -n '1s/^# \(.*\), measured by .*/\1/p' "$calibration")
  # It is only taken if simulations with it end.
  for scenario in gpt2 llama; do
    "$program" simulate "$root/scenarios/gpu/$scenario.yaml" --calibration "$calibration" -o "$place/$scenario" > "$place/said" 2>&1 ||
      fail "$calibration: $scenario cannot be simulated with it: $(tail -n 3 "$place/said")"
  done
  if [ -z "$shipped" ]; then
    case "$gpu" in
      *H100*HBM3*) shipped=h100-sxm ;;
      *H100*PCIe*) shipped=h100-pcie ;;
      *H200*) shipped=h200-sxm ;;
      *B200*) shipped=b200-sxm ;;
      *A100-SXM4-80GB*) shipped=a100-sxm-80g ;;
      *A100-SXM4-40GB*) shipped=a100-sxm-40g ;;
      *) fail "which of calibrate/devices is '$gpu'? --device says so" ;;
    esac
  fi
  [ -s "$root/calibrate/devices/$shipped.yaml" ] || fail "no calibrate/devices/$shipped.yaml"
  [ "$name" != "$shipped" ] || fail "$calibration is named as the shipped $shipped"
else
  echo "no calibration among what came back: nothing is installed"
fi

# Attention of other libraries (torch_attention.py), of the last call that measured it.
attention=()
for library in cudnn sdpa_flash; do
  for call in "${calls[@]}"; do
    file=./attention/attention-$library.yaml
    if [ -s "$call/results.tar.gz" ]; then tar xzf "$call/results.tar.gz" -C "$place" "$file" 2>/dev/null || true; fi
  done
  [ -s "$place/attention/attention-$library.yaml" ] && attention+=("$place/attention/attention-$library.yaml")
done

# --- the device
if [ -n "$name" ]; then
  installed=$root/calibrate/devices/$name.yaml
  python3 "$here/bring_back.py" device "$calibration" "$root/calibrate/devices/$shipped.yaml" ${attention[@]+"${attention[@]}"} \
    > "$place/device.yaml"
  cp "$root/calibrate/devices/$shipped.collectives.yaml" "$root/calibrate/devices/$name.collectives.yaml"
  cp "$place/device.yaml" "$installed"
  for scenario in gpt2 llama; do
    if ! "$program" simulate "$root/scenarios/gpu/$scenario.yaml" --calibration "$name" -o "$place/$scenario" > "$place/said" 2>&1; then
      rm -f "$installed" "$root/calibrate/devices/$name.collectives.yaml"
      fail "as installed, $name does not simulate $scenario: $(tail -n 3 "$place/said")"
    fi
  done
  "$program" schema > "$place/schema.json"  # names the devices
  cp "$place/schema.json" "$root/scenarios/schema.json"
  echo "installed: calibrate/devices/$name.yaml, measured on $gpu; what it lacks is $shipped's"
  for library in cudnn sdpa_flash; do
    rows=$(grep -c "^    \(forward\|backward\),.*,$library\$" "$installed" || true)
    [ "$rows" = 0 ] || echo "attention: $rows rows of $library, for plans whose framework runs it"
  done
  users=$(grep -l "^device: $shipped *\(#.*\)\?$" "$root"/topologies/*.yaml || true)
  for preset in $users; do
    if [ "$presets" = 1 ]; then
      sed -i "s/^device: $shipped\b/device: $name/" "$preset"
      echo "preset: topologies/$(basename "$preset") has $name now"
    fi
  done
  if [ "$presets" = 1 ]; then
    "$program" simulate "$root/scenarios/gpu/gpt2.yaml" --set cluster.gpus=8 --set training.global_batch=128 -o "$place/preset" \
      > "$place/said" 2>&1 || fail "the presets do not simulate with $name: $(tail -n 3 "$place/said")"
    echo "next: rehearse validate, and the tables of docs/validation.md: predictions of these presets have changed"
  elif [ -n "$users" ]; then
    echo "presets with $shipped, which --presets gives $name: $(for p in $users; do basename "$p" .yaml; done | tr '\n' ' ')"
  fi
fi

# --- records
when=$(date -u +%Y-%m-%d)
records=$root/tests/gpu/records/$when-${name:-no-calibration}
mkdir -p "$records"
for call in "${calls[@]}"; do
  letter=$(basename "$call")
  [ ${#calls[@]} -gt 1 ] || letter=call
  cp "$call/summary.txt" "$records/$letter.txt"
  if [ -s "$call/results.tar.gz" ]; then
    for file in torch_kernels.csv flash.json kernels.json clocks.csv counters.txt attention/attention-cudnn.yaml attention/attention-sdpa_flash.yaml; do
      if tar xzf "$call/results.tar.gz" -C "$place" "./$file" 2>/dev/null && [ -s "$place/$file" ]; then
        case "$file" in
          clocks.csv) gzip -9nc "$place/$file" > "$records/$letter.clocks.csv.gz" ;;
          *) cp "$place/$file" "$records/$(basename "$file")" ;;
        esac
      fi
    done
  fi
done
for file in ledger.csv walk_ledger.csv torch.json; do
  if found=$(latest "$file"); then cp "$found" "$records/$file"; fi
done
for found in "$records"/attention-*.yaml; do
  [ -s "$found" ] || continue
  "$program" simulate "$root/scenarios/gpu/gpt2.yaml" --calibration "${name:-$shipped}" --calibration "$found" -o "$place/attention" > "$place/said" 2>&1 ||
    fail "$found cannot be simulated with: $(tail -n 3 "$place/said")"
done
echo "records: tests/gpu/records/$(basename "$records"): $(cd "$records" && echo *)"

# --- tables
echo
python3 "$here/bring_back.py" tables "$records"
