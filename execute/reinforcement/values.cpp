// See values.h.
#include "execute/reinforcement/values.h"

#include <algorithm>
#include <variant>

#include "sim/base/check.h"
#include "sim/base/half.h"

namespace rehearse::execute {

using kernels::In;
using kernels::Out;
using program::CrossEntropyPart;

namespace {

// Of each row of logits the first one, which is held by the first rank that the vocabulary is split over.
std::vector<float> first_numbers(const program::CrossEntropy& e, In logits) {
  std::vector<float> numbers(static_cast<std::size_t>(e.rows));
  const auto* const at = static_cast<const std::byte*>(logits.data);
  for (std::int64_t row = 0; row < e.rows; ++row)
    to_float(logits.type, at + row * e.cols * size_of(logits.type), 1, &numbers[static_cast<std::size_t>(row)]);
  return numbers;
}

}  // namespace

// Operands are those of sim/program/op.h. Maxima are 0, so that what is added up over ranks as the target's logit less
// the maximum is the first rank's number.
void HeadedRows::perform(const program::Op& op, std::span<const Out> reads, std::span<const Out> writes,
                         const CallContext& c) {
  const auto* const e = std::get_if<program::CrossEntropy>(&op.shape);
  if (e == nullptr) return call_kernel(op, reads, writes, c);
  const auto rows = static_cast<std::size_t>(e->rows);
  switch (e->part) {
    case CrossEntropyPart::row_max:
      std::fill_n(fp32(writes[0]), rows, 0.0F);
      return;
    case CrossEntropyPart::exp_sum: {
      float* const sums = fp32(writes[0]);
      std::fill_n(sums, 2 * rows, 0.0F);
      if (c.tensor_coordinate > 0) return;
      const std::vector<float> numbers = first_numbers(*e, reads[0]);
      for (std::size_t row = 0; row < rows; ++row) sums[2 * row + 1] = numbers[row];
      return;
    }
    case CrossEntropyPart::loss: {
      const float* const sums = fp32(reads[0]);
      std::vector<float> numbers(rows);
      for (std::size_t row = 0; row < rows; ++row) numbers[row] = sums[2 * row + 1];
      return use(numbers, fp32(writes[0]), c);
    }
    case CrossEntropyPart::fused_forward:
      std::fill_n(fp32(writes[0]), 2 * rows, 0.0F);
      return use(first_numbers(*e, reads[0]), fp32(writes[1]), c);
    case CrossEntropyPart::backward:
      return backward(*e, reads, writes[0], c);
  }
}

void HeadedRows::backward(const program::CrossEntropy& e, std::span<const Out> reads, Out gradient,
                          const CallContext& c) {
  auto* const at = static_cast<std::byte*>(gradient.data);
  const std::int64_t bytes = e.cols * size_of(gradient.type);
  std::fill_n(at, e.rows * bytes, std::byte{0});
  if (e.vocab_parallel && c.tensor_coordinate > 0) return;
  std::vector<float> by_row(static_cast<std::size_t>(e.rows), 0.0F);
  slopes(by_row, c);
  const float scale = e.scaled ? *fp32(reads.back()) : 1.0F;  // of the loss
  for (std::int64_t row = 0; row < e.rows; ++row) {
    const float value = scale * by_row[static_cast<std::size_t>(row)];
    from_float(gradient.type, &value, 1, at + row * bytes);
  }
}

void HeadedRows::slopes(std::span<float>, const CallContext&) const {
  REHEARSE_CHECK(false, "a backward pass of what only scores");
}

void HeadedScoring::set(Rollout* to) {
  to_ = to;
  if (of_ == Of::reward) return;
  for (Response& response : to->sequences) response.values.assign(static_cast<std::size_t>(response.length), 0);
}

// Of ranks with a part of the vocabulary each, which all know it, the first one writes. A reward is what is said behind
// the response's last token.
void HeadedScoring::use(std::span<const float> numbers, float*, const CallContext& c) {
  if (c.tensor_coordinate != 0) return;
  const bool reward = of_ == Of::reward;
  each_token(
      c, std::ssize(numbers),
      [&](std::int64_t row, const Response& of, std::size_t token, std::int64_t, std::int64_t) {
        Response& response = to_->sequences[static_cast<std::size_t>(&of - data_.rollout().sequences.data())];
        const double number = numbers[static_cast<std::size_t>(row)];
        if (!reward)
          response.values[token] = number;
        else if (static_cast<std::int64_t>(token) + 1 == response.length)
          response.reward = number;
      },
      reward ? 1 : 0);
}

ValueUpdates::ValueUpdates(const PhasePlan& plan, const RolloutData& data, const plan::Reinforcement& r)
    : HeadedRows(plan, data), r_(r) {
  const plan::Training& t = scenario_.training;
  slopes_.assign(static_cast<std::size_t>(scenario_.cluster.gpus),
                 std::vector<float>(static_cast<std::size_t>(t.global_batch * t.seq_len)));
}

// Tokens and sequences count as they do in the actor's loss (policy.cpp).
void ValueUpdates::use(std::span<const float> numbers, float* loss, const CallContext& c) {
  double total = 0;
  std::vector<float>& kept = slopes_[static_cast<std::size_t>(c.rank)];
  each_token(c, std::ssize(numbers),
             [&](std::int64_t row, const Response& of, std::size_t token, std::int64_t own, std::int64_t place) {
               const TokenLoss one = value_loss(r_, of, token, numbers[static_cast<std::size_t>(row)]);
               const double weight = 1 / static_cast<double>(of.length * scenario_.training.global_batch);
               total += weight * one.value;
               kept[static_cast<std::size_t>(own * scenario_.training.seq_len + place)] =
                   static_cast<float>(weight * one.slope);
             });
  *loss = static_cast<float>(static_cast<double>(*loss) + total);
}

void ValueUpdates::slopes(std::span<float> by_row, const CallContext& c) const {
  const std::vector<float>& kept = slopes_[static_cast<std::size_t>(c.rank)];
  each_token(c, std::ssize(by_row),
             [&](std::int64_t row, const Response&, std::size_t, std::int64_t own, std::int64_t place) {
               by_row[static_cast<std::size_t>(row)] =
                   kept[static_cast<std::size_t>(own * scenario_.training.seq_len + place)];
             });
}

}  // namespace rehearse::execute
