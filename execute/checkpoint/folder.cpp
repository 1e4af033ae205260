// See folder.h.
#include "execute/checkpoint/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "sim/base/diagnostics.h"
#include "sim/base/document.h"
#include "sim/result/output_file.h"

namespace rehearse::execute {
namespace {

namespace fs = std::filesystem;
using ManifestJson = nlohmann::json;

constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kManifestKind = "rehearse.checkpoint";
constexpr std::string_view kStepPrefix = "step-";

[[noreturn]] void refuse_manifest(const std::string& file, const std::string& why, const std::string& hint = "") {
  throw InputError(Diagnostic{file, 0, 0, "", why, hint});
}

// The step of a checkpoint's folder; nothing: it is none.
std::optional<std::int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return {};
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0 || checkpoint_name(step) != name) return {};
  return step;
}

CheckpointKind kind_of_name(const std::string& name) {
  const auto* const found = std::find(kCheckpointKinds.begin(), kCheckpointKinds.end(), name);
  if (found == kCheckpointKinds.end()) throw std::invalid_argument(fmt::format("no kind '{}'", name));
  return static_cast<CheckpointKind>(found - kCheckpointKinds.begin());
}

ManifestJson json_of_keys(const CheckpointKeys& keys) {
  ManifestJson out = ManifestJson::object();
  for (const auto& [key, value] : keys) out[key] = value;
  return out;
}

CheckpointKeys keys_of_json(const ManifestJson& j) {
  CheckpointKeys keys;
  for (const auto& [key, value] : j.items()) keys.emplace_back(key, value.get<std::string>());
  return keys;
}

std::vector<double> losses_of_json(const ManifestJson& j) {
  std::vector<double> losses;
  for (const ManifestJson& loss : j)  // JSON has no number for what is none
    losses.push_back(loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>());
  return losses;
}

Manifest manifest_of(const ManifestJson& j) {
  Manifest m;
  m.step = j.at("step"), m.steps = j.at("steps");
  m.data = j.at("data");
  m.trained = keys_of_json(j.at("trained")), m.plan = keys_of_json(j.at("plan"));
  m.losses.of_steps = losses_of_json(j.at("losses"));
  if (const auto parts = j.find("loss_parts"); parts != j.end())
    for (const ManifestJson& part : *parts) {
      m.losses.parts.push_back(losses_of_json(part));
      if (m.losses.parts.back().size() != m.losses.of_steps.size())
        throw std::invalid_argument("loss_parts of other steps than losses");
    }
  for (const ManifestJson& f : j.at("files")) m.files.push_back({f.at("name"), f.at("bytes"), f.at("xxh3_128")});
  if (m.step < 0 || m.files.empty() || m.losses.of_steps.size() != static_cast<std::size_t>(m.step))
    throw std::invalid_argument(
        fmt::format("{} losses of {} steps, {} files", m.losses.of_steps.size(), m.step, m.files.size()));
  m.kind = kind_of_name(j.value("kind", std::string(name_of(CheckpointKind::sharded))));
  if (const auto bases = j.find("bases"); bases != j.end()) m.bases = bases->get<std::set<std::int64_t>>();
  if (!m.bases.empty() && *m.bases.rbegin() >= m.step)
    throw std::invalid_argument(fmt::format("of step {}, and based on step {}", m.step, *m.bases.rbegin()));
  if (m.kind == CheckpointKind::full) {
    if (m.files.size() != 1 || m.files.front().name != kWholeFile)
      throw std::invalid_argument(fmt::format("of kind full, and its file is not {}", kWholeFile));
    return m;
  }
  for (std::size_t rank = 0; rank < m.files.size(); ++rank)
    if (m.files[rank].name != state_file_name(static_cast<int>(rank)))
      throw std::invalid_argument(fmt::format("'{}' is no name of rank {}'s file", m.files[rank].name, rank));
  return m;
}

// Ours: what write_state_file() and write_manifest() make, finished or not.
bool is_checkpoint_file(const std::string& name) {
  static const std::regex ours(R"((rank-\d{4,}\.(state|part)|whole\.state|manifest\.json)(\.\d+-\d+\.tmp)?)");
  return std::regex_match(name, ours);
}

void remove_checkpoint(const std::string& checkpoint) {
  std::error_code ignored;
  fs::remove(checkpoint + "/" + kManifestFile, ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint, ignored))
    if (is_checkpoint_file(entry.path().filename().string())) fs::remove(entry.path(), ignored);
  fs::remove(checkpoint, ignored);  // stays if there is more in it
}

// Folders named as checkpoints are; links are none.
std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (const auto step = step_of_name(entry.path().filename().string()); step && !entry.is_symlink())
      steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool has_manifest(const std::string& folder, std::int64_t step) {
  return fs::exists(folder + "/" + checkpoint_name(step) + "/" + kManifestFile);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:010}", kStepPrefix, step);
}

std::string checkpoint_path(const std::string& folder, std::int64_t step) {
  return folder + "/" + checkpoint_name(step);
}

std::string state_file_name(int rank) {
  return fmt::format("rank-{:04}.state", rank);
}

std::string part_file_name(int rank) {
  return fmt::format("rank-{:04}.part", rank);
}

void write_manifest(const std::string& checkpoint, const Manifest& m) {
  ManifestJson files = ManifestJson::array();
  for (const StateFileFacts& f : m.files)
    files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"xxh3_128", f.digest}});
  ManifestJson j = {{"schema", kManifestKind},
                    {"version", kCheckpointVersion},
                    {"kind", name_of(m.kind)},
                    {"step", m.step},
                    {"steps", m.steps},
                    {"data", m.data},
                    {"trained", json_of_keys(m.trained)},
                    {"plan", json_of_keys(m.plan)},
                    {"losses", m.losses.of_steps},
                    {"files", files}};
  if (!m.bases.empty()) j["bases"] = m.bases;
  if (!m.losses.parts.empty()) j["loss_parts"] = m.losses.parts;
  j["xxh3_128"] = digest_of(j.dump());
  result::write_output(checkpoint + "/" + kManifestFile, j.dump(1) + "\n");
}

namespace {

Manifest parse_manifest(const std::string& checkpoint, const std::string& text) {
  const std::string file = checkpoint + "/" + kManifestFile;
  try {
    ManifestJson j = ManifestJson::parse(text);
    if (!j.is_object() || j.value("schema", "") != kManifestKind) refuse_manifest(file, "is no checkpoint's manifest");
    if (const auto version = j.at("version").get<std::uint32_t>(); version == 0 || version > kCheckpointVersion)
      refuse_manifest(
          file,
          fmt::format("is of version {} of checkpoints; this program reads version {}", version, kCheckpointVersion),
          "a later rehearse reads it");
    const std::string said = j.at("xxh3_128");
    j.erase("xxh3_128");
    if (digest_of(j.dump()) != said) refuse_manifest(file, "is damaged: its checksum is not that of its content");
    Manifest manifest = manifest_of(j);
    if (checkpoint_name(manifest.step) != fs::path(checkpoint).filename())
      refuse_manifest(file, fmt::format("is of step {}, which is not its folder's", manifest.step));
    return manifest;
  } catch (const InputError&) {
    throw;
  } catch (const std::exception& error) {
    refuse_manifest(file, fmt::format("cannot be read: {}", error.what()));
  }
}

// No input of the command (sim/base/input_files.h), which may yet write it anew. Throws InputError.
std::set<std::int64_t> bases_of(const std::string& checkpoint) {
  std::ostringstream text;
  text << std::ifstream(checkpoint + "/" + kManifestFile).rdbuf();
  return parse_manifest(checkpoint, text.str()).bases;
}

}  // namespace

Manifest read_manifest(const std::string& checkpoint) {
  return parse_manifest(checkpoint, read_text_file(checkpoint + "/" + kManifestFile));
}

std::vector<std::int64_t> checkpoints_in(const std::string& folder) {
  std::vector<std::int64_t> steps = steps_in(folder);
  std::erase_if(steps, [&](std::int64_t step) { return !has_manifest(folder, step); });
  return steps;
}

std::int64_t last_checkpoint_before(const std::string& folder, std::int64_t steps) {
  std::int64_t last = 0;
  for (const std::int64_t step : checkpoints_in(folder))
    if (step < steps) last = step;
  return last;
}

void remove_checkpoints_after(const std::string& folder, std::int64_t last) {
  for (const std::int64_t step : steps_in(folder))
    if (step > last || !has_manifest(folder, step)) remove_checkpoint(folder + "/" + checkpoint_name(step));
}

void keep_last_checkpoints(const std::string& folder, int keep) {
  const std::vector<std::int64_t> steps = checkpoints_in(folder);
  const auto kept = static_cast<std::size_t>(keep);
  if (steps.size() <= kept) return;
  const auto first_kept = steps.end() - keep;
  std::set<std::int64_t> needed;
  try {
    std::for_each(first_kept, steps.end(),
                  [&](std::int64_t step) { needed.merge(bases_of(folder + "/" + checkpoint_name(step))); });
  } catch (const InputError&) {
    return;
  }
  std::for_each(steps.begin(), first_kept, [&](std::int64_t step) {
    if (!needed.contains(step)) remove_checkpoint(folder + "/" + checkpoint_name(step));
  });
}

}  // namespace rehearse::execute
