// The keys of a scenario file but those of its model, its plan, its training, its data and its noise (key_table_*.cpp),
// in the order in which a person would fill them in.
#include "sim/base/collective_words.h"
#include "sim/plan/keys.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

constexpr double kRanks = kMaxRanks;

}  // namespace

std::vector<Key> top_keys() {
  return {
      {.path = "rehearse",
       .type = KeyType::integer,
       .origin = Default::required,
       .min = 1,
       .max = 1,
       .meaning = "the schema version, 1",
       .example = "1"},
      {.path = "name",
       .type = KeyType::text,
       .origin = Default::derived,
       .fallback = "the file's name without `.yaml`",
       .meaning = "for people",
       .example = "GPT-3 175B on 1024 A100"},
      {.path = "model",
       .type = KeyType::model,
       .origin = Default::required,
       .names_of = "models",
       .meaning = "a preset's name (a file of `scenarios/models/`) or a mapping of the keys of `model`",
       .example = "gpt3-175b",
       .related = "model.preset model.family"},
      {.path = "framework",
       .type = KeyType::name,
       .fallback = "auto",
       .or_auto = true,
       .names_of = "frameworks",
       .meaning =
           "whose launches are simulated; sets the defaults of some other keys; `auto`: what people run for such "
           "a plan on GPUs, `rehearse` on a CPU and where the plan is performed",
       .example = "megatron-2021",
       .related = "model.attention model.dropout plan.bucket plan.overlap_grad_reduce training.grad_dtype"},
      {.path = "cluster", .fallback = "{}", .meaning = "the machine", .example = "{topology: dgx-a100, gpus: 8}"},
      {.path = "plan", .fallback = "{}", .meaning = "how the model is split", .example = "{tensor: 2, zero: 1}"},
      {.path = "training",
       .fallback = "{}",
       .meaning = "what one optimizer step is",
       .example = "{global_batch: 64, seq_len: 1024}"},
      {.path = "data",
       .fallback = "{}",
       .meaning = "what a run trains on: how long an epoch is, and when a micro-batch is there",
       .example = "{samples: 50000, workers: 8, sample_time: 5ms}"},
      {.path = "costs",
       .fallback = "{}",
       .meaning = "where measured times come from",
       .example = "{calibration: a100-sxm-80g}"},
      {.path = "noise",
       .fallback = "{}",
       .meaning = "what makes steps and ranks differ: jitter, slow ranks, link faults",
       .example = "{kernels: 0.03}"},
      {.path = "failures",
       .fallback = "{}",
       .meaning = "what interrupts a run of weeks (`rehearse goodput`); a step knows nothing of it",
       .example = "{host_mtbf_hours: 3686, restart: 5min}"},
      {.path = "checkpoint",
       .fallback = "{}",
       .meaning = "from what a run of weeks goes on then",
       .example = "{storage_bandwidth: 2TB/s, mode: async}"},
  };
}

std::vector<Key> cluster_keys() {
  return {
      {.path = "cluster.topology",
       .type = KeyType::name,
       .fallback = "local",
       .names_of = "topologies",
       .or_path = true,
       .meaning = "a file of `topologies/` by name, or a path, relative to this file or else to the working directory",
       .example = "dgx-a100",
       .related = "cluster.gpus cluster.overrides costs.calibration"},
      {.path = "cluster.nodes",
       .type = KeyType::free_list,
       .fallback = "[]",
       .meaning =
           "nodes of several kinds behind one fabric, in order: `{topology: NAME, count: N}` each, the nodes of that "
           "topology; an entry may say `device`, `nvlink`, `pcie`, `host`, `nic` and `host_memory` otherwise. The "
           "fabric "
           "is that of `cluster.topology`, by default the first entry's. `gpus` is the sum of their devices",
       .example = "[{topology: dgx-h100, count: 4}, {topology: dgx-a100, count: 4}]",
       .related = "cluster.topology cluster.gpus cluster.placement plan.layers_per_stage"},
      {.path = "cluster.gpus",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = kRanks,
       .meaning = "ranks; rank r runs on device r unless `placement` says otherwise; devices are numbered node by node",
       .example = "1024",
       .related = "plan.tensor plan.pipeline cluster.topology",
       .field = &ClusterRequest::gpus,
       .in_result = true},
      {.path = "cluster.overrides",
       .type = KeyType::free_mapping,
       .fallback = "{}",
       .meaning = "keys of the topology file to change, nested or dotted",
       .example = "{nic: {bandwidth: 100Gbps}}",
       .related = "cluster.topology"},
      {.path = "cluster.gpudirect",
       .type = KeyType::boolean,
       .fallback = "true",
       .meaning =
           "bytes go between GPUs and NICs directly (GPUDirect RDMA); `false`: through the memory of their host, "
           "as with NCCL's `NCCL_NET_GDR_LEVEL=LOC` or without the driver's module: over the GPU's PCIe link to "
           "the host bridge, and over the NIC's back, links that others share; of topologies with PCIe links",
       .example = "false",
       .related = "cluster.topology cluster.overrides cluster.collectives",
       .field = &ClusterRequest::gpudirect},
      {.path = "cluster.placement",
       .type = KeyType::free_list,
       .fallback = "[]",
       .or_path = true,
       .meaning =
           "which devices the ranks run on, in rank order: device numbers, ranges `0-7`, `nodeN`, `node[A-B,C]`, "
           "`nodeN/gpuK`, or a file of these; not for `local` or `kind: links`",
       .example = "['node[0-3]']",
       .related = "cluster.gpus cluster.topology"},
      {.path = "cluster.faults",
       .type = KeyType::free_list,
       .fallback = "[]",
       .meaning =
           "links that are missing or degraded, each `{link: PATTERN}` with `missing: true`, `share`, `bandwidth` or "
           "`latency` (added); `*` stands for anything",
       .example = "[{link: node0/nic0-*, share: 0.5}]",
       .related = "cluster.topology cluster.overrides"},
      {.path = "cluster.background",
       .type = KeyType::free_list,
       .fallback = "[]",
       .meaning = "steady flows of other jobs, each `{from: DEVICE, to: DEVICE, rate: BANDWIDTH}`; what they take is "
                  "missing on "
                  "the links they cross",
       .example = "[{from: node2/gpu0, to: node3/gpu0, rate: 10GB/s}]",
       .related = "cluster.placement cluster.topology"},
      {.path = "cluster.jobs",
       .type = KeyType::mappings,
       .fallback = "[]",
       .meaning = "other whole jobs on the same cluster, simulated together with this one: they share its links; not "
                  "for `local` or `kind: links`",
       .example = "[{scenario: other.yaml}]",
       .related = "cluster.jobs[].scenario cluster.jobs[].placement cluster.placement cluster.background"},
      {.path = "cluster.jobs[].scenario",
       .type = KeyType::text,
       .origin = Default::derived,
       .fallback = "this scenario once more",
       .meaning = "path of its scenario file, relative to this one; of its `cluster` section `gpus`, `placement` and "
                  "`collectives` count, the machine is this scenario's",
       .example = "other.yaml"},
      {.path = "cluster.jobs[].set",
       .type = KeyType::free_mapping,
       .origin = Default::derived,
       .fallback = "none",
       .meaning = "keys of that file to change, nested or dotted",
       .example = "{cluster.gpus: 16, plan.tensor: 4}"},
      {.path = "cluster.jobs[].placement",
       .type = KeyType::free_list,
       .origin = Default::derived,
       .fallback = "that file's, or the first devices free",
       .or_path = true,
       .meaning = "as `cluster.placement`; a device has one job",
       .example = "['node[2-3]']"},
      {.path = "cluster.jobs[].start",
       .type = KeyType::time,
       .origin = Default::derived,
       .fallback = "0",
       .meaning = "when its first step begins, this scenario's begins at 0",
       .example = "100ms"},
      {.path = "cluster.jobs[].name",
       .type = KeyType::text,
       .origin = Default::derived,
       .fallback = "that file's",
       .meaning = "what results call it",
       .example = "neighbour"},
      {.path = "cluster.collectives",
       .type = KeyType::mappings,
       .origin = Default::derived,
       .fallback = "none",
       .meaning = "algorithms and protocols that are pinned, as NCCL_ALGO and NCCL_PROTO do; of several entries for a "
                  "collective each group takes the fastest it is offered; not for `local` or `kind: links`",
       .example = "[{kind: all_reduce, algorithm: ring}]",
       .related = "cluster.collectives[].kind cluster.collectives[].algorithm cluster.collectives[].protocol"},
      {.path = "cluster.collectives[].kind",
       .type = KeyType::choice,
       .origin = Default::required,
       .values = {kCollectiveKindWords.begin(), kCollectiveKindWords.end()},
       .meaning = "the collective",
       .example = "all_reduce",
       .field = &PinnedCollective::kind},
      {.path = "cluster.collectives[].algorithm",
       .type = KeyType::choice,
       .origin = Default::derived,
       .fallback = "auto",
       .values = auto_or(kCollectiveAlgorithmWords),
       .meaning = "what it goes by; `collnet_*`, and `nvls` over several nodes, where the topology's `fabric.sharp` is "
                  "true; `direct`, `halving_doubling`, `hierarchical` and `torus` are none of NCCL's; auto: as the "
                  "library chooses",
       .example = "tree",
       .field = &PinnedCollective::algorithm},
      {.path = "cluster.collectives[].protocol",
       .type = KeyType::choice,
       .origin = Default::derived,
       .fallback = "auto",
       .values = auto_or(kCollectiveProtocolWords),
       .meaning = "NCCL's; auto: as the library chooses",
       .example = "simple",
       .field = &PinnedCollective::protocol},
      {.path = "cluster.headroom",
       .type = KeyType::bytes_or_share,
       .fallback = "0",
       .meaning = "memory that must stay free on each device for a plan to fit, a size or a percentage of the "
                  "device's; what the framework holds and its allocator wastes is counted as needed already",
       .example = "5%",
       .related = "cluster.topology framework",
       .field = &ClusterRequest::headroom,
       .in_result = true},
      {.path = "cluster.threads_per_rank",
       .type = KeyType::integer,
       .fallback = "auto",
       .min = 1,
       .max = 4096,
       .or_auto = true,
       .meaning = "CPU only; auto is cores / ranks, at least 1",
       .example = "2",
       .related = "cluster.gpus",
       .field = &ClusterRequest::threads_per_rank},
  };
}

std::vector<Key> costs_keys() {
  return {
      {.path = "costs.calibration",
       .type = KeyType::names,
       .origin = Default::derived,
       .fallback = "the topology's device",
       .names_of = "devices",
       .or_path = true,
       .meaning = "a name of `calibrate/devices/`, a path (as of a topology), or a list: the first is the device, "
                  "later ones add measurements",
       .example = "a100-sxm-80g",
       .related = "cluster.topology"},
  };
}

}  // namespace rehearse::plan::detail
