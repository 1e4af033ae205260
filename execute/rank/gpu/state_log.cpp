// See state_log.h.
#include "execute/rank/gpu/state_log.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "execute/transport/communicator.h"

namespace rehearse::execute {
namespace {

constexpr std::chrono::milliseconds kStatePeriod{100}, kStateLook{5};
constexpr std::uint64_t kIdle = 0x1;  // nvmlClocksEventReasonGpuIdle

template <class Field>
auto median_of(const std::vector<kernels::DeviceState>& states, Field field) {
  std::vector<decltype(field(states.front()))> values;
  for (std::size_t i = states.size() / 2; i < states.size(); ++i) values.push_back(field(states[i]));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

StateLog::StateLog(std::function<kernels::DeviceState()> read) : read_(std::move(read)) {
  thread_ = std::thread([this] { run(); });
}

StateLog::~StateLog() {
  end();
}

void StateLog::end() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
}

void StateLog::run() {
  do {
    const kernels::DeviceState state = read_();
    if (!state.known) return;
    states_.push_back(state);
    const Clock::time_point next = Clock::now() + kStatePeriod;
    while (!ended_ && Clock::now() < next) std::this_thread::sleep_for(kStateLook);
  } while (!ended_);
}

DeviceConditions StateLog::conditions() const {
  return conditions_of(states_);
}

DeviceConditions conditions_of(const std::vector<kernels::DeviceState>& states) {
  DeviceConditions c;
  if (states.empty()) return c;
  c.samples = static_cast<std::int64_t>(states.size());
  c.sm_mhz = median_of(states, [](const auto& s) { return s.sm_mhz; });
  c.memory_mhz = median_of(states, [](const auto& s) { return s.memory_mhz; });
  c.power_w = median_of(states, [](const auto& s) { return s.power_w; });
  c.least_sm_mhz = c.sm_mhz;
  for (const kernels::DeviceState& s : states) {
    c.least_sm_mhz = std::min(c.least_sm_mhz, s.sm_mhz);
    c.max_sm_mhz = std::max(c.max_sm_mhz, s.max_sm_mhz);
    c.power_limit_w = std::max(c.power_limit_w, s.power_limit_w);
    c.temperature_c = std::max(c.temperature_c, s.temperature_c);
    c.throttle_known |= s.throttle_known;
    c.throttle |= s.throttle & ~kIdle;
  }
  return c;
}

}  // namespace rehearse::execute
