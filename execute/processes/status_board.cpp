// See status_board.h. A new file is zeros, which is the state of a board nobody has come to.
#include "execute/processes/status_board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>
#include <vector>

#include "sim/base/check.h"
#include "sim/base/diagnostics.h"
#include "sim/base/unfinished.h"

namespace rehearse::execute {
namespace {

constexpr std::size_t kText = 4000, kGroups = 32, kCalls = 4, kMachine = 48;
constexpr std::uint64_t kLayout = 1;  // changes with what Header, Slot and Whereabouts hold

// Of a started system: equal on two processes whose steady clocks are the same.
std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id.substr(0, kMachine - 1);
}

enum State : std::int32_t { kAbsent = 0, kPresent = 1, kThrough = 2 };

}  // namespace

struct StatusBoard::Text {
  std::atomic<std::int32_t> length;  // written after the bytes; 0: none
  std::array<char, kText> bytes;

  void set(const std::string& text) {
    if (length.load() != 0 || text.empty()) return;
    const std::size_t n = std::min(text.size(), kText);
    std::memcpy(bytes.data(), text.data(), n);
    length.store(static_cast<std::int32_t>(n), std::memory_order_release);
  }
  std::string get() const {
    const auto n = static_cast<std::size_t>(length.load(std::memory_order_acquire));
    return {bytes.data(), std::min(n, kText)};
  }
};

struct StatusBoard::CallTime {
  std::atomic<std::int64_t> call;  // sequence + 1; written after the time
  std::atomic<std::int64_t> time;  // of the steady clock, ns
};

struct StatusBoard::Header {
  std::atomic<std::uint64_t> layout;                      // of the file, and for how many ranks
  std::atomic<std::int32_t> stop, cause, lost, reporter;  // the last three: rank + 1
};

struct StatusBoard::Slot {
  std::atomic<std::int32_t> state;
  std::array<char, kMachine> machine;
  Whereabouts at;
  std::array<std::array<CallTime, kCalls>, kGroups> arrivals;
  Text failure, waiting;
};

namespace {

constexpr const char* kFolder = "rehearse-ranks";

[[noreturn]] void refuse(const std::string& file, const std::string& message, const std::string& hint = "") {
  throw InputError(Diagnostic{file, 0, 0, "", message, hint});
}

// Who owns what we make in a folder: a file server may know us by another number than this machine does.
uid_t owner_of_new_files(const std::string& folder) {
  std::string probe = folder + "/rehearse-XXXXXX";
  const int fd = ::mkstemp(probe.data());
  if (fd < 0) return ::geteuid();
  struct stat made {};
  const int failed = ::fstat(fd, &made);
  ::close(fd);
  ::unlink(probe.c_str());
  return failed == 0 ? made.st_uid : ::geteuid();
}

// Others could plant links in the folder, and we would write where these lead.
void check_own_folder(const std::string& folder, const std::string& rendezvous) {
  constexpr const char* kOther = "--rendezvous DIR, a folder that only you may write to";
  struct stat found {};
  if (::lstat(folder.c_str(), &found) != 0) refuse(folder, std::strerror(errno));
  if (!S_ISDIR(found.st_mode))
    refuse(folder, S_ISLNK(found.st_mode) ? "is a symbolic link, expected a folder" : "is no folder", kOther);
  if (found.st_uid != ::geteuid() && found.st_uid != owner_of_new_files(rendezvous))
    refuse(folder, fmt::format("belongs to user {}, not to us (user {})", found.st_uid, ::geteuid()), kOther);
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    refuse(folder, fmt::format("others may write to it (mode {:o})", found.st_mode & 07777U), kOther);
}

// The board's file, whoever of the ranks makes it: never one that a link leads to, or that has another name elsewhere.
int open_board(const std::string& file, bool& made) {
  constexpr int kHow = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  int fd = ::open(file.c_str(), kHow | O_CREAT | O_EXCL, 0600);
  made = fd >= 0;
  if (fd < 0 && errno == EEXIST) fd = ::open(file.c_str(), kHow);
  if (fd < 0) {
    const int error = errno;
    if (error == ELOOP) refuse(file, "is a symbolic link, expected a file of the ranks");
    if (error == ENOSPC || error == EDQUOT)
      throw std::runtime_error(fmt::format("{} cannot be made: {}", file, file_problem(error)));
    refuse(file, fmt::format("cannot be made: {}", std::strerror(error)));
  }
  struct stat found {};
  if (::fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink <= 1) return fd;
  ::close(fd);
  refuse(file, "is no file of the ranks alone");
}

// With the folder, if it is ours and nobody else has come.
void take_away(const std::string& file) {
  ::unlink(file.c_str());
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (folder.filename() == kFolder) ::rmdir(folder.c_str());
}

}  // namespace

std::string files_folder(const std::string& rendezvous) {
  const std::string folder = (std::filesystem::path(rendezvous) / kFolder).string();
  std::error_code error;
  std::filesystem::create_directories(rendezvous, error);
  if (error) refuse(rendezvous, fmt::format("cannot be made: {}", error.message()));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    refuse(folder, fmt::format("cannot be made: {}", std::strerror(errno)));
  check_own_folder(folder, rendezvous);
  return folder;
}

StatusBoard::StatusBoard(const std::string& file, int ranks, int rank)
    : ranks_(ranks), rank_(rank), machine_(boot_id()) {
  bool made = false;
  file_ = open_board(file, made);
  try {
    map(file);
    if (rank != kObserver) take_slot(file);
  } catch (...) {
    if (map_ != nullptr) ::munmap(map_, bytes_);
    ::close(file_);
    if (made) take_away(file);
    throw;
  }
}

// All of it is on disk before it is mapped: a write to a page for which there is no room ends the process (SIGBUS).
void StatusBoard::map(const std::string& file) {
  bytes_ = sizeof(Header) + static_cast<std::size_t>(ranks_) * sizeof(Slot);
  const auto bytes = static_cast<off_t>(bytes_);
  int error = ::fallocate(file_, 0, 0, bytes) == 0 ? 0 : errno;
  struct stat found {};
  if (error == EOPNOTSUPP)  // then it can only be made longer, never shorter: others have mapped it
    error = ::fstat(file_, &found) == 0 && (found.st_size >= bytes || ::ftruncate(file_, bytes) == 0) ? 0 : errno;
  if (error != 0)
    throw std::runtime_error(fmt::format(
        "{} cannot be made: {}\n  {} ranks need {} bytes there; TMPDIR or --rendezvous names another folder", file,
        file_problem(error), ranks_, bytes_));
  map_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (map_ == MAP_FAILED) {
    map_ = nullptr;
    refuse(file, fmt::format("cannot be mapped: {}", std::strerror(errno)));
  }
  std::uint64_t none = 0;
  const std::uint64_t layout = static_cast<std::uint64_t>(ranks_) << 32 | sizeof(Slot) << 8 | kLayout;
  if (!header().layout.compare_exchange_strong(none, layout) && none != layout)
    refuse(file,
           none >> 32 == layout >> 32 ? "was made by another version of rehearse"
                                      : fmt::format("was made for {} ranks, not for {}", none >> 32, ranks_),
           "start all ranks alike, in an empty folder");
}

void StatusBoard::take_slot(const std::string& file) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank_;
  lock.l_len = 1;
  if (::fcntl(file_, F_OFD_SETLK, &lock) != 0) refuse(file, fmt::format("another process is rank {}", rank_));
  Slot& own = slot(rank_);
  if (own.state != kAbsent) refuse(file, "left by an earlier run", "give an empty folder");
  new (&own.at) Whereabouts();
  std::copy_n(machine_.c_str(), machine_.size() + 1, own.machine.data());
  own.state.store(kPresent, std::memory_order_release);
}

StatusBoard::~StatusBoard() {
  ::munmap(map_, bytes_);
  ::close(file_);
}

StatusBoard::Header& StatusBoard::header() const {
  return *static_cast<Header*>(map_);
}
StatusBoard::Slot& StatusBoard::slot(int rank) const {
  REHEARSE_CHECK(rank >= 0 && rank < ranks_, "rank {} of {}", rank, ranks_);
  return *(reinterpret_cast<Slot*>(static_cast<std::byte*>(map_) + sizeof(Header)) + rank);
}

bool StatusBoard::present(int rank) const {
  return slot(rank).state.load(std::memory_order_acquire) != kAbsent;
}
bool StatusBoard::alive(int rank) const {
  if (rank == rank_) return true;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return ::fcntl(file_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
bool StatusBoard::through(int rank) const {
  return slot(rank).state.load(std::memory_order_acquire) == kThrough;
}
void StatusBoard::set_through() {
  slot(rank_).state.store(kThrough, std::memory_order_release);
}
bool StatusBoard::same_machine(int rank) const {
  return present(rank) && !machine_.empty() && machine_ == slot(rank).machine.data();
}
Whereabouts& StatusBoard::whereabouts(int rank) const {
  return slot(rank).at;
}

void StatusBoard::arrive(std::int32_t group, std::int64_t sequence, Clock::time_point when) {
  if (group < 0 || static_cast<std::size_t>(group) >= kGroups) return;
  CallTime& a = slot(rank_).arrivals[static_cast<std::size_t>(group)][static_cast<std::size_t>(sequence) % kCalls];
  a.call.store(0, std::memory_order_release);
  a.time.store(std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count());
  a.call.store(sequence + 1, std::memory_order_release);
}
std::optional<Clock::time_point> StatusBoard::arrival(int rank, std::int32_t group, std::int64_t sequence) const {
  if (group < 0 || static_cast<std::size_t>(group) >= kGroups || !same_machine(rank)) return {};
  const CallTime& a = slot(rank).arrivals[static_cast<std::size_t>(group)][static_cast<std::size_t>(sequence) % kCalls];
  if (a.call.load(std::memory_order_acquire) != sequence + 1) return {};
  const std::int64_t time = a.time.load();
  if (a.call.load(std::memory_order_acquire) != sequence + 1) return {};
  return Clock::time_point(std::chrono::nanoseconds(time));
}

void StatusBoard::stop() {
  header().stop = 1;
}
bool StatusBoard::stopped() const {
  return header().stop.load(std::memory_order_relaxed) != 0;
}
void StatusBoard::fail(const std::string& text) {
  slot(rank_).failure.set(text);
  std::int32_t none = 0;
  if (!header().cause.compare_exchange_strong(none, rank_ + 1)) slot(rank_).waiting.set(text);
  stop();
}
void StatusBoard::waited(const std::string& text) {
  slot(rank_).waiting.set(text);
}
void StatusBoard::lost(int rank) {
  std::int32_t none = 0;
  header().lost.compare_exchange_strong(none, rank + 1);
  stop();
}
bool StatusBoard::claim_report() {
  std::int32_t none = 0;
  return header().reporter.compare_exchange_strong(none, rank_ + 1) || none == rank_ + 1;
}
FailureFacts StatusBoard::facts() const {
  FailureFacts facts;
  facts.failed = header().cause - 1;
  facts.lost = header().lost - 1;
  if (facts.failed >= 0) facts.cause = slot(facts.failed).failure.get();
  for (int rank = 0; rank < ranks_; ++rank) {
    if (const std::string waiting = slot(rank).waiting.get(); !waiting.empty())
      facts.waiting[rank] = waiting;
    else if (rank != facts.failed && present(rank) && !through(rank))
      facts.silent.push_back(rank);
  }
  return facts;
}

}  // namespace rehearse::execute
