#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/comm/wire_fields.hpp"

namespace lockstep::lessons {

/// The process of a rank asks the grader for this. A request that is told gets no answer.
enum class RankRequest : std::uint8_t {
    empty,              ///< category, shape, dtype, line; a tensor
    upload_into,        ///< tensor, values, line; nothing
    download,           ///< tensor, line; its values
    peek,               ///< as download
    operation,          ///< category, kind, the operation, line; its results
    freed,              ///< told: handle
    phase_began,        ///< told: phase, micro-batch, line
    phase_ended,        ///< told
    launch,             ///< communicator, operations, line; number of the work
    all_to_all_v,       ///< communicator, arguments; number of the work
    wait,               ///< work, line; nothing
    wait_any,           ///< works, line; the place of one of them
    work_released,      ///< told: work
    split,              ///< communicator, request, line; number, rank and size
    communicator_gone,  ///< told: communicator
    bytes_sent,         ///< communicator, line; bytes by verb
    expect_replicated,  ///< communicator, tensor, name, line; nothing
    declare_replicas,   ///< as expect_replicated
    declare_same,       ///< as expect_replicated
    declare_values,     ///< declare_same: communicator, values, name, line; nothing
    returned,           ///< told: tensors, values and texts; the last
    threw               ///< told: how, and what it said; the last
};

/// A task threw one of these.
enum class ThrownKind : std::uint8_t { not_written, usage, fault, memory, other };

/// The grader says this first: which task, and what it is given.
struct TaskStart {
    std::string task;
    int rank = 0;
    int size = 1;
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::int64_t> numbers;
};

/// The number of world among a rank's communicators; those split off follow.
inline constexpr int kWorldNumber = 0;

}  // namespace lockstep::lessons

namespace lockstep {

template <>
inline constexpr std::int64_t kLast<lessons::RankRequest> =
    static_cast<std::int64_t>(lessons::RankRequest::threw);
template <>
inline constexpr std::int64_t kLast<lessons::ThrownKind> =
    static_cast<std::int64_t>(lessons::ThrownKind::other);

}  // namespace lockstep
