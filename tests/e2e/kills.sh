#!/bin/bash
# kills.sh TRANSPORT KILLS_A_RUN RUNS [SEED]: trains a small model whose ranks are processes over TRANSPORT (gloo, mpi),
# kills (SIGKILL) one of them at a random moment so often a run - in steps, in checkpoints, while the ranks start - and
# compares what the run ends with, losses and every byte of its last checkpoint, with a run that nobody disturbed.
# Prints a line a run; exit status 1 if one differs or does not end. REHEARSE names the program.
#
# STEPS: of a run (400). 200 kills: tests/e2e/kills.sh gloo 5 20; tests/e2e/kills.sh mpi 5 20
set -u
transport=$1 kills=$2 runs=$3 seed=${4:-1}
program=${REHEARSE:-$(dirname "$0")/../../build/cli/rehearse}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
export REHEARSE_MPIRUN="${REHEARSE_MPIRUN:-mpirun}"
cat > "$folder/small.yaml" << END
rehearse: 1
name: small
model: {family: gpt, layers: 2, hidden: 32, heads: 2, vocab: 256, max_seq_len: 16}
cluster: {topology: dgx-a100, gpus: 4, threads_per_rank: 1}
plan: {micro_batch: 1, pipeline: 2, zero: 1}
training: {global_batch: 8, precision: bf16, lr: 1e-2}
END
steps=${STEPS:-400}

# Its process is then the program's.
train() { # NAME OPTIONS...
  name=$1
  shift
  exec "$program" execute "$folder/small.yaml" --steps "$steps" --ranks "$transport" --timeout 20 \
    --checkpoint "$folder/$name" --every 10 --keep 2 --max-restarts 1000 "$@" > "$folder/$name.out" 2> "$folder/$name.err"
}

RANDOM=$seed  # repeats the choices, not the moments

# The ranks below process $1, of gloo its children, of mpi those of mpirun.
ranks_of() {
  below=$(cat "/proc/$1/task/$1/children" 2> /dev/null)
  [ "$transport" = mpi ] && below=$(for p in $below; do cat "/proc/$p/task/$p/children" 2> /dev/null; done)
  for p in $below; do [ "$(tr '\0' ' ' < "/proc/$p/cmdline" 2> /dev/null | grep -c 'execute')" = 1 ] && echo "$p"; done
}

(train undisturbed) || { cat "$folder/undisturbed.err"; exit 1; }
last=step-$(printf %010d "$steps")
bad=0
for run in $(seq "$runs"); do
  name=run$run
  mode=$([ $((run % 2)) = 0 ] && echo --async)
  train "$name" ${mode:+"$mode"} &
  parent=$!
  done_kills=0
  while [ $done_kills -lt "$kills" ] && kill -0 $parent 2> /dev/null; do
    sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
    mapfile -t ranks < <(ranks_of $parent)
    [ ${#ranks[@]} -eq 0 ] && continue
    kill -KILL "${ranks[$((RANDOM % ${#ranks[@]}))]}" 2> /dev/null && done_kills=$((done_kills + 1))
  done
  wait $parent
  status=$?
  restarts=$(grep -c 'starting again' "$folder/$name.err")
  verdict=same
  [ $status = 0 ] || verdict="exit status $status"
  for rank in 0 1 2 3; do
    cmp -s "$folder/undisturbed/$last/rank-000$rank.state" "$folder/$name/$last/rank-000$rank.state" ||
      verdict="$verdict, rank $rank differs"
  done
  losses() { sed -n '/"losses"/,/]/p' "$folder/$1/$last/manifest.json"; }
  [ "$(losses undisturbed)" = "$(losses "$name")" ] || verdict="$verdict, losses differ"
  echo "run $run: $done_kills kills, $restarts restarts $mode: $verdict"
  if [ "$verdict" != same ]; then
    bad=1
    tail -20 "$folder/$name.err"
  fi
  rm -rf "${folder:?}/$name"
done
exit $bad
