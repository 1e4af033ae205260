// The layers of a model that is given as a list of them (sim/model/layers.h), inside a unit. A part emits the ops of
// one layer; a sequence runs parts one after the other and decides which of the outputs between them are kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/lower/model/unit.h"
#include "sim/model/layers.h"

namespace rehearse::lower {

// What a part's backward reads of what goes through it.
struct Kept {
  bool input = false, output = false;
};

class LayerPart {
 public:
  virtual ~LayerPart() = default;
  virtual void declare_parameters() {}
  virtual bool has_parameters() const { return false; }
  // `output_stays`: the output lives until backward anyway.
  virtual Kept kept(bool output_stays) const = 0;
  // Whether a recomputation must run it although nobody asks for its output.
  virtual bool restores() const { return false; }
  // x and y live at least as kept() says.
  virtual void declare(BufferId x, BufferId y, bool output_stays) = 0;
  // Writes y; -1, in a recomputation (`again`): nobody asks for it.
  virtual void forward(BufferId y, bool again) = 0;
  // The gradient of x from that of y; -1 without `input_gradient`.
  virtual BufferId backward(BufferId gradient, bool input_gradient) = 0;
};

// `site`: of dropout, a number of its own in the model.
std::unique_ptr<LayerPart> make_layer_part(const UnitScope& scope, const model::Layer& layer, model::Extent in,
                                           const std::string& name, int site);

class LayerSequence {
 public:
  // Names begin with `name`. An empty list gives what it takes.
  LayerSequence(const UnitScope& scope, const std::vector<model::Layer>& list, model::Extent in,
                const std::string& name, int site);

  void declare_parameters();
  bool has_parameters() const;
  bool keeps_input() const;
  // Declares what is between and `out`, named `name`, which lives as `lifetime`; x if the list is empty.
  BufferId declare(BufferId x, const std::string& out, Lifetime lifetime);
  // again: what backward reads is restored, and with `output` what comes out too.
  void forward(bool again, bool output = true);
  BufferId backward(BufferId gradient, bool input_gradient);
  bool empty() const { return parts_.empty(); }

 private:
  const UnitScope scope_;
  std::vector<std::unique_ptr<LayerPart>> parts_;
  std::vector<model::Extent> extents_;  // of each part's output
  std::vector<std::string> names_;
  std::vector<BufferId> outputs_;
  std::vector<bool> kept_;  // of an output: backward reads it
  // ReLU that the kernels of the normalisation before it make, or of the normalisation and sum.
  enum class InNorm : unsigned char { no, norm, norm_and_sum };
  void in_kernel_of_norm(std::size_t part, bool backward) const;
  std::vector<InNorm> in_norm_;
};

// [batch, channels, size, size] or [batch, channels]; of vectors [vectors, batch, channels].
std::vector<std::int64_t> batch_shape(const Context& context, model::Extent extent);

}  // namespace rehearse::lower
