#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/comm/wire_fields.hpp"

namespace lockstep::lessons {

/// The kinds of requests of a rank's process to the grader. A comment lists the contents
/// of the request and, after ";", of the answer. A request that is "told" gets no answer.
enum class RankRequest : std::uint8_t {
    empty,              ///< category, shape, dtype, line; a tensor
    upload_into,        ///< tensor, values, line; no result
    download,           ///< tensor, line; its values
    peek,               ///< as download
    operation,          ///< category, kind, the operation, line; its results
    freed,              ///< told: handle
    phase_began,        ///< told: phase, micro-batch, line
    phase_ended,        ///< told
    launch,             ///< communicator, operations, line; number of the work
    all_to_all_v,       ///< communicator, arguments; number of the work
    wait,               ///< work, line; no result
    wait_any,           ///< works, line; the index of one that has finished
    work_released,      ///< told: work
    split,              ///< communicator, request, line; number, rank and size
    communicator_gone,  ///< told: communicator
    bytes_sent,         ///< communicator, line; bytes by verb
    expect_replicated,  ///< communicator, tensor, name, line; no result
    declare_replicas,   ///< as expect_replicated
    declare_same,       ///< as expect_replicated
    declare_values,     ///< as declare_same, with values instead of a tensor
    returned,           ///< told: tensors, values and texts; the last request
    threw               ///< told: kind and text; the last request
};

/// The kind of exception that a task threw.
enum class ThrownKind : std::uint8_t { not_written, usage, fault, memory, other };

/// The grader's first message: the task and its inputs.
struct TaskStart {
    std::string task;
    int rank = 0;
    int size = 1;
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::int64_t> numbers;
};

/// The number of the world communicator; communicators made by splits have the next ones.
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
