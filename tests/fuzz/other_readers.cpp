// Published measurements, lists of plans, training data, checkpoints, and what launchers put into the environment.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/validate_collectives.h"
#include "execute/checkpoint/folder.h"
#include "execute/checkpoint/state_file.h"
#include "execute/data.h"
#include "execute/processes/launch_environment.h"
#include "reports/ledgers/ledger.h"
#include "reports/ledgers/local_ledger.h"
#include "sim/model/model.h"
#include "sim/run/queue_file.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/small_plans.h"

namespace rehearse::fuzz {
namespace {

void read_published(const std::string& bytes) {
  (void)reports::read_measurements("input.csv", bytes);
}

void read_published_collectives(const std::string& bytes) {
  (void)cli::collective_ledger("input.csv", bytes, "");
}

void read_local_plans(const std::string& bytes) {
  (void)reports::read_local_plans(put_file("input.yaml", bytes));
}

// A queue that can be is simulated, where it is short.
void read_queue(const std::string& bytes) {
  const run::QueueFile file = run::read_queue_file(put_file("input.yaml", bytes));
  const std::vector<double> seconds(file.entries.size(), 60);
  std::vector<std::size_t> entry_of;
  const run::QueueRequest request = run::queue_request(file, 8, seconds, seconds, entry_of);
  if (request.jobs.size() > 1000) return;
  const run::QueueOutcome outcome = run::simulate_queue(request);
  for (const result::QueuedRun& run : outcome.runs)
    if (!(run.arrive_s <= run.start_s && run.start_s < run.end_s && run.end_s <= outcome.makespan_s))
      fail("a job that does not come, start and end in this order");
}

// A variable a line, NAME=VALUE.
void read_environment(const std::string& bytes) {
  std::map<std::string, std::string> variables;
  std::istringstream in(bytes);
  for (std::string line; std::getline(in, line);)
    if (const std::size_t equals = line.find('='); equals != std::string::npos)
      variables[line.substr(0, equals)] = line.substr(equals + 1);
  const execute::Launch launch = execute::read_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
  if (launch.rank < 0 || launch.rank >= launch.ranks) fail("a rank that is none");
  execute::check_ranks(launch, 8);
}

// As text and as uint16 tokens; a sequence of it is loaded.
void read_data(const std::string& bytes) {
  static const model::Model model =
      plan::read_scenario(put_file("scenario.yaml", small_scenario("dgx-a100", 2)), {}, REHEARSE_SOURCE_DIR).model;
  constexpr std::int64_t kLength = 8;
  for (const char* name : {"input.txt", "input.bin"}) {
    const auto data = execute::open_data(model, kLength, 1, put_file(name, bytes));
    std::vector<std::int32_t> tokens(kLength * 2);
    const std::vector<std::int64_t> numbers = {0, data->examples() * 3 + 1};
    data->load(program::InputKind::targets, numbers, static_cast<std::int64_t>(tokens.size()), tokens.data());
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= model.vocab) fail("a token outside the vocabulary");
  }
}

// Under its own checksum, so that what is behind that is reached; and as it is.
void read_checkpoint_manifest(const std::string& bytes) {
  const std::string place = "step-0000000002/manifest.json";
  std::filesystem::create_directories(temporary_folder() + "/step-0000000002");
  nlohmann::json j = nlohmann::json::parse(bytes, nullptr, false);
  std::string text = bytes;
  if (j.is_object()) {
    j.erase("xxh3_128");
    try {
      j["xxh3_128"] = execute::digest_of(j.dump());
      text = j.dump();
    } catch (const nlohmann::json::exception&) {  // no UTF-8
    }
  }
  const std::string path = put_file(place, text);
  const execute::Manifest m = execute::read_manifest(std::filesystem::path(path).parent_path());
  if (m.losses.of_steps.size() != static_cast<std::size_t>(m.step)) fail("losses of other steps");
}

// The input is the header of a rank's file, around which the rest is as it should be.
void read_checkpoint_state(const std::string& bytes) {
  constexpr std::int64_t kPayload = 64;
  std::string content = "RHCKSTAT";
  const auto append = [&content](auto value) { content.append(reinterpret_cast<const char*>(&value), sizeof value); };
  append(execute::kCheckpointVersion);
  append(static_cast<std::uint64_t>(bytes.size()));
  content += bytes + std::string(kPayload, 'x');
  const std::string digest = execute::digest_of(content);
  append(std::stoull(digest.substr(16), nullptr, 16));
  append(std::stoull(digest.substr(0, 16), nullptr, 16));
  const std::string path = put_file("rank-0000.state", content);
  const execute::StateFile file(temporary_folder(),
                                {"rank-0000.state", static_cast<std::int64_t>(content.size()), digest});
  std::vector<std::byte> part(kPayload);
  for (const execute::StateTensor& tensor : file.header().tensors)
    for (const execute::StateRun& run : tensor.runs) {
      file.read(run.offset, run.count * size_of(tensor.type), part.data());
      if (run.global + run.count > tensor.elements) fail("a part outside of its tensor");
    }
  for (const execute::StateBuffer& b : file.header().buffers)
    file.read(b.offset, b.elements * size_of(b.type), part.data());
}

}  // namespace

void add_other_readers(std::vector<Reader>& list) {
  list.push_back({.name = "published", .read = read_published, .seeds = {"scenarios/published/measurements.csv"}});
  list.push_back({.name = "published-collectives", .read = read_published_collectives, .runs = 200});
  list.push_back({.name = "local-plans",
                  .read = read_local_plans,
                  .seeds = {"scenarios/local/plans.yaml", "scenarios/gpu/plans.yaml"},
                  .runs = 200});
  list.push_back({.name = "queue", .read = read_queue, .seeds = {"scenarios/queues/*.yaml"}, .runs = 200});
  list.push_back({.name = "environment", .read = read_environment});
  list.push_back({.name = "data", .read = read_data});
  list.push_back({.name = "checkpoint-manifest", .read = read_checkpoint_manifest, .runs = 200});
  list.push_back({.name = "checkpoint-state", .read = read_checkpoint_state, .runs = 200});
}

}  // namespace rehearse::fuzz
