// Reads the `model:` value of a scenario: the name of a preset, or a mapping, which may itself start from a preset and
// override single keys ({preset: gpt3-175b, dropout: 0.1}). Ranges keep every count of model.cpp inside 64 bits.
// Leaves out: Hugging Face configurations, families beyond gpt, llama, cnn and mlp (each refused with its own message).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "sim/model/model.h"

namespace rehearse::model {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxLayers = 1 << 14;
constexpr std::int64_t kMaxWidth = 1 << 20;
constexpr std::int64_t kMaxFfn = 1 << 23;
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int64_t kMaxSeqLen = 1 << 27;
constexpr std::int64_t kMaxQkv = 1 << 22;
constexpr std::int64_t kMaxFlattened = 1 << 30;
constexpr std::size_t kMaxListed = 1000;

// Where a key's value is read: the scenario's own mapping if it has the key, else the preset's. Asking marks the key as
// known in both, so that finish() of each reports only what no model has.
class Source {
 public:
  Source(Node own, Node preset) : own_(std::move(own)), preset_(std::move(preset)) {}

  bool given(std::string_view key) const {
    const bool in_preset = preset_.has(key);
    return own_.has(key) || in_preset;
  }
  const Node& of(std::string_view key) const {
    const bool in_preset = preset_.has(key);
    return in_preset && !own_.has(key) ? preset_ : main();
  }
  // Where what is missing is reported.
  const Node& main() const { return own_ ? own_ : preset_; }
  void finish() const {
    own_.finish();
    preset_.finish();
  }

 private:
  Node own_, preset_;
};

fs::path preset_folder(const std::string& data_root) {
  return fs::path(data_root) / "scenarios" / "models";
}

std::int64_t integer(const Source& source, std::string_view key, std::int64_t max,
                     std::optional<std::int64_t> fallback = {}) {
  return source.of(key).integer(key, fallback, 1, max);
}

template <typename Kind>
Kind choice(const Source& source, std::string_view key, const std::vector<std::string>& names, Kind fallback) {
  return static_cast<Kind>(source.of(key).choice(key, names, static_cast<int>(fallback)));
}

void read_attention_shape(const Source& source, Model& model, const Diagnostics& diagnostics) {
  const std::size_t problems = diagnostics.list().size();
  model.hidden = integer(source, "hidden", kMaxWidth);
  model.heads = integer(source, "heads", kMaxWidth);
  model.kv_heads = integer(source, "kv_heads", kMaxWidth, model.heads);
  const bool head_dim_given = source.given("head_dim");
  model.head_dim = integer(source, "head_dim", kMaxWidth, std::max<std::int64_t>(1, model.hidden / model.heads));
  if (diagnostics.list().size() != problems) return;  // what follows would complain about stand-in values
  if (!head_dim_given && model.hidden % model.heads != 0) {
    source.of("heads").get("heads").error(
        fmt::format("hidden {} is not divisible by {} heads", model.hidden, model.heads),
        "give head_dim if the heads do not divide the hidden size");
  }
  if (model.heads % model.kv_heads != 0) {
    source.of("kv_heads")
        .get("kv_heads")
        .error(fmt::format("{} heads are not divisible by {} kv_heads", model.heads, model.kv_heads));
  }
  if (model.qkv_width() > kMaxQkv) {
    source.of("heads").get("heads").error(
        fmt::format("queries, keys and values are {} wide, the limit is {}", model.qkv_width(), kMaxQkv));
  }
}

void read_transformer(const Source& source, Model& model, const Diagnostics& diagnostics) {
  const bool gpt = model.family == Family::gpt;
  model.layers = integer(source, "layers", kMaxLayers);
  read_attention_shape(source, model, diagnostics);
  // Llama's rule (8/3 hidden, rounded up to a multiple that differs by model) cannot be guessed, so it is required.
  model.ffn_hidden = integer(source, "ffn_hidden", kMaxFfn, gpt ? std::optional(4 * model.hidden) : std::nullopt);
  model.vocab = integer(source, "vocab", kMaxVocab);
  model.max_seq_len = integer(source, "max_seq_len", kMaxSeqLen);
  model.activation =
      choice(source, "activation", {"gelu", "relu", "swiglu"}, gpt ? ActivationKind::gelu : ActivationKind::swiglu);
  model.norm = choice(source, "norm", {"layernorm", "rmsnorm"}, gpt ? NormKind::layernorm : NormKind::rmsnorm);
  model.position = choice(source, "position", {"learned", "rope"}, gpt ? Position::learned : Position::rope);
  model.tied_embeddings = source.of("tied_embeddings").boolean("tied_embeddings", gpt);
  model.bias = source.of("bias").boolean("bias", gpt);
  model.attention = choice(source, "attention", {kAttentionNames.begin(), kAttentionNames.end()}, AttentionKind::flash);
  model.attention_given = source.given("attention");
  if (model.position == Position::rope && model.head_dim % 2 != 0) {
    source.of("position")
        .get("position")
        .error(fmt::format("rope turns pairs of features, but head_dim is {}", model.head_dim));
  }
}

std::vector<std::int64_t> read_widths(const Source& source, std::size_t at_least) {
  std::vector<std::int64_t> widths;
  const Node list = source.of("widths").get("widths");
  if (list.size() < at_least || list.size() > kMaxListed) {
    list.error(fmt::format("expected a list of {} to {} widths", at_least, kMaxListed), "e.g. 'widths: [512, 10]'");
    return widths;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto width = list.at(i).as_integer();
    if (!width || *width < 1 || *width > kMaxWidth) {
      list.at(i).error(fmt::format("expected a width, an integer from 1 to {}", kMaxWidth));
    }
    widths.push_back(width.value_or(1));
  }
  return widths;
}

void read_convolutions(const Node& list, Model& model) {
  if (list.size() < 1 || list.size() > kMaxListed) {
    list.error(fmt::format("expected a list of 1 to {} convolutions", kMaxListed),
               "e.g. 'convolutions: [{channels: 64, kernel: 3, pool: 2}]'");
    return;
  }
  std::int64_t size = model.image_size;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Node item = list.at(i);
    ConvLayer layer;
    layer.channels = item.integer("channels", {}, 1, 1 << 16);
    layer.kernel = item.integer("kernel", layer.kernel, 1, 63);
    layer.pool = item.integer("pool", layer.pool, 1, 1 << 14);
    item.finish();
    if (layer.kernel % 2 == 0) {
      item.get("kernel").error(
          fmt::format("{} is even; only an odd kernel can be padded to keep the size", layer.kernel));
    }
    if (size > 0 && layer.pool > size) {
      item.get("pool").error(
          fmt::format("the window of {} is larger than the {}x{} map it pools", layer.pool, size, size));
    }
    size /= layer.pool;
    model.convolutions.push_back(layer);
  }
}

void read_cnn(const Source& source, Model& model, const Diagnostics& diagnostics) {
  const std::size_t problems = diagnostics.list().size();
  const Node image = source.of("image").get("image");
  if (!image) {
    image.error("required key is missing, expected a mapping", "e.g. 'image: {channels: 3, size: 32}'");
  } else {
    model.image_channels = image.integer("channels", {}, 1, 1 << 16);
    model.image_size = image.integer("size", {}, 1, 1 << 14);
    image.finish();
  }
  const Node list = source.of("convolutions").get("convolutions");
  read_convolutions(list, model);
  model.widths = read_widths(source, 1);
  if (diagnostics.list().size() == problems && flattened_width(model) > kMaxFlattened) {
    list.error(fmt::format("the maps flatten to {} features, the limit is {}", flattened_width(model), kMaxFlattened));
  }
}

// A cross-entropy over one class is 0 whatever the model does.
void check_classes(const Source& source, const Model& model) {
  if (!model.is_transformer() && model.loss != LossKind::cross_entropy) return;
  const std::int64_t classes = model.is_transformer() ? model.vocab : model.widths.back();
  const char* key = model.is_transformer() ? "vocab" : "widths";
  if (classes == 1)
    source.of(key).get(key).error("one class leaves nothing to learn: its cross-entropy is always 0",
                                  "at least two, as in 'widths: [512, 2]'");
}

Model read_source(const Source& source, const std::string& default_name, const Diagnostics& diagnostics) {
  Model model;
  static const std::vector<std::string> families = {"gpt", "llama", "cnn", "mlp"};
  const std::size_t problems = diagnostics.list().size();
  const Node family = source.of("family").get("family");
  if (const auto text = family.as_text(); text && (*text == "moe" || *text == "bert" || *text == "t5")) {
    family.error(fmt::format("family {} is not available yet; available: gpt, llama, cnn, mlp", *text));
    return model;
  }
  model.family = static_cast<Family>(source.of("family").choice("family", families));
  model.name = source.of("name").text(
      "name", default_name.empty() ? families[static_cast<std::size_t>(model.family)] : default_name);
  // Of a family nobody knows, no key can be called wrong.
  if (diagnostics.list().size() != problems) return model;
  model.dropout = source.of("dropout").number("dropout", 0.0, 0.0, 0.999);
  model.dropout_given = source.given("dropout");
  if (model.is_transformer()) {
    read_transformer(source, model, diagnostics);
  } else {
    model.loss = choice(source, "loss", {"cross_entropy", "mse"}, LossKind::cross_entropy);
    if (model.family == Family::cnn)
      read_cnn(source, model, diagnostics);
    else
      model.widths = read_widths(source, 2);
  }
  if (diagnostics.list().size() == problems) check_classes(source, model);
  source.finish();
  return model;
}

// The preset's own tree, or a missing node after the report. `at` is where the scenario names it.
Node open_preset(const Node& at, const std::string& name, const std::string& data_root, Diagnostics& diagnostics) {
  const auto names = preset_names(data_root);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string near = nearest(name, names);
    std::string known;
    for (const std::string& one : names) known += (known.empty() ? "" : ", ") + one;
    const std::string folder = preset_folder(data_root).string();
    at.error(names.empty() ? fmt::format("there are no model presets in '{}'", folder)
                           : fmt::format("no model preset of this name, expected one of {}", known),
             near.empty() ? "" : fmt::format("did you mean '{}'?", near));
    return Node();
  }
  try {
    return Document::from_file((preset_folder(data_root) / (name + ".yaml")).string(), diagnostics).root();
  } catch (const InputError& error) {
    for (const Diagnostic& problem : error.diagnostics()) diagnostics.add(problem);
    return Node();
  }
}

}  // namespace

std::vector<std::string> preset_names(const std::string& data_root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(preset_folder(data_root), error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".yaml") names.push_back(entry->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Model read_model(const Node& node, const std::string& data_root, Diagnostics& diagnostics) {
  if (const auto name = node.as_text()) {
    const Node preset = open_preset(node, *name, data_root, diagnostics);
    return preset ? read_source(Source(Node(), preset), *name, diagnostics) : Model();
  }
  if (node.kind() != Node::Kind::mapping) {
    node.error(node ? "expected the name of a model preset or a mapping" : "required key is missing",
               "e.g. 'model: gpt2-small' or 'model: {family: gpt, ...}'");
    return Model();
  }
  if (node.has("hf")) {
    node.get("hf").error("reading Hugging Face configurations is not available yet",
                         "write the shapes as a mapping: family, layers, hidden, heads, ...");
    return Model();
  }
  if (!node.has("preset")) return read_source(Source(node, Node()), "", diagnostics);
  const std::string name = node.text("preset");
  const Node preset = open_preset(node.get("preset"), name, data_root, diagnostics);
  return preset ? read_source(Source(node, preset), name, diagnostics) : Model();
}

}  // namespace rehearse::model
