// See advice.h.
#include "reports/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reports/text.h"
#include "sim/base/check.h"
#include "sim/base/units.h"

namespace rehearse::reports {
namespace {

constexpr std::array<const char*, 5> kKinds = {
    "whole replicas (data parallelism, DDP)", "sharded replicas (ZeRO, FSDP)",
    "layers split over groups (tensor, context, expert)", "pipeline stages of whole layers",
    "pipeline stages of split layers (hybrid, 3D)"};

std::string bytes(std::int64_t count) {
  return format_bytes(Bytes(count));
}

bool fits(const SimplerKind& kind) {
  return kind.objective > 0;
}

std::string best_words(const Advice& a, const SimplerKind& kind) {
  return fmt::format("the best {} {:.1f}% {}", a.verb, 100 * (kind.objective / a.objective - 1), a.more);
}

// Whether no plan of the kind fits: what it lacks is memory, not time.
bool too_large(const SimplerKind& kind) {
  return kind.plans > 0 && kind.too_large == kind.plans;
}

// The simpler kind to compare with: the best that fits, else the one just below that has plans at all.
const SimplerKind* nearest_simpler(const Advice& a) {
  const SimplerKind* nearest = nullptr;
  for (const SimplerKind& kind : a.simpler) {
    if (kind.plans == 0) continue;
    const bool better = nearest == nullptr || !fits(*nearest) || (fits(kind) && kind.objective < nearest->objective);
    if (better && (fits(kind) || nearest == nullptr || !fits(*nearest))) nearest = &kind;
  }
  return nearest;
}

std::string lead(const Advice& a) {
  const std::string room = fmt::format("{} of {} a GPU", bytes(a.peak_bytes), bytes(a.capacity_bytes));
  if (a.gpus == 1) return fmt::format("One GPU: it fits ({}), and there is nothing to distribute", room);
  switch (a.kind) {
    case 0:
      if (a.tables_apart)
        return fmt::format(
            "Data parallelism, each table of sparse features on one GPU: the rest of the model, with optimizer states "
            "and activations, fits on every GPU beside its tables ({})",
            room);
      return fmt::format(
          "Data parallelism: the model with its optimizer states and activations fits on one GPU ({}), so every GPU "
          "has "
          "a whole replica and gradients alone are exchanged; nothing needs to be split",
          room);
    case 1:
      return fmt::format(
          "Sharded data parallelism (ZeRO): layers stay whole, and what every replica would keep is divided among "
          "them, "
          "{}",
          room);
    case 2:
      return fmt::format("Model parallelism: layers are split over groups of GPUs beside data parallelism, {}", room);
    case 3:
      return fmt::format(
          "Pipeline parallelism: whole layers in stages, which exchange activations between neighbours alone, {}",
          room);
    default:
      return fmt::format(
          "Hybrid parallelism: layers split over groups of GPUs, the groups in pipeline stages, and replicas of all, "
          "{}",
          room);
  }
}

}  // namespace

std::string kind_name(int kind) {
  return kKinds.at(static_cast<std::size_t>(kind));
}

std::string advice_kind(const Advice& advice) {
  return advice.gpus == 1 ? "one GPU" : kind_name(advice.kind);
}

std::string advice_against(const Advice& a, const SimplerKind& kind) {
  const std::string plans = grouped(static_cast<double>(kind.plans));
  if (kind.plans == 0)
    return a.all_read ? "no such plan in this space" : "no such plan was read before the time was over";
  if (fits(kind)) return best_words(a, kind);
  if (too_large(kind))
    return fmt::format("none of {} plans{} fits; the least needs {} of {}, {:.2g} times as much", plans,
                       a.all_read ? "" : " that were read in time", bytes(kind.least_bytes), bytes(a.capacity_bytes),
                       static_cast<double>(kind.least_bytes) / static_cast<double>(a.capacity_bytes));
  return a.proven ? fmt::format("none of {} plans can be", plans)
                  : fmt::format("none of {} plans is known to be as good: a limit ended the search", plans);
}

std::string advice_reason(const Advice& a) {
  REHEARSE_CHECK(a.known, "advice of nothing");
  std::string text = lead(a);
  if (const SimplerKind* simpler = nearest_simpler(a)) {
    if (too_large(*simpler) && a.all_read)
      text += fmt::format(". Simpler ones do not fit: {} would need {} at the least", kind_name(simpler->kind),
                          bytes(simpler->least_bytes));
    else if (fits(*simpler))
      text += ". Simpler ones fit, but " + best_words(a, *simpler);
  }
  return text + ".";
}

std::string advice_text(const Advice& a, std::size_t width) {
  if (!a.known) return {};
  std::string text = wrap("Why: " + advice_reason(a), 0, width);
  for (const SimplerKind& kind : a.simpler)
    text += wrap(fmt::format("{}: {}", kind_name(kind.kind), advice_against(a, kind)), 2, width);
  return text;
}

}  // namespace rehearse::reports
