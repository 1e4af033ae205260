// See sweep_axes.h.
#include "cli/sweep_axes.h"

#include <fmt/format.h>

#include <cctype>
#include <set>

#include "sim/base/diagnostics.h"
#include "sim/plan/keys.h"

namespace rehearse::cli {

using reports::SweepAxis;

namespace {

constexpr std::size_t kMostPlans = 10'000;

// Where a value stands on the command line: of --sweep, or of --range.
struct Told {
  std::string option;

  [[noreturn]] void refuse_axis(std::string message, std::string hint = "") const {
    throw InputError(Diagnostic{option, 0, 0, "", std::move(message), std::move(hint)});
  }
};

// "1,2,[3, 4]" -> "1", "2", "[3, 4]": commas inside brackets and quotes belong to the value.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      values.emplace_back();
      continue;
    }
    if (c != ' ' || !values.back().empty()) values.back() += c;
  }
  return values;
}

void check_key(const Told& told, const std::string& key) {
  if (plan::find_key(key) != nullptr && key.find('[') == std::string::npos) return;
  if (key.starts_with("cluster.overrides.")) return;
  if (key.find('[') != std::string::npos)
    told.refuse_axis(fmt::format("{} is of a list's elements; give the whole list", key), "KEY=[...],[...]");
  const std::string near = nearest(key, plan::key_paths());
  told.refuse_axis(fmt::format("no key of a scenario file is called '{}'", key),
                   near.empty() ? "rehearse explain lists all keys" : fmt::format("did you mean '{}'?", near));
}

}  // namespace

std::vector<SweepAxis> read_axes(const std::vector<std::string>& sweeps, const std::string& option) {
  const Told told{option};
  std::vector<SweepAxis> axes;
  std::size_t plans = 1;
  for (const std::string& text : sweeps) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      told.refuse_axis(fmt::format("'{}' is not KEY=VALUE,VALUE,...", text),
                       fmt::format("e.g. {} plan.tensor=1,2,4,8", option));
    SweepAxis axis{text.substr(0, equals), split(text.substr(equals + 1))};
    check_key(told, axis.key);
    for (const SweepAxis& other : axes)
      if (other.key == axis.key)
        told.refuse_axis(fmt::format("{} is given twice", axis.key),
                         fmt::format("list all its values in one {}", option));
    std::set<std::string> seen;
    for (const std::string& value : axis.values) {
      if (value.empty()) told.refuse_axis(fmt::format("{} has an empty value in '{}'", axis.key, text));
      if (!seen.insert(value).second) told.refuse_axis(fmt::format("{} has the value {} twice", axis.key, value));
    }
    plans *= axis.values.size();
    if (option == "--sweep" && plans > kMostPlans)
      told.refuse_axis(fmt::format("more than {} combinations", kMostPlans), "sweep fewer values");
    axes.push_back(std::move(axis));
  }
  return axes;
}

namespace {

// Whether an assignment is of the key, or of a mapping that has it: "plan={tensor: 4}" of plan.tensor.
bool names(const std::string& assignment, const std::string& key) {
  const std::string of = assignment.substr(0, assignment.find('='));
  if (of == key) return true;
  if (!key.starts_with(of + ".")) return false;
  const std::string leaf = key.substr(of.size() + 1) + ":";
  for (std::size_t at = assignment.find(leaf); at != std::string::npos; at = assignment.find(leaf, at + 1))
    if (at > 0 && assignment[at - 1] != '_' && std::isalnum(static_cast<unsigned char>(assignment[at - 1])) == 0)
      return true;
  return false;
}

}  // namespace

void refuse_fixed(const std::vector<std::string>& sweeps, const std::string& option,
                  const std::vector<std::string>& assignments, const std::string& by) {
  for (const std::string& text : sweeps) {
    const std::string key = text.substr(0, text.find('='));
    for (const std::string& fixed : assignments)
      if (names(fixed, key))
        Told{option}.refuse_axis(fmt::format("{} is fixed too, by {} {}", key, by, fixed), "one of them");
  }
}

}  // namespace rehearse::cli
