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

/// What a rank's process writes to the grader, without the process. It knows tensors of
/// the grader's by their handles alone, and may say anything of them.
class ToldTensors final : public TensorNames {
  public:
    /// What the line has for the message's tensors, by their places in it.
    std::map<int, TensorOnWire> instead;
    /// What it has had for all of them.
    std::vector<TensorOnWire> told;

    TensorOnWire named(const Tensor& tensor) override;
    Tensor found(const TensorOnWire&) override { return {}; }
};

using Message = std::function<void(WireWriter&)>;
std::string bytes_of(const Message& message, ToldTensors& tensors);
std::string bytes_of(const Message& message);

/// Where all requests say that they are made. The name is as long as a number.
inline const SourceLine kHere = SourceLine::of("file.cpp", 12);

template <typename... T>
Message message(lessons::RankRequest request, const T&... values) {
    return [=](WireWriter& out) { out(request, values...); };
}

/// The device is asked for the operation.
template <typename Op>
Message operation_of(const Op& operation) {
    return message(lessons::RankRequest::operation, MemoryCategory::workspace,
                   kKindOf<Op>, operation, kHere);
}

CommOperation operation(Verb verb, int peer, const Tensor& output, const Tensor& input);
/// These together, on world.
Message launch(const std::vector<CommOperation>& operations);

/// The grader's tensor, by its handle.
Tensor tensor_of(std::int64_t handle, DType dtype, const Shape& shape);

/// Writes the number over the bytes that are there.
template <typename Number>
void put(std::string& bytes, std::size_t at, Number number) {
    std::memcpy(bytes.data() + at, &number, sizeof number);
}

/// What a task is given on each rank: one tensor of each type and an empty one, whose
/// handles are these.
// NOLINTNEXTLINE(readability-identifier-naming): these are used as numbers.
enum Handle : std::int64_t { kReal = 1, kOther, kSingle, kWhole, kHalf, kEmpty };
inline constexpr std::int64_t kGiven = 1024;  ///< elements of each
lessons::RankTask hostile_task();
DType dtype_of(std::int64_t handle);

/// One request of each kind, as programs make them.
struct Request {
    std::string name;
    /// What rank `rank` of two says before it returns; the request is number `place`.
    std::function<std::vector<Message>(int rank)> script;
    std::size_t place = 0;
};
std::vector<Request> device_requests();
std::vector<Request> other_requests();
/// The last message of a rank.
Message nothing_left();

/// Why a run ended; none where it came to its end. What nobody may throw to the grader is
/// not caught.
using Ended = std::optional<std::string>;
/// A run of as many ranks as there are scripts: the messages of each.
using Script = std::vector<std::string>;
/// These, and then the last.
Script script_of(const std::vector<Message>& messages);
Ended run_of(const std::vector<Script>& scripts,
             std::chrono::seconds longest = std::chrono::seconds{1000});

/// Runs, and how many came to their end. One that ends without a word, and memory beyond
/// what runs of so little take, fail the test.
class Runs {
  public:
    void make(const std::vector<Script>& scripts, const std::string& what);
    /// Runs so far, most of which ended early, or else no number was looked at.
    void check() const;

  private:
    int runs_ = 0;
    int ended_ = 0;
};

}  // namespace lockstep::test
