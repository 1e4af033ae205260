// The latent in which experts compute (experts.h).
#include "sim/lower/model/experts.h"

namespace rehearse::lower {

void ExpertBranch::declare_latent() {
  if (!gathers())
    latent_sum_ = s_.builder.activation(name_ + ".latent_sum", c_.compute, {tokens(), columns()},
                                        s_.of_product_input(s_.restored()));
}

BufferId ExpertBranch::from_latent() {
  const BufferId out = workspace(name_ + ".from_latent", {tokens(), m_.hidden});
  latent_->forward(name_ + ".from_latent", latent_sum_, from_latent_, out);
  return out;
}

BufferId ExpertBranch::from_latent_backward(BufferId d_out) {
  return latent_->backward(name_ + ".from_latent", d_out, latent_sum_, from_latent_, true);
}

BufferId ExpertBranch::to_latent_backward(BufferId d_latent) {
  return latent_->backward(name_ + ".to_latent", d_latent, input_, to_latent_, true);
}

}  // namespace rehearse::lower
