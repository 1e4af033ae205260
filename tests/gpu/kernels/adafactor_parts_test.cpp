// Adafactor's update of tensors in parts: cut into ranges, and matrices into columns or turns of rows, as ranks have
// them, with the sums added up, they become what the update of whole tensors makes of them.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/gpu/kernels/cuda_test.h"

namespace rehearse::kernels::cuda {
namespace {

class CudaAdafactorParts : public CudaTest {};

// Of a tensor: which of its elements a rank has, in the order in which it has them.
struct Part {
  AdafactorTensor tensor;
  std::vector<std::size_t> elements;
};

std::vector<Part> parts_of(std::int64_t rows, std::int64_t cols, const std::string& kind) {
  std::vector<Part> parts;
  const std::int64_t n = (rows > 0 ? rows : 1) * cols;
  for (std::int64_t place = 0; place < 2; ++place) {
    AdafactorTensor t;
    t.rows = rows, t.cols = t.own_cols = cols, t.whole = n;
    if (kind == "ranges") {  // cut amid a row
      const std::int64_t middle = n / 2 + 3;
      t.first = place * middle;
      Part p{t, {}};
      for (std::int64_t i = t.first; i < (place == 0 ? middle : n); ++i) p.elements.push_back(at(i));
      parts.push_back(p);
      continue;
    }
    t.parts = 2, t.place = place;
    Part p{t, {}};
    if (kind == "columns") {
      p.tensor.own_cols = cols / 2;
      for (std::int64_t i = 0; i < n; ++i)
        if (i % cols / (cols / 2) == place) p.elements.push_back(at(i));
    } else {  // runs of three rows by turns
      p.tensor.block = 3;
      for (std::int64_t i = 0; i < n; ++i)
        if (i / cols / 3 % 2 == place) p.elements.push_back(at(i));
    }
    parts.push_back(p);
  }
  return parts;
}

TEST_F(CudaAdafactorParts, AddUpToWholeTensors) {
  struct Shape {
    std::int64_t rows, cols;
    const char* kind;
  };
  for (const Shape& shape :
       {Shape{13, 38, "ranges"}, Shape{13, 38, "columns"}, Shape{12, 21, "turns"}, Shape{0, 9001, "ranges"}})
    for (const DType type : kTypes) {
      const std::int64_t n = std::max<std::int64_t>(1, shape.rows) * shape.cols;
      std::vector<Part> parts = parts_of(shape.rows, shape.cols, shape.kind);
      const std::int64_t kept = shape.rows > 0 ? shape.rows + shape.cols : n, before = 5;  // elements of another tensor
      const Floats start = normal(n, DType::f32);
      const Tensor param = given(start, type), master = given(start, DType::f32),
                   row = given(Floats(at(std::max<std::int64_t>(1, shape.rows)), 0), DType::f32),
                   col = given(Floats(at(shape.cols), 0), DType::f32), coefficient = given({0.7F}, DType::f32);
      std::vector<Tensor> values, masters, means;
      for (Part& p : parts) {
        p.tensor.begin = before, p.tensor.end = before + static_cast<std::int64_t>(p.elements.size());
        p.tensor.means = 2, p.tensor.sums = 3;
        Floats own(at(p.tensor.end), 1);
        for (std::size_t i = 0; i < p.elements.size(); ++i) own[at(before) + i] = start[p.elements[i]];
        values.push_back(given(own, type));
        masters.push_back(given(own, DType::f32));
        means.push_back(given(Floats(at(2 + kept), 0), DType::f32));
      }
      for (std::int64_t step = 0; step < 3; ++step) {
        const Tensor of_step = raw(std::vector<StepValues>{{.step = step, .lr = 0.02F}});
        const Floats grad = normal(n, type);
        const Tensor whole_grad = given(grad, type);
        const Adafactor rule{shape.rows, shape.cols, 0.1, of_step.as<StepValues>()};
        const bool half = type != DType::f32;
        device().adafactor(rule, whole_grad.in(), coefficient.as<float>(), param.out(),
                           half ? master.as<float>() : nullptr, shape.rows > 0 ? row.as<float>() : nullptr,
                           col.as<float>());
        std::vector<Tensor> grads;
        Floats sums(at(3 + kept), 0), squares(1, 0);
        for (const Part& p : parts) {
          Floats own(at(p.tensor.end), 100);
          for (std::size_t i = 0; i < p.elements.size(); ++i) own[at(before) + i] = grad[p.elements[i]];
          grads.push_back(given(own, type));
          const Tensor made = poisoned(3 + kept, DType::f32);
          device().adafactor_sums(p.tensor.end, {&p.tensor, 1}, grads.back().in(), coefficient.as<float>(), 3 + kept,
                                  made.as<float>());
          stream().synchronize();
          for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += made.read()[i];
        }
        const Tensor all_sums = given(sums, DType::f32);
        for (std::size_t r = 0; r < parts.size(); ++r) {
          const Tensor made = poisoned(1, DType::f32);
          device().adafactor_squares(parts[r].tensor.end, rule, {&parts[r].tensor, 1}, grads[r].in(),
                                     coefficient.as<float>(), shape.rows > 0 ? all_sums.as<float>() : nullptr,
                                     means[r].as<float>(), made.as<float>());
          stream().synchronize();
          squares[0] += made.read()[0];
        }
        const Tensor all_squares = given(squares, DType::f32);
        for (std::size_t r = 0; r < parts.size(); ++r)
          device().adafactor_apply(parts[r].tensor.end, rule, {&parts[r].tensor, 1}, grads[r].in(),
                                   coefficient.as<float>(), means[r].as<float>(), all_squares.as<float>(),
                                   values[r].out(), half ? masters[r].as<float>() : nullptr);
        stream().synchronize();
      }
      const Floats expected = (type == DType::f32 ? param : master).read(), rounded = param.read();
      for (std::size_t r = 0; r < parts.size(); ++r) {
        const Floats got = (type == DType::f32 ? values[r] : masters[r]).read(), low = values[r].read();
        Values of_part, of_low;
        for (const std::size_t e : parts[r].elements) of_part.push_back(expected[e]), of_low.push_back(rounded[e]);
        EXPECT_LE(relative_error(Floats(got.begin() + before, got.end()), of_part), 1e-5) << shape.kind;
        EXPECT_LE(relative_error(Floats(low.begin() + before, low.end()), of_low), tolerance(type)) << shape.kind;
        for (std::int64_t i = 0; i < before; ++i) EXPECT_EQ(got[at(i)], 1) << "another tensor's";
      }
    }
}

}  // namespace
}  // namespace rehearse::kernels::cuda
