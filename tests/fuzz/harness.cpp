// See harness.h. Under libFuzzer the reader is named by --target=NAME, an option that libFuzzer passes over.
#include "tests/fuzz/harness.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "sim/base/diagnostics.h"
#include "sim/base/text_check.h"

namespace rehearse::fuzz {
namespace {

const Reader* chosen = nullptr;

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// A folder of this process's own, removed when it ends well.
struct Folder {
  Folder() : path(std::filesystem::temp_directory_path() / fmt::format("rehearse-fuzz-{}", ::getpid())) {
    std::filesystem::create_directories(path);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path path;
};

void check_error(const InputError& error) {
  if (error.diagnostics().empty()) fail("an InputError without a diagnostic");
  for (const Diagnostic& d : error.diagnostics()) {
    if (d.message.empty()) fail("a diagnostic without a message: " + d.text());
    check_printable(d.text(), "a diagnostic");
  }
  check_printable(error.what(), "an InputError's text");
}

}  // namespace

void fail(const std::string& what) {
  const std::string line = fmt::format("\nfuzz: {}: {}\n", chosen != nullptr ? chosen->name : "", what);
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  std::abort();
}

void check_printable(const std::string& text, const char* what) {
  if (const auto problem = detail::not_text(text)) fail(fmt::format("{} {}", what, *problem));
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // C1 controls are U+0080 to U+009F: C2 80 to C2 9F.
    const bool second = byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if ((byte < 0x20 && byte != '\n') || byte == 0x7F || second)
      fail(fmt::format("{} holds the control character {:#04x} at {}", what, byte, i));
  }
}

std::string temporary_folder() {
  static const Folder folder;
  return folder.path.string();
}

std::string put_file(const std::string& name, const std::string& content) {
  const std::string path = (std::filesystem::path(temporary_folder()) / name).string();
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!out.flush()) fail("cannot write " + path);
  return path;
}

std::string source_file(const std::string& path) {
  return (std::filesystem::path(REHEARSE_SOURCE_DIR) / path).string();
}

void choose_reader(const Reader& reader) {
  chosen = &reader;
}

void check_one(const std::string& input) {
  const double began = processor_seconds();
  try {
    chosen->read(input);
  } catch (const InputError& error) {
    check_error(error);
    if (std::getenv(kVerbose) != nullptr) fmt::print(stderr, "{}\n", error.what());
  } catch (const std::exception& error) {
    fail(fmt::format("an exception that is no InputError: {}", error.what()));
  } catch (...) {
    fail("something thrown that is no std::exception");
  }
  const double took = processor_seconds() - began;
  if (took > kMostSeconds) fail(fmt::format("took {:.1f} s of processor time, the most is {}", took, kMostSeconds));
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  if (std::int64_t{usage.ru_maxrss} * 1024 > kMostBytes)
    fail(fmt::format("took {} MiB of memory, the most is {}", usage.ru_maxrss >> 10, kMostBytes >> 20));
}

}  // namespace rehearse::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rehearse::fuzz::check_one(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
