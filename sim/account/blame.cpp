// See blame.h.
#include "sim/account/blame.h"

namespace rehearse::account {

using program::Blame;
using result::Share;

Share share_of(Blame blame) {
  switch (blame) {
    case Blame::tensor:
      return Share::exposed_tensor;
    case Blame::context:
      return Share::exposed_context;
    case Blame::expert:
      return Share::exposed_expert;
    case Blame::data:
      return Share::exposed_data;
    case Blame::pipeline:
      return Share::exposed_pipeline;
    case Blame::host:
      return Share::host;
    case Blame::input:
      return Share::exposed_input;
    case Blame::optimizer:
      return Share::optimizer;
    case Blame::other:
      return Share::other;
  }
  return Share::other;
}

}  // namespace rehearse::account
