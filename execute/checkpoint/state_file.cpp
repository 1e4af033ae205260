// See state_file.h.
#include "execute/checkpoint/state_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "execute/checkpoint/folder.h"
#include "sim/base/diagnostics.h"
#include "sim/base/unfinished.h"
#include "sim/result/output_file.h"

#define XXH_INLINE_ALL
#define XXH_NO_INLINE_HINTS 1  // g++ refuses them under -Og, as the sanitizer builds have it
#include <xxhash.h>

namespace rehearse::execute {
namespace {

using StateJson = nlohmann::json;

constexpr std::string_view kStateMagic = "RHCKSTAT";
constexpr std::int64_t kDigestBytes = 16, kFixedBytes = 8 + 4 + 8;
constexpr std::int64_t kStateBlock = std::int64_t{1} << 18;

class StateHash {
 public:
  StateHash() { XXH3_128bits_reset(state_.get()); }
  void add(const void* data, std::size_t bytes) { XXH3_128bits_update(state_.get(), data, bytes); }
  StateDigest digest() const {
    const XXH128_hash_t value = XXH3_128bits_digest(state_.get());
    return {value.low64, value.high64};
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

constexpr std::array kStateTypes = {DType::f32, DType::bf16, DType::f16, DType::i32,
                                    DType::u8,  DType::e4m3, DType::e5m2};

DType state_type_of(const std::string& name) {
  const auto* const found =
      std::find_if(kStateTypes.begin(), kStateTypes.end(), [&](DType t) { return name_of(t) == name; });
  if (found == kStateTypes.end()) throw std::invalid_argument(fmt::format("no element type '{}'", name));
  return *found;
}

StateJson state_json(const StateHeader& h) {
  StateJson buffers = StateJson::array(), tensors = StateJson::array();
  for (const StateBuffer& b : h.buffers)
    buffers.push_back({{"name", b.name}, {"type", name_of(b.type)}, {"elements", b.elements}, {"offset", b.offset}});
  for (const StateTensor& t : h.tensors) {
    StateJson runs = StateJson::array();
    for (const StateRun& r : t.runs) runs.push_back({r.global, r.count, r.offset});
    tensors.push_back({{"name", t.name},
                       {"kind", t.kind},
                       {"type", name_of(t.type)},
                       {"elements", t.elements},
                       {"runs", std::move(runs)}});
  }
  StateJson j = {{"step", h.step},     {"rank", h.rank},     {"ranks", h.ranks},
                 {"buffers", buffers}, {"tensors", tensors}, {"payload_bytes", h.payload_bytes}};
  if (h.stored) {
    StateJson spans = StateJson::array();
    for (const StateSpan& span : *h.stored) spans.push_back({span.offset, span.bytes});
    j["stored"] = std::move(spans);
  }
  if (h.base) j["base"] = {{"step", h.base->step}, {"bytes", h.base->bytes}, {"xxh3_128", h.base->digest}};
  return j;
}

void check_state_part(std::int64_t offset, std::int64_t elements, DType type, std::int64_t payload) {
  if (elements < 0 || offset < 0 || offset > payload || elements > (payload - offset) / size_of(type))
    throw std::invalid_argument("a part lies outside of the payload");
}

// What is stored, and which file has the rest.
void read_state_parts(const StateJson& j, StateHeader& h) {
  if (const auto stored = j.find("stored"); stored != j.end()) {
    std::int64_t end = 0;
    h.stored.emplace();
    for (const StateJson& s : *stored) {
      const StateSpan span = h.stored->emplace_back(StateSpan{s.at(0), s.at(1)});
      if (span.offset < end || span.bytes <= 0 || span.bytes > h.payload_bytes - span.offset)
        throw std::invalid_argument("what is stored lies outside of the payload, or is not in order");
      end = span.offset + span.bytes;
    }
  }
  const auto base = j.find("base");
  if (base == j.end()) return;
  h.base = StateBase{base->at("step"), base->at("bytes"), base->at("xxh3_128")};
  if (!h.stored) throw std::invalid_argument("it has a base, and all of its payload");
  if (h.base->step < 0 || h.base->step >= h.step)
    throw std::invalid_argument(fmt::format("it is of step {}, and its base of step {}", h.step, h.base->step));
}

StateHeader state_header_of(const StateJson& j) {
  StateHeader h;
  h.step = j.at("step"), h.rank = j.at("rank"), h.ranks = j.at("ranks");
  h.payload_bytes = j.at("payload_bytes");
  for (const StateJson& b : j.at("buffers")) {
    h.buffers.push_back({b.at("name"), state_type_of(b.at("type")), b.at("elements"), b.at("offset")});
    check_state_part(h.buffers.back().offset, h.buffers.back().elements, h.buffers.back().type, h.payload_bytes);
  }
  for (const StateJson& t : j.at("tensors")) {
    StateTensor& tensor = h.tensors.emplace_back(
        StateTensor{t.at("name"), t.at("kind"), state_type_of(t.at("type")), t.at("elements"), {}});
    for (const StateJson& r : t.at("runs")) {
      tensor.runs.push_back({r.at(0), r.at(1), r.at(2)});
      check_state_part(tensor.runs.back().offset, tensor.runs.back().count, tensor.type, h.payload_bytes);
      if (const StateRun& run = tensor.runs.back(); run.global < 0 || run.global > tensor.elements - run.count)
        throw std::invalid_argument("a part lies outside of its tensor");
    }
  }
  read_state_parts(j, h);
  return h;
}

template <class T>
void append_state(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The file's content is on disk, whatever happens to the machine, before its name says that it is whole.
void sync_state_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!done) throw std::runtime_error(fmt::format("cannot write {}: {}", path, file_problem(error)));
}

// All of a payload, where nothing says which parts of it are stored.
std::vector<StateSpan> stored_spans(const StateHeader& h) {
  if (h.stored) return *h.stored;
  return {{0, h.payload_bytes}};
}

}  // namespace

std::int64_t StateHeader::stored_bytes() const {
  if (!stored) return payload_bytes;
  std::int64_t sum = 0;
  for (const StateSpan& span : *stored) sum += span.bytes;
  return sum;
}

std::string digest_text(const StateDigest& digest) {
  return fmt::format("{:016x}{:016x}", digest[1], digest[0]);
}

StateDigest digest_of(const std::byte* data, std::int64_t bytes) {
  const XXH128_hash_t value = XXH3_128bits(data, static_cast<std::size_t>(bytes));
  return {value.low64, value.high64};
}

std::string digest_of(const std::string& bytes) {
  StateHash hash;
  hash.add(bytes.data(), bytes.size());
  return digest_text(hash.digest());
}

void write_state_file(const std::string& path, const StateHeader& header, const StatePayload& payload) {
  const std::string json = state_json(header).dump();
  std::string first(kStateMagic);
  append_state(first, kCheckpointVersion);
  append_state(first, static_cast<std::uint64_t>(json.size()));
  first += json;
  StateHash hash;
  result::OutputFile file(path, result::OutputFile::Format::plain);
  const auto put = [&](std::string_view bytes) {
    hash.add(bytes.data(), bytes.size());
    file.write(bytes);
  };
  put(first);
  for (const StateSpan& span : stored_spans(header))
    for (std::int64_t done = 0; done < span.bytes; done += kStateBlock) {
      const std::int64_t bytes = std::min(kStateBlock, span.bytes - done);
      put({reinterpret_cast<const char*>(payload(span.offset + done, bytes)), static_cast<std::size_t>(bytes)});
    }
  const StateDigest digest = hash.digest();
  file.write({reinterpret_cast<const char*>(digest.data()), sizeof digest});
  file.finish();
  sync_state_file(file.temporary());
  file.commit();
}

StateFileFacts state_file_facts(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  struct stat status {};
  StateDigest digest{};
  const bool read = fd >= 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                    status.st_size > kFixedBytes + kDigestBytes &&
                    ::pread(fd, digest.data(), sizeof digest, status.st_size - kDigestBytes) == kDigestBytes;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!read) throw std::runtime_error(fmt::format("cannot read {}: {}", path, file_problem(error)));
  return {name, static_cast<std::int64_t>(status.st_size), digest_text(digest)};
}

// Open for as long as one lives; many may be based on one another, and a process may not have as many files open.
class StateFile::Open {
 public:
  explicit Open(const StateFile& file) : file_(file), opened_(file.fd_ < 0) {
    if (opened_) file_.fd_ = ::open(file.path_.c_str(), O_RDONLY | O_CLOEXEC);
  }
  ~Open() {
    if (opened_ && file_.fd_ >= 0) ::close(std::exchange(file_.fd_, -1));
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

 private:
  const StateFile& file_;
  const bool opened_;
};

void StateFile::find(const std::string& named_by) const {
  if (fd_ < 0) refuse(errno == ENOENT ? fmt::format("no such file, which {} names", named_by) : file_problem(errno));
}

StateFile::StateFile(const std::string& folder, const StateFileFacts& facts, const std::string& named_by)
    : StateFile(folder + "/" + facts.name) {
  {
    const Open opened(*this);
    find(named_by);
    check(facts, named_by);
    read_header();
  }
  if (header_.base) open_base(folder, facts.name);
}

StateHeader StateFile::header_of(const std::string& folder, const std::string& name) {
  StateFile file(folder + "/" + name);
  const Open opened(file);
  file.find("the checkpoint");
  file.check_kind(0);
  file.read_header();
  return std::move(file.header_);
}

// It is the file that was our base when we were written.
void StateFile::open_base(const std::string& folder, const std::string& name) {
  const StateBase& base = *header_.base;
  const std::string place = (std::filesystem::path(folder).parent_path() / checkpoint_name(base.step)).string();
  base_ = std::make_unique<StateFile>(place, StateFileFacts{name, base.bytes, base.digest}, path_);
  const StateHeader& other = base_->header();
  if (other.step != base.step || other.payload_bytes != header_.payload_bytes || other.buffers != header_.buffers)
    refuse(fmt::format("is of other buffers, or another step, than {}, its base", base_->path()));
}

void StateFile::refuse(const std::string& why, const std::string& hint) const {
  throw InputError(Diagnostic{path_, 0, 0, "", why, hint});
}

void StateFile::read_at(std::int64_t at, std::int64_t bytes, void* to) const {
  auto* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, next, static_cast<std::size_t>(bytes), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(file_problem(errno));
    if (got == 0) refuse("ends early");
    next += got, at += got, bytes -= got;
  }
}

// `expected`: its size, if that is known.
void StateFile::check_kind(std::int64_t expected) {
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) refuse("is no regular file");
  bytes_ = status.st_size;
  std::array<char, 12> first{};
  if (bytes_ >= kFixedBytes + kDigestBytes) read_at(0, first.size(), first.data());
  if (std::string_view(first.data(), kStateMagic.size()) != kStateMagic)
    refuse(bytes_ < kFixedBytes + kDigestBytes ? fmt::format("is cut: {} of {} bytes", bytes_, expected)
                                               : "is no rank's file of a checkpoint");
  std::uint32_t version = 0;
  std::memcpy(&version, first.data() + kStateMagic.size(), sizeof version);
  if (version == 0 || version > kCheckpointVersion)
    refuse(fmt::format("is of version {} of checkpoints; this program reads version {}", version, kCheckpointVersion),
           "a later rehearse reads it");
}

// Reads all of it once.
void StateFile::check(const StateFileFacts& facts, const std::string& named_by) {
  check_kind(facts.bytes);
  if (bytes_ != facts.bytes)
    refuse(fmt::format("is {}: {} bytes, of {} that were written", bytes_ < facts.bytes ? "cut" : "longer than it was",
                       bytes_, facts.bytes));
  StateHash hash;
  std::string block;
  for (std::int64_t at = 0; at < bytes_ - kDigestBytes;) {
    block.resize(static_cast<std::size_t>(std::min(kStateBlock, bytes_ - kDigestBytes - at)));
    read_at(at, static_cast<std::int64_t>(block.size()), block.data());
    hash.add(block.data(), block.size());
    at += static_cast<std::int64_t>(block.size());
  }
  StateDigest said{};
  read_at(bytes_ - kDigestBytes, kDigestBytes, said.data());
  if (hash.digest() != said) refuse("is damaged: its checksum is not that of its content");
  if (digest_text(said) != facts.digest)
    refuse(fmt::format("is of another checkpoint: not the file that {} names", named_by));
}

void StateFile::read_header() {
  std::uint64_t length = 0;
  read_at(kFixedBytes - 8, sizeof length, &length);
  if (length > static_cast<std::uint64_t>(bytes_ - kFixedBytes - kDigestBytes)) refuse("its header is longer than it");
  std::string text(static_cast<std::size_t>(length), '\0');
  read_at(kFixedBytes, static_cast<std::int64_t>(length), text.data());
  payload_ = kFixedBytes + static_cast<std::int64_t>(length);
  try {
    header_ = state_header_of(StateJson::parse(text));
  } catch (const std::exception& error) {
    refuse(fmt::format("its header cannot be read: {}", error.what()));
  }
  if (header_.stored_bytes() != bytes_ - payload_ - kDigestBytes)
    refuse(fmt::format("its header says {} bytes, and there are {}", header_.stored_bytes(),
                       bytes_ - payload_ - kDigestBytes));
  std::int64_t place = 0;
  if (header_.stored)
    for (const StateSpan& span : *header_.stored) places_.push_back(std::exchange(place, place + span.bytes));
}

void StateFile::read(std::int64_t offset, std::int64_t bytes, std::byte* to) const {
  if (offset < 0 || bytes < 0 || offset + bytes > header_.payload_bytes) refuse("a part of it lies outside of it");
  // Not open while a base is read: of a long chain only one file is.
  const auto read_own = [this](std::int64_t at, std::int64_t count, std::byte* into) {
    const Open opened(*this);
    find("the checkpoint");
    read_at(at, count, into);
  };
  if (!header_.stored) return read_own(payload_ + offset, bytes, to);
  const std::vector<StateSpan>& spans = *header_.stored;
  auto next = std::upper_bound(spans.begin(), spans.end(), offset,
                               [](std::int64_t at, const StateSpan& s) { return at < s.offset + s.bytes; });
  while (bytes > 0) {
    const bool ours = next != spans.end() && next->offset <= offset;
    const std::int64_t end = ours                  ? next->offset + next->bytes
                             : next == spans.end() ? header_.payload_bytes
                                                   : next->offset;
    const std::int64_t n = std::min(bytes, end - offset);
    if (ours)
      read_own(payload_ + places_[static_cast<std::size_t>(next - spans.begin())] + offset - next->offset, n, to);
    else if (base_ != nullptr)
      base_->read(offset, n, to);
    else
      refuse("a part of it is in no file");
    offset += n, bytes -= n, to += n;
    if (ours && offset == end) ++next;
  }
}

}  // namespace rehearse::execute
