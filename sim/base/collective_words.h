// The words for collectives in scenarios, results and tables of measurements. They stand here since sim/plan reads them
// and knows nothing of the models behind them (sim/collective).
#pragma once

#include <array>
#include <string_view>

// Every algorithm that a collective can go by, in the order in which messages name them. A new one is a row here and a
// file in sim/collective/algorithms; docs/collectives.md says what each is.
#define REHEARSE_COLLECTIVE_ALGORITHMS(ROW) \
  ROW(ring)                                 \
  ROW(tree)                                 \
  ROW(nvls)                                 \
  ROW(nvls_tree)                            \
  ROW(pat)                                  \
  ROW(direct)                               \
  ROW(collnet_direct)                       \
  ROW(collnet_chain)                        \
  ROW(halving_doubling)                     \
  ROW(hierarchical)                         \
  ROW(torus)

namespace rehearse {

enum class CollectiveAlgorithm : unsigned char {
#define REHEARSE_ENUMERATOR(word) word,
  REHEARSE_COLLECTIVE_ALGORITHMS(REHEARSE_ENUMERATOR)
#undef REHEARSE_ENUMERATOR
};

inline constexpr std::array kCollectiveAlgorithmWords = {
#define REHEARSE_WORD(word) std::string_view(#word),
    REHEARSE_COLLECTIVE_ALGORITHMS(REHEARSE_WORD)
#undef REHEARSE_WORD
};

// NCCL's protocols.
enum class CollectiveProtocol : unsigned char { ll, ll128, simple };
inline constexpr std::array<std::string_view, 3> kCollectiveProtocolWords = {"ll", "ll128", "simple"};

// In the order of program::CollectiveKind.
inline constexpr std::array<std::string_view, 6> kCollectiveKindWords = {"all_reduce", "all_gather", "reduce_scatter",
                                                                         "broadcast",  "all_to_all", "reduce"};

}  // namespace rehearse
