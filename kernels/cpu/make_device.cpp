// Makes the CPU device, after checking that this machine can run it. Compiled for any x86-64, unlike the kernels.
#include <array>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/machine.h"
#include "kernels/device.h"
#include "sim/base/check.h"

namespace rehearse::kernels {
namespace cpu {

std::unique_ptr<Device> make_unchecked(int threads);

unsigned features_here() {
  unsigned here = 0;
  const auto add = [&](Feature feature, bool supported) { here |= supported ? feature : 0U; };
  add(kAvx2, __builtin_cpu_supports("avx2"));
  add(kFma, __builtin_cpu_supports("fma"));
  add(kBmi, __builtin_cpu_supports("bmi"));
  add(kBmi2, __builtin_cpu_supports("bmi2"));
  add(kAvx512F, __builtin_cpu_supports("avx512f"));
  add(kAvx512Bw, __builtin_cpu_supports("avx512bw"));
  add(kAvx512Dq, __builtin_cpu_supports("avx512dq"));
  add(kAvx512Vl, __builtin_cpu_supports("avx512vl"));
  add(kAvx512Cd, __builtin_cpu_supports("avx512cd"));
  add(kAvx512Vbmi, __builtin_cpu_supports("avx512vbmi"));
  return here;
}

std::string missing_features(unsigned required, unsigned here) {
  constexpr std::array<const char*, 10> kNames = {"AVX2",     "FMA",      "BMI",      "BMI2",     "AVX512F",
                                                  "AVX512BW", "AVX512DQ", "AVX512VL", "AVX512CD", "AVX512VBMI"};
  std::vector<std::string> names;
  for (std::size_t bit = 0; bit < kNames.size(); ++bit)
    if ((required & ~here) >> bit & 1) names.emplace_back(kNames[bit]);
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

}  // namespace cpu

std::unique_ptr<Device> make_cpu_device(int threads) {
  REHEARSE_CHECK(threads >= 1, "a device of {} threads", threads);
  if (const std::string lacking = cpu::missing_features(cpu::kCompiledFor, cpu::features_here()); !lacking.empty())
    throw std::runtime_error("this processor lacks " + lacking + ", which the CPU kernels were compiled for" +
                             " (REHEARSE_ARCH, see kernels/CMakeLists.txt); rehearse simulate runs without them");
  return cpu::make_unchecked(threads);
}

}  // namespace rehearse::kernels
