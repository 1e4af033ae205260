// What a machine lacks of what the kernels were compiled for.
#include "kernels/cpu/machine.h"

#include <gtest/gtest.h>

namespace rehearse::kernels::cpu {
namespace {

TEST(Machine, NamesWhatIsRequiredAndNotHere) {
  EXPECT_EQ(missing_features(kAvx2 | kFma, kAvx2 | kFma | kBmi), "");
  EXPECT_EQ(missing_features(kAvx2 | kFma, kAvx2), "FMA");
  EXPECT_EQ(missing_features(kAvx2 | kFma | kAvx512F, kBmi), "AVX2, FMA and AVX512F");
  EXPECT_EQ(missing_features(kAvx512Vbmi | kBmi2, 0), "BMI2 and AVX512VBMI");
}

TEST(Machine, KernelsNeedAtLeastAvx2AndFma) {
  EXPECT_EQ(kCompiledFor & (kAvx2 | kFma), static_cast<unsigned>(kAvx2 | kFma));
  EXPECT_EQ(missing_features(kCompiledFor, features_here()), "");
}

}  // namespace
}  // namespace rehearse::kernels::cpu
