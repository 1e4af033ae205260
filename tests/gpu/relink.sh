#!/usr/bin/env bash
# On the machine with the GPU: compiles .cu files of kernels/cuda again, for its GPU, and relinks rehearse, test_gpu and
# rehearse-cuda-bench with them, from what tests/gpu/pack.sh packed. run.sh --bin DIR then runs these.
#
#   relink.sh --folder FOLDER --bin DIR [--source DIR] [--arch sm_90a] [--work DIR] kernels/cuda/NAME.cu...
#
# --source: where the files and the headers they include lie, a checkout say; without it those that were packed.
set -euo pipefail
usage() { sed -n '2,7p' "$0" | sed 's/^# \{0,1\}//'; }
folder="" bin="" source="" arch="" work=${TMPDIR:-/tmp}/rehearse-relink files=()
while [ $# -gt 0 ]; do
  case "$1" in
    --folder) folder=${2:?}; shift 2 ;;
    --bin) bin=${2:?}; shift 2 ;;
    --source) source=${2:?}; shift 2 ;;
    --arch) arch=${2:?}; shift 2 ;;
    --work) work=${2:?}; shift 2 ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "relink.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
    *) files+=("$1"); shift ;;
  esac
done
if [ -z "$folder" ] || [ -z "$bin" ] || [ ${#files[@]} = 0 ]; then usage >&2; exit 2; fi
folder=$(cd "$folder" && pwd)
mkdir -p "$bin" "$work"
bin=$(cd "$bin" && pwd)
work=$(cd "$work" && pwd)
if [ -z "$arch" ]; then
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ' || true)
  arch=sm_${arch:-90}
fi
if [ ! -d "$work/relink" ]; then
  tar xJf "$folder/more.tar.xz" -C "$work" 2>/dev/null ||
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$folder/more.tar.xz" "$work"
fi
[ -s "$work/relink/links" ] || { echo "relink.sh: $folder/more.tar.xz holds nothing to relink with" >&2; exit 1; }
[ -z "$source" ] || source=$(cd "$source" && pwd)
cd "$work/relink"
[ -n "$source" ] || source=$PWD/source
PATH=$PATH:/usr/local/cuda/bin
read -r -a options < nvcc_options
archive=objects/kernels/librehearse_cuda.a
for file in "${files[@]}"; do
  [ -f "$source/$file" ] || { echo "relink.sh: no $source/$file" >&2; exit 1; }
  object=$(basename "$file").o
  ar t "$archive" | grep -qx "$object" || { echo "relink.sh: $archive has no $object" >&2; exit 1; }
  nvcc "${options[@]}" -arch="$arch" -I"$source" -x cu -c "$source/$file" -o "$work/$object"
  ar r "$archive" "$work/$object"
done
while read -r name arguments; do
  read -r -a words <<< "${arguments//LIB\//$folder/lib/}"
  # Libraries of libraries are found when the program runs.
  c++ "${words[@]}" -o "$bin/$name" -Llibs -Wl,--allow-shlib-undefined
  echo "relinked $bin/$name for $arch"
done < links
