// Shapes of the optimizers that update a tensor by what is known of all of it (sim/program/optimizer_ops.h has the
// rules), of tensors of which a rank may have some elements alone.
#pragma once

#include <cstdint>

namespace rehearse::kernels {

struct StepValues;

// A tensor [rows, cols], or with rows = 0 one of `cols` elements. lr and the number of the step, from 0, are *step's.
struct Adafactor {
  std::int64_t rows = 0, cols = 0;
  double weight_decay = 0;
  const StepValues* step = nullptr;  // device memory
};
// Of a tensor the elements [begin, end) of a flat range, of this rank's part of it those from `first` on. The part
// has own_cols columns, of `cols` of a matrix of `rows`, and of its rows runs of `block`, which ranks have in turn
// (block 0: all rows); it is that of the place-th of `parts` ranks. rows = 0: no matrix. `whole`: elements of the whole
// tensor. means, sums: where the tensor's begin. `counted`: whether sums over all ranks have those of this one.
struct AdafactorTensor {
  std::int64_t begin = 0, end = 0, first = 0;
  std::int64_t rows = 0, cols = 0, own_cols = 0, block = 0, parts = 1, place = 0;
  std::int64_t whole = 0, means = 0, sums = 0;
  bool counted = true;
};

// A tensor's elements in the flat range, and whether its squares are counted here.
struct LambTensor {
  std::int64_t begin = 0, end = 0;
  bool counted = true;
};
struct Lamb {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0;
  const StepValues* step = nullptr;  // device memory
};

}  // namespace rehearse::kernels
