// See kernel_kinds.h.
#include "sim/program/kernel_kinds.h"

#include <algorithm>
#include <memory>

namespace rehearse::program {
namespace {

constexpr std::size_t kBuckets = 1024;  // a power of 2

std::uint64_t mix(std::uint64_t sum, std::uint64_t value) {
  sum = (sum ^ value) * 0x9e3779b97f4a7c15;
  return sum ^ sum >> 29;
}

// The first of each kind, found by a hash.
template <class T>
class Firsts {
 public:
  // The number of the one that is `same`, of those with the hash; that of `added` if there is none.
  template <class Same>
  std::int32_t number(std::uint64_t hash, const T& added, const Same& same) {
    std::int32_t& head = heads_[hash % kBuckets];
    for (std::int32_t at = head; at >= 0; at = all_[static_cast<std::size_t>(at)].next) {
      const Entry& known = all_[static_cast<std::size_t>(at)];
      if (known.hash == hash && same(known.value)) return at;
    }
    all_.push_back({added, hash, head});
    return head = static_cast<std::int32_t>(all_.size()) - 1;
  }
  std::size_t size() const { return all_.size(); }

 private:
  struct Entry {
    T value;
    std::uint64_t hash;
    std::int32_t next;
  };
  std::vector<Entry> all_;
  std::vector<std::int32_t> heads_ = std::vector<std::int32_t>(kBuckets, -1);
};

bool same_form(const Buffer& a, const Buffer& b) {
  return a.dtype == b.dtype && a.on_host == b.on_host && a.shape == b.shape;
}

// An op with the forms of its role's buffers.
struct Placed {
  const Role* role;
  const Op* op;
  const std::vector<std::int32_t>* forms;

  std::int32_t form(const Operand& o) const { return (*forms)[static_cast<std::size_t>(o.buffer)]; }
  StreamKind stream() const {
    const auto s = static_cast<std::size_t>(op->stream);
    return s < role->streams.size() ? role->streams[s].kind : StreamKind::compute;
  }
};

bool alike(const Placed& a, const Placed& b) {
  const auto same = [&](const std::vector<Operand>& mine, const std::vector<Operand>& theirs) {
    return std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                      [&](const Operand& x, const Operand& y) { return a.form(x) == b.form(y); });
  };
  const Op &x = *a.op, &y = *b.op;
  return x.dtype == y.dtype && x.phase == y.phase && x.launches == y.launches && x.fused == y.fused &&
         x.passes.read == y.passes.read && x.passes.written == y.passes.written && a.stream() == b.stream() &&
         same(x.reads, y.reads) && same(x.writes, y.writes) && x.shape == y.shape;
}

std::uint64_t hash_of(const Placed& p) {
  std::uint64_t hash = mix(p.op->shape.index(), static_cast<std::uint64_t>(p.op->phase));
  for (const auto* operands : {&p.op->reads, &p.op->writes}) {
    hash = mix(hash, operands->size());
    for (const Operand& o : *operands) hash = mix(hash, static_cast<std::uint64_t>(p.form(o)));
  }
  return hash;
}

}  // namespace

KernelKinds::KernelKinds(const Program& program) {
  Firsts<const Buffer*> forms;
  Firsts<Placed> kinds;
  std::vector<std::vector<std::int32_t>> forms_of(program.roles.size());
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    const Role& role = program.roles[r];
    forms_of[r].reserve(role.buffers.size());
    for (const Buffer& b : role.buffers) {
      std::uint64_t hash = mix(static_cast<std::uint64_t>(b.dtype), b.on_host ? 1 : 0);
      for (const std::int64_t n : b.shape) hash = mix(hash, static_cast<std::uint64_t>(n));
      forms_of[r].push_back(forms.number(hash, &b, [&](const Buffer* known) { return same_form(*known, b); }));
    }
    first_body_.push_back(first_op_.size());
    for (const Body& body : role.bodies) {
      first_op_.push_back(kinds_.size());
      for (const Op& op : body.ops) {
        if (is_transfer(op) || std::holds_alternative<HostSync>(op.shape)) {
          kinds_.push_back(kNone);
          continue;
        }
        const Placed placed{&role, &op, &forms_of[r]};
        kinds_.push_back(
            kinds.number(hash_of(placed), placed, [&](const Placed& known) { return alike(known, placed); }));
      }
    }
  }
  count_ = kinds.size();
}

}  // namespace rehearse::program
