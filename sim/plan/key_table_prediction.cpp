// The keys of the scenario's `model:` mapping for multi-token prediction; see key_table.cpp. Names are Megatron-Core's
// (mtp_num_layers, mtp_loss_scaling_factor) as DeepSeek-AI 2024 (arXiv 2412.19437, section 2.2) calls what they say.
#include "sim/model/model.h"
#include "sim/plan/keys.h"

namespace rehearse::plan::detail {

std::vector<Key> prediction_keys() {
  return {
      {.path = "model.mtp_depth",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 16,
       .families = "llama moe",
       .meaning = "multi-token prediction: so many modules behind the last layer, of which module k predicts the token "
                  "k + 1 places on: norms of the hidden state before it and of the embedding of the token k places on, "
                  "a product of both, a layer like the last one and a norm; table and head are the model's",
       .example = "1",
       .related = "model.mtp_loss_weight model.layers",
       .field = &model::Model::mtp_depth,
       .in_result = true},
      {.path = "model.mtp_loss_weight",
       .type = KeyType::number,
       .fallback = "0.3",
       .min = 0,
       .max = 1e6,
       .families = "llama moe",
       .meaning = "multi-token prediction: weight of the mean of the modules' losses in the loss, which is shown with "
                  "them (DeepSeek-V3: 0.3 for its first 10 trillion tokens, then 0.1)",
       .example = "0.1",
       .related = "model.mtp_depth",
       .field = &model::Model::mtp_loss_weight},
  };
}

}  // namespace rehearse::plan::detail
