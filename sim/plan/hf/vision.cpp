// Models that read images, with the head of ImageClassification: vision transformers and residual networks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "sim/plan/hf/parts.h"

namespace rehearse::plan::hf {

namespace {

// Of both kinds a file without labels has two (transformers' PretrainedConfig).
std::size_t labels(Config& c) {
  if (!c.has("id2label") && c.has("num_labels")) return static_cast<std::size_t>(c.integer("num_labels", 2));
  c.no_matter({"num_labels"}, "id2label says it");
  return c.entries("id2label", 2);
}

}  // namespace

void vit(Config& c) {
  c.put("family", "vit", "model_type");
  c.shape("num_hidden_layers", "layers");
  c.shape("hidden_size", "hidden");
  c.shape("num_attention_heads", "heads");
  c.shape("intermediate_size", "ffn_hidden");
  c.shape_or("patch_size", "patch", 16);
  c.put("image", fmt::format("{{channels: {}, size: {}}}", c.integer("num_channels", 3), c.integer("image_size", 224)),
        "image_size");
  c.put("classes", fmt::to_string(labels(c)), "id2label");
  if (const std::string word = c.text("hidden_act", "gelu"); !word.starts_with("gelu"))
    c.refuse("hidden_act", fmt::format("'{}', expected gelu in one of its forms", word));
  c.require("qkv_bias", true, true,
            "queries, keys and values without biases beside products with them are not available");
  c.no_matter({"encoder_stride"}, "of masked image modelling");
  c.no_matter({"pooler_output_size", "pooler_act"}, "of models without a head");
  for (const char* key : {"hidden_dropout_prob", "attention_probs_dropout_prob"}) c.for_scenario(key, kDropout);
}

// Strides are those of the 3x3 convolutions, as transformers has them (ResNetBottleNeckLayer) and as presets do.
void resnet(Config& c) {
  c.put("family", "cnn", "model_type");
  const std::string block = c.text("layer_type", "bottleneck");
  if (block != "basic" && block != "bottleneck")
    c.refuse("layer_type", fmt::format("'{}', expected basic or bottleneck", block));
  c.put("residual_block", block, "layer_type");
  const std::vector<std::string> wide = {"256", "512", "1024", "2048"};
  const std::vector<std::string> own = block == "basic" ? std::vector<std::string>{"64", "128", "256", "512"} : wide;
  std::vector<std::string> depths = c.words("depths"), widths = c.words("hidden_sizes");
  if (depths.empty()) depths = {"3", "4", "6", "3"};  // ResNetConfig's
  if (widths.empty()) widths = wide;
  if (depths.size() != 4) c.refuse("depths", fmt::format("{} stages, expected 4", depths.size()));
  c.put("residual_layers", fmt::format("[{}]", fmt::join(depths, ", ")), "depths");
  if (widths != own)
    c.refuse("hidden_sizes",
             fmt::format("[{}], expected [{}] of {} blocks", fmt::join(widths, ", "), fmt::join(own, ", "), block));
  if (c.integer("embedding_size", 64) != 64) c.refuse("embedding_size", "a stem of other than 64 channels");
  if (c.text("hidden_act", "relu") != "relu") c.refuse("hidden_act", "other activations than relu");
  c.require("downsample_in_first_stage", false, false, "a stride in the first stage is not available");
  c.require("downsample_in_bottleneck", false, false, "a stride in the first convolution of a block is not available");
  c.put("image", fmt::format("{{channels: {}, size: 224}}", c.integer("num_channels", 3)), "num_channels");
  c.put("widths", fmt::format("[{}]", labels(c)), "id2label");
  c.left_out_of_kind("the size of images, which the file does not say: 224");
  c.no_matter({"out_features", "out_indices", "stage_names"}, "of models without a head");
}

}  // namespace rehearse::plan::hf
