#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/communicator.hpp"

namespace lockstep {

/// Tells the ranks of a group how much each will get from each other, before an
/// all_to_all_v of that: so do systems that train experts on several devices, as FastMoE
/// does (He et al. 2021, 2103.13262).
///
/// `counts` are one block after another, a block for each rank of the group, of as many
/// counts as it has experts, say. Returns the blocks that are meant for this rank, in the
/// order of the ranks that they came from. An all-to-all of 4 bytes a count; it waits for
/// the device. Throws UsageError unless the counts can be dealt in blocks of one size,
/// and each is an i32 that is not negative.
///
/// In a run that computes shapes only, each rank is taken to send what this one does, as
/// it is when all route() the same number of tokens.
std::vector<std::int64_t> exchange_counts(Device& device, Communicator& group,
                                          const std::vector<std::int64_t>& counts,
                                          SourceLine at = SourceLine::here());

/// Gives the counts of all ranks, which have as many each, in rank order. An all-gather
/// of 4 bytes a count; otherwise as above.
std::vector<std::vector<std::int64_t>> gather_counts(
    Device& device, Communicator& ranks, const std::vector<std::int64_t>& counts,
    SourceLine at = SourceLine::here());

/// Gives the sums of all ranks' counts: an all-reduce of 4 bytes a count. In a run that
/// computes shapes only, this rank's own.
std::vector<std::int64_t> add_up_counts(Device& device, Communicator& ranks,
                                        const std::vector<std::int64_t>& counts,
                                        SourceLine at = SourceLine::here());

}  // namespace lockstep
