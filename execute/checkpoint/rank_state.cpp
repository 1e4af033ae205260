// See rank_state.h.
#include "execute/checkpoint/rank_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "execute/rank/initial_values.h"
#include "execute/rank/parameters.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/half.h"

namespace rehearse::execute {
namespace {

using program::Buffer;
using program::BufferClass;

// States beside buckets of parameters, as the lowering names them.
constexpr const char* kCutStates[] = {"master", "exp_avg", "exp_avg_sq", "host.values"};

bool is_kept(const Buffer& b) {
  return b.cls != BufferClass::gradient && b.name != "loss";
}

std::int64_t whole_elements(const Buffer& b) {
  const auto& shape = b.init.global_shape;
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

RankState::RankState(const Timeline& timeline, const plan::RankGrid& grid, int rank) {
  header_.rank = rank, header_.ranks = grid.ranks();
  const auto& buffers = timeline.role->buffers;
  for (std::size_t id = 0; id < buffers.size(); ++id) {
    if (timeline.persistent[id] < 0 || !is_kept(buffers[id])) continue;
    header_.buffers.push_back({buffers[id].name, buffers[id].dtype, buffers[id].elements(), header_.payload_bytes});
    memory_.push_back(timeline.persistent[id]);
    header_.payload_bytes += buffers[id].bytes();
  }
  add_tensors(timeline, grid, rank);
}

RankState::RankState(StateHeader header) : header_(std::move(header)) {
  for (const StateBuffer& b : header_.buffers) memory_.push_back(b.offset);
}

void RankState::add_tensors(const Timeline& timeline, const plan::RankGrid& grid, int rank) {
  std::vector<bool> cut(header_.buffers.size());
  const auto add = [&](const std::string& kind, const std::vector<Piece>& pieces) {
    for (const Piece& p : pieces) {
      const Buffer& b = timeline.role->buffers[static_cast<std::size_t>(p.buffer)];
      // The buffer whose place is the last one not behind the piece's.
      std::size_t holder = header_.buffers.size();
      for (std::size_t i = 0; i < memory_.size(); ++i)
        if (memory_[i] <= p.offset && (holder == header_.buffers.size() || memory_[i] > memory_[holder])) holder = i;
      REHEARSE_CHECK(holder < header_.buffers.size(), "{} of '{}' lies in no buffer that is kept", kind, b.name);
      cut[holder] = true;
      const std::int64_t payload = header_.buffers[holder].offset + p.offset - memory_[holder];
      StateTensor tensor{parameter_name(b), kind, p.type, whole_elements(b), {}};
      for (const Extent& e : extents_of(b, grid.coordinate(rank, Axis::tensor), grid.position(rank, b.init.spread))) {
        const std::int64_t begin = std::max(e.local, p.first), end = std::min(e.local + e.count, p.first + p.count);
        if (begin < end)
          tensor.runs.push_back(
              {e.global + begin - e.local, end - begin, payload + (begin - p.first) * size_of(p.type)});
      }
      if (!tensor.runs.empty()) header_.tensors.push_back(std::move(tensor));
    }
  };
  add("param", parameter_pieces(timeline, grid, rank));
  for (const char* state : kCutStates) add(state, state_pieces(timeline, grid, rank, state));
  for (std::size_t i = 0; i < cut.size(); ++i)
    if (!cut[i]) whole_.push_back(i);
}

std::byte* RankState::at(const RankMemory& memory, std::int64_t payload_offset) const {
  const auto after = std::upper_bound(header_.buffers.begin(), header_.buffers.end(), payload_offset,
                                      [](std::int64_t offset, const StateBuffer& b) { return offset < b.offset; });
  REHEARSE_CHECK(after != header_.buffers.begin(), "no buffer at {}", payload_offset);
  const auto buffer = static_cast<std::size_t>(after - header_.buffers.begin()) - 1;
  return memory.at(memory_[buffer] + payload_offset - header_.buffers[buffer].offset);
}

const std::byte* RankState::part(const RankMemory& memory, std::int64_t offset, std::int64_t bytes,
                                 std::vector<std::byte>& block) const {
  block.resize(static_cast<std::size_t>(bytes));
  for (std::int64_t done = 0; done < bytes;) {
    const auto after = std::upper_bound(header_.buffers.begin(), header_.buffers.end(), offset + done,
                                        [](std::int64_t o, const StateBuffer& b) { return o < b.offset; });
    const std::int64_t end = after == header_.buffers.end() ? header_.payload_bytes : after->offset;
    const std::int64_t n = std::min(bytes, end - offset) - done;
    const std::byte* const from = at(memory, offset + done);
    if (n == bytes) return from;
    std::memcpy(block.data() + done, from, static_cast<std::size_t>(n));
    done += n;
  }
  return block.data();
}

void RankState::copy_out(const RankMemory& memory, std::byte* payload) const {
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const StateBuffer& b = header_.buffers[i];
    std::memcpy(payload + b.offset, memory.at(memory_[i]), static_cast<std::size_t>(b.elements * size_of(b.type)));
  }
}

std::optional<KeptByRank> kept_by_rank(const plan::Scenario& scenario) {
  const plan::Plan& plan = scenario.plan;
  if (plan.steps_apart())
    return KeptByRank{"with plan.local_steps each rank has parameters of its own", "plan.local_steps: 0", "them"};
  const bool keeps = plan.compresses_by("error_feedback") || plan.compresses_by("momentum_correction") ||
                     plan.compresses_by("power_sgd");
  if (plan.compresses_gradients() && keeps)
    return KeptByRank{"what compressed gradients leave behind is each rank's own",
                      "plan.gradient_compression: [none], or a chain that keeps nothing"};
  if (scenario.training.optimizer == plan::OptimizerKind::adafactor &&
      (plan.zero > 0 || plan.tensor > 1 || scenario.model.family == model::Family::moe))
    return KeptByRank{"Adafactor's means of tensors in parts cannot be cut anew", "plan.zero: 0 and plan.tensor: 1",
                      "them"};
  if (scenario.training.moments == plan::MomentsKind::int8)
    return KeptByRank{"8-bit moments cannot be cut anew", "training.moments: fp32 or bf16", "them"};
  if (scenario.training.eight_bits() && scenario.training.fp8_recipe == plan::Fp8Recipe::delayed)
    return KeptByRank{"histories of 8-bit scales cannot be cut anew", "training.fp8_recipe: tensorwise", "them"};
  return {};
}

const StateFile& SavedRanks::file(std::size_t rank) {
  std::unique_ptr<StateFile>& opened = files_[rank];
  if (opened == nullptr) {
    opened = std::make_unique<StateFile>(folder_, manifest_.files.at(rank));
    if (opened->header().step != manifest_.step)
      throw InputError(
          Diagnostic{opened->path(), 0, 0, "",
                     fmt::format("is of step {}, the manifest of step {}", opened->header().step, manifest_.step), ""});
  }
  return *opened;
}

void SavedRanks::index() {
  if (std::exchange(indexed_, true)) return;
  for (std::size_t rank = 0; rank < manifest_.files.size(); ++rank)
    for (const StateTensor& tensor : file(rank).header().tensors)
      for (const StateRun& run : tensor.runs) parts_[{tensor.kind, tensor.name}].push_back({rank, &tensor, &run});
  for (auto& [name, parts] : parts_)
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& a, const Part& b) { return a.run->global < b.run->global; });
}

const StateFile* SavedRanks::restore(const RankState& state, const RankMemory& memory, bool same_plan) {
  const std::lock_guard lock(mutex_);
  const StateHeader& own = state.header();
  if (same_plan) {
    const StateFile& saved = file(static_cast<std::size_t>(own.rank));
    if (saved.header().buffers == own.buffers) {
      for (const StateBuffer& b : own.buffers)
        saved.read(b.offset, b.elements * size_of(b.type), state.at(memory, b.offset));
      return &saved;
    }
  }
  index();
  for (const StateTensor& tensor : own.tensors) restore_tensor(tensor, state, memory);
  for (const std::size_t buffer : state.whole_buffers()) restore_buffer(own.buffers[buffer], state, memory);
  return nullptr;
}

// Of several ranks that hold the same part, the first.
void SavedRanks::restore_tensor(const StateTensor& tensor, const RankState& state, const RankMemory& memory) {
  auto found = parts_.find({tensor.kind, tensor.name});
  // What is kept beside a parameter here and not there, as where the optimizer has moved, begins as the parameter.
  if (found == parts_.end() && (tensor.kind == "master" || tensor.kind == "host.values"))
    found = parts_.find({"param", tensor.name});
  // What is the parameter in fp32 here has an fp32 copy beside it there.
  if (tensor.kind == "param" && tensor.type == DType::f32)
    if (const auto master = parts_.find({"master", tensor.name}); master != parts_.end()) found = master;
  if (found == parts_.end())
    throw InputError(Diagnostic{folder_, 0, 0, "", fmt::format("has no '{}' of '{}'", tensor.kind, tensor.name), ""});
  const Parts& parts = found->second;
  const std::int64_t whole = parts.front().tensor->elements;
  std::int64_t longest = 0;
  for (const Part& p : parts) longest = std::max(longest, p.run->count);
  std::vector<std::byte> read;
  std::vector<float> values;
  for (const StateRun& run : tensor.runs) {
    const std::int64_t end = std::min(run.global + run.count, whole);
    auto next = std::lower_bound(parts.begin(), parts.end(), run.global - longest,
                                 [](const Part& p, std::int64_t global) { return p.run->global < global; });
    for (std::int64_t at = run.global; at < end; ++next) {
      if (next == parts.end() || next->run->global > at)
        throw InputError(Diagnostic{
            folder_, 0, 0, "", fmt::format("lacks '{}' of '{}' from element {}", tensor.kind, tensor.name, at), ""});
      const std::int64_t n = std::min(end, next->run->global + next->run->count) - at;
      if (n <= 0) continue;
      const DType from = next->tensor->type;
      std::byte* const to = state.at(memory, run.offset + (at - run.global) * size_of(tensor.type));
      const std::int64_t offset = next->run->offset + (at - next->run->global) * size_of(from);
      if (from == tensor.type) {
        file(next->file).read(offset, n * size_of(from), to);
      } else {
        read.resize(static_cast<std::size_t>(n * size_of(from)));
        values.resize(static_cast<std::size_t>(n));
        file(next->file).read(offset, n * size_of(from), read.data());
        to_float(from, read.data(), n, values.data());
        from_float(tensor.type, values.data(), n, to);
      }
      at += n;
    }
  }
}

// What belongs to no part of the model in particular, or to a whole tensor, is found by its name.
void SavedRanks::restore_buffer(const StateBuffer& buffer, const RankState& state, const RankMemory& memory) {
  if (buffer.name.find(".bucket") == std::string::npos)
    for (std::size_t rank = 0; rank < manifest_.files.size(); ++rank)
      for (const StateBuffer& saved : file(rank).header().buffers)
        if (saved.name == buffer.name && saved.type == buffer.type && saved.elements == buffer.elements)
          return file(rank).read(saved.offset, saved.elements * size_of(saved.type), state.at(memory, buffer.offset));
  throw InputError(
      Diagnostic{folder_, 0, 0, "",
                 fmt::format("its '{}' ({}) cannot be cut anew for this plan", buffer.name, name_of(buffer.type)),
                 "resume with the plan that wrote it, which its manifest names"});
}

}  // namespace rehearse::execute
