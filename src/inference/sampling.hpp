#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

/// How the next token is chosen. By itself: the most probable one, greedily.
struct Sampling {
    double temperature = 0;  ///< by which logits are divided; 0: greedily
    std::int64_t top_k = 0;  ///< of the k most probable alone; 0: of all
    double top_p = 1;        ///< of the fewest that have this much of the probability
                             ///< (Holtzman et al. 2020, 1904.09751, section 3.1)
    std::uint64_t seed = 0;

    /// How many of the largest logits decide.
    std::int64_t candidates(std::int64_t vocabulary) const;
    /// Throws UsageError, which names what is not a temperature, a number or a part.
    void require_sound() const;
};

/// A token, and its logit.
struct Candidate {
    std::int32_t token = 0;
    double logit = 0;
};

/// Returns the probabilities of tokens, in the order of the candidates, which are sorted:
/// the largest logit first, and of equal ones the lower token. Those that cannot be
/// chosen are left out.
std::vector<double> probabilities(std::span<const Candidate> sorted,
                                  const Sampling& sampling);

/// Returns the place of the weight that a uniform number in [0, 1) falls to. Weights need
/// not add up to 1; one that is 0 is never chosen.
std::size_t place_of(std::span<const double> weights, double uniform);

/// Chooses the token at place `position` of a sequence: by number `position` of the
/// random stream of the sequence's seed, so it is the same whichever device asks, and
/// whatever other sequences are computed beside it.
std::int32_t sample(std::span<const Candidate> sorted, const Sampling& sampling,
                    std::int64_t position);

/// One row's token.
struct Wanted {
    Sampling sampling;
    std::int64_t position = 0;  ///< of the token that is chosen, in its sequence
    std::int64_t request = 0;   ///< whose it is
};

/// Chooses a token for each row of logits (rows, 1, V): brings the largest k of each row
/// to the host, k of the row that needs most. Without numbers every token is 0.
std::vector<std::int32_t> sample_rows(Device& device, const Tensor& logits,
                                      std::span<const Wanted> wanted,
                                      SourceLine at = SourceLine::here());

/// Does so for logits whose columns ranks share out, (rows, 1, columns), the last ones
/// padded: each rank sends its own k largest, 8 bytes each in f32, to all others, not its
/// columns, and all choose the same.
std::vector<std::int32_t> sample_rows(Device& device, Communicator& shards,
                                      const Tensor& logits, std::int64_t vocabulary,
                                      std::span<const Wanted> wanted,
                                      SourceLine at = SourceLine::here());

}  // namespace lockstep
