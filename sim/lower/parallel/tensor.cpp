#include "sim/lower/parallel/tensor.h"

namespace rehearse::lower {

using program::Collective;
using program::CollectiveKind;
using program::Elementwise;
using program::ElementwiseFn;
using program::Gemm;
using program::StreamKind;

BufferId TensorParallel::gather_sequence(const std::string& name, BufferId shard, std::int64_t width) {
  return sequence_.on() ? sequence_.all_gather(name, shard, width) : shard;
}

BufferId TensorParallel::gather_rows(const std::string& name, BufferId shard, std::int64_t width) {
  if (!sequence_.in_turns()) return gather_sequence(name, shard, width);
  return sequence_.all_gather_in_turns(name, shard, context_.compute, {context_.tokens, width}, Lifetime::slot);
}

void TensorParallel::product_of_rows(const std::string& name, const Gemm& gemm, const std::vector<Operand>& reads,
                                     const std::vector<Operand>& writes) {
  const BufferId in = reads.front().buffer, out = writes.front().buffer;
  const DType type = product_type(in);
  const bool scattered = sequence_.is_made_in_turns(out);
  if (!scattered && !sequence_.arrives_in_turns(in) && !fp8_.arrives_in_turns(in)) {
    builder_.op(name, gemm, type, reads, writes);
    return;
  }
  Gemm part = gemm;
  part.m = context_.local_tokens;
  const auto ranks = static_cast<std::size_t>(context_.tensor);
  const auto at = [&](const Operand& whole, std::size_t turn) {
    const bool narrow = fp8_.arrives_in_turns(whole.buffer);
    return Operand{(narrow ? fp8_.turns(whole.buffer) : sequence_.turns(whole.buffer))[turn], whole.micro_batch_delta};
  };
  for (std::size_t i = 0; i < ranks; ++i) {
    const std::size_t turn = scattered ? (i + 1) % ranks : i;
    std::vector<Operand> part_reads = reads, part_writes;
    part_reads.front() = at(reads.front(), turn);
    if (gemm.epilogue == program::Epilogue::gelu_backward) part_reads[2] = at(reads[2], turn);
    for (const Operand& written : writes) part_writes.push_back(at(written, turn));
    builder_.op(name + ".turn" + std::to_string(turn), part, type, part_reads, part_writes);
  }
}

BufferId TensorParallel::reduced_product(const std::string& name, BufferId in, ParamId weight, ParamId bias,
                                         BufferId partial, std::int64_t n, std::int64_t k, BufferId shard) {
  if (sequence_.in_turns()) sequence_.make_in_turns(partial);
  product(name + ".forward", in, weight, bias, partial, n, k);
  return reduce_partial(name, partial, n, shard);
}

BufferId TensorParallel::reduce_partial(const std::string& name, BufferId partial, std::int64_t width, BufferId shard) {
  if (context_.groups.tensor < 0) return partial;
  if (context_.profile().holds_sent && builder_.phase() == program::Phase::forward) builder_.hold(partial);
  if (sequence_.on()) return sequence_.reduce_scatter(name, partial, width, shard);
  builder_.op(name + ".all_reduce",
              Collective{CollectiveKind::all_reduce, context_.groups.tensor, context_.tokens * width}, context_.compute,
              {{partial}}, {{partial}}, StreamKind::tensor);
  return partial;
}

void TensorParallel::product(const std::string& name, BufferId in, ParamId weight, ParamId bias, BufferId out,
                             std::int64_t n, std::int64_t k, BufferId activated) {
  parameters_.cast_weight(weight);
  if (bias >= 0) parameters_.cast_weight(bias);
  const BufferId wide = wide_.contains(in) ? wide_.at(in) : in;
  if (fp8_.on() && !is_narrow(builder_.buffer(in).dtype)) in = fp8_.input(name, in, false, k);
  Gemm gemm{context_.tokens, n, k, 1};
  gemm.transpose_b = true;
  gemm.bias = bias >= 0;
  std::vector<Operand> reads{{in}, {fp8_.on() ? parameters_.fp8_row(weight) : parameters_.value(weight)}};
  if (bias >= 0) reads.push_back({parameters_.value(bias)});
  parameters_.fp8_scales().of_product(reads);
  if (activated < 0) {
    product_of_rows(name, gemm, reads, {{out}});
    lora_.forward(name.substr(0, name.rfind('.')), weight, wide, out);
  } else {
    gemm.epilogue = program::Epilogue::gelu;
    product_of_rows(name, gemm, reads, {{activated}, {out}});
  }
}

void TensorParallel::product_part(const std::string& name, BufferId in, const WeightPart& of, BufferId out,
                                  std::int64_t n, std::int64_t k) {
  Gemm gemm{context_.tokens, n, k, 1};
  gemm.transpose_b = true;
  gemm.bias = of.bias >= 0;
  const BufferId weight = fp8_.on() ? parameters_.part_of(parameters_.fp8_row(of.weight), of.part, of.parts)
                                    : parameters_.cast_part(of.weight, of.part, of.parts);
  std::vector<Operand> reads{{in}, {weight}};
  if (of.bias >= 0) reads.push_back({parameters_.cast_part(of.bias, of.part, of.parts)});
  parameters_.fp8_scales().of_product(reads);
  product_of_rows(name, gemm, reads, {{out}});
}

void TensorParallel::bias_gradient(const std::string& name, BufferId gradient, ParamId bias, std::int64_t cols) {
  if (bias < 0 || !parameters_.trains(bias)) return;
  const BufferId target = parameters_.accumulated_gradient(bias);
  builder_.op(name + ".bias_grad", Elementwise{ElementwiseFn::bias_grad, builder_.buffer(gradient).elements(), cols},
              context_.compute, {{gradient}, {target}}, {{target}});
  parameters_.gradient_done(bias);
}

BufferId TensorParallel::product_input(const std::string& name, BufferId shard, std::int64_t width, ParamId weight) {
  if (!fp8_.on()) {
    if (!keeps_gathered()) return gather_rows(name, shard, width);
    const std::vector<std::int64_t> shape{context_.tokens, width};
    const BufferId whole = sequence_.in_turns()
                               ? sequence_.all_gather_in_turns(name, shard, context_.compute, shape, saved_)
                               : sequence_.all_gather(name, shard, width, saved_);
    return gathered_.made(shard, whole, builder_.current_body());
  }
  if (!lora_.has(weight)) return fp8_.input(name, shard, true, width);
  const BufferId wide = gather_sequence(name, shard, width), copy = fp8_.input(name, wide, false, width);
  wide_[copy] = wide;
  return copy;
}

BufferId TensorParallel::input_again(const std::string& name, BufferId in, ParamId weight, std::int64_t k) {
  if (!fp8_.on() && keeps_gathered())
    if (const BufferId whole = gathered_.kept(in, builder_.current_body(), saved_); whole >= 0) return whole;
  // Beside the product before it, which does not need it.
  const OpRef before = builder_.last_compute_op(), last = builder_.last_op();
  const BufferId whole =
      fp8_.on() && !lora_.has(weight) ? fp8_.kept_input(name, in, true, k) : gather_sequence(name, in, k);
  OpRef gather = builder_.last_op();
  if (!sequence_.on() || gather == last) return whole;
  const bool wide = !fp8_.on() || fp8_.gathers_wide();
  if (wide && context_.profile().copies_sequence_shards) --gather.op;  // behind it is the copy into order
  if (gather != before) builder_.after(gather, before);
  return whole;
}

BufferId TensorParallel::column_backward(const std::string& name, BufferId out_gradient, BufferId in, ParamId weight,
                                         ParamId bias, std::int64_t n, std::int64_t k, bool input_gradient) {
  if (!parameters_.trains(weight)) return frozen_column_backward(name, out_gradient, in, weight, n, k, input_gradient);
  const bool overlaps = context_.plan().overlap_tensor_backward || builder_.parted();
  Fp8Operands::Pair d_out{out_gradient, out_gradient};
  if (fp8_.on()) {
    d_out = fp8_.gradient("d_" + name + ".out", out_gradient, false, n);
    fp8_.keep_input(in);
  }
  BufferId whole_in = in;
  builder_.weight_part([&] { whole_in = input_again(name + ".input_again", in, weight, k); });
  const BufferId in_gradient =
      builder_.workspace(builder_.here("d_" + name + ".input"), context_.compute, {context_.tokens, k});
  const BufferId by_columns = fp8_.on() ? parameters_.fp8_column(weight) : parameters_.value(weight);
  std::vector<Operand> reads{{d_out.row}, {by_columns}};
  parameters_.fp8_scales().of_product(reads);
  const bool in_turns = !overlaps && sequence_.in_turns();
  if (in_turns) sequence_.make_in_turns(in_gradient);
  product_of_rows(name + ".backward_input", Gemm{context_.tokens, k, n, 1}, reads, {{in_gradient}});
  OpRef product;
  const bool fused = fuses_gradient(bias);
  const auto emit_weight = [&] {
    Gemm gemm{n, k, context_.tokens, 1};
    gemm.transpose_a = true;
    if (fp8_.on()) whole_in = fp8_.by_columns(name + ".input_again", in, true, whole_in);
    parameters_.weight_gradient(weight, name + ".backward_weight", gemm, d_out.column, whole_in, fused ? bias : -1);
    product = builder_.last_compute_op();
    parameters_.gradient_done(weight);
    if (fused) parameters_.gradient_done(bias);
  };
  if (overlaps || in_turns) {
    const BufferId reduced = reduce_partial("d_" + name, in_gradient, k);
    builder_.weight_part(emit_weight);
    if (!fused) bias_gradient(name, out_gradient, bias, n);
    return reduced;
  }
  emit_weight();
  if (!fused) bias_gradient(name, out_gradient, bias, n);
  const BufferId reduced = reduce_partial("d_" + name, in_gradient, k);
  if (context_.groups.tensor >= 0) builder_.after(builder_.last_op(), product);
  return reduced;
}

BufferId TensorParallel::columns_backward(const std::string& name, BufferId in, std::int64_t k,
                                          const std::vector<Column>& columns) {
  const bool overlaps = context_.plan().overlap_tensor_backward || builder_.parted();
  BufferId whole_in = in;
  builder_.weight_part([&] { whole_in = input_again(name + ".input_again", in, columns.front().weight, k); });
  const BufferId in_gradient =
      builder_.workspace(builder_.here("d_" + name + ".input"), context_.compute, {context_.tokens, k});
  for (const Column& c : columns) {
    Gemm gemm{context_.tokens, k, c.n, 1};
    std::vector<Operand> reads{{c.out_gradient}, {parameters_.value(c.weight)}};
    gemm.accumulate = &c != &columns.front();
    if (gemm.accumulate) reads.push_back({in_gradient});
    builder_.op(c.name + ".backward_input", gemm, context_.compute, reads, {{in_gradient}});
  }
  OpRef product;
  const auto emit_weights = [&] {
    for (const Column& c : columns) {
      Gemm gemm{c.n, k, context_.tokens, 1};
      gemm.transpose_a = true;
      const bool fused = fuses_gradient(c.bias);
      parameters_.weight_gradient(c.weight, c.name + ".backward_weight", gemm, c.out_gradient, whole_in,
                                  fused ? c.bias : -1);
      product = builder_.last_compute_op();
      parameters_.gradient_done(c.weight);
      if (fused) parameters_.gradient_done(c.bias);
    }
  };
  const auto emit_biases = [&] {
    for (const Column& c : columns)
      if (!fuses_gradient(c.bias)) bias_gradient(c.name, c.out_gradient, c.bias, c.n);
  };
  if (overlaps) {
    const BufferId reduced = reduce_partial("d_" + name, in_gradient, k);
    builder_.weight_part(emit_weights);
    emit_biases();
    return reduced;
  }
  emit_weights();
  emit_biases();
  const BufferId reduced = reduce_partial("d_" + name, in_gradient, k);
  builder_.after(builder_.last_op(), product);
  return reduced;
}

// The input's gradient first, the adapter's part of it with it; its collective during the adapter's weight gradients
// with plan.overlap_tensor_backward, else behind them.
BufferId TensorParallel::frozen_column_backward(const std::string& name, BufferId out_gradient, BufferId in,
                                                ParamId weight, std::int64_t n, std::int64_t k, bool input_gradient) {
  if (lora_.has(weight)) in = input_again(name + ".input_again", in, weight, k);
  BufferId d_in = -1;
  if (input_gradient) {
    const BufferId d_out = fp8_.on() ? fp8_.gradient("d_" + name + ".out", out_gradient, false, n).row : out_gradient;
    d_in = input_gradient_of(name, d_out, weight, n, k);
  }
  lora_.backward(name, weight, out_gradient, d_in);
  const auto reduced = [&] { return input_gradient ? reduce_partial("d_" + name, d_in, k) : -1; };
  if (context_.plan().overlap_tensor_backward) {
    const BufferId d_reduced = reduced();
    lora_.weight_gradients(name, weight, in);
    return d_reduced;
  }
  lora_.weight_gradients(name, weight, in);
  const OpRef products = builder_.last_compute_op();
  const BufferId d_reduced = reduced();
  if (input_gradient && context_.groups.tensor >= 0) builder_.after(builder_.last_op(), products);
  return d_reduced;
}

BufferId TensorParallel::frozen_row_backward(const std::string& name, BufferId out_gradient, BufferId in,
                                             ParamId weight, std::int64_t n, std::int64_t k, bool input_gradient) {
  const bool adapted = lora_.has(weight);
  const BufferId wide = adapted || !fp8_.on() ? gather_sequence("d_" + name, out_gradient, n) : -1;
  BufferId d_in = -1;
  if (input_gradient) {
    BufferId d_out = wide;
    if (fp8_.on()) d_out = fp8_.gradient("d_" + name, adapted ? wide : out_gradient, !adapted, n).row;
    d_in = input_gradient_of(name, d_out, weight, n, k);
  }
  lora_.backward(name, weight, wide, d_in);
  lora_.weight_gradients(name, weight, in);
  return d_in;
}

// Of a frozen weight's product, without the adapter's part.
BufferId TensorParallel::input_gradient_of(const std::string& name, BufferId out_gradient, ParamId weight,
                                           std::int64_t n, std::int64_t k) {
  const BufferId d_in =
      builder_.workspace(builder_.here("d_" + name + ".input"), context_.compute, {context_.tokens, k});
  std::vector<Operand> reads{{out_gradient}, {fp8_.on() ? parameters_.fp8_column(weight) : parameters_.value(weight)}};
  parameters_.fp8_scales().of_product(reads);
  builder_.op(name + ".backward_input", Gemm{context_.tokens, k, n, 1}, product_type(out_gradient), reads, {{d_in}});
  return d_in;
}

BufferId TensorParallel::row_backward(const std::string& name, BufferId out_gradient, BufferId in, ParamId weight,
                                      ParamId bias, std::int64_t n, std::int64_t k, BufferId activated,
                                      bool input_gradient) {
  if (!parameters_.trains(weight)) return frozen_row_backward(name, out_gradient, in, weight, n, k, input_gradient);
  Fp8Operands::Pair whole;
  if (fp8_.on()) {
    whole = fp8_.gradient("d_" + name, out_gradient, true, n);
    fp8_.keep_input(in);
  } else {
    whole.row = whole.column = gather_rows("d_" + name, out_gradient, n);
  }
  // Of a sequence that is spread over the group each rank sums its own tokens.
  const bool fused = fuses_gradient(bias) && !sequence_.on();
  if (!fused) bias_gradient(name, out_gradient, bias, n);
  const BufferId in_gradient =
      builder_.workspace(builder_.here("d_" + name + ".input"), context_.compute, {context_.tokens, k});
  Gemm input{context_.tokens, k, n, 1};
  std::vector<Operand> reads{{whole.row}, {fp8_.on() ? parameters_.fp8_column(weight) : parameters_.value(weight)}};
  if (activated >= 0) {
    input.epilogue = program::Epilogue::gelu_backward;
    reads.push_back({activated});
  }
  parameters_.fp8_scales().of_product(reads);
  product_of_rows(name + ".backward_input", input, reads, {{in_gradient}});
  builder_.weight_part([&] {
    Gemm gemm{n, k, context_.tokens, 1};
    gemm.transpose_a = true;
    if (fp8_.on()) in = fp8_.by_columns(name + ".input", in, false, fp8_.kept_input(name + ".input", in, false, k));
    parameters_.weight_gradient(weight, name + ".backward_weight", gemm, whole.column, in, fused ? bias : -1);
    parameters_.gradient_done(weight);
    if (fused) parameters_.gradient_done(bias);
  });
  return in_gradient;
}

}  // namespace rehearse::lower
