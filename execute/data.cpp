// Reading, cutting and shuffling; see data.h.
#include "execute/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "execute/encoder_data.h"
#include "execute/span_data.h"
#include "execute/sparse_data.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/base/interrupt.h"
#include "sim/base/random.h"

namespace rehearse::execute {
namespace {

using program::InputKind;

// What a key of the generator is for; mixed with the seed.
enum Purpose : std::uint64_t { kShuffle = 101, kLabel, kPattern, kNoise, kWeights, kInput, kError };

[[noreturn]] void fail(const std::string& file, const std::string& message, const std::string& hint = "") {
  throw InputError(Diagnostic{file, 0, 0, "", message, hint});
}

class TextData : public Data {
 public:
  TextData(std::vector<std::uint16_t> tokens, std::string name, std::int64_t seq_len, std::int64_t seed)
      : tokens_(std::move(tokens)), name_(std::move(name)), seq_len_(seq_len), seed_(seed) {
    sequences_ = (static_cast<std::int64_t>(tokens_.size()) - 1) / seq_len;
  }

  void load(InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements, void* out) override {
    REHEARSE_CHECK(kind == InputKind::tokens || kind == InputKind::targets, "text has tokens and targets only");
    const auto n = static_cast<std::int64_t>(numbers.size());
    REHEARSE_CHECK(elements == n * seq_len_, "{} tokens for {} sequences of {}", elements, n, seq_len_);
    auto* ids = static_cast<std::int32_t*>(out);
    const std::int64_t shift = kind == InputKind::targets ? 1 : 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t first = sequence_of(numbers[static_cast<std::size_t>(i)]) * seq_len_ + shift;
      for (std::int64_t t = 0; t < seq_len_; ++t) ids[t * n + i] = tokens_[static_cast<std::size_t>(first + t)];
    }
  }

  std::int64_t examples() const override { return sequences_; }
  std::string description() const override {
    return fmt::format("{}: {} tokens, {} sequences an epoch", name_, tokens_.size(), sequences_);
  }

 private:
  using Order = std::vector<std::int64_t>;

  std::int64_t sequence_of(std::int64_t number) {
    return (*order(number / sequences_))[static_cast<std::size_t>(number % sequences_)];
  }

  // Ranks are at most a few steps apart, so two epochs are in use at a time.
  std::shared_ptr<const Order> order(std::int64_t epoch) {
    const std::lock_guard lock(mutex_);
    auto& found = orders_[epoch];
    if (found == nullptr) found = std::make_shared<const Order>(shuffled(epoch));
    const std::shared_ptr<const Order> result = found;
    while (orders_.size() > 3) orders_.erase(orders_.begin());
    return result;
  }

  Order shuffled(std::int64_t epoch) const {
    Order order(static_cast<std::size_t>(sequences_));
    std::iota(order.begin(), order.end(), 0);
    const std::uint64_t key =
        mix_key(mix_key(static_cast<std::uint64_t>(seed_), kShuffle), static_cast<std::uint64_t>(epoch));
    for (std::size_t i = order.size(); i > 1; --i) {
      const auto words = Philox::draw(key, i);
      const std::uint64_t wide = (static_cast<std::uint64_t>(words[0]) << 32) | words[1];
      std::swap(order[i - 1], order[static_cast<std::size_t>(wide % i)]);
    }
    return order;
  }

  std::vector<std::uint16_t> tokens_;
  std::string name_;
  std::int64_t seq_len_, seed_, sequences_ = 0;
  std::mutex mutex_;
  std::map<std::int64_t, std::shared_ptr<const Order>> orders_;
};

// Examples without end: number n has a class, and is that class's pattern (uniform in [-1, 1)) with uniform noise of
// half that width added.
class MadeData : public Data {
 public:
  // `patch_width`: of images that are read as patches, numbers of one.
  MadeData(std::int64_t classes, std::int64_t width, std::int64_t seed, std::int64_t patch_width = 0)
      : classes_(classes), width_(width), patch_width_(patch_width), seed_(seed) {
    for (std::int64_t i = 0; i < classes * width; ++i)
      patterns_.push_back(signed_uniform(kPattern, static_cast<std::uint64_t>(i), 0));
  }

  void load(InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements, void* out) override {
    const auto n = static_cast<std::int64_t>(numbers.size());
    if (kind == InputKind::labels) {
      for (std::int64_t i = 0; i < n; ++i)
        static_cast<std::int32_t*>(out)[i] = static_cast<std::int32_t>(class_of(numbers[static_cast<std::size_t>(i)]));
      return;
    }
    const bool patches = kind == InputKind::patches;
    REHEARSE_CHECK((kind == InputKind::images || kind == InputKind::features || patches) && elements == n * width_,
                   "{} values for {} examples of {}", elements, n, width_);
    auto* values = static_cast<float*>(out);
    if (patches) return load_patches(numbers, values);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t number = numbers[static_cast<std::size_t>(i)];
      for (std::int64_t j = 0; j < width_; ++j) values[i * width_ + j] = pixel(number, j);
    }
  }

  std::int64_t examples() const override { return 0; }
  std::string description() const override {
    return fmt::format("made examples: {} classes of {} values", classes_, width_);
  }

 private:
  // [patch, example, patch_width]: an image's numbers lie patch by patch.
  void load_patches(const std::vector<std::int64_t>& numbers, float* to) const {
    for (std::int64_t first = 0; first < width_; first += patch_width_)
      for (const std::int64_t number : numbers)
        for (std::int64_t j = 0; j < patch_width_; ++j) *to++ = pixel(number, first + j);
  }
  float pixel(std::int64_t number, std::int64_t j) const {
    return patterns_[static_cast<std::size_t>(class_of(number) * width_ + j)] +
           0.5F * signed_uniform(kNoise, static_cast<std::uint64_t>(j), static_cast<std::uint64_t>(number));
  }
  std::int64_t class_of(std::int64_t number) const {
    return Philox::draw(mix_key(static_cast<std::uint64_t>(seed_), kLabel), static_cast<std::uint64_t>(number))[0] %
           classes_;
  }
  float signed_uniform(Purpose purpose, std::uint64_t low, std::uint64_t high) const {
    return 2 * Philox::uniform(Philox::draw(mix_key(static_cast<std::uint64_t>(seed_), purpose), low, high)[0]) - 1;
  }

  std::int64_t classes_, width_, patch_width_, seed_;
  std::vector<float> patterns_;  // [classes, width]
};

// Examples without end for a regression; data.h says how they are made.
class MadeRegression : public Data {
 public:
  MadeRegression(std::int64_t outputs, std::int64_t width, std::int64_t seed)
      : outputs_(outputs), width_(width), seed_(seed) {}

  void load(InputKind kind, const std::vector<std::int64_t>& numbers, std::int64_t elements, void* out) override {
    const bool values = kind == InputKind::values;
    const std::int64_t each = values ? outputs_ : width_;
    REHEARSE_CHECK((values || kind == InputKind::images || kind == InputKind::features) &&
                       elements == static_cast<std::int64_t>(numbers.size()) * each,
                   "{} values for {} examples of {}", elements, numbers.size(), each);
    auto* to = static_cast<float*>(out);
    for (const std::int64_t number : numbers) {
      if (values)
        put_values(number, to);
      else
        for (std::int64_t j = 0; j < width_; ++j) to[j] = static_cast<float>(input(number, j));
      to += each;
    }
  }

  std::int64_t examples() const override { return 0; }
  std::string description() const override {
    return fmt::format("made examples: {} value{} of {} inputs", outputs_, outputs_ == 1 ? "" : "s", width_);
  }

 private:
  void put_values(std::int64_t number, float* to) const {
    std::vector<double> x(static_cast<std::size_t>(width_));
    for (std::int64_t j = 0; j < width_; ++j) x[static_cast<std::size_t>(j)] = input(number, j);
    const double scale = 1 / std::sqrt(static_cast<double>(width_));
    for (std::int64_t k = 0; k < outputs_; ++k) {
      double sum = 0;
      for (std::int64_t j = 0; j < width_; ++j)
        sum += draw(kWeights, k * width_ + j, 0) * x[static_cast<std::size_t>(j)];
      to[k] = static_cast<float>(sum * scale + 0.1 * draw(kError, k, number));
    }
  }
  double input(std::int64_t number, std::int64_t j) const { return draw(kInput, j, number); }
  // Uniform in [-1, 1).
  double draw(Purpose purpose, std::int64_t low, std::int64_t high) const {
    const auto words = Philox::draw(mix_key(static_cast<std::uint64_t>(seed_), purpose),
                                    static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high));
    return 2 * static_cast<double>(Philox::uniform(words[0])) - 1;
  }

  std::int64_t outputs_, width_, seed_;
};

std::vector<std::uint16_t> read_tokens(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    fail(file, std::filesystem::is_directory(file, error) ? "is a directory" : "no such file with training data",
         "--data takes a text file or a .bin of uint16 tokens");
  note_input(file);
  std::ifstream in(file, std::ios::binary);
  std::string bytes;
  for (std::string piece(std::size_t{1} << 22, '\0'); in;) {  // between two of them one may stop
    check_interrupt();
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    bytes.append(piece, 0, static_cast<std::size_t>(in.gcount()));
  }
  if (!in.eof()) fail(file, "cannot be read");
  std::vector<std::uint16_t> tokens;
  if (!file.ends_with(".bin")) {
    for (const char c : bytes) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  if (bytes.size() % 2 != 0) fail(file, fmt::format("{} bytes are no whole number of uint16 tokens", bytes.size()));
  for (std::size_t i = 0; i < bytes.size(); i += 2)
    tokens.push_back(static_cast<std::uint16_t>(static_cast<unsigned char>(bytes[i]) |
                                                static_cast<unsigned char>(bytes[i + 1]) << 8));
  return tokens;
}

std::unique_ptr<Data> open_spans(const model::Model& model, std::int64_t seq_len, std::int64_t seed,
                                 const std::string& name, std::vector<std::uint16_t> tokens) {
  const SpanLengths l = span_lengths(model, seq_len);
  if (l.noise < l.spans || seq_len - 1 - l.spans < l.spans)
    fail(name,
         fmt::format("a decoder of {} tokens beside an encoder of {} leaves no spans and pieces to cut a text in",
                     model.decoder_tokens(seq_len), seq_len),
         "model.decoder_seq_len: at least 3, and less than training.seq_len");
  if (static_cast<std::int64_t>(tokens.size()) < l.text + 1)
    fail(name, fmt::format("{} tokens are too few for one example, which is made of {}", tokens.size(), l.text));
  const auto highest = std::max_element(tokens.begin(), tokens.end());
  if (*highest >= span_text_vocab(model, seq_len))
    fail(
        name,
        fmt::format("token {} at {} is outside the model's vocabulary of {}, whose last {} stand for spans and the end",
                    *highest, highest - tokens.begin(), model.vocab, l.spans + 1),
        fmt::format("bytes need model.vocab >= {}", 256 + l.spans + 1));
  return make_span_data(std::make_unique<TextData>(std::move(tokens), name, l.text, seed), model, seq_len, seed);
}

}  // namespace

std::string data_file(const std::string& given) {
  const char* named = std::getenv(kDataVariable);
  return !given.empty() ? given : named != nullptr && *named != '\0' ? named : kDefaultText;
}

std::unique_ptr<Data> open_data(const model::Model& model, std::int64_t seq_len, std::int64_t seed,
                                const std::string& file) {
  if (!model.reads_text()) {
    if (!file.empty()) fail(file, "data files are for models that read text; the others train on made examples");
    if (model.is_vision())
      return std::make_unique<MadeData>(model.classes, model.input().elements(), seed, model.patch_width());
    if (reads_sparse_data(model)) return make_sparse_data(model, seed);
    const std::int64_t width = model.input().elements(), outputs = model.outputs();
    if (model.loss == model::LossKind::mse) return std::make_unique<MadeRegression>(outputs, width, seed);
    return std::make_unique<MadeData>(outputs, width, seed);
  }
  const std::string name = data_file(file);
  std::vector<std::uint16_t> tokens = read_tokens(name);
  if (model.has_decoder()) return open_spans(model, seq_len, seed, name, std::move(tokens));
  if (static_cast<std::int64_t>(tokens.size()) < seq_len + 1)
    fail(name, fmt::format("{} tokens are too few for one sequence of seq_len = {} and its last target", tokens.size(),
                           seq_len));
  const bool encoder = model.is_encoder();
  const std::int64_t vocab = encoder ? encoder_text_vocab(model) : model.vocab;
  const auto highest = std::max_element(tokens.begin(), tokens.end());
  if (*highest >= vocab)
    fail(name,
         fmt::format("token {} at {} is outside the model's vocabulary of {}{}", *highest, highest - tokens.begin(),
                     model.vocab, encoder ? ", whose last two are the class token and the mask" : ""),
         encoder ? "bytes need model.vocab >= 258" : "bytes need model.vocab >= 256");
  if (encoder && static_cast<std::int64_t>(tokens.size()) < 2 * seq_len + 1)
    fail(name, fmt::format("{} tokens are too few for two sequences of seq_len = {}", tokens.size(), seq_len));
  auto text = std::make_unique<TextData>(std::move(tokens), name, seq_len, seed);
  if (encoder) return make_encoder_data(std::move(text), model, seq_len, seed);
  return text;
}

}  // namespace rehearse::execute
