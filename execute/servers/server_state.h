// What one parameter server holds - fp32 values of its parameters, the optimizer's moments, how many updates it has
// made - and the optimizer's step on it. The same numbers whatever brings the gradients, so that one order of them
// gives one result, bit for bit. Learning rates are of global batches; AdamW's corrections (Kingma and Ba 2014, arXiv
// 1412.6980, section 3) of the updates that this server has made.
//
// As part of a checkpoint: values and moments, by parameter, as a rank of another plan would have them (kinds "param",
// "master", "exp_avg", "exp_avg_sq"), so that another number of servers, or ranks without servers, go on from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "execute/checkpoint/rank_state.h"
#include "execute/timeline.h"
#include "kernels/device.h"
#include "sim/account/server_shards.h"
#include "sim/plan/scenario.h"

namespace rehearse::execute {

class ServerState {
 public:
  // `steps` of the whole run: learning-rate schedules end there. `threads`: that update() computes with.
  ServerState(const plan::Scenario& scenario, const Timeline& worker, int server, int steps, int threads);

  std::int64_t elements() const { return elements_; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_.size()); }
  std::int64_t updates() const { return updates_; }
  std::span<const float> values() const { return {numbers(), static_cast<std::size_t>(elements_)}; }
  void set_values(std::span<const float> values);

  // A gradient, or the mean of a step's, of this server's elements.
  void update(std::span<const float> gradient);
  // A worker's gradient for the step that is being gathered; how many there are now.
  std::size_t gather(int worker, std::vector<float> gradient);
  bool has(int worker) const { return gathered_.contains(worker); }
  // The step by the mean of what was gathered, added in the order of ranks, whoever came first.
  void step();

  // At a moment at which `steps` steps, or iterations of all workers, are applied and nothing else.
  RankState saved_state(const Timeline& worker) const;
  RankMemory memory() { return RankMemory(memory_.data()); }
  void went_on_from(std::int64_t steps);

 private:
  float* numbers() const { return reinterpret_cast<float*>(const_cast<std::byte*>(memory_.data())); }

  const plan::Scenario& scenario_;
  const int server_, steps_;
  std::vector<account::ServerParameter> parameters_;  // this server's
  std::int64_t elements_ = 0, updates_ = 0;
  int moments_ = 0;                // exp_avg, then exp_avg_sq
  std::vector<std::byte> memory_;  // values, then each moment
  std::map<int, std::vector<float>> gathered_;
  std::unique_ptr<kernels::Device> device_;
};

// What saved_state() of that server is.
RankState server_rank_state(const plan::Scenario& scenario, const Timeline& worker, int server);

}  // namespace rehearse::execute
