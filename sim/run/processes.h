// Processes that simulate one scenario together. Of simulations that do not depend on one another each process does
// every parts-th and tells the others what came out, so that all have the same answers, those of a single process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rehearse::run {

struct Processes {
  int part = 0, parts = 1;
  // Called by all alike: by part, what each has got. May throw, where another has failed.
  std::function<std::vector<std::string>(std::string)> trade;
};

// Who does several simulations: threads of this process, and others like it.
struct Workers {
  int threads = 1;
  const Processes* processes = nullptr;  // nullptr: this one does all
};

// What is kept of a simulation that is one of many.
struct Answer {
  std::vector<std::int64_t> numbers;
  std::string text;
};

// task(0) to task(count - 1). Throws what a task of this process does, or std::runtime_error if the answers of another
// cannot be read.
std::vector<Answer> answers_of(const Workers& workers, std::size_t count,
                               const std::function<Answer(std::size_t)>& task);

}  // namespace rehearse::run
