// See search_file.h.
#include "reports/search_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "sim/base/document.h"
#include "sim/base/units.h"

namespace rehearse::reports {

std::string search_file_json(const SearchReport& r) {
  using Json = nlohmann::ordered_json;
  Json json{{"schema", "rehearse.search/1"},
            {"answer", Json::parse(search_json(r))},
            {"statuses", {"too large", "bounded", "simulated"}}};
  std::string text = json.dump(1);
  text.resize(text.size() - 2);  // its last line end and brace: the points follow, a line each
  text += ",\n \"points\": [";
  for (std::size_t i = 0; i < r.points.size(); ++i) {
    const SearchPoint& p = r.points[i];
    text += fmt::format("{}\n  [{}, {:.6g}, {}, [{}]]", i == 0 ? "" : ",", p.status, Time::from_ps(p.step_ps).seconds(),
                        p.bytes, fmt::join(p.values, ", "));
  }
  return text + "\n ]\n}\n";
}

namespace {

// `of_schema`: whether an object that names the schema has its parts.
template <class Check>
SearchFile read_plan_file(const std::string& directory, const char* name, const char* schema, const char* command,
                          const Check& of_schema) {
  SearchFile read{(std::filesystem::path(directory) / name).string(), ""};
  read.text = read_text_file(read.file);
  const auto json = nlohmann::json::parse(read.text, nullptr, false);
  if (!json.is_object() || json.value("schema", nlohmann::json()) != schema || !of_schema(json))
    throw InputError(Diagnostic{read.file, 0, 0, "", fmt::format("is not {}", schema), command});
  return read;
}

bool has_array(const nlohmann::json& json, const char* name) {
  return json.contains(name) && json[name].is_array();
}

}  // namespace

SearchFile read_search_file(const std::string& directory) {
  return read_plan_file(directory, kSearchFile, "rehearse.search/1", "rehearse plan SCENARIO -o DIR writes it",
                        [](const auto& json) {
                          return json.contains("answer") && json["answer"].is_object() && has_array(json, "points");
                        });
}

SearchFile read_scaling_file(const std::string& directory) {
  return read_plan_file(directory, kScalingFile, "rehearse.plan_scaling/1",
                        "rehearse plan SCENARIO --gpus A,B,... -o DIR writes it",
                        [](const auto& json) { return has_array(json, "searches"); });
}

std::vector<std::string> best_directories(const SearchFile& scaling) {
  std::vector<std::string> directories;
  const auto json = nlohmann::json::parse(scaling.text);
  for (const auto& search : json.at("searches")) {
    const auto best = search.is_object() && has_array(search, "plans") && !search["plans"].empty() ? search["plans"][0]
                                                                                                   : nlohmann::json();
    if (best.is_object() && best.contains("directory") && best["directory"].is_string())
      directories.push_back(best["directory"].get<std::string>());
  }
  return directories;
}

}  // namespace rehearse::reports
