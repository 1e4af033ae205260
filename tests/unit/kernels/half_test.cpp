// Calls with 16-bit operands. On the CPU they are the fp32 call of the widened operands, rounded once, so they are held
// to that bit by bit, for every kind of call, with operands of mixed types; against the references in double precision,
// the large ones agree to 1e-2 (bf16) and 2e-3 (f16) in relative norm.
#include "sim/base/half.h"

#include <cstring>

#include "tests/unit/kernels/kernel_test.h"

namespace rehearse::kernels {
namespace {

constexpr StepValues kStep = {.step = 2, .first_sequence = 3, .lr = 0.01F, .correction1 = 0.3F, .correction2 = 0.2F};

// Memory of one type, with the fp32 numbers that it stands for.
struct Typed {
  DType type;
  std::vector<std::byte> memory;
  Floats wide;

  Typed(DType t, const Floats& values) : type(t), memory(values.size() * 4), wide(values.size()) {
    from_float(t, values.data(), size(), memory.data());
    to_float(t, memory.data(), size(), wide.data());
  }
  std::int64_t size() const { return static_cast<std::int64_t>(wide.size()); }
  In in() const { return {memory.data(), type}; }
  Out out() { return {memory.data(), type}; }
  Floats values() const {
    Floats v(wide.size());
    to_float(type, memory.data(), size(), v.data());
    return v;
  }
};

// What a call reads and writes, in turn as 16 bits and as fp32.
class Operands {
 public:
  Operands(bool wide, DType type, unsigned seed) : wide_(wide), type_(type), random_(seed) {}
  In read(std::int64_t n) { return wide_ ? In(next(n).wide.data()) : next(n).in(); }
  Out write(std::int64_t n) {
    Typed& t = next(n);
    written_.push_back(&t);
    return wide_ ? Out(t.wide.data()) : t.out();
  }
  // Read and written, or written in part.
  Out update(std::int64_t n) { return write(n); }
  float* f32(std::int64_t n) {  // fp32 in both
    float* p = plain_.emplace_back(std::make_unique<Floats>(random_.normal(n)))->data();
    for (std::int64_t i = 0; i < n; ++i) p[i] = std::abs(p[i]) + 0.5F;
    return p;
  }
  const std::int32_t* ids(std::int64_t n, std::int32_t bound) {
    return ids_.emplace_back(std::make_unique<std::vector<std::int32_t>>(random_.below(n, bound)))->data();
  }
  std::uint8_t* mask(std::int64_t n) {
    return masks_.emplace_back(std::make_unique<std::vector<std::uint8_t>>(at(n), std::uint8_t{1}))->data();
  }
  // What was written, as the type stores it.
  std::vector<Floats> results() const {
    std::vector<Floats> all;
    for (const Typed* t : written_) all.push_back(wide_ ? Typed(t->type, t->wide).values() : t->values());
    for (const auto& p : plain_) all.push_back(*p);
    return all;
  }

 private:
  Typed& next(std::int64_t n) {
    // Every third operand is fp32: calls take any mix.
    const DType type = count_++ % 3 == 2 ? DType::f32 : type_;
    return *typed_.emplace_back(std::make_unique<Typed>(type, random_.normal(n)));
  }
  bool wide_;
  DType type_;
  Random random_;
  int count_ = 0;
  std::vector<std::unique_ptr<Typed>> typed_;
  std::vector<Typed*> written_;
  std::vector<std::unique_ptr<Floats>> plain_;
  std::vector<std::unique_ptr<std::vector<std::int32_t>>> ids_;
  std::vector<std::unique_ptr<std::vector<std::uint8_t>>> masks_;
};

struct Call {
  const char* name;
  std::function<void(Device&, Operands&)> make;
};

DropoutSite site() {
  return {.probability = 0.3, .seed = 5, .site = 2, .step = &kStep, .micro_batch = 2};
}
const AttentionShape kHeads{2, 4, 2, 21, 6};
constexpr std::int64_t kQkv = 21 * 2 * 8 * 6, kContext = 21 * 2 * 4 * 6, kScores = 2 * 4 * 21 * 21;
const ConvShape kConv{3, 2, 5, 8, 8, 3, 1, 1};
constexpr std::int64_t kRows = 14, kCols = 37, kN = kRows * kCols;

std::vector<Call> attention_calls() {
  using D = Device;
  using O = Operands;
  return {
      {"flash_forward",
       [](D& d, O& o) { d.flash_forward(kHeads, site(), o.read(kQkv), o.write(kContext), o.f32(168)); }},
      {"flash_backward",
       [](D& d, O& o) {
         const In d_out = o.read(kContext), qkv = o.read(kQkv), out = o.read(kContext);
         d.flash_backward(kHeads, site(), d_out, qkv, out, o.f32(168), o.write(kQkv));
       }},
      {"scores", [](D& d, O& o) { d.attention_scores(kHeads, o.read(kQkv), o.write(kScores)); }},
      {"softmax", [](D& d, O& o) { d.attention_softmax(kHeads, o.read(kScores), o.write(kScores)); }},
      {"attention_dropout",
       [](D& d, O& o) { d.attention_dropout(kHeads, site(), o.read(kScores), o.write(kScores), o.mask(kScores)); }},
      {"context",
       [](D& d, O& o) {
         const In p = o.read(kScores), qkv = o.read(kQkv);
         d.attention_context(kHeads, p, qkv, o.write(kContext));
       }},
      {"context_backward_probs",
       [](D& d, O& o) {
         const In d_out = o.read(kContext), qkv = o.read(kQkv);
         d.attention_context_backward_probs(kHeads, d_out, qkv, o.write(kScores));
       }},
      {"parts_of_d_qkv",
       [](D& d, O& o) {
         const In d_out = o.read(kContext), p = o.read(kScores), qkv = o.read(kQkv);
         const Out d_qkv = o.update(kQkv);
         const auto forget = [&] {  // what the device's own memory holds
           const In x = o.read(kQkv);
           d.scale(kQkv, 0.5F, x, o.write(kQkv));
         };
         d.attention_context_backward_value(kHeads, d_out, p, d_qkv);
         forget();
         d.attention_scores_backward_query(kHeads, p, qkv, d_qkv);
         forget();
         d.attention_scores_backward_key(kHeads, p, qkv, d_qkv);
       }},
      {"attention_dropout_backward",
       [](D& d, O& o) {
         d.attention_dropout_backward(kHeads, 0.3, o.read(kScores), o.mask(kScores), o.write(kScores));
       }},
      {"softmax_backward",
       [](D& d, O& o) {
         const In d_p = o.read(kScores), p = o.read(kScores);
         d.attention_softmax_backward(kHeads, d_p, p, o.write(kScores));
       }},
      {"rope", [](D& d, O& o) { d.rope(kHeads, 0, false, o.update(kQkv)); }},
  };
}

std::vector<Call> row_calls() {
  using D = Device;
  using O = Operands;
  return {
      {"gemm",
       [](D& d, O& o) {
         const In a = o.read(19 * 23), b = o.read(23 * 31), bias = o.read(31);
         d.gemm({19, 31, 23, false, true}, a, b, bias, o.write(19 * 31));
       }},
      {"gemm_accumulate",
       [](D& d, O& o) {
         const In a = o.read(19 * 23), b = o.read(23 * 31);
         d.gemm({19, 31, 23, true, false, true}, a, b, nullptr, o.update(19 * 31));
       }},
      {"layer_norm",
       [](D& d, O& o) {
         const In x = o.read(kN), gamma = o.read(kCols), beta = o.read(kCols);
         d.norm_forward(false, kRows, kCols, 1e-5, x, gamma, beta, o.write(kN), o.f32(2 * kRows));
       }},
      {"rms_norm",
       [](D& d, O& o) {
         const In x = o.read(kN), gamma = o.read(kCols);
         d.norm_forward(true, kRows, kCols, 1e-5, x, gamma, nullptr, o.write(kN), o.f32(kRows));
       }},
      {"norm_backward_input",
       [](D& d, O& o) {
         const In dy = o.read(kN), x = o.read(kN), gamma = o.read(kCols), residual = o.read(kN);
         d.norm_backward_input(false, kRows, kCols, dy, x, o.f32(2 * kRows), gamma, residual, o.write(kN));
       }},
      {"norm_backward_weight",
       [](D& d, O& o) {
         const In dy = o.read(kN), x = o.read(kN);
         const Out d_gamma = o.update(kCols), d_beta = o.update(kCols);
         d.norm_backward_weight(false, kRows, kCols, dy, x, o.f32(2 * kRows), d_gamma, d_beta);
       }},
      {"swiglu", [](D& d, O& o) { d.swiglu_forward(kRows, kCols, o.read(2 * kN), nullptr, o.write(kN)); }},
      {"swiglu_parted",
       [](D& d, O& o) {
         const In gate = o.read(kN), up = o.read(kN);
         d.swiglu_forward(kRows, kCols, gate, up, o.write(kN));
       }},
      {"swiglu_backward",
       [](D& d, O& o) {
         const In dy = o.read(kN), x = o.read(2 * kN);
         d.swiglu_backward(kRows, kCols, dy, x, nullptr, o.write(2 * kN));
       }},
      {"swiglu_parted_backward",
       [](D& d, O& o) {
         const In dy = o.read(kN), gate = o.read(kN), up = o.read(kN);
         d.swiglu_backward(kRows, kCols, dy, gate, up, o.write(2 * kN));
       }},
      {"bias_dropout_add",
       [](D& d, O& o) {
         const In x = o.read(kN), bias = o.read(kCols), residual = o.read(kN);
         d.bias_dropout_add(kRows, kCols, site(), x, bias, residual, o.write(kN), o.mask(kN));
       }},
      {"dropout", [](D& d, O& o) { d.dropout(kRows, kCols, site(), o.read(kN), o.write(kN), o.mask(kN)); }},
      {"bias_grad",
       [](D& d, O& o) {
         const In dy = o.read(kN);
         d.bias_grad(kRows, kCols, dy, o.update(kCols));
       }},
      {"add_position",
       [](D& d, O& o) {
         const In x = o.read(kN), table = o.read(20 * kCols);
         d.add_position(kRows, kCols, 2, 5, x, table, o.write(kN));
       }},
      {"position_grad",
       [](D& d, O& o) {
         const In dy = o.read(kN);
         d.position_grad(kRows, kCols, 2, 5, dy, o.update(20 * kCols));
       }},
      {"embedding",
       [](D& d, O& o) { d.embedding_forward(kRows, 9, kCols, 4, o.ids(kRows, 17), o.read(9 * kCols), o.write(kN)); }},
      {"embedding_backward",
       [](D& d, O& o) {
         const In dy = o.read(kN);
         d.embedding_backward(kRows, 9, kCols, 4, dy, o.ids(kRows, 17), o.update(9 * kCols));
       }},
      {"cross_entropy",
       [](D& d, O& o) {
         d.cross_entropy_forward(kRows, kCols, 33, 0.25, o.read(kN), o.ids(kRows, 33), o.f32(2 * kRows), o.f32(1));
       }},
      {"cross_entropy_parts",
       [](D& d, O& o) {
         const In x = o.read(kN);
         const std::int32_t* ids = o.ids(kRows, 90);
         float *max = o.f32(kRows), *sums = o.f32(2 * kRows);
         d.cross_entropy_max(kRows, kCols, 90, kCols, x, max);
         d.cross_entropy_exp_sum(kRows, kCols, 90, kCols, x, ids, max, sums);
         d.cross_entropy_loss(kRows, 0.25, sums, o.f32(1));
       }},
      {"cross_entropy_backward",
       [](D& d, O& o) {
         const In x = o.read(kN);
         const float* stats = o.f32(2 * kRows);
         d.cross_entropy_backward(kRows, kCols, 33, 0, 0.25, o.f32(2), x, o.ids(kRows, 33), stats, 2, stats + 1, 2,
                                  o.write(kN));
       }},
      {"mse",
       [](D& d, O& o) {
         const In x = o.read(kN);
         d.mse_forward(kN, 0.25, x, o.f32(kN), o.f32(1));
       }},
      {"mse_backward",
       [](D& d, O& o) {
         const In x = o.read(kN);
         const float* target = o.f32(kN);
         d.mse_backward(kN, 0.25, o.f32(2), x, target, o.write(kN));
       }},
      {"conv",
       [](D& d, O& o) {
         const In x = o.read(3 * 2 * 64), w = o.read(5 * 2 * 9), bias = o.read(5);
         d.conv_forward(kConv, x, w, bias, o.write(3 * 5 * 64));
       }},
      {"conv_backward_input",
       [](D& d, O& o) {
         const In dy = o.read(3 * 5 * 64), w = o.read(5 * 2 * 9);
         d.conv_backward_input(kConv, dy, w, o.write(3 * 2 * 64));
       }},
      {"conv_backward_weight",
       [](D& d, O& o) {
         const In dy = o.read(3 * 5 * 64), x = o.read(3 * 2 * 64);
         const Out dw = o.update(5 * 2 * 9), d_bias = o.update(5);
         d.conv_backward_weight(kConv, dy, x, dw, d_bias);
       }},
      {"pool",
       [](D& d, O& o) {
         std::vector<std::int32_t> argmax(6 * 16);
         d.pool_forward(3, 2, 8, 8, 2, o.read(6 * 64), o.write(6 * 16), argmax.data());
         d.pool_backward(3, 2, 8, 8, 2, o.read(6 * 16), argmax.data(), o.write(6 * 64));
       }},
  };
}

// Long enough for several pieces, the last of them odd.
constexpr std::int64_t kLong = 3 * 65536 * 2 + 4321;

std::vector<Call> element_calls() {
  using D = Device;
  using O = Operands;
  return {
      {"add",
       [](D& d, O& o) {
         const In a = o.read(kLong), b = o.read(kLong);
         d.add(kLong, a, b, o.write(kLong));
       }},
      {"accumulate",
       [](D& d, O& o) {
         const In x = o.read(kLong);
         d.accumulate(kLong, x, o.update(kLong));
       }},
      {"copy",
       [](D& d, O& o) {
         const In x = o.read(kLong), y = o.read(kLong), z = o.read(kLong);  // z is fp32
         d.copy(kLong, x, o.write(kLong));
         d.copy(kLong, z, o.write(kLong));
         d.copy(kLong, y, o.write(kLong));
       }},
      {"fill",
       [](D& d, O& o) {
         d.fill(kLong, 0.3F, o.write(kLong));
         d.fill(kLong - 1, 0.7F, o.update(kLong));
       }},
      {"scale", [](D& d, O& o) { d.scale(kLong, 0.3F, o.read(kLong), o.write(kLong)); }},
      {"gelu", [](D& d, O& o) { d.activation_forward(Unary::gelu, kLong, o.read(kLong), o.write(kLong)); }},
      {"gelu_backward",
       [](D& d, O& o) {
         const In dy = o.read(kLong), x = o.read(kLong);
         d.activation_backward(Unary::gelu, kLong, dy, x, o.write(kLong));
       }},
      {"dropout_backward",
       [](D& d, O& o) { d.dropout_backward(kLong, 0.3, o.read(kLong), o.mask(kLong), o.write(kLong)); }},
      {"sum_squares", [](D& d, O& o) { d.sum_squares(kLong, o.read(kLong), o.f32(1)); }},
      {"adamw",
       [](D& d, O& o) {
         const AdamW adam{0.9, 0.95, 1e-6, 0.1, &kStep};
         const In grad = o.read(kLong);
         const Out param = o.update(kLong);
         float *m = o.f32(kLong), *v = o.f32(kLong);
         d.adamw(kLong, adam, grad, o.f32(1), param, nullptr, m, v);
       }},
      {"sgd",
       [](D& d, O& o) {
         const In grad = o.read(kLong);
         const Out param = o.update(kLong);
         d.sgd(kLong, {0.9, 0.1, &kStep}, grad, o.f32(1), param, nullptr, o.f32(kLong));
       }},
  };
}

class HalfTest : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Threads, HalfTest, testing::Values(1, 3));

TEST_P(HalfTest, EveryCallIsTheFp32CallRoundedOnce) {
  for (const auto& calls : {attention_calls(), row_calls(), element_calls()})
    for (const Call& call : calls)
      for (const DType type : {DType::bf16, DType::f16}) {
        // Sums over all elements go piece by piece: in double, so another order shows in the last bit at most.
        const bool sum = std::strcmp(call.name, "sum_squares") == 0;
        Operands half(false, type, 7), wide(true, type, 7);
        call.make(*device, half);
        call.make(*device, wide);
        const auto actual = half.results(), expected = wide.results();
        ASSERT_EQ(actual.size(), expected.size());
        for (std::size_t i = 0; i < actual.size(); ++i) {
          ASSERT_EQ(actual[i].size(), expected[i].size());
          for (std::size_t k = 0; k < actual[i].size(); ++k) {
            if (sum)
              ASSERT_FLOAT_EQ(actual[i][k], expected[i][k]);
            else
              ASSERT_EQ(actual[i][k], expected[i][k]) << call.name << " " << name_of(type) << " " << i << " at " << k;
          }
        }
      }
}

TEST_P(HalfTest, AgreesWithTheReferences) {
  for (const auto& [type, tolerance] : {std::pair{DType::bf16, 1e-2}, {DType::f16, 2e-3}}) {
    const Gemm g{65, 130, 257, true, false};
    const Typed a(type, random.normal(g.k * g.m)), b(type, random.normal(g.k * g.n)), bias(type, random.normal(g.n));
    Typed c(type, poisoned(g.m * g.n));
    device->gemm(g, a.in(), b.in(), bias.in(), c.out());
    EXPECT_LE(relative_error(c.values(), reference::gemm(g, doubles(a.wide), doubles(b.wide), doubles(bias.wide), {})),
              tolerance);

    const AttentionShape s{2, 4, 2, 150, 16};
    const Typed qkv(type, random.normal(150 * 2 * 8 * 16));
    Typed out(type, poisoned(150 * 2 * 4 * 16));
    Floats logsumexp = poisoned(150 * 2 * 4);
    device->flash_forward(s, site(), qkv.in(), out.out(), logsumexp.data());
    const auto attended = reference::attention(s, site(), doubles(qkv.wide));
    EXPECT_LE(relative_error(out.values(), attended.out), tolerance);
    EXPECT_LE(relative_error(logsumexp, attended.logsumexp), kTolerance);

    const Typed x(type, random.normal(40 * 129)), gamma(type, random.normal(129)), beta(type, random.normal(129));
    Typed y(type, poisoned(40 * 129));
    Floats stats = poisoned(80);
    device->norm_forward(false, 40, 129, 1e-5, x.in(), gamma.in(), beta.in(), y.out(), stats.data());
    EXPECT_LE(relative_error(
                  y.values(),
                  reference::norm(false, 40, 129, 1e-5, doubles(x.wide), doubles(gamma.wide), doubles(beta.wide)).y),
              tolerance);
    device->activation_forward(Unary::gelu, 40 * 129, x.in(), y.out());
    EXPECT_LE(relative_error(y.values(), reference::activation(Unary::gelu, doubles(x.wide))), tolerance);
  }
}

// Given a master copy the parameter is its rounding, and the update is that of the copy in fp32.
TEST_P(HalfTest, OptimizersKeepAnFp32Copy) {
  const std::int64_t n = 70'001;
  const float half = 0.5F;
  const AdamW adam{0.9, 0.95, 1e-6, 0.1, &kStep};
  const Sgd sgd{0.9, 0.1, &kStep};
  for (const DType type : {DType::bf16, DType::f16}) {
    const Typed grad(type, random.normal(n));
    const Floats start = random.normal(n);
    for (const bool is_adam : {true, false}) {
      Typed param(type, start);
      Floats master = start, alone = start, m(at(n), 0.1F), v(at(n), 0.2F), m2 = m, v2 = v;
      if (is_adam) {
        device->adamw(n, adam, grad.in(), &half, param.out(), master.data(), m.data(), v.data());
        device->adamw(n, adam, grad.wide.data(), &half, alone.data(), nullptr, m2.data(), v2.data());
      } else {
        device->sgd(n, sgd, grad.in(), &half, param.out(), master.data(), m.data());
        device->sgd(n, sgd, grad.wide.data(), &half, alone.data(), nullptr, m2.data());
      }
      EXPECT_EQ(master, alone);
      EXPECT_EQ(m, m2);
      EXPECT_EQ(v, v2);
      EXPECT_EQ(param.values(), Typed(type, master).values());
    }
  }
}

TEST_P(HalfTest, ACoefficientThatIsNotANumberChangesNothing) {
  const float skip = std::numeric_limits<float>::quiet_NaN();
  const Floats grad = random.normal(100), start = random.normal(100);
  Floats master = start, m = grad, v = grad;
  Typed param(DType::f16, start);
  const Floats before = param.values();
  device->adamw(100, {0.9, 0.95, 1e-6, 0.1, &kStep}, grad.data(), &skip, param.out(), master.data(), m.data(),
                v.data());
  device->sgd(100, {0.9, 0.1, &kStep}, grad.data(), &skip, param.out(), master.data(), m.data());
  EXPECT_EQ(master, start);
  EXPECT_EQ(m, grad);
  EXPECT_EQ(v, grad);
  EXPECT_EQ(param.values(), before);
}

TEST_P(HalfTest, ClippingUndoesTheLossScale) {
  const auto coefficient = [&](double max_norm, float sum, const float* scale) {
    float c = -1;
    device->clip_coefficient(max_norm, &sum, scale, &c);
    return c;
  };
  const float scale[] = {1024, 7};
  EXPECT_FLOAT_EQ(coefficient(1, 16, nullptr), 1 / (4 + 1e-6F));
  EXPECT_EQ(coefficient(8, 16, nullptr), 1);
  EXPECT_EQ(coefficient(0, 16, nullptr), 1);
  // Gradients of norm 4, scaled by 1024.
  EXPECT_FLOAT_EQ(coefficient(1, 16 * 0x1p20F, scale), 1 / (4 + 1e-6F) / 1024);
  EXPECT_EQ(coefficient(8, 16 * 0x1p20F, scale), 0x1p-10F);
  EXPECT_EQ(coefficient(0, 16 * 0x1p20F, scale), 0x1p-10F);
  const float none[] = {0, 0};
  EXPECT_EQ(coefficient(1, 0, none), 0);  // no target counts
  EXPECT_TRUE(std::isnan(coefficient(1, std::numeric_limits<float>::infinity(), scale)));
  EXPECT_TRUE(std::isnan(coefficient(0, std::numeric_limits<float>::quiet_NaN(), nullptr)));
}

TEST_P(HalfTest, TheLossScaleHalvesOnOverflowAndDoublesAfterItsInterval) {
  const float good = 0.5F, skip = std::numeric_limits<float>::quiet_NaN();
  float state[] = {1024, 0};
  const auto update = [&](const float& coefficient) {
    LossScaleRule rule;
    rule.interval = 3;
    device->update_loss_scale(rule, &coefficient, state);
    return std::pair{state[0], state[1]};
  };
  EXPECT_EQ(update(good), (std::pair{1024.0F, 1.0F}));
  EXPECT_EQ(update(good), (std::pair{1024.0F, 2.0F}));
  EXPECT_EQ(update(skip), (std::pair{512.0F, 0.0F}));
  EXPECT_EQ(update(good), (std::pair{512.0F, 1.0F}));
  EXPECT_EQ(update(good), (std::pair{512.0F, 2.0F}));
  EXPECT_EQ(update(good), (std::pair{1024.0F, 0.0F}));
}

// A sum of fp16 gradients that overflowed is not finite, whatever else it holds.
TEST_P(HalfTest, OneOverflowShowsInTheSumOfSquares) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Floats x = random.normal(200'001);
    x[150'000] = std::numeric_limits<float>::infinity();
    const Typed grad(type, x);
    float sum = 0;
    device->sum_squares(200'001, grad.in(), &sum);
    EXPECT_FALSE(std::isfinite(sum));
  }
}

}  // namespace
}  // namespace rehearse::kernels
