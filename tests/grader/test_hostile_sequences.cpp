// A rank's process writes random requests one after another. Some of them are changed.
// Each run completes or ends with a message.

#include <array>

#include <fmt/format.h>

#include "src/core/philox.hpp"
#include "tests/catch.hpp"
#include "tests/grader/hostile_numbers.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;

namespace {

constexpr std::int64_t kInt = std::int64_t{1} << 31;

/// Random choices that are the same in each run.
class Chance {
  public:
    explicit Chance(std::uint64_t seed) : stream_(seed, "chance") {}
    std::int64_t below(std::int64_t bound) {
        return static_cast<std::int64_t>(stream_.bits(drawn_++) %
                                         static_cast<std::uint64_t>(bound));
    }
    bool one_in(std::int64_t bound) { return below(bound) == 0; }

  private:
    RandomStream stream_;
    std::uint64_t drawn_ = 0;
};

/// A part of a tensor that the grader gave. It has any shape that is possible.
TensorOnWire any_tensor(Chance& chance) {
    const std::int64_t handle = 1 + chance.below(chance.one_in(8) ? kEmpty : kOther);
    std::vector<std::int64_t> extents;
    const std::int64_t dimensions = chance.below(5);
    std::int64_t elements = 1;
    for (std::int64_t d = 0; d < dimensions; ++d) {
        extents.push_back(chance.one_in(12) ? 0 : 1 + chance.below(6));
        elements *= extents.back();
    }
    if (elements > kGiven) return any_tensor(chance);
    const DType dtype = dtype_of(handle);
    const std::int64_t first = chance.below(kGiven - elements + 1);
    const std::int64_t offset = chance.one_in(2) ? first / 16 * 16 * bytes_of(dtype) : 0;
    return {handle, static_cast<std::uint64_t>(offset),
            Shape(extents.data(), static_cast<int>(extents.size())), dtype,
            chance.one_in(9) ? "label" : ""};
}

std::int64_t any_number(Chance& chance) {
    constexpr std::array kNumbers{std::int64_t{-1},
                                  std::int64_t{0},
                                  std::int64_t{1},
                                  std::int64_t{2},
                                  std::int64_t{4},
                                  std::int64_t{7},
                                  kGiven,
                                  kInt - 1,
                                  -kInt,
                                  kInt};
    return kNumbers[static_cast<std::size_t>(chance.below(kNumbers.size()))];
}

/// Returns the request with some tensors and numbers replaced.
std::string any_like(const Message& message, Chance& chance) {
    ToldTensors tensors;
    bytes_of(message, tensors);
    const std::int64_t one_in = 1 + chance.below(6);
    for (std::size_t place = 0; place < tensors.told.size(); ++place)
        if (chance.one_in(one_in))
            tensors.instead[static_cast<int>(place)] = any_tensor(chance);
    std::string bytes = bytes_of(message, tensors);
    constexpr std::size_t kHead = 24;  // these bytes select the request
    for (std::size_t at = kHead; at + 8 <= bytes.size(); at += 8)
        if (chance.one_in(200)) put(bytes, at, any_number(chance));
    return bytes;
}

/// Returns requests of two ranks, one after another.
std::vector<Script> scripts_in_a_row(const std::vector<Request>& requests,
                                     Chance& chance) {
    constexpr int kInARow = 12;
    std::vector<Script> scripts(2);
    for (int i = 0; i < kInARow; ++i) {
        const Request& request = requests[static_cast<std::size_t>(
            chance.below(static_cast<std::int64_t>(requests.size())))];
        for (int rank = 0; rank < 2; ++rank)
            for (const Message& message : request.script(rank))
                scripts[static_cast<std::size_t>(rank)].push_back(
                    chance.one_in(8) ? any_like(message, chance) : bytes_of(message));
    }
    for (Script& script : scripts)
        script.push_back(bytes_of(nothing_left()));
    return scripts;
}

}  // namespace

TEST_CASE("Each request of a random row is checked", "[grader]") {
    Runs runs;
    std::vector<Request> requests = device_requests();
    for (const Request& request : other_requests())
        if (request.name != "returned" && request.name != "threw")
            requests.push_back(request);
    constexpr int kRuns = 6000;
    for (int run = 0; run < kRuns; ++run) {
        Chance chance(static_cast<std::uint64_t>(run));
        runs.make(scripts_in_a_row(requests, chance), fmt::format("run {}", run));
    }
    runs.check();
}
