// While one of these lives, denormal numbers count as zero in the thread that made it and in those it starts, which
// inherit the control register (x86). Measurements work on numbers nobody looks at; a denormal costs x86 about a
// hundred cycles and would be in the time.
#pragma once

#include <xmmintrin.h>

namespace rehearse::calibrate {

class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero); }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  unsigned before_;
};

}  // namespace rehearse::calibrate
