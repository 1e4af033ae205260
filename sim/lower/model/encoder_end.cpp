// The last unit of an encoder that a decoder reads: its final norm (t5). And the sum of the gradients that come back.
#include "sim/lower/model/norm.h"
#include "sim/lower/model/unit.h"

namespace rehearse::lower {
namespace {

class EncoderEnd : public Unit {
 public:
  explicit EncoderEnd(UnitScope scope)
      : s_(scope), norm_(scope.context, scope.builder, scope.parameters, "encoder.final_norm") {}

  void declare_parameters() override { norm_.declare_parameters(s_.number); }
  BufferId declare_buffers(BufferId input, Lifetime output) override {
    return norm_.declare_buffers(input, Lifetime::micro_batch, output, s_.context.compute);
  }
  void forward(bool) override { norm_.forward(); }
  BufferId backward(BufferId output_gradient, bool) override { return norm_.backward(output_gradient, -1); }

 private:
  UnitScope s_;
  NormLayer norm_;
};

}  // namespace

void CrossMemory::add_gradient(const std::string& name, BufferId more) {
  if (gradient < 0) {
    gradient = more;
    return;
  }
  const program::Buffer& b = builder->buffer(gradient);
  builder->op(name, program::Elementwise{program::ElementwiseFn::accumulate, b.elements()}, b.dtype,
              {{more}, {gradient}}, {{gradient}});
}

std::unique_ptr<Unit> make_encoder_end(UnitScope scope) {
  return std::make_unique<EncoderEnd>(scope);
}

}  // namespace rehearse::lower
