// See campaign.h. What a dying process still has to say was put together before the run.
#include "tests/fuzz/campaign.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "sim/base/random.h"
#include "tests/fuzz/harness.h"

#ifdef REHEARSE_FUZZ_CHECKED
extern "C" void __sanitizer_set_death_callback(void (*callback)());
#endif

namespace rehearse::fuzz {
namespace {

std::string current_input, current_words, current_file;

void say(std::string_view text) {
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

// Async-signal-safe: open and write alone.
void tell_of_death() {
  say("\nfuzz: ");
  say(current_words);
  const int file = ::open(current_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0 && ::write(file, current_input.data(), current_input.size()) >= 0) {
    say("\nfuzz: its input is in ");
    say(current_file);
  }
  say("\n");
}

void on_signal(int number) {
  if (number == SIGPROF) say("\nfuzz: takes too much processor time\n");
  tell_of_death();
  ::signal(SIGABRT, SIG_DFL);
  ::abort();
}

// Of processor time; 0: none any more.
void set_timer(int seconds) {
  itimerval timer{};
  timer.it_value.tv_sec = seconds;
  ::setitimer(ITIMER_PROF, &timer, nullptr);
}

void run(const Reader& reader, std::string words, std::string input) {
  choose_reader(reader);
  current_input = std::move(input);
  current_words = std::move(words);
  current_file = fmt::format("crash-{}", reader.name);
  set_timer(kMostSeconds + 1);
  check_one(current_input);
  set_timer(0);
}

}  // namespace

void report_deaths() {
  static std::array<char, 1 << 16> stack;  // for a signal that means that the usual one is full
  const stack_t other{stack.data(), 0, stack.size()};
  ::sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGPROF, &action, nullptr);
#ifdef REHEARSE_FUZZ_CHECKED
  __sanitizer_set_death_callback(tell_of_death);
  ::sigaction(SIGABRT, &action, nullptr);
#else
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::sigaction(number, &action, nullptr);
#endif
}

std::size_t run_seeds(const Reader& reader) {
  const std::vector<Seed> seeds = seeds_of(reader);
  for (const Seed& seed : seeds) run_input(reader, seed.path, seed.content);
  return seeds.size();
}

void run_mutated(const Reader& reader, std::uint64_t seed, std::uint64_t first, std::uint64_t count) {
  const std::vector<Seed> seeds = reader.choices ? std::vector<Seed>() : seeds_of(reader);
  const std::vector<std::string> words = words_of(reader, seeds);
  const Mutator mutator(seeds, words);
  for (std::uint64_t i = first; i < first + count; ++i)
    run(reader,
        fmt::format("input {} of seed {}: rehearse-fuzz --target={} -seed={} -only={}", i, seed, reader.name, seed, i),
        mutator.input(mix_key(seed, i)));
}

void run_input(const Reader& reader, const std::string& name, const std::string& input) {
  run(reader, fmt::format("{}: rehearse-fuzz --target={} {}", name, reader.name, name), input);
}

}  // namespace rehearse::fuzz
