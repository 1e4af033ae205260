// What a plan derives from a model: the units a pipeline cuts between, their split over stages, the padded vocabulary.
// Uneven splits follow the plan.h contract: the remainder goes to the stages after the first, because the first and the
// last stage also hold the embedding and the head.
#include "sim/plan/plan.h"

#include "sim/base/check.h"

namespace rehearse::plan {

std::int64_t unit_count(const model::Model& model) {
  const auto widths = static_cast<std::int64_t>(model.widths.size());
  switch (model.family) {
    case model::Family::gpt:
    case model::Family::llama:
    case model::Family::moe:
    case model::Family::bert:
    case model::Family::t5:
    case model::Family::vit:
      return model.layers;
    case model::Family::custom:
      return static_cast<std::int64_t>(model::unit_starts(model.layer_list).size());
    case model::Family::cnn:
      if (model.is_list()) return static_cast<std::int64_t>(model::unit_starts(model.layer_list).size());
      return static_cast<std::int64_t>(model.convolutions.size()) + widths;
    case model::Family::mlp:
      return widths - 1;  // the first width is the input
  }
  REHEARSE_CHECK(false, "unknown model family {}", static_cast<int>(model.family));
}

std::vector<std::int64_t> auto_layers(std::int64_t layers, std::int64_t stages) {
  REHEARSE_CHECK(stages >= 1 && layers >= stages, "{} layers on {} stages", layers, stages);
  std::vector<std::int64_t> split(static_cast<std::size_t>(stages), layers / stages);
  const auto remainder = static_cast<std::size_t>(layers % stages);
  for (std::size_t i = 1; i <= remainder; ++i) ++split[i];
  return split;
}

std::vector<std::int64_t> auto_layers_with_embedding(std::int64_t layers, std::int64_t stages) {
  REHEARSE_CHECK(stages >= 2 && (layers + 2) % stages == 0, "{} layers and 2 on {} stages", layers, stages);
  std::vector<std::int64_t> split(static_cast<std::size_t>(stages), (layers + 2) / stages);
  --split.front();
  --split.back();
  return split;
}

std::int64_t padded_vocab(const model::Model& model, const Plan& plan, const FrameworkProfile& profile) {
  const std::int64_t multiple = profile.vocab_multiple * plan.tensor;
  return (model.vocab + multiple - 1) / multiple * multiple;
}

}  // namespace rehearse::plan
