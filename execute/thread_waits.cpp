// See thread_waits.h.
#include "execute/thread_waits.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace rehearse::execute {

ThreadTimes parse_schedstat(const char* text) {
  unsigned long long ran = 0, waited = 0, slices = 0;
  if (std::sscanf(text, "%llu %llu %llu", &ran, &waited, &slices) != 3) return {};
  return {static_cast<double>(ran) * 1e-9, static_cast<double>(waited) * 1e-9};
}

ThreadWaits::ThreadWaits() {
  look();
  beginning_ = false;
}

// Threads may end while we look.
void ThreadWaits::look() {
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator("/proc/self/task", error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::ifstream in(entry->path() / "schedstat");
    std::ostringstream text;
    if (!in || !(text << in.rdbuf())) continue;
    add(entry->path().filename().string(), parse_schedstat(text.str().c_str()));
  }
}

void ThreadWaits::add(const std::string& thread, const ThreadTimes& now) {
  const auto [known, fresh] = threads_.try_emplace(thread);
  if (fresh && beginning_) known->second.first = now;
  if (!fresh && now.ran < known->second.last.ran) {  // another thread of this number
    ended_.ran += known->second.last.ran - known->second.first.ran;
    ended_.waited += known->second.last.waited - known->second.first.waited;
    known->second.first = {};
  }
  known->second.last = now;
}

double ThreadWaits::waited() const {
  ThreadTimes sum = ended_;
  for (const auto& [thread, times] : threads_) {
    sum.ran += times.last.ran - times.first.ran;
    sum.waited += times.last.waited - times.first.waited;
  }
  return sum.ran + sum.waited > 0 ? sum.waited / (sum.ran + sum.waited) : -1;
}

}  // namespace rehearse::execute
