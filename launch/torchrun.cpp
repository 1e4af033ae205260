// See torchrun.h.
#include "launch/torchrun.h"

#include <fmt/format.h>

namespace rehearse::launch {
namespace {

using plan::Precision;

const char* torch_dtype(Precision precision) {
  return precision == Precision::fp32   ? "torch.float32"
         : precision == Precision::fp16 ? "torch.float16"
                                        : "torch.bfloat16";
}

struct MeshDimension {
  const char* name;
  std::int64_t size;
};

// Of all ranks, the slowest-varying first, as plan.rank_order numbers them. Replicas and shards are always there.
std::vector<MeshDimension> mesh_of(const plan::Plan& p) {
  const std::int64_t replicas = p.zero == 0 ? p.data : p.replicas;
  std::vector<MeshDimension> mesh;
  const auto add_split = [&](const char* name, std::int64_t size) {
    if (size > 1) mesh.push_back({name, size});
  };
  for (auto axis = p.rank_order.rbegin(); axis != p.rank_order.rend(); ++axis) {
    if (*axis == Axis::pipeline) add_split("pipeline", p.pipeline);
    if (*axis == Axis::context) add_split("context", p.context);
    if (*axis == Axis::tensor) add_split("tensor", p.tensor);
    if (*axis == Axis::data) mesh.insert(mesh.end(), {{"replicate", replicas}, {"shard", p.data / replicas}});
  }
  return mesh;
}

std::string mesh_text(const std::vector<MeshDimension>& mesh) {
  std::string sizes, names;
  for (const MeshDimension& one : mesh) {
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", one.size);
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", one.name);
  }
  return fmt::format("mesh = init_device_mesh(\"cuda\", ({}), mesh_dim_names=({}))\n", sizes, names);
}

}  // namespace

Exported export_torchrun(const plan::Scenario& s, std::int64_t gpus_a_node) {
  const plan::Plan& p = s.plan;
  const plan::Training& t = s.training;
  Said said(s, p.zero > 0 ? "torch-fsdp2" : "torch-ddp");
  for (const char* key :
       {"plan.zero", "plan.zero_group", "plan.micro_batch", "plan.recompute", "training.global_batch",
        "training.seq_len", "training.precision", "training.reduce_dtype", "training.grad_dtype", "training.lr",
        "training.clip", "training.seed", "plan.offload_optimizer", "plan.offload_parameters"})
    said.said(key);
  if (p.offload_optimizer && !p.offload_parameters)
    said.left_out("plan.offload_optimizer", "true: CPUOffloadPolicy is of parameters too (plan.offload_parameters)");
  if (p.zero == 1) said.left_out("plan.zero", "1: FSDP2 that keeps what it gathered is ZeRO-2");
  if (t.narrow()) said.left_out("training.precision", said.value("training.precision") + ": the model's own products");
  if (p.recompute != plan::Recompute::none && p.recompute != plan::Recompute::full)
    said.left_out("plan.recompute", said.value("plan.recompute") + ": whole blocks or none");
  if (t.grad_dtype != Precision::fp32 && t.grad_dtype != t.precision)
    said.left_out("training.grad_dtype", said.value("training.grad_dtype"));
  const std::vector<MeshDimension> mesh = mesh_of(p);
  const bool whole_mesh = mesh.size() == 2;
  // How a model is split is written with the names of its modules.
  if (p.tensor > 1)
    said.left_out("plan.tensor",
                  fmt::format("{}: the mesh has it; parallelize_module(model, mesh[\"tensor\"], ...) with "
                              "your modules' names, before apply_plan",
                              p.tensor));
  if (p.pipeline > 1)
    said.left_out("plan.pipeline",
                  fmt::format("{}: the mesh has it; torch.distributed.pipelining over mesh[\"pipeline\"]"
                              " with your model's parts",
                              p.pipeline));
  if (p.context > 1)
    said.left_out("plan.context",
                  fmt::format("{}: the mesh has it; context_parallel over mesh[\"context\"], over which "
                              "gradients are to be summed too",
                              p.context));
  std::string environment = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
  for (const std::string& line : nccl_variables(said)) environment += " " + line;
  const Nodes nodes = nodes_of(s.cluster.gpus, gpus_a_node);
  Exported out;
  out.left_out = said.finish();
  out.run = {
      fmt::format("{} torchrun --nnodes {} --nproc-per-node {} --rdzv-backend c10d --rdzv-endpoint HOST:29500 train.py",
                  environment, nodes.nodes, nodes.a_node)};
  std::string text =
      "# " + one_line(s.name) +
      "\n# Made by rehearse export --to torchrun, for PyTorch 2.6 and later.\n# Start: " + one_line(out.run.front()) +
      "\n";
  if (!out.left_out.empty()) text += "# Not said here, for lack of a field:\n";
  for (const LeftOut& one : out.left_out) text += fmt::format("#   {}: {}\n", one.key, one_line(one.why));
  text += "import torch\nfrom torch.distributed.device_mesh import init_device_mesh\n";
  if (p.zero > 0)
    text += "from torch.distributed.fsdp import " + std::string(p.offload_parameters ? "CPUOffloadPolicy, " : "") +
            "MixedPrecisionPolicy, fully_shard\n";
  const bool whole = p.recompute == plan::Recompute::full;
  if (whole) text += "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper\n";
  text += fmt::format(
      "\nMICRO_BATCH = {}  # sequences\nACCUMULATION_STEPS = {}\nSEQ_LEN = {}\nLR = {}\nCLIP = {}\nSEED = {}\n",
      p.micro_batch, t.micro_batches(p), t.seq_len, t.lr, t.clip, t.seed);
  text += "\n" + mesh_text(mesh);
  text += "\n\ndef apply_plan(model, blocks):\n    \"\"\"`blocks`: the list in `model` that holds its layers.\"\"\"\n";
  if (whole) text += "    for i, block in enumerate(blocks):\n        blocks[i] = checkpoint_wrapper(block)\n";
  if (p.zero > 0) {
    text += fmt::format("    policy = MixedPrecisionPolicy(param_dtype={}, reduce_dtype={})\n",
                        torch_dtype(t.precision), torch_dtype(t.reduce_dtype));
    text +=
        fmt::format("    sharded = dict(mesh={}, mp_policy=policy, reshard_after_forward={}{})\n",
                    p.replicas == 1 ? "mesh[\"shard\"]"
                    : whole_mesh    ? "mesh"
                                    : "mesh[\"replicate\", \"shard\"]",
                    p.zero == 3 ? "True" : "False", p.offload_parameters ? ", offload_policy=CPUOffloadPolicy()" : "");
    text +=
        "    for block in blocks:\n        fully_shard(block, **sharded)\n    fully_shard(model, **sharded)\n    "
        "return model\n";
  } else {
    text += fmt::format("    return torch.nn.parallel.DistributedDataParallel(model{})\n",
                        whole_mesh ? "" : ", process_group=mesh[\"replicate\"].get_group()");
    if (t.precision != Precision::fp32)
      text += fmt::format("\n\nautocast = torch.autocast(\"cuda\", dtype={})\n", torch_dtype(t.precision));
  }
  out.text = text;
  return out;
}

}  // namespace rehearse::launch
