#!/bin/sh
# Chains of gradient compression side by side, of one model on four replicas (SGD with momentum 0.9): what a rank sends in a
# step and how long the step takes on a slow network, simulated (four nodes of one A100 at 1 Gb/s); and the loss after as many
# steps as without compression, and after as much time on that network, performed here. A table in Markdown on standard output.
#   scenarios/compression.sh [REHEARSE] [STEPS]     (default ./rehearse, 30)
# A loss is the mean of 10 steps. Runs end after at most 10 x STEPS steps; a time that no run fills is marked with >.
set -eu
rehearse=${1:-./rehearse}
steps=${2:-30}
most=$((10 * steps))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

model="gpt-tiny-ddp --set cluster.gpus=4 --set training.global_batch=16 --set training.optimizer=sgd --set training.lr=0.1
  --set training.momentum=0.9 --set training.clip=0 --set training.weight_decay=0"
slow="--set cluster.topology=ethernet-a100 --set cluster.overrides.node.devices=1 --set cluster.overrides.nic.count=1
  --set cluster.overrides.pcie.switches=1 --set cluster.overrides.host.sockets=1 --set cluster.overrides.nic.bandwidth=1Gbps
  --set cluster.overrides.fabric.oversubscription=1"

# What node 0 sends, bytes.
sent() { awk '/"name": "node0\/nic0-out"/ { here = 1 } here && /"bytes":/ { gsub(/[^0-9]/, ""); print; exit }' "$1/result.json"; }
step_of() { awk '/"step_time_s":/ { gsub(/[^0-9.e-]/, "", $2); print $2; exit }' "$1/result.json"; }
# The mean loss of the 10 steps up to one.
loss_at() { awk -F, -v last="$2" '$2 == 0 && $1 > last - 10 && $1 <= last { if ($3 !~ /^-?[0-9]/ || $3 > 1e30) bad = 1; sum += $3; ++n } END { if (bad) printf "diverges"; else printf "%.3f", sum / n }' "$1/steps.csv"; }

limit=
echo "| chain | a rank sends | step | loss after $steps steps | loss after as much time |"
echo "|---|---|---|---|---|"
while read -r name chain; do
  # shellcheck disable=SC2086
  "$rehearse" simulate $model $slow --set "plan.gradient_compression=$chain" -o "$work/s" >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
  step=$(step_of "$work/s")
  : "${limit:=$(echo "$step" "$steps" | awk '{ print $1 * $2 }')}"
  fit=$(echo "$limit" "$step" | awk '{ print int($1 / $2 + 1e-9) }')
  mark=
  if [ "$fit" -gt "$most" ]; then fit=$most mark="> "; fi
  run=$fit
  if [ "$run" -lt "$steps" ]; then run=$steps; fi
  # shellcheck disable=SC2086
  "$rehearse" execute $model --set "plan.gradient_compression=$chain" --steps "$run" -o "$work/m" >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
  echo "$name" "$(sent "$work/s")" "$step" "$(loss_at "$work/m" "$steps")" "$(loss_at "$work/m" "$fit")" "$fit" "$mark" |
    awk '{ gsub(/_/, " ", $1); printf "| %s | %.1f kB | %.2f ms | %s | %s (%s%s steps) |\n", $1, $2 / 1e3, $3 * 1e3, $4, $5, $7, $6 }'
done <<EOF
fp32 [none]
int8 [int8]
int8,_stochastic_rounding [int8, stochastic]
int4 [int4]
int2 [int2]
int2,_error_feedback [int2, error_feedback]
sign_(1_bit) [sign]
sign,_error_feedback [sign, error_feedback]
top-k_1% [top_k]
top-k_1%,_error_feedback [top_k, error_feedback]
random-k_1%,_error_feedback [random_k, error_feedback]
PowerSGD_rank_1 [power_sgd]
PowerSGD_rank_1,_error_feedback [power_sgd, error_feedback]
DGC_(top-k_1%,_momentum_correction) [top_k, momentum_correction]
EOF
