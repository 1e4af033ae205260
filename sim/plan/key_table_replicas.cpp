// The keys of the scenario's `plan:` mapping that say how data-parallel replicas come to one model: what of gradients
// is sent, in which steps, and to whom; see key_table.cpp.
#include "sim/plan/keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

constexpr double kMostReplicas = kMaxRanks;

Field local_group() {
  return Field::of<Plan>(
      [](const Plan& p) -> Value {
        if (p.local_group > 0) return p.local_group;
        return std::string(p.local_group == Plan::kNodeShards ? "node" : "replica");
      },
      [](Plan& p, const Value& value) {
        if (const auto* ranks = std::get_if<std::int64_t>(&value))
          p.local_group = *ranks;
        else
          p.local_group = std::get<std::string>(value) == "node" ? Plan::kNodeShards : Plan::kReplicaGroup;
      });
}

}  // namespace

std::vector<Key> replica_keys() {
  return {
      {.path = "plan.gradient_compression",
       .type = KeyType::choices,
       .fallback = "[none]",
       .values = {"none", "top_k", "random_k", "int8", "int4", "int2", "sign", "stochastic", "error_feedback",
                  "power_sgd", "momentum_correction"},
       .item = "part",
       .meaning =
           "how data-parallel ranks make gradients smaller before they send them, a chain: which are sent "
           "(`top_k`: of each bucket the largest, with their places; `random_k`: some drawn anew in each step, "
           "the same on all ranks), as which numbers (`int8`, `int4`, `int2`: codes between a chunk's least and "
           "greatest value; `sign`: times the mean of the absolute values), how these are rounded (`stochastic`: "
           "up or down at random, right in the mean), and what becomes of the rest (`error_feedback`: it is kept "
           "and added to the next step's gradients; `momentum_correction` with `top_k`, Deep Gradient Compression: "
           "SGD's momentum is added up by each rank and kept with it). What is no fp32 in the same places is "
           "all-gathered and added up on every rank. `power_sgd`, alone or with `error_feedback`: of each matrix two "
           "factors of `gradient_rank` columns are all-reduced",
       .example = "[top_k, error_feedback]",
       .related = "plan.gradient_share plan.gradient_chunk plan.gradient_rank plan.bucket training.reduce_dtype",
       .field = &Plan::gradient_compression},
      {.path = "plan.gradient_share",
       .type = KeyType::number,
       .fallback = "0.01",
       .min = 1e-6,
       .max = 1,
       .meaning = "with `top_k` and `random_k`: share of each bucket's gradients that is sent, at least one",
       .example = "0.1",
       .related = "plan.gradient_compression",
       .field = &Plan::gradient_share},
      {.path = "plan.gradient_warmup_steps",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1'000'000'000,
       .meaning = "with `top_k` and `random_k`, performed: so many steps each begin with 1/4, 1/16, 1/64, ... of the "
                  "gradients, as long as that is more than `gradient_share` (Deep Gradient Compression's warm-up). "
                  "A simulation is of the steps after them",
       .example = "100",
       .related = "plan.gradient_compression plan.gradient_share",
       .field = &Plan::gradient_warmup_steps},
      {.path = "plan.gradient_rank",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = 4096,
       .meaning = "with `power_sgd`: columns of the factors of a matrix, at most its rows and its columns (PyTorch's "
                  "`matrix_approximation_rank`)",
       .example = "4",
       .related = "plan.gradient_compression plan.gradient_min_rate",
       .field = &Plan::gradient_rank},
      {.path = "plan.gradient_start_step",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1'000'000'000,
       .meaning = "with `power_sgd`, performed: steps before which all gradients are all-reduced (PyTorch's "
                  "`start_powerSGD_iter`, there 1000). A simulation is of the steps after them",
       .example = "1000",
       .related = "plan.gradient_compression",
       .field = &Plan::gradient_start_step},
      {.path = "plan.gradient_min_rate",
       .type = KeyType::number,
       .fallback = "2",
       .min = 0,
       .max = 1e6,
       .meaning =
           "with `power_sgd`: matrices whose factors are not smaller than they by more than this are sent whole, "
           "as vectors are (PyTorch's `min_compression_rate`)",
       .example = "2",
       .related = "plan.gradient_compression plan.gradient_rank",
       .field = &Plan::gradient_min_rate},
      {.path = "plan.gradient_epsilon",
       .type = KeyType::number,
       .fallback = "0",
       .min = 0,
       .max = 1,
       .meaning = "with `power_sgd`: what is added to the norm that a column is divided by (PyTorch's "
                  "`orthogonalization_epsilon`)",
       .example = "1e-8",
       .related = "plan.gradient_compression",
       .field = &Plan::gradient_epsilon},
      {.path = "plan.gradient_chunk",
       .type = KeyType::integer,
       .fallback = "2048",
       .min = 0,
       .max = 1 << 30,
       .meaning = "with `int8`, `int4`, `int2` and `sign`: gradients that share a scale, and but for `sign` a zero "
                  "point, fp32 each; a multiple of 8. 0: all of a bucket",
       .example = "256",
       .related = "plan.gradient_compression",
       .field = &Plan::gradient_chunk},
      {.path = "plan.local_steps",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 100'000,
       .meaning =
           "optimizer steps that each worker takes by its own gradients before the workers' parameters become one "
           "again, which `outer_optimizer` says how (local SGD, FedAvg, DiLoCo); 0: gradients of all data-parallel "
           "ranks are summed in every step. What is said of a step is the mean over a round of so many",
       .example = "16",
       .related = "plan.local_group plan.outer_optimizer plan.outer_lr plan.outer_momentum",
       .field = &Plan::local_steps},
      {.path = "plan.local_group",
       .type = KeyType::choice_or_integer,
       .fallback = "replica",
       .values = {"replica", "node"},
       .min = 1,
       .max = kMostReplicas,
       .meaning =
           "with `local_steps`: what a worker is, a data-parallel `replica`, those of a `node`, or groups of so many "
           "ranks with the same weights. Within a worker gradients are summed in every step",
       .example = "node",
       .related = "plan.local_steps plan.rank_order",
       .field = local_group()},
      {.path = "plan.outer_optimizer",
       .type = KeyType::choice,
       .fallback = "average",
       .values = {"average", "nesterov"},
       .meaning =
           "with `local_steps`, at the end of a round: `average` (each worker goes on with the mean of all workers' "
           "parameters) or `nesterov` (with those that the round began with, moved by a step of SGD with Nesterov's "
           "momentum along the mean of how far the workers have come, as DiLoCo). `nesterov` keeps both in fp32",
       .example = "nesterov",
       .related = "plan.local_steps plan.outer_lr plan.outer_momentum",
       .field = &Plan::outer_optimizer},
      {.path = "plan.outer_lr",
       .type = KeyType::number,
       .fallback = "0.7",
       .min = 0,
       .max = 100,
       .meaning = "with `outer_optimizer: nesterov`: its learning rate",
       .example = "1",
       .related = "plan.outer_optimizer plan.outer_momentum",
       .field = &Plan::outer_lr},
      {.path = "plan.outer_momentum",
       .type = KeyType::number,
       .fallback = "0.9",
       .min = 0,
       .max = 1,
       .meaning = "with `outer_optimizer: nesterov`: its momentum; 0: none is kept",
       .example = "0.8",
       .related = "plan.outer_optimizer plan.outer_lr",
       .field = &Plan::outer_momentum},
      {.path = "plan.servers",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1024,
       .meaning =
           "parameter servers: each has its own of the parameters, which the data-parallel ranks (the workers) pull "
           "before an iteration, and applies the gradients that they push behind it; 0: there are none, and gradients "
           "are summed by collectives",
       .example = "1",
       .related = "plan.server_devices plan.consistency plan.staleness plan.backup_workers",
       .field = &Plan::servers},
      {.path = "plan.server_devices",
       .type = KeyType::choice,
       .fallback = "own",
       .values = {"own", "workers"},
       .meaning = "with `servers`: where they are, on devices of their `own`, which follow those of `cluster.gpus` in "
                  "the topology, or beside `workers`: server i of n on the device of worker i * workers / n",
       .example = "workers",
       .related = "plan.servers cluster.gpus",
       .field = &Plan::server_devices},
      {.path = "plan.consistency",
       .type = KeyType::choice,
       .fallback = "synchronous",
       .values = {"synchronous", "asynchronous", "bounded"},
       .meaning = "with `servers`: `synchronous` (a step is the mean of all workers' gradients), `asynchronous` (each "
                  "gradient is applied as it comes, and its worker goes on) or `bounded` (the same, but no worker "
                  "begins an iteration more than `staleness` ahead of the slowest)",
       .example = "asynchronous",
       .related = "plan.servers plan.staleness plan.backup_workers",
       .field = &Plan::consistency},
      {.path = "plan.staleness",
       .type = KeyType::integer,
       .fallback = "3",
       .min = 0,
       .max = 100'000,
       .meaning = "with `consistency: bounded`: iterations that a worker may be ahead of the slowest",
       .example = "1",
       .related = "plan.consistency",
       .field = &Plan::staleness},
      {.path = "plan.backup_workers",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = kMostReplicas,
       .meaning = "with `consistency: synchronous` and `servers`: so many of the workers are spare: a step takes the "
                  "gradients of the others that come first, and who is late gives its iteration up. `global_batch` is "
                  "of those that count",
       .example = "1",
       .related = "plan.servers plan.consistency training.global_batch",
       .field = &Plan::backup_workers},
      {.path = "plan.mode_overhead",
       .type = KeyType::number,
       .fallback = "0",
       .min = 0,
       .max = 100,
       .meaning = "with `servers`: of what a worker's iteration takes to compute, how much more it takes in this mode "
                  "(locks, copies, bookkeeping), as measured of an implementation; simulated only",
       .example = "0.1",
       .related = "plan.servers plan.consistency noise.rank_step",
       .field = &Plan::mode_overhead},
  };
}

}  // namespace rehearse::plan::detail
