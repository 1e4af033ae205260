// The first unit of cnn, mlp and custom models: images, features or tokens, read by the copy stream.
#include "sim/lower/model/load.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

class InputUnit : public Unit {
 public:
  explicit InputUnit(UnitScope scope) : s_(scope) {}
  BufferId declare_buffers(BufferId, Lifetime output) override {
    const model::Model& m = s_.context.model();
    const std::int64_t n = s_.context.batch;
    const model::Extent in = m.input();
    if (in.ids) return y_ = s_.builder.activation("input", DType::i32, {in.vectors, n}, output);
    std::vector<std::int64_t> shape{n, in.channels};
    if (in.maps()) shape = {n, in.channels, in.size, in.size};
    return y_ = s_.builder.activation("input", s_.context.compute, shape, output);
  }
  void forward(bool) override {
    const model::Extent in = s_.context.model().input();
    if (in.ids) return load_input(s_, "input.load", program::InputKind::tokens, DType::i32, y_);
    const auto kind = in.maps() ? program::InputKind::images : program::InputKind::features;
    load_input(s_, "input.load", kind, s_.context.compute, y_);
  }
  BufferId backward(BufferId, bool) override { return -1; }

 private:
  UnitScope s_;
  BufferId y_ = -1;
};

}  // namespace

std::unique_ptr<Unit> make_input(UnitScope scope) {
  return std::make_unique<InputUnit>(scope);
}

}  // namespace rehearse::lower
