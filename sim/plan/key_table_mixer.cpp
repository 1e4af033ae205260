// The keys of the scenario's `model:` mapping that only models with layers of one branch have, Mamba-2 mixers among
// them; see key_table.cpp.
#include "sim/model/model.h"
#include "sim/plan/keys.h"

namespace rehearse::plan::detail {

namespace {

constexpr std::string_view kMixerFamilies = "llama moe";

}  // namespace

std::vector<Key> mixer_keys() {
  return {
      {.path = "model.layer_pattern",
       .type = KeyType::text,
       .origin = Default::derived,
       .fallback = "none",
       .families = kMixerFamilies,
       .meaning = "layers of one branch each, a letter for each of `layers`, as Megatron-LM's hybrid models have them: "
                  "`M` a Mamba-2 mixer, `*` attention, `-` a feed-forward layer, `E` experts (moe); without it every "
                  "layer is attention and a feed-forward layer",
       .example = "\"M-M*-M-\"",
       .related = "model.layers model.mamba_heads model.position",
       .field = &model::Model::layer_pattern},
      {.path = "model.mtp_pattern",
       .type = KeyType::text,
       .origin = Default::derived,
       .fallback = "required with layer_pattern and mtp_depth",
       .families = kMixerFamilies,
       .meaning = "layers of one branch of each module of multi-token prediction, in letters as of `layer_pattern` "
                  "(Megatron-LM's `--mtp-hybrid-override-pattern`)",
       .example = "\"*E\"",
       .related = "model.layer_pattern model.mtp_depth",
       .field = &model::Model::mtp_pattern},
      {.path = "model.mamba_heads",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "required where layer_pattern has an M",
       .min = 1,
       .max = 1 << 20,
       .families = kMixerFamilies,
       .meaning = "heads of a Mamba-2 mixer, each with a state of its own",
       .example = "128",
       .related = "model.mamba_head_dim model.mamba_groups plan.tensor",
       .field = &model::Model::mamba_heads},
      {.path = "model.mamba_head_dim",
       .type = KeyType::integer,
       .fallback = "64",
       .min = 1,
       .max = 1 << 16,
       .families = kMixerFamilies,
       .meaning = "channels of a mixer's head",
       .example = "64",
       .related = "model.mamba_heads",
       .field = &model::Model::mamba_head_dim},
      {.path = "model.mamba_groups",
       .type = KeyType::integer,
       .fallback = "8",
       .min = 1,
       .max = 1 << 20,
       .families = kMixerFamilies,
       .meaning =
           "groups of a mixer's heads; those of a group write to and read from their states alike (B and C), and "
           "have one norm",
       .example = "8",
       .related = "model.mamba_heads plan.tensor",
       .field = &model::Model::mamba_groups},
      {.path = "model.mamba_state",
       .type = KeyType::integer,
       .fallback = "128",
       .min = 1,
       .max = 1 << 16,
       .families = kMixerFamilies,
       .meaning = "columns of a state, of which a head has `mamba_head_dim` rows",
       .example = "256",
       .related = "model.mamba_head_dim",
       .field = &model::Model::mamba_state},
      {.path = "model.mamba_conv",
       .type = KeyType::integer,
       .fallback = "4",
       .min = 1,
       .max = 64,
       .families = kMixerFamilies,
       .meaning = "tokens that a mixer's causal convolution sees, the token itself the last of them",
       .example = "4",
       .related = "model.layer_pattern",
       .field = &model::Model::mamba_conv},
      {.path = "model.mamba_chunk",
       .type = KeyType::integer,
       .fallback = "128",
       .min = 1,
       .max = 1 << 14,
       .families = kMixerFamilies,
       .meaning = "tokens that a mixer's scan multiplies together, before states pass on to the next ones (mamba_ssm's "
                  "chunk_size); results do not depend on it, but for rounding",
       .example = "256",
       .related = "training.seq_len",
       .field = &model::Model::mamba_chunk},
  };
}

}  // namespace rehearse::plan::detail
