// See server_state.h.
#include "execute/servers/server_state.h"

#include <algorithm>
#include <utility>

#include "execute/rank/initial_values.h"
#include "execute/rank/kernel_call.h"
#include "sim/account/server_kernels.h"
#include "sim/base/check.h"

namespace rehearse::execute {

namespace {

constexpr std::int64_t kWidth = size_of(DType::f32);

}  // namespace

ServerState::ServerState(const plan::Scenario& scenario, const Timeline& worker, int server, int steps, int threads)
    : scenario_(scenario), server_(server), steps_(steps), device_(kernels::make_cpu_device(threads)) {
  for (const account::ServerParameter& p :
       account::server_parameters(*worker.role, static_cast<int>(scenario.plan.servers)))
    if (p.server == server) parameters_.push_back(p), elements_ += p.elements;
  moments_ = static_cast<int>(account::server_moments(scenario.training));
  memory_.resize(static_cast<std::size_t>(elements_ * kWidth * (1 + moments_)));
}

void ServerState::set_values(std::span<const float> values) {
  REHEARSE_CHECK(std::ssize(values) == elements_, "{} values for {} elements", values.size(), elements_);
  std::copy(values.begin(), values.end(), numbers());
}

void ServerState::update(std::span<const float> gradient) {
  REHEARSE_CHECK(std::ssize(gradient) == elements_, "a gradient of {} for {} elements", gradient.size(), elements_);
  const plan::Training& t = scenario_.training;
  const bool synchronous = scenario_.plan.consistency == plan::Consistency::synchronous;
  const std::int64_t each = synchronous ? 1 : scenario_.plan.counted();
  kernels::StepValues step = step_values(t, updates_, steps_);
  step.lr = static_cast<float>(learning_rate(t, updates_ / each, steps_));
  ++updates_;
  if (elements_ == 0) return;
  const kernels::In in{gradient.data(), DType::f32};
  const kernels::Out out{numbers(), DType::f32};
  const auto moment = [this](int k) {
    return k < moments_ ? kernels::Out{numbers() + (k + 1) * elements_, DType::f32} : kernels::Out();
  };
  if (t.optimizer == plan::OptimizerKind::adamw)
    device_->adamw(elements_, {t.beta1, t.beta2, t.eps, t.weight_decay, &step}, in, nullptr, out, nullptr, moment(0),
                   moment(1));
  else
    device_->sgd(elements_, {t.momentum, t.weight_decay, &step}, in, nullptr, out, nullptr, moment(0));
}

std::size_t ServerState::gather(int worker, std::vector<float> gradient) {
  gathered_[worker] = std::move(gradient);
  return gathered_.size();
}

void ServerState::step() {
  std::vector<float> mean(static_cast<std::size_t>(elements_), 0.0F);
  for (const auto& [worker, gradient] : gathered_)
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i];
  const auto count = static_cast<float>(gathered_.size());
  for (float& g : mean) g /= count;
  gathered_.clear();
  update(mean);
}

RankState ServerState::saved_state(const Timeline& worker) const {
  return server_rank_state(scenario_, worker, server_);
}

void ServerState::went_on_from(std::int64_t steps) {
  updates_ = scenario_.plan.consistency == plan::Consistency::synchronous ? steps : steps * scenario_.plan.counted();
}

// Values are said twice, as parameters and as the fp32 copies that ranks of 16-bit plans keep: the same bytes.
RankState server_rank_state(const plan::Scenario& scenario, const Timeline& worker, int server) {
  std::vector<account::ServerParameter> parameters;
  std::int64_t elements = 0;
  for (const account::ServerParameter& p :
       account::server_parameters(*worker.role, static_cast<int>(scenario.plan.servers)))
    if (p.server == server) parameters.push_back(p), elements += p.elements;
  const int moments = static_cast<int>(account::server_moments(scenario.training));
  StateHeader header;
  header.rank = server, header.ranks = static_cast<int>(scenario.plan.servers);
  const char* const kinds[] = {"values", "exp_avg", "exp_avg_sq"};
  for (int k = 0; k <= moments; ++k) header.buffers.push_back({kinds[k], DType::f32, elements, k * elements * kWidth});
  header.payload_bytes = elements * kWidth * (1 + moments);
  for (const char* kind : {"param", "master", "exp_avg", "exp_avg_sq"}) {
    const bool value = kind == std::string_view("param") || kind == std::string_view("master");
    const int at = value ? 0 : kind == std::string_view("exp_avg") ? 1 : 2;
    if (at > moments) continue;
    for (const account::ServerParameter& p : parameters) {
      const program::Buffer& b = worker.role->buffers[static_cast<std::size_t>(p.value)];
      header.tensors.push_back(
          {parameter_name(b), kind, DType::f32, p.elements, {{0, p.elements, (at * elements + p.first) * kWidth}}});
    }
  }
  return RankState(std::move(header));
}

}  // namespace rehearse::execute
