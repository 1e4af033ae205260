#include "calibrate/kernel_times.h"

#include "sim/base/check.h"
#include "sim/program/describe.h"

namespace rehearse::calibrate {

KernelKey key_of(const program::Role& role, const program::Op& op, int threads, int busy) {
  return {std::string(program::kind_name(op.shape)), program::shape_text(role, op), op.dtype, threads, busy};
}

bool is_kernel(const program::Op& op) {
  return !program::is_transfer(op) && !std::holds_alternative<program::HostSync>(op.shape);
}

void KernelTimes::add(const KernelKey& key, double flops, double bytes, std::vector<double> samples,
                      std::optional<double> typical) {
  REHEARSE_CHECK(!samples.empty(), "no samples of {} {}", key.kind, key.shape);
  Entry& entry = entries_[key];
  entry.flops = flops;
  entry.bytes = bytes;
  entry.samples.insert(entry.samples.end(), samples.begin(), samples.end());
  entry.medians.push_back(typical ? *typical : median(std::move(samples)));
}

std::vector<cost::CalibratedKernel> KernelTimes::all(cost::Origin origin) const {
  std::vector<cost::CalibratedKernel> list;
  for (const auto& [key, entry] : entries_) {
    const Summary s = summarize(entry.samples);
    list.push_back({key.kind,
                    key.shape,
                    key.dtype,
                    key.threads,
                    key.busy,
                    entry.flops,
                    entry.bytes,
                    {s.p10_s, s.p50_s, s.p90_s},
                    mean(entry.medians),
                    static_cast<int>(s.repetitions),
                    origin});
  }
  return list;
}

}  // namespace rehearse::calibrate
