#!/usr/bin/env bash
# Puts what tests/gpu/run.sh needs on a machine without packages or network into one folder: the program, the GPU tests, and
# every shared library they need that is not the system's C library, the driver's, or found there (cuBLAS, cuDNN, NCCL).
# more.tar.xz in it holds rehearse-cuda-bench, and what tests/gpu/relink.sh needs to compile one .cu again and relink all
# programs there: headers, the .cu files, objects, our archives and static libraries.
# usage: tests/gpu/pack.sh BUILD_DIR FOLDER   (fails above 60 MiB)
set -Eeuo pipefail
trap 'echo "pack: line $LINENO fails: $BASH_COMMAND" >&2' ERR
build=${1:?usage: pack.sh BUILD_DIR FOLDER}
folder=${2:?usage: pack.sh BUILD_DIR FOLDER}
root=$(cd "$(dirname "$0")/../.." && pwd)
limit_kib=$((60 * 1024))  # a device machine takes 64 MiB, this repository's files among them

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib" "$folder/gpu"
folder=$(cd "$folder" && pwd)
build=$(cd "$build" && pwd)

built() { # name: the program's file
  find "$build/tests" -maxdepth 3 -name "$1" -type f -perm -u+x | sed -n 1p
}

# glibc, the loader and the driver are of the machine itself; the rest of the toolkit is found there.
of_the_system='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libcuda|libnvidia.*|libcublas.*|libcudnn.*|libnccl.*|libnvrtc.*)\.so'
libraries_of() { # program: those it needs go into lib
  ldd "$1" | while read -r name arrow path _; do
    if [ "$arrow" = "=>" ] && [ "$path" = not ]; then
      echo "pack: $1 needs $name, which is nowhere" >&2
      exit 1
    fi
    [ "$arrow" = "=>" ] || continue
    if [[ ! $name =~ $of_the_system ]] && [ ! -e "$folder/lib/$name" ]; then
      cp -L "$path" "$folder/lib/$name"
      strip --strip-unneeded "$folder/lib/$name" 2>/dev/null || true
    fi
  done
}
pack_program() { # program where
  [ -x "$1" ] || { echo "pack: $1 is not built" >&2; exit 1; }
  cp "$1" "$2/"
  strip "$2/$(basename "$1")"
  libraries_of "$1"
}

pack_program "$build/cli/rehearse" "$folder/bin"
test_gpu=$(built test_gpu)
bench=$(built rehearse-cuda-bench)
if [ -n "$test_gpu" ]; then
  pack_program "$test_gpu" "$folder/bin"
else
  echo "pack: no test_gpu in $build/tests: not packed" >&2
fi

# --- more.tar.xz
more=$(mktemp -d)
trap 'rm -rf "$more"' EXIT
mkdir -p "$more/bin"
[ -z "$bench" ] || pack_program "$bench" "$more/bin"

keep_library() { # file: into relink/libs
  [ -e "$more/relink/libs/$(basename "$1")" ] || cp -L "$1" "$more/relink/libs/"
}
# The link of a program as ninja does it: what it takes is copied, its arguments are noted with the places here.
note_link() { # target output
  local line word skip=0 name out="$2"
  line=$(ninja -C "$build" -t commands "$1" | grep -- " -o $out " | tail -n 1)
  line=${line#: && }
  line=${line%% && *}
  {
    printf '%s' "$(basename "$out")"
    for word in ${line#* }; do
      if [ "$skip" = 1 ]; then skip=0; continue; fi
      case "$word" in
        -o) skip=1 ;;
        -L*|-Wl,-rpath*|*/librt.a) ;;
        /*.a) keep_library "$word"; printf ' libs/%s' "$(basename "$word")" ;;
        /*.so*)
          name=$(objdump -p "$word" | awk '$1 == "SONAME" { print $2 }')
          name=${name:-$(basename "$word")}
          if [ -e "$folder/lib/$name" ]; then printf ' LIB/%s' "$name"; fi ;;  # else the program does without
        *.a|*.o)
          (cd "$build" && cp --parents "$word" "$more/relink/objects/")
          printf ' objects/%s' "$word" ;;
        *) printf ' %s' "$word" ;;
      esac
    done
    printf '\n'
  } >> "$more/relink/links"
}
if [ -n "$bench" ] && [ -n "$test_gpu" ] && [ -f "$build/build.ninja" ] && command -v ninja > /dev/null; then
  mkdir -p "$more/relink/libs" "$more/relink/objects" "$more/relink/source"
  (cd "$root" && find kernels sim/base \( -name '*.h' -o -path 'kernels/cuda/*.cu' \) -exec cp --parents -t "$more/relink/source" {} +)
  note_link rehearse-cli cli/rehearse
  note_link test_gpu "${test_gpu#"$build"/}"
  note_link rehearse-cuda-bench "${bench#"$build"/}"
  # How nvcc is called, but for the GPU and the places.
  ninja -C "$build" -t commands kernels/librehearse_cuda.a | grep 'nvcc .*\.cu ' | sed -n 1p | tr ' ' '\n' |
    grep -E '^(-O|-D|-std|--expt|-forward-unknown)' | paste -sd ' ' > "$more/relink/nvcc_options"
  # Where its toolkit lies nvcc itself says: a launcher may stand before it, or be it.
  nvcc=$(ninja -C "$build" -t commands kernels/librehearse_cuda.a | grep -o '[^ ]*/nvcc ' | sed -n 1p)
  toolkit=$("${nvcc% }" --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#[$] TOP=//p')
  for name in libcudadevrt.a libcudart_static.a; do
    library=$(find "$toolkit"/lib* "$toolkit"/targets -name $name 2>/dev/null | sed -n 1p || true)
    [ -n "$library" ] || { echo "pack: no $name in $nvcc's toolkit, ${toolkit:-which it does not name}" >&2; exit 1; }
    keep_library "$library"
  done
  find "$more/relink" \( -name '*.a' -o -name '*.o' \) -exec strip -g {} + 2>/dev/null || true
else
  echo "pack: no rehearse-cuda-bench, test_gpu and ninja's files in $build: nothing to relink with" >&2
fi
# One dictionary for all: the kernels are in each program and in the archive. A higher preset takes three times as long
# for a tenth less.
[ -z "$bench" ] || tar cf - -C "$more" . | xz -T1 --lzma2=preset=2,dict=64MiB > "$folder/more.tar.xz"

# What the program reads: REHEARSE_ROOT is this folder. The text is what ranks are trained on, should it not be there.
cp /usr/share/common-licenses/GPL-3 "$folder/gpu/text.txt"
cp -r "$root/topologies" "$root/scenarios" "$folder/"
mkdir -p "$folder/calibrate"
cp -r "$root/calibrate/devices" "$folder/calibrate/"
cp "$root"/tests/gpu/{run,parts,relink}.sh "$root"/tests/gpu/torch_*.py "$folder/gpu/"
{
  echo "version: $("$build/cli/rehearse" --version 2>/dev/null | sed -n 1p)"
  echo "commit: $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)"
  echo "packed: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  echo "needs glibc: $(objdump -T "$folder"/bin/* "$folder"/lib/* 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)"
} > "$folder/MANIFEST"

size_kib=$(du -sk --apparent-size "$folder" | cut -f1)
echo "pack: $folder: $((size_kib / 1024)) MiB of $((limit_kib / 1024)); $(cd "$folder/bin" && echo *)"
if [ "$size_kib" -gt "$limit_kib" ]; then
  echo "pack: too large; the largest:" >&2
  du -ak --apparent-size "$folder" | sort -rn | sed -n 1,8p >&2
  exit 1
fi
