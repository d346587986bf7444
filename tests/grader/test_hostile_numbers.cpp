// A rank's process writes numbers to the grader. These tests write numbers that no
// program would use on purpose, one at a time, in each place. Each run completes or ends
// with a message.

#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/grader/hostile_numbers.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kInt = std::int64_t{1} << 31;
constexpr std::int64_t kVast = std::int64_t{1} << 32;

/// At most this number of pairs of tensors is tested for each request.
constexpr std::size_t kMostPairs = 400;

/// Returns a request's valid scripts, one per rank. Messages need two ranks.
std::vector<Script> scripts_of(const Request& request, int ranks) {
    std::vector<Script> scripts;
    for (int rank = 0; rank < ranks; ++rank)
        scripts.push_back(script_of(request.script(rank)));
    return scripts;
}

/// Calls f(bytes, change) for each change of the message: another number in one place.
template <typename F>
void each_change(const std::string& message, F&& f) {
    for (std::size_t at = 0; at + 8 <= message.size(); at += 8)
        for (const std::int64_t number :
             {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, std::int64_t{8},
              std::int64_t{kGiven}, kInt - 1, -kInt, kInt, 2 * kInt, kInt * kInt, kMost,
              kLeast}) {
            std::string changed = message;
            put(changed, at, number);
            f(changed, fmt::format("{} at {}", number, at));
        }
    for (std::size_t at = 0; at + 4 <= message.size(); at += 4)
        for (const std::uint32_t number : {0xffffffffU, 0x80000000U, 0x7fffffffU}) {
            std::string changed = message;
            put(changed, at, number);
            f(changed, fmt::format("{} in 4 bytes at {}", number, at));
        }
    for (std::size_t at = 0; at < message.size(); ++at) {
        for (const unsigned char byte : {0xff, 0x03}) {
            std::string changed = message;
            put(changed, at, byte);
            f(changed, fmt::format("{} in a byte at {}", byte, at));
        }
        f(message.substr(0, at), fmt::format("cut off at {}", at));
    }
    f(message + '\0', "one byte more");
}

void change_each(const std::vector<Request>& requests, int ranks, Runs& runs) {
    for (const Request& request : requests) {
        std::vector<Script> scripts = scripts_of(request, ranks);
        std::string& changed = scripts[0][request.place];
        const std::string valid = changed;
        each_change(valid, [&](const std::string& bytes, const std::string& what) {
            changed = bytes;
            runs.make(scripts, request.name + ": " + what);
        });
    }
}

/// Odd shapes: without elements (some with huge extents), or with other dimensions.
std::vector<Shape> odd_shapes() {
    return {{},
            {0},
            {1},
            {kGiven},
            {0, 0},
            {0, 8},
            {0, kVast},
            {kVast, 0},
            {kVast - 1, 0},
            {kInt, 0, 2},
            {kVast, 0, 8},
            {0, kVast, kInt / 32},
            {0, 2, 8},
            {4, 0, 8},
            {4, 2, 0},
            {4, 2, 1},
            {1, 1, 1, 1},
            {2, 2, 0, kVast},
            {2, 2, kVast, 0},
            {0, kVast, 2, 4}};
}

/// Returns replacements of a tensor: the tensor with odd shapes, and other tensors.
std::vector<TensorOnWire> instead_of(const TensorOnWire& tensor) {
    std::vector<TensorOnWire> all;
    for (const Shape& shape : odd_shapes())
        all.push_back({tensor.handle, 0, shape, tensor.dtype, ""});
    for (std::int64_t handle = 0; handle <= kEmpty; ++handle)
        all.push_back({handle, 0, tensor.shape, dtype_of(handle), "a label"});
    return all;
}

/// Replaces each tensor, all tensors at once, and pairs of tensors. Time allows only some
/// of the pairs.
void exchange_tensors(const std::vector<Request>& requests, int ranks, Runs& runs) {
    for (const Request& request : requests) {
        std::vector<Script> scripts = scripts_of(request, ranks);
        const Message message = request.script(0)[request.place];
        ToldTensors tensors;
        bytes_of(message, tensors);
        const std::vector<TensorOnWire> valid = tensors.told;
        const auto make = [&] {
            scripts[0][request.place] = bytes_of(message, tensors);
            std::string what = request.name;
            for (const auto& [place, other] : tensors.instead)
                what += fmt::format(", {} {} in place {}", other.handle,
                                    other.shape.text(), place);
            runs.make(scripts, what);
        };
        if (valid.empty()) continue;
        const std::size_t others = instead_of(valid[0]).size();
        const std::size_t all = others * others * valid.size() * valid.size();
        // As the step is coprime, each replacement is tried in each place.
        std::size_t step = all / kMostPairs + 1;
        while (std::gcd(step, others * valid.size()) != 1)
            ++step;
        for (std::size_t i = 0; i < all; i += step) {
            const std::size_t a = i / others % valid.size();
            const std::size_t b = i / others / valid.size() / others;
            tensors.instead = {
                {static_cast<int>(a), instead_of(valid[a])[i % others]},
                {static_cast<int>(b),
                 instead_of(valid[b])[i / others / valid.size() % others]}};
            make();
        }
        for (std::size_t i = 0; i < others; ++i) {
            tensors.instead.clear();
            for (std::size_t place = 0; place < valid.size(); ++place)
                tensors.instead[static_cast<int>(place)] = instead_of(valid[place])[i];
            make();
        }
    }
}

}  // namespace

TEST_CASE("There is a request of each kind, and each is served", "[grader]") {
    std::set<std::int64_t> operations;
    std::set<std::int64_t> kinds;
    const auto number = [](const std::string& message, std::size_t place) {
        std::int64_t found = 0;
        std::memcpy(&found, message.data() + 8 * place, sizeof found);
        return found;
    };
    for (const Request& request : device_requests()) {
        INFO(request.name);
        const std::vector<Script> scripts = scripts_of(request, 1);
        const std::int64_t kind = number(scripts[0][0], 0);
        kinds.insert(kind);
        if (kind == static_cast<std::int64_t>(RankRequest::operation))
            operations.insert(number(scripts[0][0], 2));
        CHECK(run_of(scripts) == std::nullopt);
    }
    for (const Request& request : other_requests()) {
        INFO(request.name);
        const std::vector<Script> scripts = scripts_of(request, 2);
        kinds.insert(number(scripts[0][request.place], 0));
        CHECK((run_of(scripts) == std::nullopt) == (request.name != "threw"));
    }
    CHECK(operations.size() == kOperations);
    CHECK(kinds.size() == static_cast<std::size_t>(kLast<RankRequest>) + 1);
}

TEST_CASE("Each number in a call of the device is checked before its use", "[grader]") {
    Runs runs;
    change_each(device_requests(), 1, runs);
    runs.check();
}

TEST_CASE("Each number in another request is checked before its use", "[grader]") {
    Runs runs;
    change_each(other_requests(), 2, runs);
    runs.check();
}

TEST_CASE("Each tensor in a request is checked: handle and shape", "[grader]") {
    Runs runs;
    exchange_tensors(device_requests(), 1, runs);
    exchange_tensors(other_requests(), 2, runs);
    runs.check();
}
