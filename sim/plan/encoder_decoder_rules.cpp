// See sections.h.
#include <fmt/format.h>

#include "sim/plan/nearest_numbers.h"
#include "sim/plan/schedule/schedule.h"
#include "sim/plan/sections.h"

namespace rehearse::plan::detail {

namespace {

// Stages are cut in the encoder's layers followed by the decoder's, as Megatron-LM does with
// --pipeline-model-parallel-split-rank, which has 1F1B alone for them (core/pipeline_parallel/schedules.py,
// forward_backward_pipelining_without_interleaving; core/models/T5). GPipe sends the same in another order.
void check_stages(const Sections& sections, const Scenario& s) {
  const Plan& plan = s.plan;
  const Node& given = sections.plan;
  const auto refuse = [&](const char* key, const std::string& why, const std::string& instead) {
    given.get(key).error(why, instead);
  };
  if (plan.pipeline > 1) {
    const PipelineSchedule& own = schedule_of(plan.schedule, plan.pipeline);
    if (own.name() != "1f1b" && own.name() != "gpipe")
      refuse("schedule",
             fmt::format("schedule {}: a decoder's stages pass the encoder's output on and its gradients back, which "
                         "1f1b and gpipe do",
                         own.name()),
             "schedule: 1f1b or gpipe");
    if (plan.embedding_as_layer)
      refuse("embedding_as_layer", "an encoder and a decoder have an embedding each", "layers_per_stage as a list");
    if (plan.layers_by_time)
      refuse("layers_per_stage", "by_time is for layers that are alike, not for those of encoder and decoder",
             "auto, or a list");
  }
  if (plan.recompute == Recompute::ops)
    refuse("recompute", "ops recomputation knows no attention to another sequence", "full, selective or none");
  if (plan.cuda_graphs != CudaGraphs::none)
    refuse("cuda_graphs",
           "the gradient of the encoder's output is added up across layers, which graphs of layers do not",
           "cuda_graphs: none");
  if (plan.offload_activations)
    refuse("offload_activations", "the encoder's output is read by all layers of the decoder, and stays",
           "offload_activations: false");
  if (plan.offload_layers > 0)
    refuse("offload_layers", "the encoder's output is read by all layers of the decoder, and stays",
           "offload_layers: 0");
  if (plan.context > 1)
    refuse("context",
           fmt::format("context = {}: {}", plan.context,
                       s.model.shares_positions() ? "a decoder's tokens attend to all of another sequence"
                                                  : "the bias of scores is by distances within whole sequences"),
           "context: 1");
}

}  // namespace

// What an encoder with a decoder's units do not know.
void check_encoder_decoder(const Sections& sections, const Scenario& s) {
  if (!s.model.has_decoder()) return;
  check_stages(sections, s);
  const std::int64_t t = s.plan.tensor, tokens = s.model.decoder_tokens(s.training.seq_len);
  if (s.plan.sequence_parallel && t > 1 && tokens % t != 0)
    sections.plan.get("sequence_parallel")
        .error(fmt::format("sequence_parallel needs the decoder's {} tokens divisible by tensor = {}; nearest "
                           "model.decoder_seq_len: {}",
                           tokens, t, nearest_multiples(tokens, t)));
  if (const Node model = sections.root.get("model"); s.model.shares_positions() && tokens > s.model.max_seq_len)
    (model.has("decoder_seq_len") ? model.get("decoder_seq_len") : model)
        .error(fmt::format("the decoder's {} tokens are above max_seq_len = {} of the model's learned positions; at "
                           "most {}",
                           tokens, s.model.max_seq_len, s.model.max_seq_len));
  if (s.training.narrow())
    sections.training.get("precision")
        .error("blocks that attend to another sequence have no products in 8 or 4 bits yet", "precision: bf16");
}

void check_encoder(const Sections& sections, const Scenario& s, const std::function<bool(const char*)>& sound) {
  const model::Model& m = s.model;
  if (!m.is_encoder()) return;
  const Plan& plan = s.plan;
  const Node model = sections.root.get("model");
  if (s.purpose == Purpose::perform && m.max_predictions == 0)
    model.error(
        "what is performed masks a number of tokens and predicts these alone; logits of all tokens are "
        "simulated only",
        "model.max_predictions: 20");
  if (m.max_predictions >= s.training.seq_len && sound("training.seq_len"))
    (model.has("max_predictions") ? model.get("max_predictions") : model)
        .error(fmt::format("{} tokens of a sequence of {} are predicted, the first of which stands for its class",
                           m.max_predictions, s.training.seq_len),
               fmt::format("at most {}", s.training.seq_len - 1));
  if (s.training.narrow() && sound("training.precision"))
    sections.training.get("precision")
        .error("blocks with their norms behind their sums have no products in 8 or 4 bits yet", "precision: bf16");
  if (plan.context > 1 && sound("plan.context"))
    sections.plan.get("context").error("context = " + fmt::to_string(plan.context) +
                                           ": contexts are split with a causal mask in mind, which an encoder has not",
                                       "context: 1");
  if (plan.sequence_parallel && plan.tensor > 1 && sound("plan.sequence_parallel"))
    sections.plan.get("sequence_parallel")
        .error("an encoder's heads read rows of whole sequences, and its segments are not split",
               "sequence_parallel: false");
  if (plan.recompute == Recompute::ops && sound("plan.recompute"))
    sections.plan.get("recompute")
        .error("ops recomputation knows no blocks with their norms behind their sums", "full, selective or none");
}

}  // namespace rehearse::plan::detail
