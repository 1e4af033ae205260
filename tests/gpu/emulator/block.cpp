// Runs the blocks of a grid: threads are fibers, switched to in an order that changes from launch to launch, until all
// have ended or wait at a barrier or for lanes of their warp. Fibers switch by hand (System V x86-64: the callee-saved
// registers and the stack pointer), as the C library's swapcontext makes a system call each time.
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "cuda_emulator.h"
#include "tests/gpu/emulator/emulator.h"

extern "C" void rehearse_emulator_switch(void** save, void* to);
asm(R"(
.text
.globl rehearse_emulator_switch
.type rehearse_emulator_switch, @function
rehearse_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rehearse_emulator_switch, .-rehearse_emulator_switch
)");

namespace emulator {

Place place;

namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10, kSharedBytes = std::size_t{228} << 10;
constexpr unsigned kMaxThreads = 1024;

enum class State : unsigned char { fresh, ready, at_barrier, in_warp, ended };

struct Fiber {
  State state = State::fresh;
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  Segment segment;
  uint3 index{};
  // At a barrier: what is voted. In a warp function: what and with whom.
  WarpOp op = WarpOp::sync;
  unsigned mask = 0;
  std::uint64_t value = 0;
  int from = 0, vote = 0;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<char*> stacks;  // free ones
  void* scheduler = nullptr;  // stack pointer
  Fiber* running = nullptr;
  const std::function<void()>* thread = nullptr;
  std::exception_ptr thrown;
  std::uint64_t vote_sum = 0;
  bool failed = false;
};
Block block;
std::mutex one_launch;
std::uint64_t launches = 0;

char* shared_memory() {
  static char* const memory = static_cast<char*>(std::aligned_alloc(128, kSharedBytes));
  return memory;
}

char* take_stack() {
  if (block.stacks.empty()) {
    void* memory =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<char*>(memory);
  }
  char* stack = block.stacks.back();
  block.stacks.pop_back();
  return stack;
}

void to_scheduler() {
  rehearse_emulator_switch(&block.running->stack_pointer, block.scheduler);
}

[[noreturn]] void fiber_main() {
  try {
    (*block.thread)();
  } catch (...) {
    if (!block.thrown) block.thrown = std::current_exception();
    block.failed = true;
  }
  block.running->state = State::ended;
  to_scheduler();
  std::terminate();  // nobody switches to a fiber that ended
}

void resume(Fiber& f) {
  if (f.state == State::fresh) {
    f.stack = take_stack();
    // As rehearse_emulator_switch leaves it: six registers, then the address to return to; at a function's entry the
    // stack pointer is 8 below a multiple of 16.
    auto* top = reinterpret_cast<void**>(f.stack + kStackBytes);
    top[-2] = reinterpret_cast<void*>(&fiber_main);
    f.stack_pointer = top - 8;
  }
  f.state = State::ready;
  block.running = &f;
  place.thread = f.index;
  set_segment(new_segment(f.segment));
  rehearse_emulator_switch(&block.scheduler, f.stack_pointer);
  set_segment(0);
  if (f.state == State::ended) {
    block.stacks.push_back(f.stack);
    f.stack = nullptr;
  }
}

// Lets the lanes of one meeting go on, if all are here.
bool finish_warp(std::size_t warp) {
  bool any = false;
  const std::size_t first = warp * 32, last = std::min(first + 32, block.fibers.size());
  for (std::size_t i = first; i < last; ++i) {
    Fiber& f = block.fibers[i];
    if (f.state != State::in_warp) continue;
    const unsigned mask = f.mask;
    bool all = true;
    for (std::size_t l = 0; l < 32 && all; ++l) {
      if (!(mask >> l & 1U)) continue;
      all = first + l < last && block.fibers[first + l].state == State::in_warp &&
            block.fibers[first + l].mask == mask && block.fibers[first + l].op == f.op;
    }
    if (!all) continue;
    std::array<std::uint64_t, 32> value{};
    for (std::size_t l = 0; l < 32; ++l)
      if (mask >> l & 1U) value[l] = block.fibers[first + l].value;
    for (std::size_t l = 0; l < 32; ++l) {
      if (!(mask >> l & 1U)) continue;
      Fiber& g = block.fibers[first + l];
      g.state = State::ready;
      if (g.op == WarpOp::shuffle) {
        const auto from = static_cast<unsigned>(g.from);
        if (!(mask >> from & 1U)) report("a shuffle from lane " + std::to_string(from) + ", which its mask leaves out");
        g.value = value[from];
      } else if (g.op == WarpOp::sync) {
        ++g.segment.warp_barriers;
      } else {
        const bool match = g.op == WarpOp::match;
        std::uint64_t bits = 0;
        for (std::size_t o = 0; o < 32; ++o) {
          const bool set = (mask >> o & 1U) && (match ? value[o] == value[l] : value[o] != 0);
          bits |= static_cast<std::uint64_t>(set) << o;
        }
        // `value` still holds what each lane brought.
        g.value = bits;
      }
    }
    any = true;
  }
  return any;
}

bool finish_barrier() {
  int vote = 0, count = 0;
  for (const Fiber& f : block.fibers) {
    if (f.state != State::at_barrier) return false;  // one that ended is missed for good: reported as stuck
    vote += f.vote != 0;
    ++count;
  }
  for (Fiber& f : block.fibers) {
    f.state = State::ready;
    ++f.segment.block_barriers;
    f.segment.warp_barriers = 0;
    f.value = static_cast<std::uint64_t>(vote);
    f.from = count;
  }
  return true;
}

std::string stuck() {
  std::array<int, 5> count{};
  for (const Fiber& f : block.fibers) ++count[static_cast<std::size_t>(f.state)];
  std::string text = "threads wait for others that never come: " + std::to_string(count[2]) + " at __syncthreads, " +
                     std::to_string(count[3]) + " in a warp function, " + std::to_string(count[4]) + " have ended";
  for (const Fiber& f : block.fibers) {
    if (f.state == State::at_barrier || f.state == State::in_warp) {
      text += "; the first is thread (" + std::to_string(f.index.x) + "," + std::to_string(f.index.y) + "," +
              std::to_string(f.index.z) + ")";
      break;
    }
  }
  return text;
}

// Threads by `order`; stops early after a failure.
void run_block(const std::vector<std::uint32_t>& order, std::uint32_t number) {
  for (std::uint32_t i = 0; i < block.fibers.size(); ++i) {
    Fiber& f = block.fibers[i];
    f = Fiber{};
    f.index = {i % place.block_size.x, i / place.block_size.x % place.block_size.y,
               i / (place.block_size.x * place.block_size.y)};
    f.segment.block = number;
    f.segment.thread = i;
  }
  block.failed = false;
  while (!block.failed) {
    std::size_t ended = 0;
    bool moved = false;
    for (const std::uint32_t i : order) {
      Fiber& f = block.fibers[i];
      if (f.state == State::ended) ++ended;
      if (f.state != State::fresh && f.state != State::ready) continue;
      resume(f);
      moved = true;
      if (block.failed) break;
    }
    if (block.failed || ended == block.fibers.size()) break;
    for (std::size_t warp = 0; warp * 32 < block.fibers.size(); ++warp) moved |= finish_warp(warp);
    moved |= finish_barrier();
    if (!moved) {
      report(stuck());
      break;
    }
  }
  for (Fiber& f : block.fibers) {  // abandoned ones: what they own is lost, as a failed test may
    if (!f.stack) continue;
    ASAN_UNPOISON_MEMORY_REGION(f.stack, kStackBytes);  // of scopes that were never left
    block.stacks.push_back(f.stack);
    f.stack = nullptr;
  }
}

std::vector<std::uint32_t> order_of(std::size_t n, std::uint64_t kind, std::mt19937_64& random) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  if (kind == 1) std::reverse(order.begin(), order.end());
  if (kind == 2) std::shuffle(order.begin(), order.end(), random);
  return order;
}

}  // namespace

void run_grid(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& thread) {
  const std::lock_guard lock(one_launch);
  const std::uint64_t kind = launches++ % 3;
  std::mt19937_64 random(launches);
  place.grid_size = grid;
  place.block_size = size;
  block.thread = &thread;
  block.thrown = nullptr;
  block.fibers.resize(std::size_t{size.x} * size.y * size.z);
  begin_checks();
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  // Beyond a million blocks the order among them is not worth its memory.
  const std::vector<std::uint32_t> blocks_in_order = order_of(blocks < 1U << 20 ? blocks : 0, kind, random);
  for (std::uint64_t i = 0; i < blocks && !block.failed; ++i) {
    const std::uint64_t b = blocks_in_order.empty() ? i : blocks_in_order[i];
    place.block = {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                   static_cast<unsigned>(b / (std::uint64_t{grid.x} * grid.y))};
    std::memset(shared_memory(), 0xFF, shared_bytes);  // not a number, in every type
    run_block(order_of(block.fibers.size(), kind, random), static_cast<std::uint32_t>(b));
  }
  block.failed = false;
  const std::string found = end_checks();
  if (!found.empty()) throw std::runtime_error("emulated kernel: " + found);
  if (block.thrown) std::rethrow_exception(block.thrown);
}

void* dynamic_shared() {
  return shared_memory();
}

Range dynamic_shared_range() {
  return {shared_memory(), shared_memory() + kSharedBytes};
}

std::uint64_t warp_meet(WarpOp op, unsigned mask, std::uint64_t value, int from) {
  Fiber& f = *block.running;
  if (!(mask >> (f.segment.thread % 32) & 1U)) report("a warp function whose mask leaves the caller out");
  f.op = op;
  f.mask = mask;
  f.value = value;
  f.from = from;
  f.state = State::in_warp;
  to_scheduler();
  return f.value;
}

void block_barrier() {
  block.running->vote = 0;
  block.running->state = State::at_barrier;
  to_scheduler();
}

int block_vote(int predicate, int kind) {
  Fiber& f = *block.running;
  f.vote = predicate;
  f.state = State::at_barrier;
  to_scheduler();
  const int vote = static_cast<int>(f.value);
  return kind == 0 ? vote : kind == 1 ? vote == f.from : vote > 0;
}

void abandon() {
  block.failed = true;
  block.running->state = State::ended;
  to_scheduler();
  std::terminate();
}

std::string where() {
  const auto text = [](const uint3& v) {
    return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
  };
  return "thread " + text(place.thread) + " of block " + text(place.block);
}

}  // namespace emulator
