// Logits and their cross-entropy, from the product that gives the logits to their gradient. Over the tensor group
// classes are split (Shoeybi et al. 2019): the loss needs the maximum and the sum over all of them, two small
// all-reduces instead of gathering the logits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/lower/parallel/parameters.h"
#include "sim/lower/stage.h"

namespace rehearse::lower {

class VocabularyLoss {
 public:
  // Of context.tokens rows of `columns` classes on this rank, of which `valid` over all ranks are no padding; split
  // where the context has a tensor group. `weight`: of each row in the loss. `prefix` begins the names.
  // softcap: logits x become softcap * tanh(x / softcap); 0: they stay. `share`: of the loss in what is trained on.
  VocabularyLoss(const Context& context, RoleBuilder& builder, ParameterStore& parameters, std::string prefix,
                 std::int64_t columns, std::int64_t valid, double weight, double softcap = 0, double share = 1)
      : context_(context),
        builder_(builder),
        parameters_(parameters),
        prefix_(std::move(prefix)),
        columns_(columns),
        valid_(valid),
        weight_(weight),
        softcap_(softcap),
        share_(share) {}

  void declare_buffers();
  BufferId targets() const { return targets_; }  // i32 [rows]
  BufferId logits() const { return logits_; }    // [rows, columns]

  // `product` emits what writes the logits into the buffer it is given; their loss is added to `sum`, f32 [1].
  void forward(BufferId sum, const std::function<void(BufferId)>& product);
  // The gradient of the product's output.
  BufferId backward();

 private:
  bool parallel() const { return context_.groups.tensor >= 0; }
  std::int64_t elements() const { return context_.tokens * columns_; }
  std::vector<std::int64_t> shape() const { return {context_.tokens, columns_}; }
  std::string named(const char* what) const { return prefix_ + what; }
  program::CrossEntropy part(program::CrossEntropyPart part) const;
  bool chain_of_one() const;  // a whole vocabulary through the function of a split one
  // The loss as a chain of kernels (FrameworkProfile::fused_loss): PyTorch's log_softmax and nll_loss; Megatron's
  // function of a split vocabulary, which works in place; DTensor's of one, with a tensor an operation.
  enum class Chain { none, log_softmax, in_place, tensors };
  Chain chain() const;
  // The op's results and `more` tensors of the logits' size that are in use beside them.
  std::vector<program::Operand> with_scratch(std::vector<program::Operand> writes, const std::string& name, int more);
  void emit_loss(BufferId sum);
  void scale(const std::string& name, double by, BufferId logits);
  void cap(BufferId logits);
  void cap_backward(BufferId gradient);

  const Context& context_;
  RoleBuilder& builder_;
  ParameterStore& parameters_;
  std::string prefix_;
  std::int64_t columns_, valid_;
  double weight_, softcap_, share_;
  BufferId targets_ = -1, logits_ = -1, max_ = -1, sums_ = -1, tanh_ = -1;
};

}  // namespace rehearse::lower
