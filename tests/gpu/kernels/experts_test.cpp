// Routers, rows in the order of experts, and grouped products against plain loops in double precision.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaExperts : public CudaTest {
 protected:
  static Values scores(const RouterShape& s, const Floats& logits, std::int64_t token) {
    Values all(at(s.experts));
    double total = 0;
    for (std::int64_t e = 0; e < s.experts; ++e) {
      const double x = logits[at(token * s.experts + e)];
      total += all[at(e)] = s.sigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x);
    }
    if (!s.sigmoid)
      for (double& score : all) score /= total;
    return all;
  }
  // The experts of a token, best first: of the groups with the highest sums of two, or highest, scores.
  static std::vector<std::int32_t> best(const RouterShape& s, const Floats& logits, std::int64_t token) {
    const Values all = scores(s, logits, token);
    const std::int64_t size = s.experts / s.groups;
    std::vector<std::pair<double, std::int64_t>> groups;
    for (std::int64_t g = 0; g < s.groups; ++g) {
      Values own(all.begin() + g * size, all.begin() + (g + 1) * size);
      std::sort(own.rbegin(), own.rend());
      groups.emplace_back(-(own[0] + (s.sigmoid && size > 1 ? own[1] : 0)), g);
    }
    std::sort(groups.begin(), groups.end());
    std::vector<std::int32_t> order;
    for (std::int64_t i = 0; i < s.groups_per_token; ++i)
      for (std::int64_t e = 0; e < size; ++e)
        order.push_back(static_cast<std::int32_t>(groups[at(i)].second * size + e));
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const float x = logits[at(token * s.experts + a)], y = logits[at(token * s.experts + b)];
      return x > y || (x == y && a < b);
    });
    order.resize(at(s.top_k));
    return order;
  }
  static std::vector<std::int32_t> numbers(const Tensor& t) {
    const std::vector<std::byte> bytes = t.bytes();
    std::vector<std::int32_t> all(bytes.size() / sizeof(std::int32_t));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }
  Tensor no_numbers(std::int64_t n) { return raw(std::vector<std::int32_t>(at(n), -7)); }
};

const std::vector<RouterShape>& shapes() {
  static const std::vector<RouterShape> all = {{37, 8, 2, 0, false},       {64, 5, 1, 9, false},
                                               {50, 12, 4, 20, true},      {1, 3, 3, 1, false},
                                               {70, 40, 3, 0, true, 8, 3}, {33, 16, 4, 5, false, 4, 2}};
  return all;
}

TEST_F(CudaExperts, TheGateChoosesAndScales) {
  for (const RouterShape& s : shapes())
    for (const DType type : kTypes) {
      const Floats logits = normal(s.tokens * s.experts, type, 2);
      const Tensor x = given(logits, type), weights = poisoned(s.tokens * s.top_k, DType::f32),
                   again = poisoned(s.tokens * s.top_k, DType::f32);
      const Tensor chosen = no_numbers(s.tokens * s.top_k);
      device().router_gate(s, x.in(), weights.as<float>(), chosen.as<std::int32_t>());
      device().router_weights(s, x.in(), chosen.as<std::int32_t>(), again.as<float>());
      stream().synchronize();
      const std::vector<std::int32_t> made = numbers(chosen);
      Values expected;
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const std::vector<std::int32_t> order = best(s, logits, t);
        const Values all = scores(s, logits, t);
        double total = 0;
        for (const std::int32_t e : order) total += all[at(e)];
        for (std::int64_t k = 0; k < s.top_k; ++k) {
          EXPECT_EQ(made[at(t * s.top_k + k)], order[at(k)]) << "token " << t;
          expected.push_back(all[at(order[at(k)])] / total);
        }
      }
      expect_near(weights, expected);
      expect_near(again, expected);
    }
}

// Of experts that have nearly no score, too.
TEST_F(CudaExperts, GivenChoicesAreWeighedByTheirScores) {
  const RouterShape s{2, 3, 2, 0, false};
  const Tensor x = given({200, 0, 1, -5, 3, 100}, DType::f32), weights = poisoned(4, DType::f32);
  const Tensor chosen = raw(std::vector<std::int32_t>{1, 2, 0, 1});
  device().router_weights(s, x.in(), chosen.as<std::int32_t>(), weights.as<float>());
  stream().synchronize();
  const double e = std::exp(1.0), far = std::exp(-8.0);
  expect_near(weights, {1 / (1 + e), e / (1 + e), far / (1 + far), 1 / (1 + far)});
}

TEST_F(CudaExperts, RowsHaveTheOrderOfChoicesAndTokens) {
  for (const RouterShape& s : shapes()) {
    std::vector<std::int32_t> choices;
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      const std::int32_t first = below(1, static_cast<std::int32_t>(s.experts)).front();
      for (std::int64_t k = 0; k < s.top_k; ++k) choices.push_back(static_cast<std::int32_t>((first + k) % s.experts));
    }
    const Tensor chosen = raw(choices), places = no_numbers(s.tokens * s.top_k),
                 loads = poisoned(s.experts, DType::f32);
    device().router_place(s, chosen.as<std::int32_t>(), places.as<std::int32_t>(), loads.as<float>());
    stream().synchronize();
    std::vector<std::int64_t> load(at(s.experts), 0), next(at(s.experts), 0);
    for (const std::int32_t e : choices) ++load[at(e)];
    std::int64_t row = 0;
    for (std::int64_t e = 0; e < s.experts; ++e) {
      next[at(e)] = row;
      row += s.capacity > 0 ? s.capacity : load[at(e)];
      EXPECT_EQ(loads.read()[at(e)], static_cast<float>(load[at(e)]));
    }
    const std::vector<std::int32_t> made = numbers(places);
    for (std::int64_t k = 0; k < s.top_k; ++k)
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const std::int64_t i = t * s.top_k + k, e = choices[at(i)];
        const bool full = s.capacity > 0 && next[at(e)] == (e + 1) * s.capacity;
        EXPECT_EQ(made[at(i)], full ? -1 : next[at(e)]++) << "token " << t << ", choice " << k;
      }
  }
}

TEST_F(CudaExperts, OwnRowsAreThoseOfOwnExperts) {
  const OwnRows s{400, 3, 4, 4};
  const std::vector<std::int32_t> choices = below(s.tokens * s.top_k, 12);
  const Tensor chosen = raw(choices), places = no_numbers(s.tokens * s.top_k), loads = poisoned(s.own, DType::f32);
  device().place_own_rows(s, chosen.as<std::int32_t>(), places.as<std::int32_t>(), loads.as<float>());
  stream().synchronize();
  const std::vector<std::int32_t> made = numbers(places);
  std::int32_t row = 0;
  for (std::int64_t e = 0; e < s.own; ++e) {
    const std::int32_t before = row;
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (choices[i] == s.first + e) {
        EXPECT_EQ(made[i], row++);
      }
    EXPECT_EQ(loads.read()[at(e)], static_cast<float>(row - before));
  }
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (choices[i] < s.first || choices[i] >= s.first + s.own) {
      EXPECT_EQ(made[i], -1);
    }
}

// Sources one after the other within a slice, and of each its rows by expert.
TEST_F(CudaExperts, ReceivedRowsAreSortedByExpertAndSource) {
  const ReceivedRows s{2 * 700, 6, 2, 3, 4, 2};
  Floats counts(at(s.sources * s.experts));
  for (float& count : counts) count = static_cast<float>(below(1, 70).front());
  const Tensor given_counts = given(counts, DType::f32), places = no_numbers(s.rows),
               loads = poisoned(s.own, DType::f32);
  device().receive_rows(s, given_counts.as<float>(), places.as<std::int32_t>(), loads.as<float>());
  stream().synchronize();
  std::vector<std::int32_t> expected(at(s.rows), -1);
  std::int32_t sorted = 0;
  for (std::int64_t e = 0; e < s.own; ++e) {
    const std::int32_t before = sorted;
    for (std::int64_t source = 0; source < s.sources; ++source) {
      std::int64_t row = source / 2 * 700;
      for (std::int64_t other = source / 2 * 2; other <= source; ++other)
        for (std::int64_t of = 0; of < (other == source ? e : s.own); ++of)
          row += static_cast<std::int64_t>(counts[at(other * s.experts + s.first + of)]);
      for (float i = 0; i < counts[at(source * s.experts + s.first + e)]; ++i) expected[at(row++)] = sorted++;
    }
    EXPECT_EQ(loads.read()[at(e)], static_cast<float>(sorted - before));
  }
  EXPECT_EQ(numbers(places), expected);
}

// Against the derivative of a loss that is linear in weights, with the auxiliary loss beside it.
TEST_F(CudaExperts, TheGatesGradientIsThatOfItsWeights) {
  for (const RouterShape& s : shapes())
    for (const bool with_loads : {false, true}) {
      const Floats logits = normal(s.tokens * s.experts, DType::f32), dw = normal(s.tokens * s.top_k, DType::f32);
      Floats loads(at(s.experts));
      for (float& load : loads) load = static_cast<float>(below(1, 30).front());
      std::vector<std::int32_t> choices;
      for (std::int64_t t = 0; t < s.tokens; ++t)
        for (const std::int32_t e : best(s, logits, t)) choices.push_back(e);
      const Tensor x = given(logits, DType::f32), d = given(dw, DType::f32), chosen = raw(choices),
                   load = given(loads, DType::f32), scale = given({8}, DType::f32),
                   made = poisoned(s.tokens * s.experts, DType::f32);
      device().router_gate_backward(s, 0.03, d.as<float>(), x.in(), chosen.as<std::int32_t>(),
                                    with_loads ? load.as<float>() : nullptr, scale.as<float>(), made.out());
      stream().synchronize();
      Values expected;
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const auto loss = [&](std::int64_t e, double by) {
          Values own(at(s.experts));
          double all = 0, total = 0, sum = 0;
          for (std::int64_t i = 0; i < s.experts; ++i) {
            const double z = logits[at(t * s.experts + i)] + (i == e ? by : 0);
            all += own[at(i)] = s.sigmoid ? 1 / (1 + std::exp(-z)) : std::exp(z);
          }
          for (std::int64_t k = 0; k < s.top_k; ++k) total += own[at(choices[at(t * s.top_k + k)])];
          for (std::int64_t k = 0; k < s.top_k; ++k)
            sum += dw[at(t * s.top_k + k)] * own[at(choices[at(t * s.top_k + k)])] / total;
          for (std::int64_t i = 0; with_loads && i < s.experts; ++i) sum += 8 * 0.03 * loads[at(i)] * own[at(i)] / all;
          return sum;
        };
        constexpr double kBy = 1e-5;
        for (std::int64_t e = 0; e < s.experts; ++e) expected.push_back((loss(e, kBy) - loss(e, -kBy)) / (2 * kBy));
      }
      if (s.top_k > 1 || with_loads) {
        EXPECT_LE(relative_error(made.read(), expected), 1e-4);
      } else {  // the weight of a single choice is 1
        for (const float of_logit : made.read()) EXPECT_NEAR(of_logit, 0, 1e-6);
      }
    }
}

struct Moved {
  PermuteShape shape;
  std::vector<std::int32_t> places;
};
Moved moved(std::int64_t tokens, std::int64_t top_k, std::int64_t rows, std::int64_t cols, unsigned seed) {
  Moved m{{tokens, top_k, rows, cols}, std::vector<std::int32_t>(at(tokens * top_k), -1)};
  std::vector<std::int32_t> all(at(rows));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937(seed));
  for (std::size_t i = 0; i < m.places.size() && i < all.size(); ++i)
    if (i % 5 != 3) m.places[i] = all[i];
  return m;
}

TEST_F(CudaExperts, RowsGoToTheirPlacesAndComeBackWeighed) {
  for (const Moved& m : {moved(40, 2, 90, 24, 1), moved(33, 3, 80, 37, 2), moved(5, 1, 4, 300, 3)})
    for (const DType type : kTypes) {
      const PermuteShape& s = m.shape;
      const Floats x = normal(s.tokens * s.cols, type), y = normal(s.rows * s.cols, type),
                   w = normal(s.tokens * s.top_k, DType::f32);
      const Tensor places = raw(m.places), tokens = given(x, type), rows = given(y, type),
                   weights = given(w, DType::f32), there = poisoned(s.rows * s.cols, type),
                   back = poisoned(s.tokens * s.cols, type), plain = poisoned(s.tokens * s.cols, type),
                   d_rows = poisoned(s.rows * s.cols, type), d_weights = poisoned(s.tokens * s.top_k, DType::f32);
      const auto* p = places.as<std::int32_t>();
      device().permute(s, tokens.in(), p, there.out());
      device().unpermute(s, rows.in(), p, weights.as<float>(), back.out());
      device().unpermute(s, rows.in(), p, nullptr, plain.out());
      device().unpermute_backward(s, tokens.in(), rows.in(), p, weights.as<float>(), d_rows.out(),
                                  d_weights.as<float>());
      stream().synchronize();
      Values to(at(s.rows * s.cols), 0), from(at(s.tokens * s.cols), 0), sums(from), d_to(to),
          dw(at(s.tokens * s.top_k), 0);
      for (std::int64_t i = 0; i < s.tokens * s.top_k; ++i) {
        const std::int64_t row = m.places[at(i)], token = i / s.top_k;
        if (row < 0) continue;
        for (std::int64_t c = 0; c < s.cols; ++c) {
          const double of_token = x[at(token * s.cols + c)], of_row = y[at(row * s.cols + c)];
          to[at(row * s.cols + c)] = of_token;
          from[at(token * s.cols + c)] += w[at(i)] * of_row;
          sums[at(token * s.cols + c)] += of_row;
          d_to[at(row * s.cols + c)] = w[at(i)] * of_token;
          dw[at(i)] += of_token * of_row;
        }
      }
      expect_near(there, to);
      expect_near(back, from);
      expect_near(plain, sums);
      expect_near(d_rows, d_to);
      expect_near(d_weights, dw);
    }
}

// Even groups, and counted ones, some of them empty, with rows to spare.
TEST_F(CudaExperts, GroupedProducts) {
  struct Rows {
    std::int64_t n, k, room;
    Floats loads;
  };
  for (const Rows& r :
       {Rows{70, 40, 3 * 66, {66, 66, 66}}, Rows{33, 130, 200, {5, 0, 131, 1}}, Rows{16, 16, 64, {0, 0}}})
    for (const auto& [type, of_c] : kMixes) {
      if (type == DType::f32 && of_c != DType::f32) continue;
      const auto groups = static_cast<std::int64_t>(r.loads.size());
      const bool even = r.loads.front() * static_cast<float>(groups) == static_cast<float>(r.room);
      GroupedShape s{GroupedPart::forward, groups, r.room, r.n, r.k, false};
      const Floats x = normal(r.room * r.k, type), w = normal(groups * r.n * r.k, type),
                   dy = normal(r.room * r.n, type), before = normal(groups * r.n * r.k, of_c);
      const Tensor xs = given(x, type), ws = given(w, type), dys = given(dy, type), loads = given(r.loads, DType::f32),
                   y = given(Floats(at(r.room * r.n), 0), of_c), dx = given(Floats(at(r.room * r.k), 0), of_c),
                   dw = given(before, of_c);
      const float* counted = even ? nullptr : loads.as<float>();
      device().grouped_gemm(s, xs.in(), ws.in(), counted, y.out());
      s.part = GroupedPart::backward_input;
      device().grouped_gemm(s, dys.in(), ws.in(), counted, dx.out());
      s.part = GroupedPart::backward_weight, s.accumulate = true;
      device().grouped_gemm(s, dys.in(), xs.in(), counted, dw.out());
      stream().synchronize();
      Values to_y(at(r.room * r.n), 0), to_x(at(r.room * r.k), 0), to_w = doubles(before);
      std::int64_t row = 0;
      for (std::int64_t g = 0; g < groups; ++g)
        for (float i = 0; i < r.loads[at(g)]; ++i, ++row)
          for (std::int64_t a = 0; a < r.n; ++a)
            for (std::int64_t b = 0; b < r.k; ++b) {
              const std::size_t of_w = at((g * r.n + a) * r.k + b);
              to_y[at(row * r.n + a)] += static_cast<double>(x[at(row * r.k + b)]) * w[of_w];
              to_x[at(row * r.k + b)] += static_cast<double>(dy[at(row * r.n + a)]) * w[of_w];
              to_w[of_w] += static_cast<double>(dy[at(row * r.n + a)]) * x[at(row * r.k + b)];
            }
      if (row > 0) {
        expect_near(y, to_y);
        expect_near(dx, to_x);
      }
      expect_near(dw, to_w);
    }
}

}  // namespace
}  // namespace rehearse::kernels::cuda
