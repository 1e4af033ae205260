// The keys of the scenario's `model:` mapping that only models with experts have; see key_table.cpp.
#include "sim/model/model.h"
#include "sim/plan/keys.h"

namespace rehearse::plan::detail {

namespace {

// A row each, or each a list of a row for each micro-batch.
Value shares_of(const model::Model& model) {
  std::vector<std::string> rows, batches;
  for (const std::vector<double>& row : model.routing_table) {
    batches.push_back(text_of(row));
    if (static_cast<std::int64_t>(batches.size()) < model.routing_table_batches) continue;
    rows.push_back(batches.size() == 1 ? batches.front() : text_of(batches));
    batches.clear();
  }
  return rows;
}

}  // namespace

std::vector<Key> expert_keys() {
  return {
      {.path = "model.experts",
       .type = KeyType::integer,
       .origin = Default::required,
       .min = 2,
       .max = 1 << 14,
       .families = "moe",
       .meaning = "feed-forward layers side by side, of which a router chooses for each token",
       .example = "8",
       .related = "model.experts_per_token plan.expert",
       .field = &model::Model::experts,
       .in_result = true},
      {.path = "model.experts_per_token",
       .type = KeyType::integer,
       .origin = Default::required,
       .min = 1,
       .max = 1 << 10,
       .families = "moe",
       .meaning = "experts that a token is sent to, those with the highest scores; their outputs are added with the "
                  "scores as weights, which are scaled to add to 1",
       .example = "2",
       .related = "model.experts model.router",
       .field = &model::Model::experts_per_token,
       .in_result = true},
      {.path = "model.expert_ffn_hidden",
       .type = KeyType::integer,
       .origin = Default::required,
       .min = 1,
       .max = 1 << 23,
       .families = "moe",
       .meaning = "width of each expert",
       .example = "14336",
       .related = "model.experts model.activation",
       .field = &model::Model::expert_ffn_hidden},
      {.path = "model.expert_latent",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1 << 20,
       .families = "moe",
       .meaning = "columns of a latent that experts compute in (Nemotron 3 Super's LatentMoE): a product makes it of "
                  "each token before rows are sent, another makes `hidden` columns of the sum of what comes back; 0: "
                  "experts see whole tokens, as shared experts and routers always do",
       .example = "1024",
       .related = "model.hidden",
       .field = &model::Model::expert_latent},
      {.path = "model.shared_experts",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1 << 10,
       .families = "moe",
       .meaning = "experts that take every token besides those it is sent to",
       .example = "1",
       .related = "model.shared_ffn_hidden",
       .field = &model::Model::shared_experts},
      {.path = "model.shared_ffn_hidden",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "expert_ffn_hidden",
       .min = 1,
       .max = 1 << 20,
       .families = "moe",
       .meaning = "width of each shared expert",
       .example = "2048",
       .related = "model.shared_experts",
       .field = &model::Model::shared_ffn_hidden},
      {.path = "model.dense_layers",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1 << 14,
       .families = "moe",
       .meaning = "so many of the first layers have a feed-forward layer of width `ffn_hidden` and no experts",
       .example = "3",
       .related = "model.layers model.ffn_hidden model.experts_every",
       .field = &model::Model::dense_layers},
      {.path = "model.experts_every",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = 1 << 14,
       .families = "moe",
       .meaning = "of so many layers, counted from the first, the last one has experts (Llama 4 Maverick 2), the "
                  "others a feed-forward layer of "
                  "width `ffn_hidden`; 1: all behind `dense_layers`",
       .example = "2",
       .related = "model.dense_layers model.ffn_hidden",
       .field = &model::Model::experts_every},
      {.path = "model.weigh_expert_inputs",
       .type = KeyType::boolean,
       .fallback = "false",
       .families = "moe",
       .meaning = "whether a token's score, as it is, multiplies what goes into its one expert, and not what comes out "
                  "(Llama 4; Megatron-LM's `--moe-apply-probs-on-input`)",
       .example = "true",
       .related = "model.experts_per_token model.router plan.weigh_in_experts",
       .field = &model::Model::weigh_expert_inputs},
      {.path = "model.router",
       .type = KeyType::choice,
       .fallback = "softmax",
       .values = {"softmax", "sigmoid"},
       .families = "moe",
       .meaning = "what makes scores of the router's products: `softmax` over all experts, or `sigmoid` of each",
       .example = "sigmoid",
       .related = "model.experts_per_token model.aux_loss",
       .field = &model::Model::router},
      {.path = "model.expert_groups",
       .type = KeyType::integer,
       .fallback = "1",
       .min = 1,
       .max = 1 << 10,
       .families = "moe",
       .meaning =
           "equal groups of experts that follow each other, of which a token is sent to `groups_per_token` alone, "
           "so that its experts are on few nodes: those with the highest sum of their two best scores, or with "
           "`router: softmax` the highest score",
       .example = "8",
       .related = "model.groups_per_token plan.expert_dispatch",
       .field = &model::Model::expert_groups},
      {.path = "model.groups_per_token",
       .type = KeyType::integer,
       .origin = Default::derived,
       .fallback = "expert_groups",
       .min = 1,
       .max = 1 << 10,
       .families = "moe",
       .meaning = "groups of experts that a token's experts are chosen from",
       .example = "4",
       .related = "model.expert_groups",
       .field = &model::Model::groups_per_token},
      {.path = "model.aux_loss",
       .type = KeyType::number,
       .fallback = "0",
       .min = 0,
       .max = 1e6,
       .families = "moe",
       .meaning = "weight of a loss of each layer and micro-batch that is least where all experts get as much: experts "
                  "x sum over experts of (share of the tokens' choices x mean score); it is trained on, and not in the "
                  "loss that is shown",
       .example = "0.01",
       .related = "model.router model.capacity_factor",
       .field = &model::Model::aux_loss},
      {.path = "model.capacity_factor",
       .type = KeyType::number,
       .fallback = "0",
       .min = 0,
       .max = 1e6,
       .families = "moe",
       .meaning = "an expert takes ceil(tokens x experts_per_token / experts x this) rows of a rank's tokens of a "
                  "micro-batch, and buffers have that size: what is missing is zeros, what is too much is dropped, "
                  "tokens' first choices before second ones and in the order of tokens. 0: whatever comes (dropless)",
       .example = "1.25",
       .related = "plan.expert model.experts_per_token",
       .field = &model::Model::capacity_factor,
       .in_result = true},
      {.path = "model.routing",
       .type = KeyType::choice,
       .fallback = "uniform",
       .values = {"uniform", "zipf", "table", "recorded"},
       .families = "moe",
       .meaning = "how many of the tokens' choices fall on each expert in a simulation (`execute` routes as the router "
                  "says, but with `recorded`): `uniform`: as many on each; `zipf`: shares in proportion to 1 / "
                  "rank^`routing_exponent`, "
                  "which expert has which rank drawn for every layer by `training.seed`; `table`: `routing_table`; "
                  "`recorded`: as they fell in a performed step, rank by rank (`routing_file`); `execute` gives every "
                  "token the experts that it chose "
                  "there",
       .example = "zipf",
       .related = "model.routing_exponent model.routing_per model.routing_table model.routing_file "
                  "model.capacity_factor plan.expert",
       .field = &model::Model::routing},
      {.path = "model.routing_per",
       .type = KeyType::choice,
       .fallback = "layer",
       .values = {"layer", "micro_batch"},
       .families = "moe",
       .meaning = "of `routing: zipf`: which expert has which rank is drawn for every `layer`, or anew for every "
                  "`micro_batch` of a step in every layer",
       .example = "micro_batch",
       .related = "model.routing model.routing_table",
       .field = &model::Model::routing_per},
      {.path = "model.routing_exponent",
       .type = KeyType::number,
       .fallback = "1",
       .min = 0,
       .max = 10,
       .families = "moe",
       .meaning = "of `routing: zipf`; 0: as many on each",
       .example = "0.5",
       .related = "model.routing",
       .field = &model::Model::routing_exponent},
      {.path = "model.routing_table",
       .type = KeyType::number_rows,
       .origin = Default::derived,
       .fallback = "none",
       .families = "moe",
       .meaning =
           "of `routing: table`: a number for each expert, in proportion to its share of the choices; or a list "
           "of such lists, one for each layer with experts; or for each of these a list of as many lists, which its "
           "micro-batches have in turn. No token chooses an expert twice, so that no share "
           "is above 1 / `experts_per_token`",
       .example = "[4, 2, 1, 1]",
       .related = "model.routing",
       .field = Field::shown<model::Model>(shares_of)},
      {.path = "model.routing_file",
       .type = KeyType::text,
       .origin = Default::derived,
       .fallback = "none",
       .or_path = true,
       .families = "moe",
       .meaning = "of `routing: recorded`: what `execute --record-routing` wrote of a run of the same model, batch and "
                  "ranks, relative to this file or else to the working directory",
       .example = "routing.csv",
       .related = "model.routing model.routing_step"},
      {.path = "model.routing_step",
       .type = KeyType::integer,
       .fallback = "0",
       .min = 0,
       .max = 1e9,
       .families = "moe",
       .meaning = "of `routing: recorded`: the step that is taken, from 1; 0: simulated, the last one in the file, and "
                  "performed, "
                  "of each step its own",
       .example = "20",
       .related = "model.routing_file",
       .field = &model::Model::routing_step},
      {.path = "model.buffer_factor",
       .type = KeyType::number,
       .fallback = "0",
       .min = 0,
       .max = 1e6,
       .families = "moe",
       .meaning = "without a capacity, where experts are on several ranks: rows of other ranks' tokens that a rank's "
                  "buffers have room for, over the even number; more than that is an error. 0: as many as come, which "
                  "`execute` cannot know before",
       .example = "2",
       .related = "model.capacity_factor model.routing plan.expert",
       .field = &model::Model::buffer_factor},
  };
}

}  // namespace rehearse::plan::detail
