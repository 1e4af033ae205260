// See documents.h.
#include "sim/plan/documents.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sim/base/random.h"
#include "sim/base/window.h"

namespace rehearse::plan {
namespace {

constexpr std::uint64_t kDocumentDraws = 131;  // what these keys of the generator are for; mixed with the seed
constexpr std::int64_t kMostAveraged = 1024;

double open_uniform(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

// At least 1; at most seq_len, where it is cut in any case.
std::int64_t drawn_length(const Training& t, const std::array<std::uint32_t, 4>& words) {
  const std::uint64_t wide = (static_cast<std::uint64_t>(words[0]) << 32) | words[1];
  switch (t.documents) {
    case Documents::none:
      return t.seq_len;
    case Documents::fixed:
      return std::min(t.document_length, t.seq_len);
    case Documents::uniform:
      return std::min(1 + static_cast<std::int64_t>(wide % static_cast<std::uint64_t>(2 * t.document_length - 1)),
                      t.seq_len);
    case Documents::table:
      return std::min(t.document_lengths[static_cast<std::size_t>(wide % t.document_lengths.size())], t.seq_len);
    case Documents::lognormal:
      break;
  }
  const double z =
      std::sqrt(-2 * std::log(open_uniform(words[0]))) * std::cos(2 * std::numbers::pi * open_uniform(words[1]));
  const double s = t.document_sigma, length = static_cast<double>(t.document_length) * std::exp(s * z - s * s / 2);
  return std::llround(std::clamp(length, 1.0, static_cast<double>(t.seq_len)));
}

// body(first token, tokens) of each document.
template <class Body>
void each_document(const Training& t, std::int64_t example, const Body& body) {
  const std::uint64_t key = mix_key(static_cast<std::uint64_t>(t.seed), kDocumentDraws);
  std::int64_t first = 0;
  for (std::uint64_t i = 0; first < t.seq_len; ++i) {
    const std::int64_t length =
        std::min(drawn_length(t, Philox::draw(key, i, static_cast<std::uint64_t>(example))), t.seq_len - first);
    body(first, length);
    first += length;
  }
}

}  // namespace

std::vector<std::int64_t> document_lengths(const Training& t, std::int64_t example) {
  std::vector<std::int64_t> lengths;
  each_document(t, example, [&](std::int64_t, std::int64_t length) { lengths.push_back(length); });
  return lengths;
}

void document_starts(const Training& t, std::int64_t example, std::int32_t* starts) {
  each_document(t, example, [&](std::int64_t first, std::int64_t length) {
    std::fill_n(starts + first, length, static_cast<std::int32_t>(first));
  });
}

std::int64_t document_pairs(const Training& t, std::int64_t example, const std::vector<TokenRun>& tokens,
                            std::int64_t window) {
  std::int64_t pairs = 0;
  each_document(t, example, [&](std::int64_t first, std::int64_t length) {
    for (const TokenRun& run : tokens) {
      // Queries [begin, end) of the document, from its first token on.
      const std::int64_t begin = std::max(run.first, first) - first;
      const std::int64_t end = std::min(run.first + run.count, first + length) - first;
      if (begin < end) pairs += window_pairs(end, window) - window_pairs(begin, window);
    }
  });
  return pairs;
}

bool rings_by_document(const Plan& plan, const Training& training) {
  return training.packs() && plan.context > 1 && plan.context_kind == ContextKind::ring;
}

std::vector<TokenRun> held_tokens(const Plan& plan, const Training& t, std::int64_t example, int coordinate) {
  if (!rings_by_document(plan, t)) return context_tokens(plan, t.seq_len, coordinate);
  std::vector<TokenRun> held;
  each_document(t, example, [&](std::int64_t first, std::int64_t length) {
    for (const TokenRun& run : context_tokens(plan, length, coordinate)) held.push_back({first + run.first, run.count});
  });
  return held;
}

std::int64_t equal_document_length(const Training& t) {
  if (t.documents == Documents::none) return 0;
  const std::int64_t examples = std::min(t.global_batch, kMostAveraged);
  double squares = 0;
  for (std::int64_t example = 0; example < examples; ++example)
    each_document(t, example, [&](std::int64_t, std::int64_t length) {
      squares += static_cast<double>(length) * static_cast<double>(length);
    });
  return std::max<std::int64_t>(
      1, std::llround(squares / (static_cast<double>(examples) * static_cast<double>(t.seq_len))));
}

}  // namespace rehearse::plan
