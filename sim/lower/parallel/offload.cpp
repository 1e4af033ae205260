// The optimizer on the host (plan.offload_optimizer), after ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840), PyTorch's
// CPUOffloadPolicy and Megatron-Core's --optimizer-cpu-offload. What lies where, of a bucket whose shard has n
// elements:
//
//   device   what ZeRO leaves there of parameters; with ZeRO 0 and 1 the gradients as ever, with ZeRO 2 and 3 none
//   host     fp32 copy 4 n, averages 8 n (in fp32), reduced gradients, updated values in the training precision (in
//            fp32 the copy is these)
//
// On the copy stream `to_host` a bucket's gradients leave as soon as they are reduced: with ZeRO 0 and 1 once a step,
// with ZeRO 2 and 3 after each micro-batch, whose gradients the host adds up (as CPUOffloadPolicy does; ZeRO-Offload
// adds on the device). Their squares are summed where they are. The stream `cpu` is the host's cores: it does the
// buckets' updates in the order of forward; each is copied back on `to_device`, and with ZeRO 1 and 2 gathered as ever.
// With plan.offload_parameters the shards of ZeRO-3 stay there: each gather first copies ours to the device.
// In our own ideal the next forward waits for what it reads; in frameworks the process that launches kernels does the
// step itself, so it launches nothing before the end.
//
// Left out: pageable memory (copies are from pinned memory), the delayed update of ZeRO-Offload, a part of the states
// on the device (Megatron-Core's --optimizer-offload-fraction).
#include <string>

#include "sim/lower/parallel/parameters.h"

namespace rehearse::lower {

using program::BufferClass;
using program::Elementwise;
using program::ElementwiseFn;
using program::StreamKind;

// A tied embedding's gradients are summed with the other stage's copy after the last backward, on the devices.
bool ParameterStore::keeps_gradients_on_host(const Bucket& bucket) const {
  const bool summed_last = bucket.held_by >= 0;
  return steps_on_host(bucket) && context_.plan().zero >= 2 && !summed_last;
}

// With one micro-batch the host reads gradients in the type that they come in; sums are in the type of stored ones.
void ParameterStore::make_host_buffers(Bucket& bucket, const std::string& suffix) {
  const auto make = [&](const std::string& name, DType dtype, BufferClass cls) {
    const BufferId id = builder_.add_buffer({name + suffix,
                                             dtype,
                                             {bucket.shard},
                                             cls,
                                             Lifetime::persistent,
                                             -1,
                                             0,
                                             0,
                                             {},
                                             {program::Init::Kind::zeros, 0, {}, -1}});
    builder_.set_shard_axes(id, axes_of(bucket));
    builder_.set_on_host(id);
    return id;
  };
  const bool as_they_come = keeps_gradients_on_host(bucket) && context_.micro_batches == 1;
  const DType whole = builder_.buffer(bucket.gradients).dtype;
  const DType type = !as_they_come ? context_.gradient : may_shard(bucket) ? context_.reduce : whole;
  bucket.host_gradient = make("host.grad", type, BufferClass::gradient);
  if (context_.master && !values_on_host(bucket))
    bucket.host_values = make("host.values", context_.compute, BufferClass::parameter);
}

OpRef ParameterStore::copy_to_host(const std::string& name, BufferId from, BufferId to) {
  const Phase phase = builder_.phase();
  builder_.set_phase(Phase::optimizer);
  const program::Buffer& b = builder_.buffer(to);
  const OpRef op = builder_.op_on("to_host", StreamKind::copy, name, Elementwise{ElementwiseFn::copy, b.elements()},
                                  b.dtype, {{from}}, {{to}});
  builder_.set_phase(phase);
  return op;
}

// A micro-batch's reduced gradients of our shard.
void ParameterStore::gradients_to_host(Bucket& bucket, int index, BufferId reduced) {
  const std::string suffix = ".bucket" + std::to_string(index), name = "grad.to_host" + suffix;
  if (context_.micro_batches == 1) {
    copy_to_host(name, reduced, bucket.host_gradient);
    return;
  }
  const BufferId arrived = builder_.add_buffer({builder_.here("host.grad.arrived" + suffix),
                                                builder_.buffer(reduced).dtype,
                                                {bucket.shard},
                                                BufferClass::communication,
                                                Lifetime::slot,
                                                -1,
                                                0,
                                                0,
                                                {},
                                                {}});
  builder_.set_on_host(arrived);
  copy_to_host(name, reduced, arrived);
  builder_.op("host.accumulate" + suffix, Elementwise{ElementwiseFn::accumulate, bucket.shard}, context_.gradient,
              {{arrived}, {bucket.host_gradient}}, {{bucket.host_gradient}}, StreamKind::cpu);
}

// The step's gradients of our shard, which the device keeps.
void ParameterStore::copy_gradients_out(Bucket& bucket, int index) {
  if (!keeps_gradients_on_host(bucket))
    builder_.weight_part([&] {
      copy_to_host("grad.to_host.bucket" + std::to_string(index), bucket.gradient_shard, bucket.host_gradient);
    });
  bucket.copied_out = true;
}

// What the host's gradients add to the sum of squares, which is the device's.
void ParameterStore::emit_host_squares(BufferId sum) {
  BufferId host_sum = -1;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& b = buckets_[i];
    if (!keeps_gradients_on_host(b) || !counted(b)) continue;
    if (host_sum < 0) {
      host_sum = builder_.workspace("host.grad_norm.sum", DType::f32, {1}, Lifetime::step);
      builder_.set_on_host(host_sum);
      builder_.op("host.grad_norm.zero", Elementwise{ElementwiseFn::fill, 1}, DType::f32, {}, {{host_sum}},
                  StreamKind::cpu);
    }
    const program::Buffer& gradient = builder_.buffer(b.host_gradient);
    builder_.op("host.grad_norm.bucket" + std::to_string(i), program::SumSquares{gradient.elements(), copies(b)},
                gradient.dtype, {{b.host_gradient}, {host_sum}}, {{host_sum}}, StreamKind::cpu);
  }
  if (host_sum < 0) return;
  const BufferId there = builder_.workspace("grad_norm.host_sum", DType::f32, {1}, Lifetime::step);
  builder_.op_on("to_device", StreamKind::copy, "grad_norm.to_device", Elementwise{ElementwiseFn::copy, 1}, DType::f32,
                 {{host_sum}}, {{there}});
  builder_.op("grad_norm.add_host", Elementwise{ElementwiseFn::accumulate, 1}, DType::f32, {{there}, {sum}}, {{sum}});
}

BufferId ParameterStore::coefficient_on_host(BufferId coefficient) {
  const BufferId there = builder_.workspace("host.grad_norm.clip", DType::f32, {1}, Lifetime::step);
  builder_.set_on_host(there);
  copy_to_host("grad_norm.clip.to_host", coefficient, there);
  return there;
}

void ParameterStore::emit_host_optimizer(Bucket& bucket, int index, BufferId coefficient) {
  const std::string suffix = ".bucket" + std::to_string(index);
  const bool stay = values_on_host(bucket);
  const BufferId values = stay ? bucket.value_shard : context_.master ? bucket.host_values : bucket.master;
  program::Optimizer step{context_.scenario.training.optimizer == plan::OptimizerKind::adamw, context_.master,
                          coefficient >= 0, bucket.shard, false};  // one pass over all, as DeepSpeed's CPU-Adam
  std::vector<Operand> reads{{bucket.host_gradient}}, writes{{values}};
  if (coefficient >= 0) reads.push_back({coefficient});
  reads.push_back({values});
  for (const BufferId state : {context_.master ? bucket.master : -1, bucket.exp_avg, bucket.exp_avg_sq}) {
    if (state < 0) continue;
    reads.push_back({state});
    writes.push_back({state});
  }
  host_step_ = builder_.op("host.optimizer" + suffix, step, DType::f32, reads, writes, StreamKind::cpu);
  if (stay) return;
  builder_.op_on("to_device", StreamKind::copy, "values.to_device" + suffix,
                 Elementwise{ElementwiseFn::copy, bucket.shard}, builder_.buffer(values).dtype, {{values}},
                 {{bucket.value_shard}});
}

void ParameterStore::wait_for_host_optimizer() {
  if (context_.profile().measured_host) return;
  builder_.after(builder_.op("wait_for_host_optimizer", program::HostSync{}, DType::f32, {}, {}, StreamKind::host),
                 host_step_);
}

}  // namespace rehearse::lower
