// Multi-token prediction in the plain GPT (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2, equations 21 to 25): module
// k = 1, 2, ... makes of the hidden state h of token t and of token t + k the row W [N(e); N(h)], which goes through a
// block to the next hidden state, and through a norm and the head to what token t + k + 1 is. Tokens t with t + k past
// the sequence's end are left out of the loss; they are computed, of token 0, and experts see them.
#include <algorithm>
#include <cmath>

#include "tests/numerics/plain_gpt.h"

namespace rehearse::numerics {

template <typename Real>
void PlainGpt<Real>::add_modules(const Initial& initial) {
  const std::int64_t h = shape_.hidden;
  for (std::int64_t k = 1; k <= shape_.mtp_depth; ++k) {
    const std::string name = "mtp" + std::to_string(k) + ".";
    Module module;
    module.embedding_norm = add_norm(name + "embedding_norm", initial);
    module.hidden_norm = add_norm(name + "hidden_norm", initial);
    module.projection = add_linear(name + "projection", h, 2 * h, initial, false);
    module.block = add_block(shape_.layers + k - 1, initial);
    module.final_norm = add_norm(name + "final_norm", initial);
    modules_.push_back(module);
  }
}

template <typename Real>
void PlainGpt<Real>::modules_forward(const Sequence& sequence, Values hidden, Trace& trace, Values& losses) const {
  const std::size_t h = static_cast<std::size_t>(shape_.hidden), tokens = sequence.tokens.size(),
                    vocab = static_cast<std::size_t>(shape_.vocab);
  trace.modules.resize(modules_.size());
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    const std::size_t k = m + 1;
    ModuleTrace& kept = trace.modules[m];
    Values embedding(tokens * h);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto token = static_cast<std::size_t>(t + k < tokens ? sequence.tokens[t + k] : 0);
      std::copy_n(value(words_).begin() + static_cast<std::ptrdiff_t>(token * h), h,
                  embedding.begin() + static_cast<std::ptrdiff_t>(t * h));
    }
    const Values first = norm_forward(modules_[m].embedding_norm, embedding, kept.embedding);
    const Values second = norm_forward(modules_[m].hidden_norm, hidden, kept.hidden);
    kept.rows.clear();
    for (std::size_t t = 0; t < tokens; ++t)
      for (const Values* half : {&first, &second})
        kept.rows.insert(kept.rows.end(), half->begin() + static_cast<std::ptrdiff_t>(t * h),
                         half->begin() + static_cast<std::ptrdiff_t>((t + 1) * h));
    hidden = block_forward(modules_[m].block, linear_forward(modules_[m].projection, kept.rows), kept.block);
    kept.probabilities = linear_forward(head_, norm_forward(modules_[m].final_norm, hidden, kept.final));
    for (std::size_t t = 0; t < tokens; ++t) {
      Real* const row = kept.probabilities.data() + t * vocab;
      const bool counts = t + k < tokens;
      const Real target = counts ? row[sequence.targets[t + k]] : 0, largest = *std::max_element(row, row + vocab);
      Real total = 0;
      for (std::size_t i = 0; i < vocab; ++i) total += row[i] = std::exp(row[i] - largest);
      for (std::size_t i = 0; i < vocab; ++i) row[i] /= total;
      kept.losses.push_back(counts ? largest + std::log(total) - target : Real{0});
      losses[t] += Real(shape_.mtp_weight / static_cast<double>(shape_.mtp_depth)) * kept.losses.back();
    }
  }
}

template <typename Real>
std::vector<double> PlainGpt<Real>::loss_parts(const std::vector<Sequence>& batch) const {
  std::vector<double> parts(1 + modules_.size(), 0);
  for (const Sequence& sequence : batch) {
    const double share = 1 / static_cast<double>(batch.size() * sequence.tokens.size());
    Trace trace;
    for (const Real loss : forward(sequence, trace)) parts[0] += share * static_cast<double>(loss);
    for (std::size_t m = 0; m < modules_.size(); ++m)
      for (const Real loss : trace.modules[m].losses) {
        parts[m + 1] += share * static_cast<double>(loss);
        parts[0] -= share * shape_.mtp_weight / static_cast<double>(modules_.size()) * static_cast<double>(loss);
      }
  }
  return parts;
}

template <typename Real>
auto PlainGpt<Real>::modules_backward(const Sequence& sequence, const Trace& trace, Real scale) -> Values {
  const std::size_t h = static_cast<std::size_t>(shape_.hidden), tokens = sequence.tokens.size(),
                    vocab = static_cast<std::size_t>(shape_.vocab);
  const Real weight = scale * Real(shape_.mtp_weight / static_cast<double>(shape_.mtp_depth));
  Values d_hidden(tokens * h, Real{0});  // of a module's output, from the modules behind it
  for (std::size_t m = modules_.size(); m-- > 0;) {
    const std::size_t k = m + 1;
    const ModuleTrace& kept = trace.modules[m];
    Values d_logits(tokens * vocab, Real{0});
    for (std::size_t t = 0; t + k < tokens; ++t) {
      for (std::size_t i = 0; i < vocab; ++i) d_logits[t * vocab + i] = weight * kept.probabilities[t * vocab + i];
      d_logits[t * vocab + static_cast<std::size_t>(sequence.targets[t + k])] -= weight;
    }
    const Values d_head =
        norm_backward(modules_[m].final_norm, linear_backward(head_, d_logits, kept.final.out), kept.final);
    for (std::size_t i = 0; i < d_hidden.size(); ++i) d_hidden[i] += d_head[i];
    const Values d_rows = linear_backward(modules_[m].projection,
                                          block_backward(modules_[m].block, d_hidden, kept.block, scale), kept.rows);
    Values d_first(tokens * h), d_second(tokens * h);
    for (std::size_t t = 0; t < tokens; ++t)
      for (std::size_t i = 0; i < h; ++i) {
        d_first[t * h + i] = d_rows[2 * t * h + i];
        d_second[t * h + i] = d_rows[(2 * t + 1) * h + i];
      }
    const Values d_embedding = norm_backward(modules_[m].embedding_norm, d_first, kept.embedding);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto token = static_cast<std::size_t>(t + k < tokens ? sequence.tokens[t + k] : 0);
      for (std::size_t i = 0; i < h; ++i) gradient(words_)[token * h + i] += d_embedding[t * h + i];
    }
    d_hidden = norm_backward(modules_[m].hidden_norm, d_second, kept.hidden);
  }
  return d_hidden;
}

#define REHEARSE_PLAIN_PREDICTION(Real)                                                          \
  template void PlainGpt<Real>::add_modules(const Initial&);                                     \
  template void PlainGpt<Real>::modules_forward(const Sequence&, Values, Trace&, Values&) const; \
  template std::vector<double> PlainGpt<Real>::loss_parts(const std::vector<Sequence>&) const;   \
  template auto PlainGpt<Real>::modules_backward(const Sequence&, const Trace&, Real)->Values;
REHEARSE_PLAIN_PREDICTION(float)
REHEARSE_PLAIN_PREDICTION(double)
#undef REHEARSE_PLAIN_PREDICTION

}  // namespace rehearse::numerics
