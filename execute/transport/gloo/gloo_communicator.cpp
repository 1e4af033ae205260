// See gloo_communicator.h. Member i of n; chunk c is the part of the elements that member c owns.
#include "execute/transport/gloo/gloo_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "execute/transport/fold.h"
#include "sim/base/check.h"

namespace rehearse::execute {
namespace {

using program::ReduceOp;
using Transfers = std::vector<std::unique_ptr<Wire::Transfer>>;

std::size_t bytes_of(DType type, std::int64_t elements) {
  return static_cast<std::size_t>(elements * size_of(type));
}

constexpr std::int64_t kSegment = 64 * 1024;    // elements, 256 KiB: long against a latency, short against a chunk
constexpr std::int64_t kMaxSegments = 1 << 10;  // of a chunk; what a tag holds
constexpr std::int64_t kDirect = 2048;          // elements a member, 8 KiB: up to here directly instead of by a ring

struct Part {
  std::int64_t first = 0, count = 0;
};
Part part_of(std::int64_t elements, std::int64_t parts, std::int64_t index) {
  const std::int64_t first = elements * index / parts;
  return {first, elements * (index + 1) / parts - first};
}
std::int64_t segments_of(std::int64_t count) {
  return std::min(kMaxSegments, (count + kSegment - 1) / kSegment);
}

// One call of a collective as one member makes it.
bool goes_round(std::int64_t elements, std::int64_t members) {
  return elements / members > kDirect;
}
// Sums of 16 bits are not passed on, which would round them at each member.
bool sums_in_ring(std::int64_t elements, std::int64_t members, DType type) {
  return goes_round(elements, members) && type == DType::f32;
}

class MemberCall {
 public:
  MemberCall(Wire& wire, const CollectiveCall& m)
      : wire_(wire), call_(m), size_(static_cast<std::int64_t>(m.members.size())) {
    const auto found = std::find(m.members.begin(), m.members.end(), wire.rank());
    REHEARSE_CHECK(found != m.members.end(), "rank {} calls a group it is not in", wire.rank());
    index_ = found - m.members.begin();
    lane_ = wire.lanes() == 1 ? 0 : 1 + m.group % (wire.lanes() - 1);
  }

  std::int64_t size() const { return size_; }
  std::int64_t index() const { return index_; }

  // Leaves chunk `index` of the sum of every member's `in` in `own`, which may lie there in `in`.
  void reduce_scatter(ReduceOp op, In in, Out own, std::int64_t elements) {
    if (!sums_in_ring(elements, size_, in.type)) return reduce_scatter_directly(op, in, own, elements);
    ring_reduce_scatter(op, static_cast<const float*>(in.data), static_cast<float*>(own.data), elements);
  }
  void ring_reduce_scatter(ReduceOp op, const float* in, float* own, std::int64_t elements) {
    std::array<std::vector<float>, 2> staging;
    for (auto& r : staging) r.resize(static_cast<std::size_t>(elements / size_ + 1));
    std::array<Transfers, 2> sent;  // out of each staging; [1] first from `in`
    // Receives are posted before anything is sent: of two members the receive's word to the other goes the way of our
    // own bytes, and behind a whole chunk it would let only one of both directions move at a time.
    Transfers incoming = receive_step(0, staging[0], elements);
    send_chunk(next(), 0, in, part(elements, index_ - 1), sent[1]);
    for (std::int64_t step = 0; step < size_ - 1; ++step) {
      const auto here = static_cast<std::size_t>(step % 2);
      const Part chunk = part(elements, index_ - 2 - step);
      float* target = staging[here].data() - chunk.first;
      for (std::int64_t s = 0; s < segments_of(chunk.count); ++s) {
        wire_.wait(*incoming[static_cast<std::size_t>(s)]);
        const Part segment = segment_of(chunk, s);
        fold(op, target + segment.first, in + segment.first, segment.count);
        if (step < size_ - 2)
          sent[here].push_back(send(next(), step + 1, s, target, segment));
        else
          std::copy_n(target + segment.first, segment.count, own + segment.first - chunk.first);
      }
      if (step == size_ - 2) break;
      wait(sent[1 - here]);  // its staging is the next step's
      incoming = receive_step(step + 1, staging[1 - here], elements);
    }
    for (auto& transfers : sent) wait(transfers);
  }

  // Chunk `index` of `whole` is there already; fetches the others.
  void all_gather(Out whole, std::int64_t elements) {
    if (!goes_round(elements, size_)) return all_gather_directly(whole, elements);
    std::vector<Transfers> incoming(static_cast<std::size_t>(size_ - 1));
    for (std::int64_t step = 0; step < size_ - 1; ++step)
      receive_chunk(previous(), kGather + step, whole, part(elements, index_ - 1 - step),
                    incoming[static_cast<std::size_t>(step)]);
    Transfers sent;
    send_chunk(next(), kGather, whole, part(elements, index_), sent);
    for (std::int64_t step = 0; step < size_ - 1; ++step) {
      const Part chunk = part(elements, index_ - 1 - step);
      for (std::int64_t s = 0; s < segments_of(chunk.count); ++s) {
        wire_.wait(*incoming[static_cast<std::size_t>(step)][static_cast<std::size_t>(s)]);
        if (step < size_ - 2) sent.push_back(send(next(), kGather + step + 1, s, whole, segment_of(chunk, s)));
      }
    }
    wait(sent);
  }

  // Everything goes to all; added in group order.
  void all_reduce_directly(ReduceOp op, In in, Out out, std::int64_t elements) {
    std::vector<std::byte> all(static_cast<std::size_t>(size_ * elements * size_of(in.type)));
    const auto of = [&](std::int64_t member) { return from(Out(all.data(), in.type), member * elements); };
    exchange(
        0, [&](std::int64_t) { return in; }, of, [&](std::int64_t) { return elements; },
        [&](std::int64_t) { return elements; });
    copy_elements(in, of(index_), elements);
    add_up(op, of(0), elements, out);
  }

  // Chunk m of every member's `in` to member m; `out` may be `in`.
  void all_to_all(In in, Out out, std::int64_t elements) {
    const std::int64_t each = elements / size_;
    std::vector<std::byte> memory(static_cast<std::size_t>(elements * size_of(in.type)));
    const Out received(memory.data(), in.type);
    const auto count = [&](std::int64_t) { return each; };
    exchange(
        0, [&](std::int64_t m) { return from(in, m * each); }, [&](std::int64_t m) { return from(received, m * each); },
        count, count);
    copy_elements(from(in, index_ * each), from(received, index_ * each), each);
    copy_elements(received, out, elements);
  }

  void all_to_all_parts(In in, Out out, const Parts& parts) {
    const auto at_member = [](const std::vector<std::int64_t>& counts, std::int64_t m) {
      return std::accumulate(counts.begin(), counts.begin() + m, std::int64_t{0});
    };
    const auto sent = [&](std::int64_t m) { return parts.sent[static_cast<std::size_t>(m)]; };
    const auto source = [&](std::int64_t m) { return from(in, at_member(parts.sent, m)); };
    const auto target = [&](std::int64_t m) { return from(out, at_member(parts.received, m)); };
    exchange(0, source, target, sent, [&](std::int64_t m) { return parts.received[static_cast<std::size_t>(m)]; });
    copy_elements(source(index_), target(index_), sent(index_));
  }

  // Everything goes to the first; added in group order.
  void reduce_to_first(ReduceOp op, In in, Out out, std::int64_t elements) {
    const std::int64_t gathered = index_ == 0 ? elements : 0;
    std::vector<std::byte> all(static_cast<std::size_t>(size_ * gathered * size_of(in.type)));
    const auto of = [&](std::int64_t member) { return from(Out(all.data(), in.type), member * gathered); };
    exchange(
        0, [&](std::int64_t) { return in; }, of, [&](std::int64_t m) { return m == 0 ? elements : 0; },
        [&](std::int64_t) { return gathered; });
    if (index_ > 0) return;
    copy_elements(in, of(0), elements);
    add_up(op, of(0), elements, out);
  }

  void broadcast(In in, Out out, std::int64_t elements) {
    const Part whole{0, elements};
    Transfers incoming, sent;
    if (index_ == 0) {
      send_chunk(next(), 0, in, whole, sent);
    } else {
      receive_chunk(previous(), 0, out, whole, incoming);
      for (std::int64_t s = 0; s < segments_of(elements); ++s) {
        wire_.wait(*incoming[static_cast<std::size_t>(s)]);
        if (index_ < size_ - 1) sent.push_back(send(next(), 0, s, out, segment_of(whole, s)));
      }
    }
    wait(sent);
    if (index_ == 0) copy_elements(in, out, elements);
  }

 private:
  static constexpr std::int64_t kGather = 64;  // first step of an all-gather, beyond those of a reduce-scatter

  int member(std::int64_t index) const { return call_.members[static_cast<std::size_t>((index + size_) % size_)]; }
  int next() const { return member(index_ + 1); }
  int previous() const { return member(index_ - 1); }
  Part part(std::int64_t elements, std::int64_t index) const {
    return part_of(elements, size_, ((index % size_) + size_) % size_);
  }
  static Part segment_of(const Part& chunk, std::int64_t s) {
    const Part within = part_of(chunk.count, segments_of(chunk.count), s);
    return {chunk.first + within.first, within.count};
  }
  std::uint64_t tag(std::int64_t step, std::int64_t segment) const {
    return make_tag(TagKind::collective, call_.group, call_.sequence, step, segment);
  }

  std::unique_ptr<Wire::Transfer> send(int to, std::int64_t step, std::int64_t segment, In base, Part p) {
    return wire_.send(to, lane_, tag(step, segment), at(base, p.first), bytes_of(base.type, p.count));
  }
  void send_chunk(int to, std::int64_t step, In base, const Part& chunk, Transfers& out) {
    for (std::int64_t s = 0; s < segments_of(chunk.count); ++s)
      out.push_back(send(to, step, s, base, segment_of(chunk, s)));
  }
  void receive_chunk(int source, std::int64_t step, Out base, const Part& chunk, Transfers& out) {
    for (std::int64_t s = 0; s < segments_of(chunk.count); ++s) {
      const Part p = segment_of(chunk, s);
      out.push_back(wire_.receive(source, lane_, tag(step, s), at(base, p.first), bytes_of(base.type, p.count)));
    }
  }
  // Chunk `index` - 2 - step of a reduce-scatter's partial sums, into `staging` from its beginning.
  Transfers receive_step(std::int64_t step, std::vector<float>& staging, std::int64_t elements) {
    const Part chunk = part(elements, index_ - 2 - step);
    Transfers incoming;
    receive_chunk(previous(), step, staging.data() - chunk.first, chunk, incoming);
    return incoming;
  }
  void wait(Transfers& transfers) {
    for (auto& t : transfers) wire_.wait(*t);
    transfers.clear();
  }

  // To every other member m `send_count(m)` elements from source(m), from it `receive_count(m)` into target(m).
  template <class Source, class Target, class SendCount, class ReceiveCount>
  void exchange(std::int64_t step, Source source, Target target, SendCount send_count, ReceiveCount receive_count) {
    Transfers transfers;
    for (std::int64_t d = 1; d < size_; ++d) {
      const std::int64_t from = (index_ - d + size_) % size_;
      receive_chunk(member(from), step, target(from), {0, receive_count(from)}, transfers);
    }
    for (std::int64_t d = 1; d < size_; ++d) {
      const std::int64_t to = (index_ + d) % size_;
      send_chunk(member(to), step, source(to), {0, send_count(to)}, transfers);
    }
    wait(transfers);
  }
  // `count` elements of each member lie one after the other in `all`.
  void add_up(ReduceOp op, In all, std::int64_t count, Out out) const {
    std::vector<In> parts;
    for (std::int64_t m = 0; m < size_; ++m) parts.push_back(from(all, m * count));
    reduce(parts, op, 0, count, out);
  }
  void reduce_scatter_directly(ReduceOp op, In in, Out own, std::int64_t elements) {
    const Part mine = part(elements, index_);
    std::vector<std::byte> all(static_cast<std::size_t>(size_ * mine.count * size_of(in.type)));
    const auto of = [&](std::int64_t m) { return from(Out(all.data(), in.type), m * mine.count); };
    exchange(
        0, [&](std::int64_t m) { return from(in, part(elements, m).first); }, of,
        [&](std::int64_t m) { return part(elements, m).count; }, [&](std::int64_t) { return mine.count; });
    copy_elements(from(in, mine.first), of(index_), mine.count);
    add_up(op, of(0), mine.count, own);
  }
  void all_gather_directly(Out whole, std::int64_t elements) {
    const Part mine = part(elements, index_);
    exchange(
        kGather, [&](std::int64_t) { return from(whole, mine.first); },
        [&](std::int64_t m) { return from(whole, part(elements, m).first); }, [&](std::int64_t) { return mine.count; },
        [&](std::int64_t m) { return part(elements, m).count; });
  }

  Wire& wire_;
  const CollectiveCall& call_;
  std::int64_t size_, index_ = 0;
  int lane_ = 0;
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(Wire& wire, Arrivals& arrivals) : wire_(wire), arrivals_(arrivals) {}

  Arrival all_reduce(const CollectiveCall& m, ReduceOp op, In in, Out out, std::int64_t elements) override {
    return perform(m, [&](MemberCall& call) {
      if (elements <= kDirect) return call.all_reduce_directly(op, in, out, elements);
      const Part mine = part_of(elements, call.size(), call.index());
      call.reduce_scatter(op, in, from(out, mine.first), elements);
      call.all_gather(out, elements);
    });
  }
  Arrival all_gather(const CollectiveCall& m, In in, Out out, std::int64_t elements) override {
    return perform(m, [&](MemberCall& call) {
      const std::int64_t each = each_of(call, elements);
      copy_elements(in, from(out, call.index() * each), each);
      call.all_gather(out, elements);
    });
  }
  Arrival reduce_scatter(const CollectiveCall& m, In in, Out out, std::int64_t elements) override {
    return perform(m, [&](MemberCall& call) {
      each_of(call, elements);
      call.reduce_scatter(ReduceOp::sum, in, out, elements);
    });
  }
  Arrival reduce(const CollectiveCall& m, ReduceOp op, In in, Out out, std::int64_t elements) override {
    return perform(m, [&](MemberCall& call) { call.reduce_to_first(op, in, out, elements); });
  }
  Arrival broadcast(const CollectiveCall& m, In in, Out out, std::int64_t elements) override {
    return perform(m, [&](MemberCall& call) { call.broadcast(in, out, elements); });
  }
  Arrival all_to_all(const CollectiveCall& m, In in, Out out, std::int64_t elements) override {
    return perform(m, [&](MemberCall& call) {
      each_of(call, elements);
      call.all_to_all(in, out, elements);
    });
  }

  Arrival all_to_all_parts(const CollectiveCall& m, In in, Out out, const Parts& parts) override {
    return perform(m, [&](MemberCall& call) { call.all_to_all_parts(in, out, parts); });
  }

  std::string_view way(program::CollectiveKind kind, std::int64_t elements, std::int64_t members,
                       DType type) const override {
    using Kind = program::CollectiveKind;
    const bool round = goes_round(elements, members), sums = sums_in_ring(elements, members, type);
    switch (kind) {
      case Kind::all_reduce:
        if (elements <= kDirect) return "direct";
        return sums == round ? (round ? "ring" : "direct") : "direct, ring";
      case Kind::reduce_scatter:
        return sums ? "ring" : "direct";
      case Kind::all_gather:
        return round ? "ring" : "direct";
      case Kind::broadcast:
        return "chain";
      default:
        return "direct";
    }
  }

  // A message is its elements and the time at which it was posted.
  Arrival exchange(std::span<const Message> messages) override {
    Clock::time_point met = Clock::now();
    std::vector<std::string> received;
    received.reserve(messages.size());  // what is being written must not move
    Transfers incoming;
    for (const Message& m : messages) {
      const std::size_t bytes = bytes_of(m.data.type, m.elements);
      const std::uint64_t tag = make_tag(TagKind::message, m.channel, m.sequence);
      std::string bytes_and_time(bytes + sizeof met, '\0');
      if (m.send) {
        std::memcpy(bytes_and_time.data(), m.data.data, bytes);
        std::memcpy(bytes_and_time.data() + bytes, &met, sizeof met);
        wire_.post(m.peer, kControlLane, tag, std::move(bytes_and_time));
      } else {
        received.push_back(std::move(bytes_and_time));
        incoming.push_back(wire_.receive(m.peer, kControlLane, tag, received.back().data(), received.back().size()));
      }
    }
    std::size_t next = 0;
    for (const Message& m : messages) {
      if (m.send) continue;
      wire_.wait(*incoming[next]);
      const std::string& bytes_and_time = received[next++];
      const std::size_t bytes = bytes_and_time.size() - sizeof met;
      std::memcpy(m.data.data, bytes_and_time.data(), bytes);
      Clock::time_point posted;
      std::memcpy(&posted, bytes_and_time.data() + bytes, sizeof posted);
      if (arrivals_.same_machine(m.peer)) met = std::max(met, posted);
    }
    return {met};
  }

 private:
  static std::int64_t each_of(const MemberCall& call, std::int64_t elements) {
    REHEARSE_CHECK(elements % call.size() == 0, "{} elements over {} ranks", elements, call.size());
    return elements / call.size();
  }

  template <class Work>
  Arrival perform(const CollectiveCall& m, Work work) {
    const Clock::time_point came = Clock::now();
    MemberCall call(wire_, m);
    arrivals_.arrive(m.group, m.sequence, came);
    try {
      work(call);
    } catch (const DeadlineError& error) {
      throw DeadlineError(missing(m, error));
    } catch (const Stopped& error) {
      throw Stopped(missing(m, error));
    }
    Arrival last{came, wire_.rank()};
    for (const int member : m.members)
      if (const auto time = arrivals_.arrival(member, m.group, m.sequence); time && *time > last.when)
        last = {*time, member};
    last.when = std::min(last.when, Clock::now());
    return last;
  }

  // The members that had not come, as far as that is known; if all had, whom the transfer waited for.
  std::vector<int> missing(const CollectiveCall& m, const WaitEnded& error) const {
    std::vector<int> ranks;
    for (const int member : m.members)
      if (arrivals_.same_machine(member) && !arrivals_.arrival(member, m.group, m.sequence)) ranks.push_back(member);
    return ranks.empty() ? error.missing() : ranks;
  }

  Wire& wire_;
  Arrivals& arrivals_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(Wire& wire, Arrivals& arrivals) {
  return std::make_unique<GlooCommunicator>(wire, arrivals);
}

}  // namespace rehearse::execute
