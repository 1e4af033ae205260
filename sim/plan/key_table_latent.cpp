// The keys of the scenario's `model:` mapping that only models with latent attention have; see key_table.cpp. Names are
// those of DeepSeek's config.json.
#include "sim/model/model.h"
#include "sim/plan/keys.h"

namespace rehearse::plan::detail {

namespace {

constexpr std::string_view kFamilies = "llama moe";

}  // namespace

std::vector<Key> latent_attention_keys() {
  return {
      {.path = "model.kv_lora_rank",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1 << 20,
       .families = kFamilies,
       .meaning = "width of the latent that keys and values are made of: multi-head latent attention, as DeepSeek-V2 "
                  "and V3 have it; 0: keys and values come from the token itself",
       .example = "512",
       .related = "model.q_lora_rank model.qk_nope_head_dim model.qk_rope_head_dim model.v_head_dim",
       .field = &model::Model::kv_lora_rank},
      {.path = "model.q_lora_rank",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1 << 20,
       .families = kFamilies,
       .meaning = "latent attention: width of the latent that queries are made of; 0: they come from the token itself",
       .example = "1536",
       .related = "model.kv_lora_rank",
       .field = &model::Model::q_lora_rank},
      {.path = "model.qk_nope_head_dim",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required with kv_lora_rank",
       .min = 1,
       .max = 1 << 16,
       .families = kFamilies,
       .meaning = "latent attention: columns of a head's query and key that are not rotated",
       .example = "128",
       .related = "model.kv_lora_rank model.qk_rope_head_dim",
       .field = &model::Model::qk_nope_head_dim},
      {.path = "model.qk_rope_head_dim",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required with kv_lora_rank",
       .min = 2,
       .max = 1 << 16,
       .families = kFamilies,
       .meaning = "latent attention: columns of a head's query and key that are rotated by position; those of keys are "
                  "the same for all heads",
       .example = "64",
       .related = "model.kv_lora_rank model.qk_nope_head_dim",
       .field = &model::Model::qk_rope_head_dim},
      {.path = "model.v_head_dim",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required with kv_lora_rank",
       .min = 1,
       .max = 1 << 16,
       .families = kFamilies,
       .meaning = "latent attention: width of a head's value",
       .example = "128",
       .related = "model.kv_lora_rank model.head_dim",
       .field = &model::Model::v_head_dim},
  };
}

}  // namespace rehearse::plan::detail
