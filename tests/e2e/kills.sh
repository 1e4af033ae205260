#!/bin/bash
# kills.sh TRANSPORT KILLS_A_RUN RUNS [SEED]: trains a small model whose ranks are processes over TRANSPORT (gloo, mpi),
# kills (SIGKILL) one of them at a random moment so often a run - in steps, in checkpoints, while the ranks start - and
# compares what the run ends with, losses and every byte of its last checkpoint, with a run that nobody disturbed.
# Prints a line a run; exit status 1 if one differs or does not end. REHEARSE names the program.
#
# STEPS: of a run (400). MODE: ranks (default); servers, parameter servers and their workers; elastic, where what is
# left goes on without the killed rank, another takes its place later, and losses are compared to 1e-4. KIND: of
# checkpoints (sharded, full, incremental); of incremental ones what they add up to is compared, as the full checkpoint
# of one more step.
# 200 kills: tests/e2e/kills.sh gloo 5 20; tests/e2e/kills.sh mpi 5 20
set -u
transport=$1 kills=$2 runs=$3 seed=${4:-1}
mode=${MODE:-ranks} kind=${KIND:-sharded}
program=${REHEARSE:-$(dirname "$0")/../../build/cli/rehearse}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
export REHEARSE_MPIRUN="${REHEARSE_MPIRUN:-mpirun}"
plan='{micro_batch: 1, pipeline: 2, zero: 1}' gpus=4
training='precision: bf16, lr: 1e-2'
[ "$kind" = incremental ] && training="$training, lora_rank: 4" # most of it is as it was
[ "$mode" = servers ] && plan='{micro_batch: 1, servers: 2}' gpus=2 training='precision: fp32, lr: 1e-2, clip: 0'
[ "$mode" = elastic ] && training="${training/bf16/fp32}" && training="${training/1e-2/1e-3}" # other sums grow apart
cat > "$folder/small.yaml" << END
rehearse: 1
name: small
model: {family: gpt, layers: 2, hidden: 32, heads: 2, vocab: 256, max_seq_len: 16}
cluster: {topology: dgx-a100, gpus: $gpus, threads_per_rank: 1}
plan: $plan
training: {global_batch: 8, $training}
END
steps=${STEPS:-400}

# Its process is then the program's.
train() { # NAME STEPS OPTIONS...
  name=$1 until=$2
  shift 2
  exec "$program" execute "$folder/small.yaml" --steps "$until" --ranks "$transport" --timeout 20 \
    --checkpoint "$folder/$name" --every 10 --max-restarts 1000 "$@" > "$folder/$name.out" 2> "$folder/$name.err"
}
of_kind=(--checkpoint-kind "$kind" --keep 2)
[ "$mode" = elastic ] && of_kind+=(--elastic 2:4)

RANDOM=$seed  # repeats the choices, not the moments

# The ranks below process $1, of gloo its children, of mpi those of mpirun.
ranks_of() {
  below=$(cat "/proc/$1/task/$1/children" 2> /dev/null)
  [ "$transport" = mpi ] && below=$(for p in $below; do cat "/proc/$p/task/$p/children" 2> /dev/null; done)
  for p in $below; do grep -qs execute "/proc/$p/cmdline" && echo "$p"; done
}

# Whether run $1 has said $2 more than $3 times, by now or within a minute.
said() {
  for _ in $(seq 1200); do
    [ "$(grep -c "$2" "$folder/$1.err")" -gt "$3" ] && return 0
    kill -0 "$parent" 2> /dev/null || return 1
    sleep 0.05
  done
  return 1
}

# A rank has left run $1 and others have gone on: there is another one now.
replace() {
  before=$(grep -c 'there are 4 ranks now' "$folder/$1.err")
  said "$1" 'with 2 of 3 ranks' "$2" || return
  echo 4 > "$folder/$1/ranks"
  said "$1" 'there are 4 ranks now' "$before"
}

last=step-$(printf %010d "$steps")
losses() { sed -n '/"losses"/,/]/p' "$folder/$1/$last/manifest.json"; }
# Whether losses of $1 and $2 agree to 1e-4.
near() {
  paste <(losses "$1") <(losses "$2") | tr -d '",:][' |
    awk 'NF == 2 && $1 + 0 > 0 { n++; d = $1 / $2 - 1; if (d > 1e-4 || d < -1e-4) bad++ }
         END { exit n == 0 || bad > 0 }'
}
# Of incremental checkpoints, the files of which depend on when the whole ones were.
add_up() { (train "$1" $((steps + 1)) --resume --checkpoint-kind full) || cat "$folder/$1.err"; }

(train undisturbed "$steps" "${of_kind[@]}") || { cat "$folder/undisturbed.err"; exit 1; }
compared=$last
if [ "$kind" = incremental ]; then
  add_up undisturbed
  compared=step-$(printf %010d $((steps + 1)))
fi
bad=0
for run in $(seq "$runs"); do
  name=run$run
  async=$([ $((run % 2)) = 0 ] && echo --async)
  train "$name" "$steps" "${of_kind[@]}" ${async:+"$async"} &
  parent=$!
  done_kills=0
  while [ $done_kills -lt "$kills" ] && kill -0 $parent 2> /dev/null; do
    sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
    mapfile -t ranks < <(ranks_of $parent)
    [ ${#ranks[@]} -eq 0 ] && continue
    # Before all four have a checkpoint to go on from there is nothing to take a rank away from.
    [ "$mode" = elastic ] && ! compgen -G "$folder/$name/step-*/manifest.json" > /dev/null && continue
    gone=$(grep -c 'with 2 of 3 ranks' "$folder/$name.err")
    kill -KILL "${ranks[$((RANDOM % ${#ranks[@]}))]}" 2> /dev/null && done_kills=$((done_kills + 1))
    [ "$mode" = elastic ] && replace "$name" "$gone"
  done
  wait $parent
  status=$?
  restarts=$(grep -c -e 'starting again' -e 'going on from' "$folder/$name.err")
  verdict=
  [ $status = 0 ] || verdict="exit status $status"
  if [ "$mode" = elastic ]; then
    near undisturbed "$name" || verdict="$verdict${verdict:+, }losses differ"
  else
    [ "$(losses undisturbed)" = "$(losses "$name")" ] || verdict="$verdict${verdict:+, }losses differ"
    [ "$kind" = incremental ] && add_up "$name"
    for file in "$folder/undisturbed/$compared"/*.state; do
      cmp -s "$file" "$folder/$name/$compared/${file##*/}" || verdict="$verdict${verdict:+, }${file##*/} differs"
    done
  fi
  echo "run $run: $done_kills kills, $restarts restarts $async: ${verdict:-same}"
  if [ -n "$verdict" ]; then
    bad=1
    tail -20 "$folder/$name.err"
  fi
  rm -rf "${folder:?}/$name"
done
exit $bad
