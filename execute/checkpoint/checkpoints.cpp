// See checkpoints.h.
#include "execute/checkpoint/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "execute/data.h"
#include "execute/performer.h"
#include "execute/processes/identity.h"
#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/plan/keys.h"
#include "sim/plan/performed_keys.h"

namespace rehearse::execute {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_checkpoint(const std::string& place, const std::string& why, const std::string& hint) {
  throw InputError(Diagnostic{place, 0, 0, "", why, hint});
}

// What a step of reinforcement learning is; where and how its phases are performed may differ.
void add_keys_of_learning(const plan::Scenario& scenario, bool plan, CheckpointKeys& keys) {
  for (const plan::Key& key : plan::keys()) {
    if (!scenario.reinforcement.given || key.section() != "reinforcement") continue;
    const bool of_critic = key.path == "reinforcement.gamma" || key.path == "reinforcement.gae_lambda" ||
                           key.path == "reinforcement.value_clip";
    if (of_critic && !scenario.reinforcement.has_critic()) continue;
    const bool how = key.path.starts_with("reinforcement.generation") || key.path == "reinforcement.offload" ||
                     key.path == "reinforcement.scoring_micro_batch";
    if (const auto text = plan::value_text(key, scenario); text && how == plan) keys.emplace_back(key.path, *text);
  }
}

// Sorted, as a manifest gives them back.
CheckpointKeys keys_of(const plan::Scenario& scenario, bool plan) {
  CheckpointKeys keys;
  add_keys_of_learning(scenario, plan, keys);
  for (const auto& [key, value] : plan::performed_keys(scenario)) {
    if (key == "training.first_weights") continue;  // nothing is left of them
    const bool trained = key.starts_with("model.") || key.starts_with("training.");
    if (trained != plan && key != "cluster.threads_per_rank") keys.emplace_back(key, value);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::string data_trained_on(const plan::Scenario& scenario, const Options& options) {
  if (scenario.reinforcement.given) return "prompts that are drawn";
  return scenario.model.is_transformer() ? fingerprint_of_file(data_file(options.data)) : "made examples";
}

std::string value_of_key(const CheckpointKeys& keys, const std::string& key) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const auto& k) { return k.first == key; });
  return found == keys.end() ? "not set" : found->second;
}

// The first key of which the two say something else; nothing: they say the same.
std::optional<std::string> first_difference(const CheckpointKeys& saved, const CheckpointKeys& ours) {
  for (const CheckpointKeys* keys : {&saved, &ours})
    for (const auto& [key, value] : *keys)
      if (value_of_key(saved, key) != value_of_key(ours, key)) return key;
  return {};
}

// That what was saved is of the run we are about to do.
void check_not_foreign(const Manifest& saved, const plan::Scenario& scenario, const Options& options,
                       const std::string& file) {
  const CheckpointKeys ours = keys_of(scenario, false);
  if (const auto key = first_difference(saved.trained, ours))
    refuse_checkpoint(file,
                      fmt::format("is of another run: {} is {} there, {} here", *key, value_of_key(saved.trained, *key),
                                  value_of_key(ours, *key)),
                      "the scenario that wrote it, or another folder");
  if (const std::string data = data_trained_on(scenario, options); saved.data != data)
    refuse_checkpoint(file, fmt::format("is of a run on other data: {} there, {} here", saved.data, data), "--data");
  if (saved.step >= options.steps)
    refuse_checkpoint(file, fmt::format("is of step {}: nothing of {} steps is left to do", saved.step, options.steps),
                      "more --steps");
}

// Of local steps what each worker keeps is its own, which no other plan has a place for.
void check_workers_alike(const Manifest& saved, const plan::Scenario& scenario, const std::string& folder) {
  const std::string there = value_of_key(saved.plan, "plan.local_steps");
  const bool apart = there != "not set" && there != "0";
  if (!apart && !scenario.plan.steps_apart()) return;
  refuse_checkpoint(folder + "/manifest.json",
                    fmt::format("is of another plan (plan.local_steps {} there, {} here): with local steps each worker "
                                "has parameters and optimizer states of its own",
                                apart ? there : "0", scenario.plan.local_steps),
                    "resume with the plan that wrote it, which the manifest names");
}

// The root decides for all, and no other looks before it has tidied up.
std::int64_t first_step_of(const plan::Scenario& scenario, const Options& options, World& world) {
  std::string step;
  if (world.root()) step = fmt::to_string(begin_in_folder(scenario, options).step);
  return std::stoll(world.from_root(step));
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Beginning find_beginning(const plan::Scenario& scenario, const Options& options) {
  const CheckpointOptions& wish = options.checkpoint;
  if (std::error_code error; fs::exists(wish.folder, error) && !fs::is_directory(wish.folder, error))
    refuse_checkpoint(wish.folder, "exists and is no folder", "--checkpoint names a folder, or one to be made");
  // Killed after the last step: what there is to say of the run takes a step.
  const std::int64_t step =
      last_checkpoint_before(wish.folder, wish.restarts > 0 ? options.steps : std::numeric_limits<std::int64_t>::max());
  if (step == 0) {
    if (wish.resume && wish.restarts == 0)
      refuse_checkpoint(wish.folder, "has no checkpoint to resume", "without --resume the run begins anew");
    return {};
  }
  const std::string last = checkpoint_path(wish.folder, step);
  if (!wish.resume && wish.restarts == 0)
    refuse_checkpoint(wish.folder, fmt::format("has checkpoints already, the last of step {}", step),
                      "--resume goes on from there; or name another folder");
  Beginning beginning{step, read_manifest(last)};
  check_not_foreign(*beginning.manifest, scenario, options, last + "/manifest.json");
  return beginning;
}

Beginning begin_in_folder(const plan::Scenario& scenario, const Options& options) {
  Beginning beginning = find_beginning(scenario, options);
  fs::create_directories(options.checkpoint.folder);
  remove_checkpoints_after(options.checkpoint.folder, beginning.step);
  return beginning;
}

bool checkpoint_due(const Options& options, std::int64_t steps_done) {
  const int every = options.checkpoint.every;
  return steps_done == options.steps || (every > 0 && steps_done % every == 0);
}

Manifest manifest_of_run(const plan::Scenario& scenario, const Options& options, std::int64_t step) {
  Manifest m;
  m.step = step, m.steps = options.steps;
  m.data = data_trained_on(scenario, options);
  m.trained = keys_of(scenario, false), m.plan = keys_of(scenario, true);
  m.kind = options.checkpoint.kind;
  return m;
}

Checkpoints::Checkpoints(const plan::Scenario& scenario, const Options& options, World& world)
    : scenario_(scenario),
      options_(options),
      wish_(options.checkpoint),
      ranks_(scenario.plan.served() ? static_cast<int>(scenario.plan.servers) : scenario.grid().ranks()),
      first_holder_(scenario.plan.served() ? scenario.grid().ranks() : 0),
      first_(first_step_of(scenario, options, world)),
      next_(first_ + 1),
      asked_(world, wish_.folder + "/" + kNowFile, first_, options.steps) {
  if (first_ == 0) return;
  Manifest manifest = read_manifest(checkpoint_path(wish_.folder, first_));
  same_plan_ = manifest.plan == keys_of(scenario, true) && manifest.kind != CheckpointKind::full;
  losses_ = manifest.losses;
  bases_[first_] = manifest.bases;
  if (!same_plan_) check_workers_alike(manifest, scenario_, checkpoint_path(wish_.folder, first_));
  saved_ = std::make_unique<SavedRanks>(checkpoint_path(wish_.folder, first_), std::move(manifest));
}

Checkpoints::~Checkpoints() {
  for (auto& [rank, writer] : writers_)
    if (writer->thread.joinable()) writer->thread.join();
}

void Checkpoints::add(int rank, RankState state) {
  auto writer = std::make_unique<Writer>();
  writer->state.emplace(std::move(state));
  writers_[rank] = std::move(writer);
}

void Checkpoints::restore(int rank, const RankMemory& memory) {
  if (saved_ == nullptr) return;
  Writer& writer = *writers_.at(rank);
  const StateFile* const file = saved_->restore(*writer.state, memory, same_plan_);
  if (file == nullptr || wish_.kind != CheckpointKind::incremental) return;
  // What was read is what the next checkpoint may be based on.
  std::vector<std::byte> block;
  writer.changed.take(writer.state->header(), [&](std::int64_t offset, std::int64_t bytes) {
    return writer.state->part(memory, offset, bytes, block);
  });
  const StateFileFacts facts = saved_->manifest().files.at(static_cast<std::size_t>(writer.state->header().rank));
  writer.base = StateBase{first_, facts.bytes, facts.digest};
  for (const StateFile* at = file; at->base() != nullptr; at = at->base()) ++writer.since_whole;
}

void Checkpoints::save(int rank, std::int64_t steps_done, const RankMemory& memory) {
  Writer& writer = *writers_.at(rank);
  const Clock::time_point begin = Clock::now();
  finish(rank);
  if (wish_.background) {
    writer.copy.resize(static_cast<std::size_t>(writer.state->payload_bytes()));
    writer.state->copy_out(memory, writer.copy.data());
    writer.thread = std::thread([this, &writer, steps_done] {
      try {
        write(writer, steps_done, nullptr);
      } catch (...) {
        writer.error = std::current_exception();
      }
    });
  } else {
    write(writer, steps_done, &memory);
  }
  writer.use.stall_s += seconds_since(begin);
}

void Checkpoints::finish(int rank) {
  Writer& writer = *writers_.at(rank);
  if (writer.thread.joinable()) writer.thread.join();
  if (writer.error) std::rethrow_exception(std::exchange(writer.error, nullptr));
}

std::string Checkpoints::file_name(int rank) const {
  return wish_.kind == CheckpointKind::full ? part_file_name(rank) : state_file_name(rank);
}

// Of an incremental checkpoint a whole one where most of it has changed: then it needs no base.
StateHeader Checkpoints::what_to_write(Writer& writer, std::int64_t step, const StatePayload& payload) {
  constexpr double kMost = 0.9;
  StateHeader header = writer.state->header();
  if (wish_.kind == CheckpointKind::full) header = whole_->part_of(header);
  header.step = step;
  if (wish_.kind != CheckpointKind::incremental) return header;
  StateHeader changed = header;
  changed.stored = writer.changed.take(header, payload);
  const bool most = static_cast<double>(changed.stored_bytes()) >= kMost * static_cast<double>(header.payload_bytes);
  if (!writer.base || most || writer.since_whole + 1 >= wish_.base_every) {
    writer.since_whole = 0;
    return header;
  }
  ++writer.since_whole;
  changed.base = writer.base;
  return changed;
}

// From the copy, or without one from the memory.
void Checkpoints::write(Writer& writer, std::int64_t step, const RankMemory* memory) {
  const Clock::time_point begin = Clock::now();
  std::vector<std::byte> block;
  const StatePayload payload = [&](std::int64_t offset, std::int64_t bytes) {
    return memory != nullptr ? writer.state->part(*memory, offset, bytes, block) : writer.copy.data() + offset;
  };
  const StateHeader header = what_to_write(writer, step, payload);
  const std::string checkpoint = checkpoint_path(wish_.folder, step), name = file_name(header.rank);
  fs::create_directories(checkpoint);
  write_state_file(checkpoint + "/" + name, header, payload);
  if (wish_.kind == CheckpointKind::incremental) {
    const StateFileFacts facts = state_file_facts(checkpoint, name);
    writer.base = StateBase{step, facts.bytes, facts.digest};
  }
  ++writer.use.written;
  writer.use.bytes = header.stored_bytes();
  writer.use.all_bytes += header.stored_bytes();
  writer.use.write_s += seconds_since(begin);
}

std::vector<int> Checkpoints::look(const TrainingLosses& losses) {
  const auto known = static_cast<std::int64_t>(losses.of_steps.size());
  while (next_ <= options_.steps) {
    // What is asked for is known before a step's loss is (asked_now.h).
    while (next_ <= known && !checkpoint_due(options_, next_) && !asked_.known_after(next_)) ++next_;
    std::vector<int> missing;
    for (int rank = 0; rank < ranks_; ++rank)
      if (next_ > known || !fs::exists(checkpoint_path(wish_.folder, next_) + "/" + file_name(rank)))
        missing.push_back(first_holder_ + rank);
    if (!missing.empty()) return missing;
    write_manifest_of(next_, losses);
    if (next_++ < options_.steps) keep_last();  // until the end there is one to go on from, whoever is killed when
  }
  return {};
}

void Checkpoints::write_manifest_of(std::int64_t step, const TrainingLosses& losses) {
  const std::string checkpoint = checkpoint_path(wish_.folder, step);
  Manifest m = manifest_of_run(scenario_, options_, step);
  m.losses = losses.until(step);
  if (wish_.kind == CheckpointKind::full) {
    whole_->put_together(checkpoint, step);
    m.files.push_back(state_file_facts(checkpoint, kWholeFile));
  } else {
    for (int rank = 0; rank < ranks_; ++rank) m.files.push_back(state_file_facts(checkpoint, state_file_name(rank)));
  }
  if (wish_.kind == CheckpointKind::incremental) find_bases(checkpoint, m);
  write_manifest(checkpoint, m);
}

// The bases of its files, and theirs.
void Checkpoints::find_bases(const std::string& checkpoint, Manifest& manifest) {
  for (const StateFileFacts& file : manifest.files) {
    const StateHeader header = StateFile::header_of(checkpoint, file.name);
    if (!header.base) continue;
    manifest.bases.insert(header.base->step);
    const std::set<std::int64_t>& theirs = bases_[header.base->step];
    manifest.bases.insert(theirs.begin(), theirs.end());
  }
  bases_[manifest.step] = manifest.bases;
}

void Checkpoints::keep_last() const {
  if (wish_.keep > 0) keep_last_checkpoints(wish_.folder, wish_.keep);
}

}  // namespace rehearse::execute
