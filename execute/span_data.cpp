#include "execute/span_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/base/check.h"
#include "sim/base/random.h"

namespace rehearse::execute {
namespace {

using program::InputKind;

// What a key of the generator is for; mixed with the seed. Not those of data.cpp and encoder_data.cpp.
enum SpanPurpose : std::uint64_t { kPieces = 301, kSpans };

class SpanData : public Data {
 public:
  SpanData(std::unique_ptr<Data> text, const model::Model& model, std::int64_t seq_len, std::int64_t seed)
      : text_(std::move(text)),
        vocab_(model.vocab),
        lengths_(span_lengths(model, seq_len)),
        seed_(static_cast<std::uint64_t>(seed)) {}

  void load(InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements, void* out) override {
    const auto n = static_cast<std::int64_t>(numbers.size());
    auto* to = static_cast<std::int32_t*>(out);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::vector<std::int32_t> column = column_of(kind, numbers[static_cast<std::size_t>(i)]);
      REHEARSE_CHECK(elements == n * static_cast<std::int64_t>(column.size()), "{} elements for {} examples of {}",
                     elements, n, column.size());
      for (std::size_t row = 0; row < column.size(); ++row) to[static_cast<std::int64_t>(row) * n + i] = column[row];
    }
  }

  std::int64_t examples() const override { return text_->examples(); }
  std::string description() const override {
    return fmt::format("{}; of each {} tokens taken out in {} spans", text_->description(), lengths_.noise,
                       lengths_.spans);
  }

 private:
  std::vector<std::int32_t> column_of(InputKind kind, std::int64_t number) {
    REHEARSE_CHECK(kind == InputKind::tokens || kind == InputKind::targets || kind == InputKind::decoder_tokens,
                   "no input of an encoder with a decoder");
    std::vector<std::int32_t> text(static_cast<std::size_t>(lengths_.text));
    text_->load(InputKind::tokens, {number}, lengths_.text, text.data());
    const std::vector<std::int64_t> pieces = parts(kPieces, number, lengths_.text - lengths_.noise);
    const std::vector<std::int64_t> spans = parts(kSpans, number, lengths_.noise);
    std::vector<std::int32_t> inputs, targets;
    auto next = text.begin();
    for (std::size_t k = 0; k < spans.size(); ++k) {
      const auto mark = static_cast<std::int32_t>(vocab_ - 1 - static_cast<std::int64_t>(k));
      inputs.insert(inputs.end(), next, next + pieces[k]);
      inputs.push_back(mark);
      next += pieces[k];
      targets.push_back(mark);
      targets.insert(targets.end(), next, next + spans[k]);
      next += spans[k];
    }
    const auto end = static_cast<std::int32_t>(vocab_ - 1 - lengths_.spans);
    inputs.push_back(end);
    targets.push_back(end);
    if (kind == InputKind::tokens) return inputs;
    if (kind == InputKind::targets) return targets;
    targets.pop_back();
    targets.insert(targets.begin(), 0);
    return targets;
  }

  // `tokens` in as many parts as there are spans, none empty: the cuts are the first of a shuffle of all places.
  std::vector<std::int64_t> parts(SpanPurpose purpose, std::int64_t number, std::int64_t tokens) const {
    const std::uint64_t key = mix_key(mix_key(seed_, purpose), static_cast<std::uint64_t>(number));
    std::vector<std::int64_t> cuts;
    for (std::int64_t place = 1; place < tokens; ++place) cuts.push_back(place);
    const auto count = static_cast<std::size_t>(lengths_.spans - 1);
    for (std::size_t i = 0; i < count; ++i) std::swap(cuts[i], cuts[i + Philox::draw(key, i)[0] % (cuts.size() - i)]);
    cuts.resize(count);
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::int64_t> lengths;
    std::int64_t before = 0;
    for (const std::int64_t cut : cuts) lengths.push_back(cut - std::exchange(before, cut));
    lengths.push_back(tokens - before);
    return lengths;
  }

  std::unique_ptr<Data> text_;
  std::int64_t vocab_;
  SpanLengths lengths_;
  std::uint64_t seed_;
};

}  // namespace

SpanLengths span_lengths(const model::Model& model, std::int64_t seq_len) {
  const std::int64_t targets = model.decoder_tokens(seq_len);
  SpanLengths l;
  l.spans = std::clamp<std::int64_t>((targets + 1) / 4, 1, std::max<std::int64_t>(1, (targets - 1) / 2));
  l.noise = targets - 1 - l.spans;
  l.text = seq_len - 1 - l.spans + l.noise;
  return l;
}

std::unique_ptr<Data> make_span_data(std::unique_ptr<Data> text, const model::Model& model, std::int64_t seq_len,
                                     std::int64_t seed) {
  return std::make_unique<SpanData>(std::move(text), model, seq_len, seed);
}

}  // namespace rehearse::execute
