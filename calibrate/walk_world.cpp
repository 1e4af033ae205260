#include "calibrate/walk_world.h"

#include <algorithm>

#include "sim/base/diagnostics.h"

namespace rehearse::calibrate {
namespace {

class MadeData final : public execute::Data {
 public:
  explicit MadeData(std::int64_t vocab) : vocab_(std::max<std::int64_t>(1, vocab)) {}
  void load(program::InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements,
            void* out) override {
    using program::InputKind;
    const bool classes = kind == InputKind::segments || kind == InputKind::labels;  // two of them, if any
    const bool ids = classes || kind == InputKind::tokens || kind == InputKind::targets ||
                     kind == InputKind::predictions || kind == InputKind::decoder_tokens;
    const std::int64_t range = classes ? std::min<std::int64_t>(2, vocab_) : vocab_;
    std::int64_t next = numbers.empty() ? 0 : numbers.front();
    for (std::int64_t i = 0; i < elements; ++i, next += 7919) {
      if (ids)
        static_cast<std::int32_t*>(out)[i] = static_cast<std::int32_t>(next % range);
      else
        static_cast<float*>(out)[i] = static_cast<float>(next % 1000) / 1000;
    }
  }
  std::int64_t examples() const override { return 0; }
  std::string description() const override { return "made examples"; }

 private:
  std::int64_t vocab_;
};

}  // namespace

std::unique_ptr<execute::Data> walk_data(const plan::Scenario& s) {
  try {
    return execute::open_data(s.model, s.training.seq_len, s.training.seed, "");
  } catch (const InputError&) {
    return std::make_unique<MadeData>(s.model.vocab);
  }
}

}  // namespace rehearse::calibrate
