// result.json back into a Result: what result.cpp derives is turned round (FLOPs from rates, the device's peak from the
// utilisation). Seconds are decimals of whole picoseconds; a double keeps them exactly up to an hour and a quarter.
#include "sim/result/read_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "sim/base/diagnostics.h"
#include "sim/base/input_files.h"
#include "sim/base/interrupt.h"
#include "sim/result/json_reader.h"

namespace rehearse::result {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kSchema = "rehearse.result/1";

void read_scenario(JsonReader& in, const Json& document, Result& r) {
  const Json& scenario = in.object(document, "", "scenario");
  for (const auto& [key, value] : scenario.items()) {
    if (!value.is_string())
      in.fail("scenario." + key, fmt::format("expected text, found {}", value.type_name()));
    else if (key == "name")
      r.scenario_name = value.get<std::string>();
    else if (key == "file")
      r.scenario_file = value.get<std::string>();
    else
      r.scenario[key] = value.get<std::string>();
  }
}

void read_times(JsonReader& in, const Json& document, Result& r) {
  r.step_time_ps = in.picoseconds(document, "", "step_time_s");
  if (r.step_time_ps < 0) in.fail("step_time_s", "expected a positive number of seconds");
  r.tokens_per_s = in.number(document, "", "tokens_per_s");
  r.tokens_per_s_per_gpu = in.number(document, "", "tokens_per_s_per_gpu");
  const double rank_seconds = static_cast<double>(r.step_time_ps) * 1e-12 * static_cast<double>(r.ranks);
  const double model_rate = in.number(document, "", "model_tflops_per_gpu") * 1e12;
  r.model_flops = model_rate * rank_seconds;
  r.hardware_flops = in.number(document, "", "hardware_tflops_per_gpu") * 1e12 * rank_seconds;
  const double mfu = in.number(document, "", "mfu");
  r.peak_flops_per_gpu = mfu > 0 ? model_rate / mfu : 0;
  r.flop_formula = in.text(document, "", "flop_formula");
  const Json& breakdown = in.object(document, "", "breakdown_s");
  for (std::size_t i = 0; i < kShares; ++i) {
    const auto share = static_cast<Share>(i);
    const auto found = breakdown.find(kShareNames[i]);
    if (may_be_absent(share) && found == breakdown.end()) continue;
    if (needs_common_clock(share) && found != breakdown.end() && found->is_null())
      r.late_ranks_known = false;
    else
      r.breakdown_ps[i] = in.picoseconds(breakdown, "breakdown_s", kShareNames[i]);
  }
}

void read_memory(JsonReader& in, const Json& document, Result& r) {
  const Json& memory = in.object(document, "", "memory");
  r.memory_capacity = in.integer(memory, "memory", "capacity_bytes");
  if (memory.contains("headroom_bytes")) r.memory_headroom = in.integer(memory, "memory", "headroom_bytes");
  r.memory_fits = in.boolean(memory, "memory", "fits");
  const Json& stages = in.array(memory, "memory", "stages");
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::string path = fmt::format("memory.stages[{}]", i);
    if (!stages[i].is_object()) {
      in.fail("memory.stages", fmt::format("expected objects, found {}", stages[i].type_name()));
      continue;
    }
    const auto bytes = [&](std::string_view key) { return in.integer(stages[i], path, key); };
    r.stages.push_back({static_cast<int>(bytes("stage")), bytes("parameters"), bytes("gradients"), bytes("optimizer"),
                        bytes("activations"), bytes("workspace"), bytes("communication"), bytes("framework"),
                        bytes("peak"), in.text(stages[i], path, "where"),
                        stages[i].contains("host") ? bytes("host") : 0});
    if (!stages[i].contains("device")) continue;
    StageMemory& stage = r.stages.back();
    stage.device = in.text(stages[i], path, "device");
    stage.capacity = bytes("capacity_bytes"), stage.headroom = bytes("headroom_bytes");
  }
  if (!memory.contains("host")) return;
  const Json& host = in.object(memory, "memory", "host");
  r.host_bytes = in.integer(host, "memory.host", "node_bytes");
  r.host_capacity = in.integer(host, "memory.host", "capacity_bytes");
}

void read_trust(JsonReader& in, const Json& document, Result& r) {
  constexpr std::array<std::string_view, 4> kNames = {"exact", "interpolated", "extrapolated", "spec"};
  const Json& coverage = in.object(document, "", "coverage");
  for (std::size_t i = 0; i < kNames.size(); ++i) r.coverage[i] = in.number(coverage, "coverage", kNames[i]);
  if (const auto found = coverage.find("measured_in"); found != coverage.end() && found->is_array())
    for (const Json& what : *found)
      if (what.is_string()) r.measured_in.push_back(what.get<std::string>());
  const Json& interval = in.array(document, "", "interval_s");
  const auto fits = [](const Json& end) { return end.is_number() && JsonReader::is_time(end.get<double>()); };
  if (interval.size() == 2 && fits(interval[0]) && fits(interval[1]) && interval[0] <= interval[1]) {
    r.interval_low_s = interval[0].get<double>();
    r.interval_high_s = interval[1].get<double>();
  } else {
    in.fail("interval_s", "expected two numbers of seconds, low and high, each from 0 to 9e6 (100 days)");
  }
  r.limited_by = in.text(document, "", "limited_by");
}

void read_engine(JsonReader& in, const Json& document, Result& r) {
  const Json& engine = in.object(document, "", "engine");
  r.ops = in.integer(engine, "engine", "ops");
  r.events = in.integer(engine, "engine", "events");
  r.wall_s = in.number(engine, "engine", "wall_s");
  r.ranks_simulated = in.integer(engine, "engine", "ranks_simulated");
  r.peak_rss_bytes = in.integer(engine, "engine", "peak_rss_bytes");
  const auto losses = [&](const Json& of, const std::string& path, const std::string& key) {
    std::vector<double> out;
    for (const Json& loss : in.array(of, path, key)) {
      if (loss.is_number())
        out.push_back(loss.get<double>());
      else if (loss.is_null())  // JSON has no other word for a loss that is no finite number
        out.push_back(std::numeric_limits<double>::quiet_NaN());
      else
        in.fail(path.empty() ? key : path + "." + key,
                fmt::format("expected numbers or null, found {}", loss.type_name()));
    }
    return out;
  };
  r.loss = losses(document, "", "loss");
  if (!document.contains("loss_parts")) return;
  const Json& parts = in.object(document, "", "loss_parts");
  for (const auto& [name, of_steps] : parts.items()) {
    r.loss_parts.push_back({name, losses(parts, "loss_parts", name)});
    if (r.loss_parts.back().of_steps.size() != r.loss.size())
      in.fail("loss_parts." + name, fmt::format("expected {} numbers, as many as losses", r.loss.size()));
  }
}

[[noreturn]] void fail_at(const std::string& file, std::string_view text, std::size_t at, std::string message) {
  at = std::min(at, text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  const std::size_t start = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  const std::size_t column = start == std::string_view::npos ? at + 1 : at - start;
  throw InputError(Diagnostic{file, static_cast<int>(line), static_cast<int>(column), "", std::move(message),
                              "the file was cut off or edited"});
}

Json parse(const std::string& file, std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail_at(file, text, error.byte == 0 ? 0 : error.byte - 1, "this is not JSON from here on");
  } catch (const Json::out_of_range& error) {  // "... number overflow parsing '1e400'", without its place
    const std::string_view what = error.what();
    const std::size_t end = what.rfind('\''), begin = end == 0 ? end : what.rfind('\'', end - 1);
    const std::string_view number =
        end == std::string_view::npos || begin == std::string_view::npos ? "" : what.substr(begin + 1, end - begin - 1);
    fail_at(file, text, number.empty() ? 0 : text.find(number),
            fmt::format("expected a number that fits 64 bits, found {}", number));
  }
}

// A whole regular file: results grow with the plan, so there is no limit of size here.
std::string read_file(const std::string& dir, const char* name) {
  const std::string path = (fs::path(dir) / name).string();
  struct stat status {};
  const auto fail = [&](const std::string& what) {
    throw InputError(
        Diagnostic{path, 0, 0, "", what, "rehearse simulate and rehearse execute write results with -o DIR"});
  };
  if (::stat(path.c_str(), &status) != 0)
    fail(errno == ENOENT ? fmt::format("no such file: {} holds no result", dir) : std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("is no regular file");
  note_input(path);
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  constexpr std::size_t kPiece = 1 << 22;  // between two questions whether to stop
  for (std::size_t at = 0; at < text.size(); at += kPiece) {
    check_interrupt();
    if (!in.read(text.data() + at, static_cast<std::streamsize>(std::min(kPiece, text.size() - at))))
      fail("cannot be read");
  }
  return text;
}

}  // namespace

std::string id_of(const StoredResult& stored, const OpRow& row) {
  const OpText& text = stored.text_of(row);
  return fmt::format("{}/{}/{}/{}/{}", row.rank, row.step, row.slot, text.body, text.op);
}

Result parse_result_json(const std::string& file, std::string_view text) {
  const Json document = parse(file, text);
  const auto schema = document.is_object() ? document.find("schema") : document.end();
  if (schema == document.end() || *schema != kSchema)
    throw InputError(Diagnostic{file, 1, 1, "schema",
                                fmt::format("expected \"{}\", found {}", kSchema,
                                            schema == document.end() ? std::string("none") : schema->dump()),
                                "result.json of a result directory is expected"});
  JsonReader in(file, text);
  Result r;
  r.source = in.text(document, "", "source");
  r.ranks = in.integer(document, "", "ranks");
  r.steps = in.integer(document, "", "steps");
  read_scenario(in, document, r);
  read_times(in, document, r);
  read_memory(in, document, r);
  read_trust(in, document, r);
  read_engine(in, document, r);
  read_answers(in, document, r);
  in.finish();
  return r;
}

StoredResult read_directory(const std::string& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error))
    throw InputError(Diagnostic{dir, 0, 0, "", fs::exists(dir, error) ? "is no directory" : "no such directory",
                                "name a directory that rehearse simulate -o or rehearse execute -o wrote"});
  StoredResult stored;
  stored.directory = dir;
  stored.result = parse_result_json((fs::path(dir) / "result.json").string(), read_file(dir, "result.json"));
  parse_ops_csv((fs::path(dir) / "ops.csv").string(), read_file(dir, "ops.csv"), stored);
  if (const fs::path steps = fs::path(dir) / "steps.csv"; fs::exists(steps, error))
    stored.history = parse_steps_csv(steps.string(), read_file(dir, "steps.csv"));
  return stored;
}

}  // namespace rehearse::result
