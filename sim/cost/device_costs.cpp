// Costs of kernels on a measured device. The order of trust: this very kernel measured; products on a line of measured
// ones, by waves (wave_table.h); its kind measured at other sizes; the device's model (gemm_model.h,
// flash_model.h, bytes over bandwidth). Interference scales what was measured by the model's own ratio beside / alone,
// which is never below 1, so a kernel that runs during communication is never faster.
//
// Leaves out: L2 hits of kernels bound by memory, and the clock's dependence on the mix
// of kernels: one `sustained` share covers matrix products (docs/calibration.md, "Power and energy", says what speaks
// against taking it from the power).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/quantile.h"
#include "sim/cost/calibrated_costs.h"
#include "sim/cost/cost.h"
#include "sim/cost/device_file.h"
#include "sim/cost/direct_convolution.h"
#include "sim/cost/flash_model.h"
#include "sim/cost/gemm_table.h"
#include "sim/cost/kernel_shape.h"
#include "sim/cost/kernel_table.h"
#include "sim/cost/scan.h"
#include "sim/cost/shape_times.h"
#include "sim/cost/wave_table.h"
#include "sim/program/work.h"

namespace rehearse::cost {
namespace {

using program::DType;
using program::Op;
using program::Role;
using program::Work;

constexpr double kLeastShare = 0.1;  // of the memory bandwidth, whatever communication takes
// Of the memory bandwidth, what a kernel that wants it keeps during communication: memory serves two requesters alike,
// so neither starves the other. A judgement. What communication then takes longer is left out.
constexpr double kFairShare = 0.5;
// What one fused attention kernel says of another on the same device: FlashAttention 1 to 3 on H100 and A100 differ by
// up to 5 times (attention figures of arXiv 2307.08691 and 2407.08608). A judgement.
constexpr Range kOtherKernel = {1, 0.7, 3};
constexpr double kRepeatability = 0.02;  // of a measured shape (calibration repeats within 1-2%)

struct Prediction {
  double alone = 0, model_alone = 1, model_beside = 1;  // seconds
  double extra = 0;                                     // not scaled by interference
  Coverage coverage = Coverage::spec;
  double low = 1, high = 1;
};

constexpr std::array kFloats = {DType::f32, DType::bf16, DType::f16, DType::e4m3,
                                DType::e2m1};  // e4m3: either of 8 bits
using Machines = std::array<GemmMachine, kFloats.size()>;
static_assert(static_cast<int>(DType::f32) == 0 && static_cast<int>(DType::bf16) == 1 &&
              static_cast<int>(DType::f16) == 2);
std::size_t machine_index(DType type) {
  return is_fp8(type) ? 3 : type == DType::e2m1 ? 4 : static_cast<std::size_t>(type) % 3;
}
// 8-bit products of a device whose file knows none but their peak: the shares of it that the H100 and the H200 reach
// are 0.71 and 0.73 of it at best, those of B200 and GB200 0.76 and 0.72 (mamf-0016 to mamf-0020), and 16-bit ones
// 0.80, 0.80, 0.78 and 0.73. A judgement.
constexpr Range kFp8FromPeak = {1, 0.8, 1.5};
// 4-bit products, of which no measurement is at hand: the same shares, and a wider judgement.
constexpr Range kFp4FromPeak = {1, 0.8, 2};

// Of the nominal bandwidth of a host's memory what an AdamW step over it reaches: DeepSpeed's CPU-Adam took 0.22 s for
// 1 billion parameters and 2.57 s for 10 billion on a DGX-2 (two Xeon Platinum 8168 with six channels of DDR4-2666
// each, 255.9 GB/s), which moves 32 bytes a parameter as counted here: 0.57 and 0.49 of it (ZeRO-Offload, arXiv
// 2101.06840, the table of Adam's latencies, quoted from memory and not checked). The upper end is a judgement.
constexpr Range kHostShare = {0.5, 0.4, 0.6};

Range range_of(std::vector<double> ratios) {
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  return {1, std::min(1.0, at_rank(ratios, 0.05, Rank::below)), std::max(1.0, at_rank(ratios, 0.95, Rank::below))};
}

class DeviceCosts final : public CostModel {
 public:
  explicit DeviceCosts(DeviceData data, const Scale& scale = {}, const HostShare& share = {})
      : data_(std::move(data)),
        scale_(scale),
        share_(share),
        machines_(make_machines({})),
        scaled_(make_machines(scale)),
        scaled_constants_(faster(data_.gemm.constants, scale.compute)),
        scaled_fp8_constants_(faster(data_.gemm.fp8.constants, scale.compute)),
        f32_constants_(of_f32(data_.gemm)),
        scaled_f32_constants_(faster(f32_constants_, scale.compute)),
        bf16_(machines_[data_.device.peak_bf16.per_s() > 0 ? 1 : 2], data_.gemm.constants, data_.gemm.points),
        f32_(machines_[0], f32_constants_, data_.gemm.points_f32),
        fp8_(machines_[3], data_.gemm.fp8.constants, data_.gemm.fp8.points),
        fp4_(machines_[4], data_.gemm.constants, {}),
        kernels_(data_.kernels, data_.kernel_time),
        waves_(data_.measured.products, data_.device.sms, data_.gemm.constants.launch, data_.gemm.sustained.value),
        shapes_(data_.measured.shapes),
        interference_(data_.measured.interference,
                      [this](const InterferencePoint& p) { return modelled_slowdown(p); }) {
    std::vector<double> on_lines = waves_.leave_one_out();
    for (double& ratio : on_lines) ratio = 1 / ratio;  // measured / predicted
    on_line_ = range_of(std::move(on_lines));
    if (!data_.gemm.intervals_given) learn_intervals();
  }

  const Device& device() const override { return data_.device; }
  Estimate kernel(const Role& role, const Op& op, const Interference& beside) const override;
  std::int64_t own_memory(const Op& op) const override;
  bool by_kind() const override { return true; }

 private:
  // Each measured product predicted from the others.
  void learn_intervals() {
    const GemmTable& table = bf16_.empty() ? f32_ : bf16_;
    data_.gemm.interpolated = range_of(table.leave_one_out());
    data_.gemm.extrapolated = {1, data_.gemm.interpolated.low * data_.gemm.interpolated.low,
                               data_.gemm.interpolated.high * data_.gemm.interpolated.high};
  }
  double modelled_slowdown(const InterferencePoint& p) const {
    const GemmMachine& whole = machines_[machine_index(p.key.dtype)];
    if (whole.peak <= 0) return 1;
    const GemmShape shape{p.key.m, p.key.n, p.key.k, 1, static_cast<double>(size_of(p.key.dtype))};
    const Interference beside{p.sms_held, static_cast<std::int64_t>(p.bandwidth_taken)};
    const GemmShare share{sms_left(beside), bandwidth_left(data_.efficiency(MemoryClass::elementwise), beside)};
    const GemmSeconds seconds = gemm_seconds(whole, data_.gemm.constants, shape, share);
    return seconds.beside / seconds.alone;
  }
  double reachable() const {
    return static_cast<double>(data_.device.memory_bandwidth.per_s()) * data_.efficiency(MemoryClass::elementwise);
  }
  Machines make_machines(const Scale& scale) const {
    Machines machines;
    for (std::size_t i = 0; i < machines.size(); ++i)
      machines[i] = {data_.device.sms, data_.device.peak(kFloats[i]).per_s() * scale.compute,
                     reachable() * scale.memory, is_fp8(kFloats[i]) ? data_.gemm.fp8.tiles : data_.gemm.tiles};
    return machines;
  }
  // What multiprocessors do besides products goes with their rate; the launch does not.
  static GemmConstants faster(GemmConstants c, double compute) {
    for (double* part : {&c.wave, &c.tile, &c.edge, &c.split}) *part /= compute;
    return c;
  }
  static GemmConstants of_f32(const GemmData& gemm) {
    GemmConstants c = gemm.constants;
    if (gemm.efficiency_f32 > 0) c.efficiency = gemm.efficiency_f32;
    return c;
  }
  int sms_left(const Interference& beside) const { return std::max(1, data_.device.sms - beside.sms_held); }
  double bandwidth_left(double efficiency, const Interference& beside, double scale = 1) const;
  void require_rate(const Op& op) const;
  const GemmMachine& machine(const Op& op) const;
  Prediction product(const Role& role, const Op& op, const GemmShape& shape, const Interference& beside) const;
  Prediction flash(const Op& op, const Work& work, const Interference& beside) const;
  double flash_seconds(const program::Attention& a, const FlashRate& rate, double rate_scale, const Work& work,
                       const Interference& beside, const Scale& scale) const;
  double deterministic_seconds(const program::Attention& a, const FlashKernel& kernel, double scale, double seconds,
                               const Work& work, const Interference& beside, const Scale& scaled) const;
  bool splits_backward(const program::Attention& a) const;
  double dropout_seconds(const program::Attention& a, const Work& work, const Interference& beside,
                         const Scale& scale) const;
  Prediction memory(const Op& op, const Work& work, double kept, const Interference& beside) const;
  Prediction scan(const Op& op, const Work& work, const Interference& beside) const;
  void prefer_measured(const Role& role, const Op& op, const Work& work, Prediction& prediction) const;
  GemmShape convolution(const Op& op, const GemmShape& implicit) const;
  bool multiplies_directly(const Op& op, const Work& work, double seconds, const Interference& beside,
                           Prediction& prediction) const;
  double transposes(const Op& op, const GemmShape& shape, double bandwidth) const;
  bool product_from_waves(const Role& role, const Op& op, Prediction& prediction) const;

  // Kernels on the host's cores, and copies between its memory and the device's.
  Estimate beside_device(const Work& work, program::Within within) const;

  DeviceData data_;
  Scale scale_;
  HostShare share_;
  Machines machines_, scaled_;  // of f32, bf16, f16, 8 bits, 4 bits: the device, and as scaled
  GemmConstants scaled_constants_, scaled_fp8_constants_, f32_constants_, scaled_f32_constants_;
  GemmTable bf16_, f32_, fp8_, fp4_;  // 16-bit types share a table, and so do 8-bit ones; of 4 bits it is empty
  KernelTable kernels_;
  WaveTable waves_;
  ShapeTimes shapes_;
  InterferenceTable interference_;
  Range on_line_;  // measured / predicted of products between others
};

double DeviceCosts::bandwidth_left(double efficiency, const Interference& beside, double scale) const {
  const double alone = static_cast<double>(data_.device.memory_bandwidth.per_s()) * efficiency * scale;
  const double reach = sms_left(beside) / (data_.memory_saturates * data_.device.sms);
  const double all = reachable() * scale;
  const double left = std::max(kFairShare * all, all - static_cast<double>(beside.bandwidth_taken));
  return std::max(kLeastShare * alone, std::min(alone * std::min(1.0, reach), left));
}

void DeviceCosts::require_rate(const Op& op) const {
  if (data_.device.peak(op.dtype).per_s() > 0) return;
  throw InputError(Diagnostic{
      data_.device.file, 0, 0, op.name,
      fmt::format("cannot cost this {} in {}: device {} has no peak rate for {} products", program::kind_name(op.shape),
                  program::name_of(op.dtype), data_.device.name, program::name_of(op.dtype)),
      ""});
}

const GemmMachine& DeviceCosts::machine(const Op& op) const {
  require_rate(op);
  return machines_[machine_index(op.dtype)];
}

// cuDNN multiplies fp32 on ordinary cores by Winograd's algorithm where it applies: volta_scudnn_winograd_128x128
// forward and for inputs' gradients, winograd_nonfused for weights'.
GemmShape DeviceCosts::convolution(const Op& op, const GemmShape& implicit) const {
  if (op.dtype != DType::f32 || data_.gemm.tensor_cores_f32) return implicit;
  std::optional<GemmShape> fewer = winograd_product(std::get<program::Conv2d>(op.shape));
  if (!fewer) return implicit;
  fewer->element_bytes = implicit.element_bytes, fewer->traffic = implicit.traffic;
  return *fewer;
}

// Tensor cores' convolutions want the channels last, so cuDNN transposes what lies channel by channel, before and after
// (NVIDIA, Convolutional Layers User's Guide, "Tensor Layouts In Memory"; its kernels nchwToNhwc and nhwcToNchw):
// operands and results are read and written once more, by two kernels.
double DeviceCosts::transposes(const Op& op, const GemmShape& shape, double bandwidth) const {
  const auto* conv = std::get_if<program::Conv2d>(&op.shape);
  if (conv == nullptr || !conv->channels_first || (op.dtype == DType::f32 && !data_.gemm.tensor_cores_f32)) return 0;
  return 2 * (data_.kernel_time.seconds() + shape.traffic / bandwidth);
}

// What a direct kernel would take on ordinary cores, where that is less than `seconds`, which tensor cores take with
// transposes: frameworks let cuDNN time its kernels and take the fastest (torch.backends.cudnn.benchmark).
bool DeviceCosts::multiplies_directly(const Op& op, const Work& work, double seconds, const Interference& beside,
                                      Prediction& p) const {
  const auto* conv = std::get_if<program::Conv2d>(&op.shape);
  if (conv == nullptr || conv->groups == 1 || data_.gemm.cores_f32 <= 0) return false;
  const double efficiency = data_.efficiency(MemoryClass::elementwise), launch = data_.kernel_time.seconds();
  const double left = static_cast<double>(sms_left(beside)) / data_.device.sms * scale_.compute;
  const double alone = launch + direct_seconds(work, data_.gemm.cores_f32, bandwidth_left(efficiency, {}));
  if (alone >= seconds) return false;
  p = {};
  p.alone = p.model_alone = alone;
  p.model_beside =
      launch + direct_seconds(work, data_.gemm.cores_f32 * left, bandwidth_left(efficiency, beside, scale_.memory));
  p.coverage = Coverage::spec;
  p.low = kGroupedConvolution.low, p.high = kGroupedConvolution.high;
  return true;
}

// A grouped product that is launched for each group takes what one group's product does, as often.
Prediction DeviceCosts::product(const Role& role, const Op& op, const GemmShape& all,
                                const Interference& beside) const {
  const bool grouped = std::holds_alternative<program::GroupedGemm>(op.shape);
  const auto times = static_cast<double>(grouped && std::get<program::GroupedGemm>(op.shape).each ? all.batch : 1);
  const bool convolution = std::holds_alternative<program::Conv2d>(op.shape);
  GemmShape shape = convolution ? this->convolution(op, all) : all;
  if (times > 1) shape.batch = 1, shape.traffic /= times;
  const GemmData& gemm = data_.gemm;
  const GemmMachine& whole = machine(op);
  const Range loop = gemm.loop_of(op.dtype, whole.tiles.empty() ? 16 : shape.alignment);
  shape.loop = loop.value;
  const bool eight = is_fp8(op.dtype), four = op.dtype == DType::e2m1, from_peak = eight && !gemm.fp8.known;
  const bool single = op.dtype == DType::f32;
  const GemmTable& table = single ? f32_ : eight ? fp8_ : four ? fp4_ : bf16_;
  const GemmConstants& constants = eight ? gemm.fp8.constants : single ? f32_constants_ : gemm.constants;
  const GemmConstants& scaled = eight ? scaled_fp8_constants_ : single ? scaled_f32_constants_ : scaled_constants_;
  const Range& sustained = eight ? gemm.fp8.sustained : single ? gemm.sustained_f32 : gemm.sustained;
  const GemmShare share{sms_left(beside),
                        bandwidth_left(data_.efficiency(MemoryClass::elementwise), beside, scale_.memory)};
  Prediction p;
  const GemmSeconds model = gemm_seconds(scaled_[machine_index(op.dtype)], scaled, shape, share, {whole, constants});
  const double model_alone = scale_.none() ? model.alone : gemm_seconds(whole, constants, shape);
  p.model_alone = times * model_alone;
  p.model_beside = times * std::max(model.alone, model.beside * interference_.correction(beside));
  if (product_from_waves(role, op, p)) return p;
  const Range* interval = four        ? &kFp4FromPeak
                          : from_peak ? &kFp8FromPeak
                          : eight     ? &gemm.fp8.extrapolated
                                      : &gemm.extrapolated;
  if (const auto exact = convolution ? std::nullopt : table.exact_seconds(shape)) {
    p.alone = times * *exact;
    // A calibration knows the product's form: this is another (layout, accumulation) of the same sizes.
    const bool measured_here = eight ? gemm.fp8.measured_here : gemm.measured_here;
    p.coverage = measured_here && waves_.empty() ? Coverage::exact : Coverage::interpolated;
    p.low = 1 - kRepeatability, p.high = 1 + kRepeatability;
    interval = nullptr;
  } else {
    const bool near = !convolution && shape.batch == 1 && shape.flops() > 0 && !table.empty();
    p.alone = p.model_alone * (near ? table.correction(shape) : 1);
    const bool specified = eight ? fp8_.empty() : four || (bf16_.empty() && f32_.empty());
    p.coverage = near && table.covers(shape) ? Coverage::interpolated
                 : specified                 ? Coverage::spec
                                             : Coverage::extrapolated;
    if (loop.value > 1) p.coverage = std::max(p.coverage, Coverage::extrapolated);
    if (p.coverage == Coverage::interpolated) interval = eight ? &gemm.fp8.interpolated : &gemm.interpolated;
  }
  if (interval) p.low = interval->low * (loop.low / loop.value), p.high = interval->high * (loop.high / loop.value);
  const double efficiency = sustained.value * (convolution ? gemm.convolution : 1);
  p.alone /= efficiency;
  p.low *= sustained.value / sustained.high, p.high *= sustained.value / sustained.low;
  if (const Range* kernel = eight ? gemm.fp8.against_table(op) : nullptr) {
    p.alone *= kernel->value;
    p.low *= kernel->low / kernel->value, p.high *= kernel->high / kernel->value;
  }
  p.extra = transposes(op, shape, share.bandwidth) +
            static_cast<double>(op.passes.read + op.passes.written) / share.bandwidth;
  if (const auto* conv = std::get_if<program::Conv2d>(&op.shape); conv != nullptr && conv->groups > 1) {
    p.low *= kGroupedConvolution.low, p.high *= kGroupedConvolution.high;
    p.coverage = Coverage::spec;
    const double own = transposes(op, shape, bandwidth_left(data_.efficiency(MemoryClass::elementwise), {}));
    if (multiplies_directly(op, program::work_of(role, op), p.alone + own, beside, p)) return p;
  }
  if (grouped || std::holds_alternative<program::Gemm>(op.shape)) {  // fp32 results, read as well when accumulated into
    const Work work = program::work_of(role, op);
    const double more = static_cast<double>(work.bytes_read + work.bytes_written) - all.bytes();
    p.extra = gemm.accumulate_exposed * std::max(0.0, more) / share.bandwidth;
  }
  return p;
}

// Measured as performed: what it accumulates into and writes is in the time.
bool DeviceCosts::product_from_waves(const Role& role, const Op& op, Prediction& p) const {
  const auto* g = std::get_if<program::Gemm>(&op.shape);
  if (waves_.empty() || g == nullptr || g->batch != 1 || op.writes.empty()) return false;
  const auto found = waves_.find(product_key(role, op));
  if (!found) return false;
  const bool exact = found->coverage == Coverage::exact;
  p.alone = found->seconds;
  p.coverage = found->coverage;
  p.low = exact ? 1 - kRepeatability : on_line_.low, p.high = exact ? 1 + kRepeatability : on_line_.high;
  return true;
}

double DeviceCosts::flash_seconds(const program::Attention& a, const FlashRate& rate, double rate_scale,
                                  const Work& work, const Interference& beside, const Scale& scale) const {
  const double compute = flash_compute_seconds(a, rate, rate_scale * scale.compute, work.flops, data_.device.sms,
                                               static_cast<double>(sms_left(beside)));
  const double moved = static_cast<double>(work.bytes_read + work.bytes_written) /
                       bandwidth_left(data_.efficiency(MemoryClass::elementwise), beside, scale.memory);
  return data_.kernel_time.seconds() + std::max(compute + dropout_seconds(a, work, beside, scale), moved);
}

double DeviceCosts::dropout_seconds(const program::Attention& a, const Work& work, const Interference& beside,
                                    const Scale& scale) const {
  constexpr double kHertz = 1.5e9;  // where the file does not say; a judgement
  const double hertz = data_.device.power.known() ? data_.device.power.boost_mhz * 1e6 : kHertz;
  return flash_dropout_seconds(a, work.flops, static_cast<double>(sms_left(beside)), hertz * scale.compute);
}

// Whether the kernel is FlashAttention-2 of CUDA (a device file that gives a factor has another), which Transformer
// Engine takes where cuDNN's would have no deterministic backward, before Hopper
// (attention/dot_product_attention/utils.py).
bool DeviceCosts::splits_backward(const program::Attention& a) const {
  using program::AttentionKernel;
  const bool second = a.kernel == AttentionKernel::flash2 || a.kernel == AttentionKernel::sdpa_flash;
  const bool fastest = !second && data_.flash.find(a.kernel) == nullptr;
  return second ||
         ((fastest || a.kernel == AttentionKernel::best) && data_.flash.fastest_is == AttentionKernel::flash2);
}

std::int64_t DeviceCosts::own_memory(const Op& op) const {
  const auto* a = std::get_if<program::Attention>(&op.shape);
  if (a == nullptr || !a->deterministic || a->part != program::AttentionPart::flash_backward) return 0;
  const FlashKernel* known = data_.flash.find(a->kernel);
  const FlashKernel& kernel = known != nullptr ? *known : data_.flash.fastest;
  if (splits_backward(*a) && !kernel.deterministic_given) return split_backward_bytes(*a, data_.device.sms);
  return kernel.deterministic_scores ? score_gradients_bytes(*a) : 0;
}

// Backward under deterministic algorithms, which usually takes `seconds`, and what it fills of its own memory.
double DeviceCosts::deterministic_seconds(const program::Attention& a, const FlashKernel& kernel, double scale,
                                          double seconds, const Work& work, const Interference& beside,
                                          const Scale& scaled) const {
  const double bandwidth = bandwidth_left(data_.efficiency(MemoryClass::elementwise), beside, scaled.memory);
  const double heads = static_cast<double>(a.micro_batch * a.heads), seq = static_cast<double>(a.seq);
  if (splits_backward(a) && !kernel.deterministic_given) {
    const double gradients = 4 * heads * seq * static_cast<double>(a.head_dim);  // of queries, fp32
    const SplitBackward split = split_backward(a, data_.device.sms, sms_left(beside));
    const double usual = flash_compute_seconds(a, kernel.backward, scale * scaled.compute, work.flops, data_.device.sms,
                                               static_cast<double>(sms_left(beside)));
    const double products =
        flash_split_seconds(a, kernel.backward, scale * scaled.compute, work.flops, data_.device.sms, sms_left(beside));
    const double dropout = dropout_seconds(a, work, beside, scaled);
    // torch::zeros, which allocates by at::empty; what the usual kernel clears and reads once is in its time.
    const double passes =
        static_cast<double>(split.blocks - 1) * 2 + (a.filled ? static_cast<double>(split.blocks) : 0);
    const double expanded = a.filled && a.kv_heads < a.heads ? 4 * heads * seq * static_cast<double>(a.head_dim) : 0;
    return seconds + products - usual + dropout * (split.makespan - 1) + (passes * gradients + expanded) / bandwidth;
  }
  if (!kernel.deterministic_scores) return seconds * kernel.deterministic.value;
  // One kernel makes gradients of keys and values, four products, and writes those of scores, in 16 bits; another, of
  // one product, reads them. Either takes what its products or its bytes take.
  const double square = 2 * heads * seq * static_cast<double>(a.compared());
  const double moved = square * (a.causal ? 0.5 : 1) / bandwidth;
  return std::max(0.8 * seconds, moved) + std::max(0.2 * seconds, moved) + (a.filled ? square / bandwidth : 0);
}

Prediction DeviceCosts::flash(const Op& op, const Work& work, const Interference& beside) const {
  require_rate(op);
  const auto& a = std::get<program::Attention>(op.shape);
  const bool backward = a.part == program::AttentionPart::flash_backward;
  const FlashKernel* known = data_.flash.find(a.kernel);
  const FlashKernel& kernel = known != nullptr ? *known : data_.flash.fastest;
  const std::optional<FlashRate>& of_wide = backward ? kernel.wide_backward : kernel.wide_forward;
  const bool wide = of_wide && a.head_dim > a.values();
  const FlashRate& rate = wide ? *of_wide : backward ? kernel.backward : kernel.forward;
  const Range& by_device = wide ? kernel.wide_scale : kernel.scale;
  const std::vector<FlashPoint>& points = wide ? kernel.wide_points : kernel.points;
  const double half = data_.device.peak(data_.device.peak_bf16.per_s() > 0 ? DType::bf16 : DType::f32).per_s();
  const double scale = by_device.value * data_.device.peak(op.dtype).per_s() / half;
  constexpr double kMostDeterministic = 1.6;  // FlashAttention-3's at first, Dao-AILab/flash-attention#1893
  Prediction p;
  p.model_alone = flash_seconds(a, rate, scale, work, {}, {});
  p.model_beside = flash_seconds(a, rate, scale, work, beside, scale_);
  p.alone = p.model_alone;
  p.low = kernel.error.low, p.high = kernel.error.high;
  // Rates of other kernels are fitted to published timings, which are not kept.
  p.coverage = points.empty() && &kernel == &data_.flash.fastest ? Coverage::spec : Coverage::extrapolated;
  for (const FlashPoint& point : points) {
    if (point.backward != backward || point.causal != a.causal || point.head_dim != a.head_dim ||
        a.values() != (point.value_dim > 0 ? point.value_dim : point.head_dim) || a.window > 0 || a.document > 0 ||
        a.softcap > 0)
      continue;
    if (a.seq <= 2 * point.seq && point.seq <= 2 * a.compared()) p.coverage = Coverage::interpolated;
    if (a.keys > 0 || point.batch != a.micro_batch || point.seq != a.seq || point.heads != a.heads ||
        point.kv_heads != a.kv_heads)
      continue;
    p.alone = work.flops / (point.flops_per_second * scale) + dropout_seconds(a, work, {}, {});
    if (kernel.measured_here || point.added) p.coverage = Coverage::exact;
    p.low = 1 - kRepeatability, p.high = 1 + kRepeatability;
    break;
  }
  p.low *= by_device.value / by_device.high, p.high *= by_device.value / by_device.low;
  if (a.deterministic && backward) {
    const double alone = p.alone, model = p.model_alone;
    p.model_alone = p.alone = deterministic_seconds(a, kernel, scale, alone, work, {}, {});
    p.model_beside = deterministic_seconds(a, kernel, scale, p.model_beside * alone / model, work, beside, scale_);
    p.coverage = std::max(p.coverage, Coverage::extrapolated);
    const bool known_factor = splits_backward(a) || kernel.deterministic_given;
    p.low *= kernel.deterministic.low / kernel.deterministic.value;
    p.high *= known_factor ? kernel.deterministic.high / kernel.deterministic.value : kMostDeterministic;
  }
  if (known == nullptr) {  // another kernel's time, for want of its own
    p.coverage = Coverage::spec;
    p.low = std::min(p.low, kOtherKernel.low), p.high = std::max(p.high, kOtherKernel.high);
  }
  return p;
}

// kept: bytes of the work that stay on the chip.
Prediction DeviceCosts::memory(const Op& op, const Work& work, double kept, const Interference& beside) const {
  const double bytes = static_cast<double>(work.bytes_read + work.bytes_written) - kept;
  Prediction p;
  if (const auto* input = std::get_if<program::Input>(&op.shape)) {
    p.model_alone = p.model_beside = (input->bytes > 0 ? static_cast<double>(input->bytes) : bytes) /
                                     static_cast<double>(std::max<std::int64_t>(1, data_.host_bandwidth.per_s()));
  } else {
    const double efficiency = data_.efficiency(memory_class(op)) * share_of_class(op);
    p.model_alone = bytes / bandwidth_left(efficiency, {});
    p.model_beside = bytes / bandwidth_left(efficiency, beside, scale_.memory);
  }
  const double least = op.fused ? 1e-12 : data_.kernel_time.seconds();  // inside another kernel: a picosecond
  p.model_alone += least;
  p.model_beside += least;
  p.alone = p.model_alone;
  p.low = data_.memory_error.low, p.high = data_.memory_error.high;
  return p;
}

// As long as its products take, or its traffic.
Prediction DeviceCosts::scan(const Op& op, const Work& work, const Interference& beside) const {
  Prediction p = memory(op, work, 0, beside);
  p.low = std::min(p.low, kScanRange.low), p.high = std::max(p.high, kScanRange.high);
  if (work.flops == 0) return p;
  require_rate(op);
  const double alone = work.flops / (kScanShare * data_.device.peak(op.dtype).per_s());
  const double left = static_cast<double>(sms_left(beside)) / static_cast<double>(data_.device.sms);
  p.model_alone = p.alone = std::max(p.model_alone, alone + data_.kernel_time.seconds());
  p.model_beside = std::max(p.model_beside, alone / (left * scale_.compute) + data_.kernel_time.seconds());
  return p;
}

// A measurement of the same kind replaces the model's answer, except an interpolated one for products: theirs is
// better.
void DeviceCosts::prefer_measured(const Role& role, const Op& op, const Work& work, Prediction& p) const {
  if (op.passes.any() || op.fused) return;  // what was measured is one kernel
  const bool product = std::holds_alternative<program::Gemm>(op.shape);
  if (const auto found = product ? std::nullopt : shapes_.find(role, op)) {
    p.alone = found->seconds;
    if (!found->in_steps && found->seconds >= DeviceData::kLeastInSteps && !product_of(role, op) && !is_flash(op))
      p.alone *= data_.in_steps[static_cast<std::size_t>(memory_class(op))];
    p.extra = 0;
    p.coverage = Coverage::exact;
    p.low = 1 - kRepeatability, p.high = 1 + kRepeatability;
    return;
  }
  if (product && !waves_.empty() && p.coverage == Coverage::exact) return;
  const auto found = kernels_.find(program::kind_name(op.shape), op.dtype, comparable_flops(op, work.flops),
                                   static_cast<double>(work.bytes_read + work.bytes_written));
  if (!found) return;
  const bool exact = found->coverage == Coverage::exact;
  if (!exact && product) return;
  p.alone = found->seconds;
  p.extra = 0;
  p.coverage = found->coverage;
  if (exact) p.low = 1 - kRepeatability, p.high = 1 + kRepeatability;
}

Estimate DeviceCosts::beside_device(const Work& work, program::Within within) const {
  double bytes = static_cast<double>(work.bytes_read + work.bytes_written);
  double rate = static_cast<double>(share_.host_memory.per_s()) * kHostShare.value;
  Range range = {1, kHostShare.value / kHostShare.high, kHostShare.value / kHostShare.low};
  if (within == program::Within::between) {
    bytes = static_cast<double>(work.bytes_written);
    const std::int64_t own = std::max<std::int64_t>(1, data_.host_bandwidth.per_s()), shared = share_.to_host.per_s();
    rate = static_cast<double>(shared > 0 ? std::min(own, shared) : own);
    range = {1, data_.memory_error.low, data_.memory_error.high};
  }
  return {Time::from_seconds(data_.kernel_time.seconds() + bytes / rate), Coverage::spec, range.low, range.high};
}

Estimate DeviceCosts::kernel(const Role& role, const Op& op, const Interference& beside) const {
  REHEARSE_CHECK(!program::is_transfer(op) && !std::holds_alternative<program::HostSync>(op.shape), "{} is no kernel",
                 op.name);
  const Work work = program::work_of(role, op);
  if (const program::Within within = program::within(role, op); within != program::Within::device)
    return beside_device(work, within);
  const auto shape = product_of(role, op);
  Prediction p = shape          ? product(role, op, *shape, beside)
                 : is_flash(op) ? flash(op, work, beside)
                 : std::holds_alternative<StateSpace>(op.shape)
                     ? scan(op, work, beside)
                     : memory(op, work, read_once(role, op, data_.device.sms), beside);
  prefer_measured(role, op, work, p);
  const double seconds = p.alone * p.model_beside / p.model_alone + p.extra;
  REHEARSE_CHECK(std::isfinite(seconds) && seconds > 0, "{} would take {} s", op.name, seconds);
  return {Time::from_seconds(seconds), p.coverage, p.low, p.high};
}

class UniformCosts final : public CostModel {
 public:
  explicit UniformCosts(Time duration) : duration_(duration) {
    device_.name = "uniform";
    device_.sms = 1;
    device_.memory = Bytes(INT64_MAX);
    device_.memory_bandwidth = Bandwidth(1'000'000'000'000);
    device_.peak_bf16 = device_.peak_fp16 = device_.peak_fp32 = device_.peak_fp8 = device_.peak_fp4 = FlopRate(1e12);
  }
  const Device& device() const override { return device_; }
  Estimate kernel(const Role&, const Op&, const Interference&) const override {
    return {duration_, Coverage::exact, 1, 1};
  }

 private:
  Device device_;
  Time duration_;
};

}  // namespace

FlopRate Device::peak(DType dtype) const {
  switch (dtype) {
    case DType::f32:
      return peak_fp32;
    case DType::bf16:
      return peak_bf16;
    case DType::f16:
      return peak_fp16;
    case DType::e4m3:
    case DType::e5m2:
      return peak_fp8;
    case DType::e2m1:
      return peak_fp4;
    case DType::i32:
    case DType::u8:
      return {};
  }
  return {};
}

std::unique_ptr<CostModel> load_costs(const std::vector<std::string>& files, const HostShare& share,
                                      const Scale& scale) {
  std::vector<Calibration> calibrations;
  for (const std::string& file : files) {
    if (is_calibration_path(file) != is_calibration_path(files.front()))
      throw InputError(
          Diagnostic{file, 0, 0, "costs.calibration",
                     fmt::format("a calibration of a CPU and a device file cannot be one device ({})", files.front()),
                     "name files of one kind"});
    if (is_calibration_path(file)) calibrations.push_back(read_calibration(file));
  }
  if (!calibrations.empty()) return make_calibrated_costs(std::move(calibrations), share, scale);
  return std::make_unique<DeviceCosts>(read_device_files(files), scale, share);
}

std::unique_ptr<CostModel> make_uniform_costs(Time duration) {
  return std::make_unique<UniformCosts>(duration);
}

}  // namespace rehearse::cost
