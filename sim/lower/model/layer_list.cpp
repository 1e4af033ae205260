// A run of layers, and the unit of a model that is a list of them. Data parallelism, ZeRO and pipelines apply to it as
// to any unit; tensor parallelism does not.
#include "sim/lower/model/layer_part.h"

namespace rehearse::lower {

std::vector<std::int64_t> batch_shape(const Context& context, model::Extent extent) {
  if (extent.ids) return {extent.vectors, context.batch};
  if (extent.rows()) return {extent.vectors, context.batch, extent.channels};
  if (!extent.maps()) return {context.batch, extent.channels};
  return {context.batch, extent.channels, extent.size, extent.size};
}

namespace {

std::string layer_name(const model::Layer& layer) {
  switch (layer.kind) {
    case model::LayerKind::linear:
      return "linear";
    case model::LayerKind::convolution:
      return "conv";
    case model::LayerKind::batch_norm:
    case model::LayerKind::layer_norm:
      return "norm";
    case model::LayerKind::relu:
      return "relu";
    case model::LayerKind::gelu:
      return "gelu";
    case model::LayerKind::tanh:
      return "tanh";
    case model::LayerKind::dropout:
      return "dropout";
    case model::LayerKind::max_pool:
    case model::LayerKind::average_pool:
      return "pool";
    case model::LayerKind::residual:
      return "residual";
    case model::LayerKind::attention:
      return "attention";
    case model::LayerKind::embedding:
      return "embedding";
    case model::LayerKind::tables:
      return "tables";
    case model::LayerKind::pairs:
      return "pairs";
    case model::LayerKind::flatten:
      return "flatten";
    case model::LayerKind::sigmoid:
      return "sigmoid";
    case model::LayerKind::silu:
      return "silu";
    case model::LayerKind::scale:
      return "scale";
  }
  return "";
}

}  // namespace

LayerSequence::LayerSequence(const UnitScope& scope, const std::vector<model::Layer>& list, model::Extent in,
                             const std::string& name, int site)
    : scope_(scope) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    names_.push_back(name + "." + std::to_string(i) + "." + layer_name(list[i]));
    parts_.push_back(make_layer_part(scope_, list[i], in, names_.back(), 16 * site + static_cast<int>(i)));
    in = model::extent_after(list[i], in);
    extents_.push_back(in);
    in_norm_.push_back(InNorm::no);
    if (i == 0 || list[i].kind != model::LayerKind::relu || !scope_.context.fuses_batch_norm()) continue;
    if (list[i - 1].kind == model::LayerKind::batch_norm) in_norm_.back() = InNorm::norm;
    if (model::ends_in_batch_norm(list[i - 1])) in_norm_.back() = InNorm::norm_and_sum;
  }
}

// Of a sum, backward cannot tell from the normalised input alone what was above zero: forward leaves a bit an element
// (MXNet's BatchNormAddRelu), and backward writes the gradient that the other branch gets.
void LayerSequence::in_kernel_of_norm(std::size_t part, bool backward) const {
  if (in_norm_[part] == InNorm::no) return;
  const Context& c = scope_.context;
  const std::int64_t elements = c.batch * extents_[part].elements(), bits = elements / 8;
  program::Passes passes;
  if (in_norm_[part] == InNorm::norm_and_sum)
    passes = backward ? program::Passes{bits, elements * size_of(c.compute)} : program::Passes{0, bits};
  scope_.builder.takes_no_kernel(passes);
}

void LayerSequence::declare_parameters() {
  for (auto& part : parts_) part->declare_parameters();
}

bool LayerSequence::has_parameters() const {
  for (const auto& part : parts_)
    if (part->has_parameters()) return true;
  return false;
}

bool LayerSequence::keeps_input() const {
  return !empty() && parts_.front()->kept(parts_.size() > 1).input;
}

BufferId LayerSequence::declare(BufferId x, const std::string& out, Lifetime lifetime) {
  const Context& c = scope_.context;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const bool last = i + 1 == parts_.size(), stays = !last || lifetime == Lifetime::micro_batch;
    const bool next_stays = i + 2 < parts_.size() || lifetime == Lifetime::micro_batch;
    kept_.push_back(last ? parts_[i]->kept(stays).output && stays
                         : parts_[i]->kept(stays).output || parts_[i + 1]->kept(next_stays).input);
    const std::vector<std::int64_t> shape = batch_shape(c, extents_[i]);
    BufferId y = -1;
    if (last)
      y = scope_.builder.activation(out, c.compute, shape, lifetime);
    else if (kept_.back())
      y = scope_.builder.activation(names_[i] + ".out", c.compute, shape, scope_.restored());
    else
      y = scope_.builder.workspace(names_[i] + ".out", c.compute, shape);
    parts_[i]->declare(x, y, stays);
    outputs_.push_back(y);
    x = y;
  }
  return x;
}

void LayerSequence::forward(bool again, bool output) {
  std::vector<bool> runs(parts_.size(), true), needed(parts_.size(), true);
  for (std::size_t i = parts_.size(); again && i-- > 0;) {
    needed[i] = i + 1 == parts_.size() ? output : kept_[i] || runs[i + 1];
    runs[i] = needed[i] || parts_[i]->restores();
  }
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (runs[i]) {
      parts_[i]->forward(needed[i] ? outputs_[i] : -1, again);
      in_kernel_of_norm(i, false);
    }
}

BufferId LayerSequence::backward(BufferId gradient, bool input_gradient) {
  std::size_t first = 0;  // the first part whose backward anybody asks for
  while (!input_gradient && first < parts_.size() && !parts_[first]->has_parameters()) ++first;
  for (std::size_t i = parts_.size(); i-- > first;)
    gradient = parts_[i]->backward(gradient, input_gradient || i > first), in_kernel_of_norm(i, true);
  return input_gradient ? gradient : -1;
}

namespace {

class ListUnit : public Unit {
 public:
  ListUnit(UnitScope scope, int index)
      : s_(scope),
        name_("unit" + std::to_string(index)),
        sequence_(s_, model::unit_layers(scope.context.model().layer_list, static_cast<std::size_t>(index)),
                  list_extent_before(scope.context.model(), index), name_, index + 1) {}

  void declare_parameters() override { sequence_.declare_parameters(); }
  BufferId declare_buffers(BufferId input, Lifetime output) override {
    return sequence_.declare(input, name_ + ".out", output);
  }
  void forward(bool again) override { sequence_.forward(again, !again); }
  BufferId backward(BufferId gradient, bool input_gradient) override {
    return sequence_.backward(gradient, input_gradient);
  }
  bool recomputes() const override { return s_.recomputes(); }

 private:
  UnitScope s_;
  std::string name_;
  LayerSequence sequence_;
};

}  // namespace

model::Extent list_extent_before(const model::Model& model, std::int64_t unit) {
  const std::vector<std::size_t> starts = model::unit_starts(model.layer_list);
  const std::size_t end =
      static_cast<std::size_t>(unit) < starts.size() ? starts[static_cast<std::size_t>(unit)] : model.layer_list.size();
  const std::vector<model::Layer> before(model.layer_list.begin(),
                                         model.layer_list.begin() + static_cast<std::ptrdiff_t>(end));
  return model::extent_after(before, model.input());
}

std::unique_ptr<Unit> make_list_unit(UnitScope scope, int index) {
  return std::make_unique<ListUnit>(scope, index);
}

}  // namespace rehearse::lower
