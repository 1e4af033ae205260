// See reinforcement.h.
#include "reports/reinforcement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "reports/text.h"
#include "sim/base/units.h"
#include "sim/result/json_writer.h"

namespace rehearse::reports {
namespace {

using result::ReinforcementPhase;

double share_of_step(const result::Result& r, std::int64_t ps) {
  return r.step_time_ps > 0 ? static_cast<double>(ps) / static_cast<double>(r.step_time_ps) : 0;
}

// Which devices idle is not measured.
bool knows_idle(const result::Result& r) {
  return r.source != "measured";
}

// "512 sequences"
std::string sequences_of_update(const result::Result& r) {
  const auto found = r.scenario.find("training.global_batch");
  return found == r.scenario.end() ? "a batch" : found->second + " sequences";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> reinforcement_rows(const result::Result& r) {
  const result::Reinforcement& f = r.reinforcement;
  if (!f.known) return {};
  const auto number = [](double n) { return grouped(n); };
  std::vector<std::pair<std::string, std::string>> rows;
  rows.emplace_back(
      "Reinforcement",
      fmt::format("{}, {} prompts x {} samples, {} update{} of {} in {}; {}", f.algorithm,
                  number(static_cast<double>(f.prompts)), f.samples, f.updates, f.updates == 1 ? "" : "s",
                  sequences_of_update(r), format_time(Time::from_ps(f.update_ps)),
                  f.colocated ? "all phases on the same devices"
                              : fmt::format("{} devices train, {} generate{}", f.training_gpus, f.generating_gpus,
                                            f.asynchronous ? ", at once" : ", in turn")));
  rows.emplace_back("Sequences", fmt::format("prompts of {} tokens, responses of {} in the mean, {} at most",
                                             compact(f.prompt_tokens), compact(f.response_tokens), f.longest_response));
  rows.emplace_back(
      "Generation",
      fmt::format("{} tokens a second by {} replica{} of up to {} sequences; prefill {}, {} decode steps of {}",
                  compact(f.generated_tokens_per_s), f.replicas, f.replicas == 1 ? "" : "s", f.sequences_at_once,
                  format_time(Time::from_ps(f.prefill_ps)), f.decode_steps,
                  format_time(Time::from_ps(f.decode_steps > 0 ? f.decode_ps / f.decode_steps : 0))));
  rows.emplace_back(
      "Cache", fmt::format("{} a token, {} of {} a device in use at most", format_bytes(Bytes(f.cache_bytes_per_token)),
                           format_bytes(Bytes(f.most_cached_bytes)), format_bytes(Bytes(f.cache_bytes))));
  rows.emplace_back("Weights", fmt::format("{} from device to device a step", format_bytes(Bytes(f.moved_bytes))));
  const auto from_to = [](const std::vector<double>& of_steps) {
    return fmt::format("{:.4g} in the first step, {:.4g} in the last of {}", of_steps.front(), of_steps.back(),
                       of_steps.size());
  };
  if (!f.rewards.empty()) rows.emplace_back("Reward", from_to(f.rewards));
  if (!f.distances.empty()) rows.emplace_back("Distance", from_to(f.distances) + ", from the reference, a token");
  if (!f.rewards.empty()) return rows;  // which devices idle is not measured
  rows.emplace_back("Idle", fmt::format("{} of all devices' time, pipeline bubbles not counted", percent(f.idle)));
  return rows;
}

Rows phase_rows(const result::Result& r) {
  const bool idle = knows_idle(r);
  Rows rows{{"phase", "time", "of step", "devices"}};
  if (idle) rows.front().emplace_back("idle");
  rows.front().emplace_back("peak");
  for (const ReinforcementPhase& p : r.reinforcement.phases) {
    rows.push_back({p.name, format_time(Time::from_ps(p.ps)), percent(share_of_step(r, p.ps)), p.devices});
    if (idle) rows.back().push_back(percent(p.idle));
    rows.back().push_back(p.peak_bytes > 0 ? format_bytes(Bytes(p.peak_bytes)) : "-");
  }
  return rows;
}

std::string phases_text(const result::Result& r) {
  if (!r.reinforcement.known) return "";
  std::string out = "Phases of the step (peak: memory of the fullest device)\n" + align(phase_rows(r), 2);
  if (r.reinforcement.asynchronous)
    out += wrap("generation goes on while the other phases but weights do, so they add up to more than the step", 2);
  return out + '\n';
}

PhaseComparison compare_phases(const result::Result& first, const result::Result& second) {
  struct Times {
    std::string name;
    std::optional<std::int64_t> first, second;
  };
  std::vector<Times> all;
  const auto add = [&all](const std::string& name, std::int64_t ps, bool is_first) {
    auto found = std::find_if(all.begin(), all.end(), [&name](const Times& t) { return t.name == name; });
    if (found == all.end()) found = all.insert(all.end(), {name, {}, {}});
    (is_first ? found->first : found->second) = ps;
  };
  for (const bool is_first : {true, false}) {
    const result::Result& r = is_first ? first : second;
    for (const ReinforcementPhase& p : r.reinforcement.phases) add(p.name, p.ps, is_first);
  }
  for (const bool is_first : {true, false}) {
    const result::Result& r = is_first ? first : second;
    add("  prefill", r.reinforcement.prefill_ps, is_first), add("  decode", r.reinforcement.decode_ps, is_first);
    add("step", r.step_time_ps, is_first);
  }
  const std::string a = first.source, b = second.source == a ? second.source + " (second)" : second.source;
  Rows rows{{"phase", a, b, "second to first"}};
  PhaseComparison out;
  out.csv = "phase,first_s,second_s\n";
  result::JsonWriter json;
  json.open('{').key("first").text(first.source).key("second").text(second.source).key("phases").open('[');
  for (const Times& t : all) {
    const auto time = [](const auto& ps) { return ps ? format_time(Time::from_ps(*ps)) : std::string("-"); };
    const auto seconds = [](const auto& ps) { return ps ? result::exact_seconds(*ps) : std::string(); };
    const bool both = t.first && t.second && *t.first > 0;
    rows.push_back(
        {t.name, time(t.first), time(t.second),
         both ? fmt::format("{:+.1f}%", 100 * (static_cast<double>(*t.second) / static_cast<double>(*t.first) - 1))
              : "-"});
    const std::string name = t.name.substr(t.name.find_first_not_of(' '));
    out.csv += fmt::format("{},{},{}\n", name, seconds(t.first), seconds(t.second));
    json.open('{').key("name").text(name);
    if (t.first) json.key("first_s").seconds(*t.first);
    if (t.second) json.key("second_s").seconds(*t.second);
    json.close('}');
  }
  json.close(']').close('}');
  out.json = json.str() + "\n";
  out.text = "Phases of a step of reinforcement learning; prefill and decode: of the replica that takes longest\n" +
             align(rows, 2);
  return out;
}

const ReinforcementPhase* longest(const result::Result& r) {
  const auto& phases = r.reinforcement.phases;
  const auto found =
      std::max_element(phases.begin(), phases.end(), [](const auto& a, const auto& b) { return a.ps < b.ps; });
  return found == phases.end() ? nullptr : &*found;
}

std::string longest_phase(const result::Result& r) {
  const ReinforcementPhase* phase = longest(r);
  if (phase == nullptr) return "";
  std::string name = phase->name;
  name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  std::string text = fmt::format("{}, the longest phase: {}, {} of the step", name,
                                 format_time(Time::from_ps(phase->ps)), percent(share_of_step(r, phase->ps)));
  if (knows_idle(r)) text += fmt::format("; devices are idle {} of their time", percent(r.reinforcement.idle));
  return text + '.';
}

Fullest fullest(const result::Result& r) {
  Fullest most;
  if (const result::StageMemory* stage = result::tightest(r.stages); stage != nullptr) most.bytes = stage->peak;
  for (const ReinforcementPhase& phase : r.reinforcement.phases)
    if (phase.peak_bytes > most.bytes) most = {phase.peak_bytes, &phase};
  return most;
}

std::string fullest_phase(const result::Result& r) {
  const ReinforcementPhase* phase = fullest(r).phase;
  if (phase == nullptr) return "";
  return fmt::format("of all phases {} needs most: {}", phase->name, format_bytes(Bytes(phase->peak_bytes)));
}

std::string phase_that_does_not_fit(const result::Result& r) {
  const std::int64_t room = r.memory_capacity - r.memory_headroom;
  for (const ReinforcementPhase& p : r.reinforcement.phases)
    if (p.peak_bytes > room)
      return fmt::format("{} needs {} of {} a device, {} too much", p.name, format_bytes(Bytes(p.peak_bytes)),
                         format_bytes(Bytes(room)), format_bytes(Bytes(p.peak_bytes - room)));
  return "";
}

}  // namespace rehearse::reports
