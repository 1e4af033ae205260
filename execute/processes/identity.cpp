// See identity.h.
#include "execute/processes/identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>

#define XXH_INLINE_ALL
#define XXH_NO_INLINE_HINTS 1  // g++ refuses them under -Og, as the sanitizer builds have it
#include <xxhash.h>

#include "sim/base/check.h"
#include "sim/program/describe.h"

namespace rehearse::execute {
namespace {

constexpr std::size_t kColumns = 80, kShown = 8;

class Hash {
 public:
  Hash() { XXH3_128bits_reset(state_.get()); }
  void add(const void* data, std::size_t bytes) { XXH3_128bits_update(state_.get(), data, bytes); }
  void add(std::string_view text) {
    add(static_cast<std::uint64_t>(text.size()));
    add(text.data(), text.size());
  }
  template <class Number>
  requires(std::is_arithmetic_v<Number> || std::is_enum_v<Number>) void add(Number value) { add(&value, sizeof value); }
  template <class Number>
  requires(std::is_arithmetic_v<Number>) void add(const std::vector<Number>& values) {
    add(static_cast<std::uint64_t>(values.size()));
    for (const Number value : values) add(value);
  }
  std::string text() const {
    const XXH128_hash_t value = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", value.high64, value.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

void add(Hash& hash, const program::Buffer& b) {
  hash.add(b.name);
  hash.add(b.dtype);
  hash.add(b.shape);
  hash.add(b.cls);
  hash.add(b.lifetime);
  hash.add(b.base);
  hash.add(b.offset);
  hash.add(b.shard_stride);
  hash.add(b.shard_axes.bits());
  hash.add(b.turn);
  hash.add(b.parts);
  hash.add(b.init.kind);
  hash.add(b.init.scale);
  hash.add(b.init.global_shape);
  hash.add(b.init.tensor_dim);
  hash.add(b.init.spread.bits());
  hash.add(b.init.whole);
  hash.add(b.init.first);
  hash.add(b.init.key_ranks);
}

void add(Hash& hash, const std::vector<program::Operand>& operands) {
  hash.add(operands.size());
  for (const program::Operand& o : operands) {
    hash.add(o.buffer);
    hash.add(o.micro_batch_delta);
  }
}

void add(Hash& hash, const program::Role& role, const program::Op& op) {
  hash.add(op.name);
  hash.add(program::kind_name(op.shape));
  hash.add(program::shape_text(role, op));
  hash.add(op.dtype);
  hash.add(op.phase);
  hash.add(op.stream);
  add(hash, op.reads);
  add(hash, op.writes);
  hash.add(op.waits);
  hash.add(op.records);
  add(hash, op.releases);
  hash.add(op.micro_batch_delta);
  hash.add(op.from_step);
  hash.add(op.until_step);
}

void add(Hash& hash, const program::Role& role) {
  hash.add(role.name);
  hash.add(role.pipeline);
  for (const program::Buffer& buffer : role.buffers) add(hash, buffer);
  for (const program::Stream& stream : role.streams) hash.add(stream.kind);
  for (const program::Body& body : role.bodies) {
    hash.add(body.name);
    hash.add(body.every);
    for (const program::Op& op : body.ops) add(hash, role, op);
  }
  for (const program::Slot& slot : role.slots) {
    hash.add(slot.body);
    hash.add(slot.micro_batch);
  }
}

// "rank 1", "ranks 0, 2 and 3".
std::string list_of_ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "), ranks.back());
}

// The values of one part, and who has them; the most common first.
using Values = std::vector<std::pair<std::string, std::vector<int>>>;

const std::string& value_of(const Identity& identity, const std::string& name) {
  static const std::string none = "not known";
  const auto found =
      std::find_if(identity.begin(), identity.end(), [&](const auto& part) { return part.first == name; });
  return found == identity.end() ? none : found->second;
}

Values values_of(std::span<const Identity> identities, const std::string& name) {
  Values values;
  for (std::size_t rank = 0; rank < identities.size(); ++rank) {
    const std::string& value = value_of(identities[rank], name);
    auto found = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == value; });
    if (found == values.end()) found = values.insert(values.end(), {value, {}});
    found->second.push_back(static_cast<int>(rank));
  }
  std::stable_sort(values.begin(), values.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return values;
}

// "training.lr: 0.01 on ranks 0 and 2, 0.02 on rank 1", or a line a value.
std::string part_text(const std::string& name, const Values& values) {
  std::vector<std::string> texts;
  for (const auto& [value, ranks] : values) texts.push_back(fmt::format("{} on {}", value, list_of_ranks(ranks)));
  const std::string line = fmt::format("\n  {}: {}", name, fmt::join(texts, ", "));
  return line.size() <= kColumns ? line : fmt::format("\n  {}:\n    {}", name, fmt::join(texts, "\n    "));
}

// All names, in the order of the first identity that has them.
std::vector<std::string> names_of(std::span<const Identity> identities) {
  std::vector<std::string> names;
  for (const Identity& identity : identities)
    for (const auto& [name, value] : identity)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

// Who is not as most are; if there is no most, everyone.
std::vector<int> different_ranks(std::span<const Identity> identities) {
  std::map<Identity, std::vector<int>> kinds;
  for (std::size_t rank = 0; rank < identities.size(); ++rank)
    kinds[identities[rank]].push_back(static_cast<int>(rank));
  const auto most = std::max_element(kinds.begin(), kinds.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(identities.size()); ++rank) {
    const bool of_most = std::find(most->second.begin(), most->second.end(), rank) != most->second.end();
    if (!of_most || 2 * most->second.size() <= identities.size()) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::string pack(const Identity& identity) {
  std::string bytes;
  for (const auto& [name, value] : identity) bytes += name + '\0' + value + '\0';
  return bytes;
}

Identity unpack_identity(std::string_view bytes) {
  Identity identity;
  const auto word = [&] {
    const std::size_t end = bytes.find('\0');
    REHEARSE_CHECK(end != std::string_view::npos, "half an identity");
    std::string text(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
    return text;
  };
  while (!bytes.empty()) {
    std::string name = word();
    identity.emplace_back(std::move(name), word());
  }
  return identity;
}

std::string difference_text(std::span<const Identity> identities) {
  std::vector<std::string> lines;
  for (const std::string& name : names_of(identities))
    if (const Values values = values_of(identities, name);
        values.size() > 1 && ((name != kProgramPart && name != kOrderPart) || lines.empty()))
      lines.push_back(part_text(name, values));
  if (lines.empty()) return "";
  const std::vector<int> different = different_ranks(identities);
  std::string text = different.size() < identities.size()
                         ? fmt::format("{} {} not started as the others", list_of_ranks(different),
                                       different.size() == 1 ? "was" : "were")
                         : fmt::format("{} were not started alike", list_of_ranks(different));
  for (std::size_t i = 0; i < std::min(kShown, lines.size()); ++i) text += lines[i];
  if (lines.size() > kShown) text += fmt::format("\n  and {} more", lines.size() - kShown);
  return text;
}

std::string fingerprint_of_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return fmt::format("cannot be read: {}", std::strerror(errno));
  Hash hash;
  std::uint64_t bytes = 0;
  for (std::vector<char> block(1 << 20); in;) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    hash.add(block.data(), static_cast<std::size_t>(in.gcount()));
    bytes += static_cast<std::uint64_t>(in.gcount());
  }
  if (in.bad()) return "cannot be read to its end";
  return fmt::format("{} bytes, {}", bytes, hash.text());
}

std::string fingerprint_of_text(std::string_view text) {
  Hash hash;
  hash.add(text.data(), text.size());
  return hash.text();
}

std::string fingerprint_of(const program::Program& program) {
  Hash hash;
  hash.add(program.micro_batches);
  for (const program::Group& group : program.groups) {
    hash.add(group.name);
    for (const Axis axis : group.axes) hash.add(axis);
    hash.add(group.pipeline_only);
    hash.add(group.tensor_block);
  }
  for (const program::Role& role : program.roles) add(hash, role);
  return hash.text();
}

}  // namespace rehearse::execute
