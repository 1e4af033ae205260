// Reads which experts tokens are sent to, where a scenario says it by shares or by what a run recorded.
#include "sim/plan/read_routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace rehearse::plan::detail {

namespace fs = std::filesystem;
using model::Model;

// Relative to the scenario's file if it is there, else to the working directory.
std::string found_beside(const Node& said, const std::string& text) {
  if (fs::path(text).is_absolute() || said.file() == "--set") return text;
  const fs::path next = fs::path(said.file()).parent_path() / text;
  std::error_code error;
  return fs::exists(next, error) ? next.string() : text;
}

namespace {

constexpr double kMostShare = 1e9;  // of an expert, in a table; its scale is free

// One number for each expert, of which none is above 1 / experts_per_token of their sum.
std::vector<double> read_shares(const Node& list, const Model& model) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::optional<double> share = list.at(i).as_number();
    if (!share || *share < 0 || *share > kMostShare) {
      list.at(i).error(fmt::format("expected a share: a number, 0 to {:g}", kMostShare));
      return {};
    }
    shares.push_back(*share);
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (static_cast<std::int64_t>(shares.size()) != model.experts) {
    list.error(fmt::format("{} shares are listed, but the model has {} experts", shares.size(), model.experts));
    return {};
  }
  const double most = *std::max_element(shares.begin(), shares.end());
  if (sum <= 0 || most * static_cast<double>(model.experts_per_token) > sum * (1 + 1e-9)) {
    list.error(sum <= 0 ? std::string("no expert has a share")
                        : fmt::format("a share of {:.4g}: each token chooses {} experts, none of them twice, so an "
                                      "expert has {:.4g} of the choices at most",
                                      most / sum, model.experts_per_token,
                                      1 / static_cast<double>(model.experts_per_token)));
    return {};
  }
  return shares;
}

// Of each layer a list of shares for each micro-batch.
void read_batches(const Node& layers, Model& model) {
  const std::size_t each = layers.at(0).size();
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const Node batches = layers.at(layer);
    if (batches.kind() != Node::Kind::sequence || batches.size() != each)
      return batches.error(fmt::format("{} micro-batches are listed, but {} of the first layer", batches.size(), each),
                           "as many lists of shares for each layer");
    for (std::size_t i = 0; i < each; ++i) model.routing_table.push_back(read_shares(batches.at(i), model));
  }
  model.routing_table_batches = static_cast<std::int64_t>(each);
}

// The table itself is read once the plan is known (recorded_routing.cpp).
void read_routing_file(const RoutingKeys& keys, Model& model) {
  const Node& file = keys.file;
  const bool given = file && file.kind() != Node::Kind::null;
  if (given != (model.routing == model::Routing::recorded)) {
    if (given)
      file.error("has no meaning without routing: recorded", "routing: recorded");
    else
      file.error("required key is missing: routing: recorded needs what was recorded",
                 "e.g. 'routing_file: routing.csv', of execute --record-routing");
  } else if (given) {
    const std::string text = file.as_text().value_or("");
    if (text.empty()) return file.error("expected the path of what execute --record-routing wrote");
    model.routing_file = found_beside(file, text);
  } else if (model.routing_step > 0) {
    keys.step.error("has no meaning without routing: recorded", "routing: recorded");
  }
}

}  // namespace

void read_routing(const RoutingKeys& keys, Model& model) {
  read_routing_file(keys, model);
  const Node& list = keys.table;
  const bool given = list.kind() == Node::Kind::sequence && list.size() > 0;
  const bool wanted = model.routing == model::Routing::table;
  if (list && list.kind() != Node::Kind::sequence && list.kind() != Node::Kind::null)
    return list.error("expected a list of shares, or of lists of them", "e.g. 'routing_table: [4, 2, 1, 1]'");
  if (given != wanted) {
    if (wanted)
      list.error("required key is missing: routing: table needs a share for each expert",
                 "e.g. 'routing_table: [4, 2, 1, 1]'");
    else
      list.error("has no meaning without routing: table", "routing: table");
    return;
  }
  if (!given || model.experts < 2) return;
  const bool rows = list.at(0).kind() == Node::Kind::sequence;
  const std::int64_t layers = model.expert_layers();
  if (rows && static_cast<std::int64_t>(list.size()) != layers)
    return list.error(fmt::format("{} rows are listed, but {} layers have experts", list.size(), layers));
  const Node first = rows ? list.at(0) : list;
  const bool batches = rows && first.size() > 0 && first.at(0).kind() == Node::Kind::sequence;
  if (batches) return read_batches(list, model);
  for (std::size_t i = 0; i < (rows ? list.size() : 1); ++i)
    model.routing_table.push_back(read_shares(rows ? list.at(i) : list, model));
}

}  // namespace rehearse::plan::detail
