#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/communicator.hpp"

namespace lockstep {

/// Tells each rank of a group how much it will receive from each other rank, before an
/// all_to_all_v. Systems that train experts on several devices do this, such as FastMoE
/// (He et al. 2021, 2103.13262).
///
/// `counts` has one block for each rank of the group, all of the same size: for example,
/// a count for each of the rank's experts. Returns the blocks that are meant for this
/// rank, in the order of the ranks that sent them. Costs an all-to-all of 4 bytes per
/// count, and waits for the device. Throws UsageError if the counts cannot be cut into
/// blocks of the same size, or if a count is negative or too large for i32.
///
/// In a run of shapes only, every rank is assumed to send the same counts as this rank.
/// This is true if all ranks route() the same number of tokens.
std::vector<std::int64_t> exchange_counts(Device& device, Communicator& group,
                                          const std::vector<std::int64_t>& counts,
                                          SourceLine at = SourceLine::here());

/// Returns the counts of all ranks, in rank order; all have the same number of counts.
/// Costs an all-gather of 4 bytes per count; the rest is as in exchange_counts.
std::vector<std::vector<std::int64_t>> gather_counts(
    Device& device, Communicator& ranks, const std::vector<std::int64_t>& counts,
    SourceLine at = SourceLine::here());

/// Returns the sums of all ranks' counts. Costs an all-reduce of 4 bytes per count. In a
/// run of shapes only, returns this rank's own counts.
std::vector<std::int64_t> add_up_counts(Device& device, Communicator& ranks,
                                        const std::vector<std::int64_t>& counts,
                                        SourceLine at = SourceLine::here());

}  // namespace lockstep
