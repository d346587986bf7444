#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

/// How the next token is chosen. The default is greedy: the most probable token.
struct Sampling {
    double temperature = 0;  ///< divides the logits; 0: greedy
    std::int64_t top_k = 0;  ///< chooses only from the k most probable; 0: from all
    double top_p = 1;        ///< from the fewest tokens with this sum of probabilities
                             ///< (Holtzman et al. 2020, 1904.09751, section 3.1)
    std::uint64_t seed = 0;

    /// Returns how many of the largest logits are needed.
    std::int64_t candidates(std::int64_t vocabulary) const;
    /// Throws UsageError, which names the field, unless all fields are in their ranges.
    void require_sound() const;
};

/// A token, and its logit.
struct Candidate {
    std::int32_t token = 0;
    double logit = 0;
};

/// Returns the probabilities of tokens, in the order of the candidates. The candidates
/// are sorted: the largest logit first, and the lower token first if logits are equal.
/// Tokens that cannot be chosen are left out.
std::vector<double> probabilities(std::span<const Candidate> sorted,
                                  const Sampling& sampling);

/// Returns the place of the weight that a uniform number in [0, 1) selects. Weights need
/// not add up to 1; a weight of 0 is never chosen.
std::size_t place_of(std::span<const double> weights, double uniform);

/// Chooses the token at place `position` of a sequence, with number `position` of the
/// random stream of the sequence's seed. So the choice depends neither on the device nor
/// on other sequences in the pass.
std::int32_t sample(std::span<const Candidate> sorted, const Sampling& sampling,
                    std::int64_t position);

/// How one row's token is chosen.
struct Wanted {
    Sampling sampling;
    std::int64_t position = 0;  ///< the chosen token's place in its sequence
    std::int64_t request = 0;   ///< the request of the sequence
};

/// Chooses a token for each row of logits (rows, 1, V). Copies the k largest logits of
/// each row to the host; k is the largest number that a row needs. If only shapes are
/// computed, every token is 0.
std::vector<std::int32_t> sample_rows(Device& device, const Tensor& logits,
                                      std::span<const Wanted> wanted,
                                      SourceLine at = SourceLine::here());

/// Does the same for logits whose columns are sharded, (rows, 1, columns), with padding
/// at the end. Each rank sends only its own k largest logits, 8 bytes each in f32, to all
/// other ranks, and all ranks choose the same tokens.
std::vector<std::int32_t> sample_rows(Device& device, Communicator& shards,
                                      const Tensor& logits, std::int64_t vocabulary,
                                      std::span<const Wanted> wanted,
                                      SourceLine at = SourceLine::here());

}  // namespace lockstep
