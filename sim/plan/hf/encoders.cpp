// Encoders: BERT with both of its heads, as BertForPreTraining has them; T5, an encoder with a decoder.
#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

void bert(Config& c) {
  widths(c, "bert", 512);
  c.shape_or("intermediate_size", "ffn_hidden", 3072);
  c.shape_or("type_vocab_size", "segment_kinds", 2);
  const std::string word = c.text("hidden_act", "gelu");
  if (!word.starts_with("gelu")) c.refuse("hidden_act", fmt::format("'{}', expected gelu in one of its forms", word));
  if (c.text("position_embedding_type", "absolute") != "absolute")
    c.refuse("position_embedding_type", "positions relative to a key are not available");
  c.require("tie_word_embeddings", true, true, "a decoder with a table of its own is not available for BERT");
  for (const char* key : {"hidden_dropout_prob", "attention_probs_dropout_prob"}) c.for_scenario(key, kDropout);
  c.no_matter({"classifier_dropout"}, "of classifiers");
  c.no_matter({"model_max_length", "gradient_checkpointing_kwargs"}, "of other programs");
}

namespace {

void of_t5(Config& c, const std::string& feed_forward, bool tied_head) {
  c.put("family", "t5", "model_type");
  c.shape("num_layers", "encoder_layers");
  c.shape_or("num_decoder_layers", "decoder_layers", "num_layers");
  c.shape("d_model", "hidden");
  c.shape("num_heads", "heads");
  c.shape("d_kv", "head_dim");
  c.shape("d_ff", "ffn_hidden");
  c.shape("vocab_size", "vocab");
  c.shape_or("n_positions", "max_seq_len", 512);
  c.shape_or("relative_attention_num_buckets", "relative_buckets", 32);
  c.shape_or("relative_attention_max_distance", "relative_distance", 128);
  const std::string word = c.text("feed_forward_proj", feed_forward);
  if (word == "relu" || word == "gated-gelu")
    c.put("activation", word == "relu" ? "relu" : "geglu", "feed_forward_proj");
  else
    c.refuse("feed_forward_proj", fmt::format("'{}', expected relu or gated-gelu", word));
  tied(c, tied_head);
  c.for_scenario("dropout_rate", kDropout);
  c.no_matter({"dense_act_fn", "is_gated_act"}, "said by feed_forward_proj");
  c.no_matter({"initializer_factor"}, kValues);
  c.no_matter({"classifier_dropout"}, "of classifiers");
  c.no_matter({"output_past", "model_parallel", "scalable_attention", "gradient_checkpointing_kwargs"},
              "of other programs");
}

}  // namespace

void t5(Config& c) {
  of_t5(c, "relu", true);
}

// T5 v1.1 with another vocabulary (transformers' MT5Config).
void mt5(Config& c) {
  of_t5(c, "gated-gelu", false);
}

}  // namespace rehearse::plan::hf
