// See processes.h. On the way an answer is "count number... length text", all of a part one after the other.
#include "sim/run/processes.h"

#include <sstream>
#include <stdexcept>

#include "sim/base/in_parallel.h"

namespace rehearse::run {
namespace {

std::string packed(const std::vector<Answer>& answers, std::size_t part, std::size_t parts) {
  std::ostringstream out;
  for (std::size_t i = part; i < answers.size(); i += parts) {
    out << answers[i].numbers.size() << ' ';
    for (const std::int64_t number : answers[i].numbers) out << number << ' ';
    out << answers[i].text.size() << ' ' << answers[i].text;
  }
  return std::move(out).str();
}

void unpack(const std::string& bytes, std::vector<Answer>& answers, std::size_t part, std::size_t parts) {
  std::istringstream in(bytes);
  for (std::size_t i = part; i < answers.size(); i += parts) {
    std::size_t count = 0, length = 0;
    if (!(in >> count) || count > bytes.size()) break;
    answers[i].numbers.resize(count);
    for (std::int64_t& number : answers[i].numbers) in >> number;
    if (!(in >> length) || length > bytes.size()) break;
    answers[i].text.resize(length);
    in.ignore(1);
    in.read(answers[i].text.data(), static_cast<std::streamsize>(length));
  }
  if (!in) throw std::runtime_error("another process has sent what cannot be read: is it the same program?");
}

}  // namespace

std::vector<Answer> answers_of(const Workers& workers, std::size_t count,
                               const std::function<Answer(std::size_t)>& task) {
  const bool alone = workers.processes == nullptr;
  const auto part = static_cast<std::size_t>(alone ? 0 : workers.processes->part);
  const auto parts = static_cast<std::size_t>(alone ? 1 : workers.processes->parts);
  std::vector<Answer> answers(count);
  const std::size_t own = count > part ? (count - part + parts - 1) / parts : 0;
  in_parallel(workers.threads, own, [&](std::size_t i) { answers[part + i * parts] = task(part + i * parts); });
  if (alone) return answers;
  const std::vector<std::string> all = workers.processes->trade(packed(answers, part, parts));
  for (std::size_t other = 0; other < all.size(); ++other)
    if (other != part) unpack(all[other], answers, other, parts);
  return answers;
}

}  // namespace rehearse::run
