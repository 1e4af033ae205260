#!/usr/bin/env bash
# Puts what tests/gpu/run.sh needs on a machine without packages or network into one folder: the program, the GPU tests, and
# every shared library they need that is not the system's C library, the driver's, or found there (cuBLAS, cuDNN, NCCL).
# usage: tests/gpu/pack.sh BUILD_DIR FOLDER   (fails above 60 MiB)
set -euo pipefail
build=${1:?usage: pack.sh BUILD_DIR FOLDER}
folder=${2:?usage: pack.sh BUILD_DIR FOLDER}
root=$(cd "$(dirname "$0")/../.." && pwd)
limit_kib=$((60 * 1024))  # a device machine takes 64 MiB, this repository's files among them

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib" "$folder/gpu"

binaries=("$build/cli/rehearse")
for test in test_gpu; do
  found=$(find "$build/tests" -maxdepth 3 -name "$test" -type f -perm -u+x | head -n 1)
  if [ -n "$found" ]; then binaries+=("$found"); else echo "pack: no $test in $build/tests: not packed" >&2; fi
done

# glibc, the loader and the driver are of the machine itself; the rest of the toolkit is found there.
of_the_system='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libcuda|libnvidia.*|libcublas.*|libcudnn.*|libnccl.*|libnvrtc.*)\.so'
for binary in "${binaries[@]}"; do
  [ -x "$binary" ] || { echo "pack: $binary is not built" >&2; exit 1; }
  cp "$binary" "$folder/bin/"
  strip "$folder/bin/$(basename "$binary")"
  ldd "$binary" | while read -r name arrow path _; do
    if [ "$arrow" = "=>" ] && [ "$path" = not ]; then
      echo "pack: $binary needs $name, which is nowhere" >&2
      exit 1
    fi
    [ "$arrow" = "=>" ] || continue
    if [[ ! $name =~ $of_the_system ]] && [ ! -e "$folder/lib/$name" ]; then
      cp -L "$path" "$folder/lib/$name"
      strip --strip-unneeded "$folder/lib/$name" 2>/dev/null || true
    fi
  done
done

# What the program reads: REHEARSE_ROOT is this folder. The text is what ranks are trained on, should it not be there.
cp /usr/share/common-licenses/GPL-3 "$folder/gpu/text.txt"
cp -r "$root/topologies" "$root/scenarios" "$folder/"
mkdir -p "$folder/calibrate"
cp -r "$root/calibrate/devices" "$folder/calibrate/"
cp "$root/tests/gpu/run.sh" "$root/tests/gpu/torch_steps.py" "$folder/gpu/"
{
  echo "version: $("$build/cli/rehearse" --version 2>/dev/null | head -n 1)"
  echo "commit: $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)"
  echo "packed: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  echo "needs glibc: $(objdump -T "$folder"/bin/* "$folder"/lib/* 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)"
} > "$folder/MANIFEST"

size_kib=$(du -sk --apparent-size "$folder" | cut -f1)
echo "pack: $folder: $((size_kib / 1024)) MiB of $((limit_kib / 1024)); $(ls "$folder/bin" | tr '\n' ' ')"
if [ "$size_kib" -gt "$limit_kib" ]; then
  echo "pack: too large; the largest:" >&2
  du -ak --apparent-size "$folder" | sort -rn | head -n 8 >&2
  exit 1
fi
