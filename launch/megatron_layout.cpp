// Layers as Megatron-LM's arguments list them: of stages, --pipeline-model-parallel-layout, and those with experts,
// --moe-layer-freq; see megatron.h.
#include <fmt/format.h>

#include <charconv>

#include "launch/megatron.h"

namespace rehearse::launch {

std::string pipeline_layout(const std::vector<std::int64_t>& layers, std::int64_t mtp_depth) {
  std::string out = "E";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (i > 0) out += '|';
    if (layers[i] > 0) out += fmt::format("t*{}", layers[i]);
  }
  return out + std::string(static_cast<std::size_t>(mtp_depth), 'm') + "L";
}

namespace {

constexpr std::size_t kLongestLayout = 100'000;  // characters when written out

// "*29" at `at`, and how far it goes; 0: none there.
std::size_t times_at(std::string_view text, std::size_t at, std::size_t& times) {
  if (at >= text.size() || text[at] != '*') return 0;
  const auto [end, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), times);
  if (error != std::errc() || times < 1 || times > kLongestLayout) return 0;
  return static_cast<std::size_t>(end - text.data()) - at;
}

// "Et*3|(tt|)*2L" written out: "Ettt|tt|tt|L". As Megatron-Core reads it (pipeline_parallel_layer_layout.py,
// parse_str_to_list): commas are nothing, (...)*n and then x*n repeat, brackets hold no brackets. Nothing: it is none.
std::optional<std::string> written_out(std::string_view layout) {
  std::string plain, unbracketed, out;
  for (const char c : layout)
    if (c != ',' && c != ' ') plain += c;
  std::size_t times = 0;
  for (std::size_t at = 0; at < plain.size();) {
    if (plain[at] != '(') {
      unbracketed += plain[at++];
      continue;
    }
    const std::size_t close = plain.find_first_of("()", at + 1);
    if (close == std::string::npos || plain[close] == '(' || close == at + 1) return std::nullopt;
    const std::size_t step = times_at(plain, close + 1, times);
    if (step == 0 || times * (close - at) + unbracketed.size() > kLongestLayout) return std::nullopt;
    for (std::size_t i = 0; i < times; ++i) unbracketed += plain.substr(at + 1, close - at - 1);
    at = close + 1 + step;
  }
  for (std::size_t at = 0; at < unbracketed.size();) {
    const char c = unbracketed[at++];
    const std::size_t step = times_at(unbracketed, at, times);
    if (step == 0) times = 1;
    if (times + out.size() > kLongestLayout) return std::nullopt;
    out += std::string(times, c);
    at += step;
  }
  return out;
}

}  // namespace

std::optional<StageLayout> layers_of_layout(const std::string& layout) {
  const auto plain = written_out(layout);
  if (!plain || !plain->starts_with('E') || !plain->ends_with('L')) return std::nullopt;
  StageLayout out{{0}, false};
  std::size_t of_modules = 0;  // the stage that has them, from 1
  for (const char c : plain->substr(1, plain->size() - 2)) {
    if (c == 't' && of_modules == 0)
      ++out.layers.back();
    else if (c == '|')
      out.layers.push_back(0);
    else if (c == 'm' && (of_modules == 0 || of_modules == out.layers.size()))
      of_modules = out.layers.size();
    else
      return std::nullopt;  // a decoder's own loss, layers behind the modules, modules on several stages
  }
  out.modules_apart = of_modules > 0 && of_modules < out.layers.size();
  if (out.layers.size() > 10'000) return std::nullopt;
  return out;
}

namespace {

constexpr std::int64_t kMostLayers = 100'000;

// "[0,1]*3" at the head of `text`, which is cut off; false: that is not what stands there.
bool take_list(std::string_view& text, std::vector<bool>& layers) {
  const std::size_t close = text.find(']');
  if (!text.starts_with('[') || close == std::string_view::npos) return false;
  std::vector<bool> one;
  for (std::size_t at = 1; at < close; at += 2) {
    if ((text[at] != '0' && text[at] != '1') || (text[at + 1] != ',' && at + 1 != close)) return false;
    one.push_back(text[at] == '1');
  }
  text.remove_prefix(close + 1);
  std::size_t times = 1;
  text.remove_prefix(times_at(text, 0, times));
  if (static_cast<std::int64_t>(layers.size() + one.size() * times) > kMostLayers) return false;
  for (std::size_t i = 0; i < times; ++i) layers.insert(layers.end(), one.begin(), one.end());
  return true;
}

}  // namespace

std::optional<std::vector<bool>> expert_layers(const std::string& frequency, std::int64_t layers) {
  std::string plain;
  for (const char c : frequency)
    if (c != ' ' && c != '(' && c != ')') plain += c;
  std::int64_t every = 0;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), every);
  std::vector<bool> out;
  if (error == std::errc() && end == plain.data() + plain.size()) {
    if (every < 1 || layers > kMostLayers) return std::nullopt;
    for (std::int64_t l = 0; l < layers; ++l) out.push_back(l % every == 0);
    return out;
  }
  std::string_view rest = plain;
  for (bool more = true; more; rest.remove_prefix(more ? 1 : 0)) {
    if (!take_list(rest, out)) return std::nullopt;
    more = rest.starts_with('+');
  }
  if (!rest.empty() || static_cast<std::int64_t>(out.size()) != layers) return std::nullopt;
  return out;
}

}  // namespace rehearse::launch
