#include "sim/lower/parallel/whole_products.h"

#include <vector>

namespace rehearse::lower {

using program::Gemm;

void WholeProducts::forward(const std::string& name, BufferId in, const Weight& weight, BufferId out) {
  parameters_.cast_weight(weight.id);
  Gemm gemm{context_.local_tokens, weight.n, weight.k, 1};
  gemm.transpose_b = true;
  if (!fp8_.on()) {
    builder_.op(name + ".forward", gemm, context_.compute, {{in}, {parameters_.value(weight.id)}}, {{out}});
    lora_.forward(name, weight.id, in, out);
    return;
  }
  const BufferId narrow = fp8_.input(name, in, false, weight.k);
  std::vector<Operand> reads{{narrow}, {parameters_.fp8_row(weight.id)}};
  parameters_.fp8_scales().of_product(reads);
  builder_.op(name + ".forward", gemm, builder_.buffer(narrow).dtype, reads, {{out}});
}

BufferId WholeProducts::backward(const std::string& name, BufferId d_out, BufferId in, const Weight& weight,
                                 bool input_gradient) {
  const std::int64_t rows = context_.local_tokens;
  const BufferId d_input =
      input_gradient ? builder_.workspace(builder_.here("d_" + name + ".input"), context_.compute, {rows, weight.k})
                     : -1;
  Fp8Operands::Pair out{d_out, d_out};
  BufferId by_columns = parameters_.value(weight.id);
  if (fp8_.on()) {
    out = fp8_.gradient("d_" + name + ".out", d_out, false, weight.n);
    fp8_.keep_input(in);
    by_columns = parameters_.fp8_column(weight.id);
  }
  if (input_gradient) {
    std::vector<Operand> reads{{out.row}, {by_columns}};
    parameters_.fp8_scales().of_product(reads);
    builder_.op(name + ".backward_input", Gemm{rows, weight.k, weight.n, 1},
                fp8_.on() ? builder_.buffer(out.row).dtype : context_.compute, reads, {{d_input}});
  }
  lora_.backward(name, weight.id, d_out, d_input);
  builder_.weight_part([&] {
    Gemm gemm{weight.n, weight.k, rows, 1};
    gemm.transpose_a = true;
    BufferId read = in;
    if (fp8_.on())
      read = fp8_.by_columns(name + ".input", in, false, fp8_.kept_input(name + ".input", in, false, weight.k));
    parameters_.weight_gradient(weight.id, name + ".backward_weight", gemm, out.column, read);
    parameters_.gradient_done(weight.id);
    lora_.weight_gradients(name, weight.id, in);
  });
  return d_input;
}

}  // namespace rehearse::lower
