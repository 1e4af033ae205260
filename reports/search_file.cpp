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

SearchFile read_search_file(const std::string& directory) {
  SearchFile search{(std::filesystem::path(directory) / kSearchFile).string(), ""};
  search.text = read_text_file(search.file);
  const auto json = nlohmann::json::parse(search.text, nullptr, false);
  const bool ours = json.is_object() && json.value("schema", nlohmann::json()) == "rehearse.search/1" &&
                    json.contains("answer") && json["answer"].is_object() && json.contains("points") &&
                    json["points"].is_array();
  if (!ours)
    throw InputError(
        Diagnostic{search.file, 0, 0, "", "is not rehearse.search/1", "rehearse plan SCENARIO -o DIR writes it"});
  return search;
}

}  // namespace rehearse::reports
