// A network of maps trained on one device, written plainly: double precision, loops over every pixel and tap, all
// examples of a batch at once, and a tape of derivatives. It shares with lowering, kernels and the Performer only the
// list of layers and the first values. Parameters have the names of a lowered program. Of layers it has those that a
// residual network with groups and squeeze-and-excitation is made of, and silu.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/model/layers.h"
#include "sim/program/program.h"
#include "tests/numerics/plain_tape.h"

namespace rehearse::numerics {

class PlainMaps : public PlainParameters {
 public:
  // The first values of a parameter of n elements.
  using Draw = std::function<std::vector<float>(program::Init::Kind kind, double width, const std::string& name,
                                                std::int64_t n)>;
  PlainMaps(const std::vector<model::Layer>& list, model::Extent in, const Draw& draw);

  // The mean cross-entropy of images [example][channel][row][column] and their labels; replaces the gradients.
  double loss_and_gradients(const std::vector<std::vector<float>>& images, const std::vector<std::int32_t>& labels);
  // SGD with momentum, as torch.optim.SGD.
  void step(double lr, double momentum);

 private:
  void declare(const std::vector<model::Layer>& list, model::Extent in, const std::string& name, const Draw& draw);
  // Row i of a matrix is example i.
  M run(PlainTape& tape, Used& use, const std::vector<model::Layer>& list, model::Extent in, M x,
        const std::string& name);

  std::vector<model::Layer> list_;
  model::Extent in_;
};

}  // namespace rehearse::numerics
