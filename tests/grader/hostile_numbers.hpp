#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lessons/grader/remote/rank_session.hpp"
#include "src/device/operations.hpp"

namespace lockstep::test {

/// Writes tensors into messages as a rank's process does. Such a process has only handles
/// of the grader's tensors, and may claim anything about the tensors.
class ToldTensors final : public TensorNames {
  public:
    /// Replacements for a message's tensors, by the tensor's place in the message.
    std::map<int, TensorOnWire> instead;
    /// The tensors written so far.
    std::vector<TensorOnWire> told;

    TensorOnWire named(const Tensor& tensor) override;
    Tensor found(const TensorOnWire&) override { return {}; }
};

using Message = std::function<void(WireWriter&)>;
std::string bytes_of(const Message& message, ToldTensors& tensors);
std::string bytes_of(const Message& message);

/// The source line of all requests. The file's name has 8 bytes, as many as a number.
inline const SourceLine kHere = SourceLine::of("file.cpp", 12);

template <typename... T>
Message message(lessons::RankRequest request, const T&... values) {
    return [=](WireWriter& out) { out(request, values...); };
}

/// Returns the request for an operation on the device.
template <typename Op>
Message operation_of(const Op& operation) {
    return message(lessons::RankRequest::operation, MemoryCategory::workspace,
                   kKindOf<Op>, operation, kHere);
}

CommOperation operation(Verb verb, int peer, const Tensor& output, const Tensor& input);
/// Returns the request that launches these operations together on world.
Message launch(const std::vector<CommOperation>& operations);

/// Returns the grader's tensor with this handle.
Tensor tensor_of(std::int64_t handle, DType dtype, const Shape& shape);

/// Overwrites the bytes at `at` with the number.
template <typename Number>
void put(std::string& bytes, std::size_t at, Number number) {
    std::memcpy(bytes.data() + at, &number, sizeof number);
}

/// The inputs of a task on each rank. There is one tensor of each type, and an empty one.
/// These are their handles.
// NOLINTNEXTLINE(readability-identifier-naming): these are used as numbers.
enum Handle : std::int64_t { kReal = 1, kOther, kSingle, kWhole, kHalf, kEmpty };
inline constexpr std::int64_t kGiven = 1024;  ///< elements of each input except kEmpty
lessons::RankTask hostile_task();
DType dtype_of(std::int64_t handle);

/// One request of each kind, as programs make it.
struct Request {
    std::string name;
    /// Returns all messages of rank `rank` (0 or 1) except the last. The message with
    /// index `place` is the request itself.
    std::function<std::vector<Message>(int rank)> script;
    std::size_t place = 0;
};
std::vector<Request> device_requests();
std::vector<Request> other_requests();
/// Returns the last message of a rank.
Message nothing_left();

/// Why a run ended; none if it completed. run_of() does not catch exceptions that no
/// program may cause in the grader.
using Ended = std::optional<std::string>;
/// The messages of one rank.
using Script = std::vector<std::string>;
/// Returns these messages, followed by the last message of a rank.
Script script_of(const std::vector<Message>& messages);
Ended run_of(const std::vector<Script>& scripts,
             const lessons::RunLimits& limits = {1000, 1000, 1000});

/// Makes runs and counts how many complete. The test fails if a run ends without a
/// message, or if memory grows more than such small runs need.
class Runs {
  public:
    void make(const std::vector<Script>& scripts, const std::string& what);
    /// Checks that most runs ended early: the grader must look at the numbers.
    void check() const;

  private:
    int runs_ = 0;
    int ended_ = 0;
};

}  // namespace lockstep::test
