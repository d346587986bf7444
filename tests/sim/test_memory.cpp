#include <cmath>
#include <fstream>
#include <limits>
#include <unistd.h>

#include "sim/host_memory.hpp"
#include "src/core/require.hpp"
#include "src/device/ledger.hpp"
#include "src/os/memory.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/sim/watched.hpp"

// If a device's memory is full (F30), the message says what fills it, since when, and
// why.

namespace lockstep::test {

namespace {

Diagnosis full_with(std::int64_t bytes, int ranks, const Program& program) {
    std::optional<Diagnosis> first;
    for (const World& world : all_worlds()) {
        sim::ClusterOptions options = options_of(world, ranks);
        options.spec.memory_bytes = bytes;
        try {
            sim::make_cluster(options)->run(program);
            FAIL("it fitted");
        } catch (const OutOfMemoryError& error) {
            if (!first) first = error.diagnosis();
            CHECK(error.diagnosis().text() == first->text());
        }
    }
    return *first;
}

}  // namespace

TEST_CASE("F30: activations kept for each micro-batch", "[sim][errors]") {
    const Diagnosis found = full_with(2000, 3, [](Rank& rank) {
        std::vector<Tensor> kept;
        for (int i = 0; rank.index() == 1 && i < 8; ++i) {
            const PhaseScope phase(rank.device(), Phase::forward, i);
            kept.push_back(rank.device().zeros({100}, DType::f32));
        }
        const Tensor other = rank.device().zeros({10}, DType::f32);
        rank.world().barrier().wait();
    });
    CHECK(found.fault == "F30");
    says(found,
         "rank 1 is out of memory: 400 B more for activations at "
         "tests/sim/test_memory.cpp:");
    says(found,
         "does not fit, because 1.95 KiB of its 1.95 KiB are in use; most is held by");
    says(found, "in 5 tensors of activations made at tests/sim/test_memory.cpp:");
    says(found, "in forward of micro-batches 0–4 (1 each)");
    says(found, "after forward of micro-batch 1: 800 B");
    says(found, "ranks 0, 2: 40 B, 40 B at the peak");
}

TEST_CASE("F30: one rank has less memory than the others", "[sim][errors]") {
    sim::ClusterOptions options = options_of(all_worlds().front(), 3);
    options.spec.memory_bytes = 10'000;
    options.memory_of_rank[2] = 500;
    try {
        sim::make_cluster(options)->run([](Rank& rank) {
            const Tensor first = rank.device().zeros({100}, DType::f32);
            const MemoryScope scope(rank.device(), MemoryCategory::gradients);
            rank.device().zeros({50}, DType::f32);
        });
        FAIL("it fitted");
    } catch (const OutOfMemoryError& error) {
        says(error.diagnosis(), "rank 2 is out of memory: 200 B more for gradients");
        // What was wanted is listed, too.
        REQUIRE(error.held().size() == 2);
        CHECK(error.held()[0].starts_with("400 B in 1 tensor of activations made at "));
        CHECK(error.held()[1].starts_with("200 B in 1 tensor of gradients made at "));
    }
}

TEST_CASE("F30: a leak that grows with each step", "[sim][errors]") {
    const Diagnosis found = full_with(10'000, 2, [](Rank& rank) {
        std::vector<Tensor> leaked;
        for (int step = 0; step < 50; ++step) {
            {
                const PhaseScope phase(rank.device(), Phase::forward, 0);
                leaked.push_back(rank.device().zeros({50}, DType::f32));
                leaked.push_back(rank.device().zeros({50}, DType::f32));
            }
            const PhaseScope phase(rank.device(), Phase::update);
            const Tensor temporary = rank.device().zeros({50}, DType::f32);
        }
    });
    says(found, "rank 0 is out of memory");
    says(found, "in steps 0–24 (1 each)");
    says(found, "after forward of micro-batch 0 in step 0: 400 B");
}

TEST_CASE("F30: without phases the time is reported", "[sim][errors]") {
    const Diagnosis found = full_with(1000, 1, [](Rank& rank) {
        std::vector<Tensor> leaked(50);
        for (Tensor& tensor : leaked)
            tensor = rank.device().zeros({25}, DType::f32);
    });
    says(found, "one after the other from");
    says(found, "Growth of the memory in use now:");
}

TEST_CASE("F30: one tensor that is too large for an empty device", "[sim][errors]") {
    const Diagnosis found = full_with(1000, 1, [](Rank& rank) {
        const MemoryScope scope(rank.device(), MemoryCategory::optimizer);
        (void)rank.device().zeros({1000}, DType::f32);
    });
    says(found, "rank 0 is out of memory: 3.91 KiB more for optimizer at ");
    says(found, "because 0 B of its 1000 B are in use");
}

TEST_CASE("under full check unwritten memory is NaN, even if it was used before",
          "[sim]") {
    sim::ClusterOptions options;
    options.ranks = 2;
    options.check = sim::CheckLevel::full;
    sim::make_cluster(options)->run([](Rank& rank) {
        for (Device* place : {&rank.device(), &rank.device().host()})
            for (int i = 0; i < 3; ++i) {
                for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
                    const Tensor unset = place->empty({5}, dtype);
                    CHECK(std::isnan(place->peek(unset).at(4)));
                    place->fill(unset, 1);
                }
                const Tensor unset = place->empty({5}, DType::i32);
                CHECK(place->peek(unset).at(4) == -1);
                place->fill(unset, 1);
            }
    });
}

TEST_CASE("a run that does not fit into this machine is refused before it takes memory",
          "[sim][errors]") {
    constexpr int kRanks = 16;
    // The first tensor alone is too large, so no memory is written.
    const std::int64_t part = os::available_memory() / 3;
    sim::ClusterOptions options;
    options.ranks = kRanks;
    const Program program = [&](Rank& rank) {
        const Tensor part_of_all = rank.device().empty({part}, DType::f32);
        rank.world().barrier().wait();
    };
    const std::string sentence =
        message_of<MissingError>([&] { sim::make_cluster(options)->run(program); });
    INFO(sentence);
    CHECK(sentence.find(": tests/sim/test_memory.cpp:") != std::string::npos);
    CHECK(sentence.find("the numbers of 16 ranks do not fit") != std::string::npos);
    CHECK(sentence.find("if every rank needs as much as the largest one") !=
          std::string::npos);
    options.numbers = false;
    CHECK_NOTHROW(sim::make_cluster(options)->run(program));
}

TEST_CASE("the machine's memory is checked when it is taken", "[sim][errors]") {
    constexpr std::int64_t kMebibyte = 1 << 20;
    std::int64_t available = 160 * kMebibyte;
    int looks = 0;
    const auto count = [&] {
        ++looks;
        return available;
    };
    const auto refused = [&](sim::HostMemory& memory, std::int64_t bytes) {
        return message_of<MissingError>(
            [&] { memory.take(1, bytes, SourceLine::here()); });
    };
    sim::HostMemory memory(2, count);
    for (int i = 0; i < 1000; ++i) {
        memory.take(0, kMebibyte / 2, SourceLine::here());
        memory.give(0, kMebibyte / 2);
    }
    CHECK(looks == 0);
    // A sixteenth must stay free, so 150 of 160 MiB can be taken.
    memory.take(0, 75 * kMebibyte, SourceLine::here());
    memory.take(1, 75 * kMebibyte, SourceLine::here());
    CHECK(looks <= 3);
    CHECK(refused(memory, kMebibyte).find("all ranks need 0.1484 GiB)") !=
          std::string::npos);
    CHECK(refused(memory, std::int64_t{1} << 62).find("GiB are available") !=
          std::string::npos);
    memory.give(0, 75 * kMebibyte);
    memory.take(1, 75 * kMebibyte, SourceLine::here());  // refused bytes are free

    sim::HostMemory crowded(2, count);
    crowded.take(0, 10 * kMebibyte, SourceLine::here());
    available = 20 * kMebibyte;  // other processes have taken the rest
    CHECK(refused(crowded, 30 * kMebibyte) != "(nothing was thrown)");
    crowded.take(0, 5 * kMebibyte, SourceLine::here());

    sim::HostMemory endless(1, [] { return std::numeric_limits<std::int64_t>::max(); });
    CHECK_NOTHROW(endless.take(0, std::int64_t{1} << 60, SourceLine::here()));
}

TEST_CASE("the machine's memory is also checked if devices keep some", "[sim]") {
    constexpr std::int64_t kMebibyte = 1 << 20;
    int looks = 0;
    std::int64_t* kept = nullptr;
    sim::HostMemory memory(1, [&] {
        ++looks;
        *kept = 0;  // the devices release the memory that they keep
        return 1000 * kMebibyte;
    });
    kept = &memory.kept();
    memory.take(0, 10 * kMebibyte, SourceLine::here());
    memory.take(0, kMebibyte, SourceLine::here());
    CHECK(looks == 1);
    *kept = 100 * kMebibyte;
    memory.take(0, kMebibyte, SourceLine::here());
    CHECK(looks == 2);
    CHECK(memory.kept() == 0);
}

namespace {

/// Returns the memory of this process, including what earlier tests have left.
std::int64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::int64_t pages = 0;
    statm >> pages >> pages;
    return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("a run's steps keep little more memory than the peak use", "[sim]") {
    sim::ClusterOptions options = options_of({}, 1);
    options.spec.memory_bytes = 0;
    const std::int64_t before = resident_bytes();
    sim::make_cluster(options)->run([before](Rank& rank) {
        for (int step = 0; step < 20; ++step) {
            // Each step's tensor is larger, so it cannot use a block of an earlier step.
            const Tensor large =
                rank.device().zeros({(std::int64_t{1} << 20) * (step + 4)}, DType::f32);
            const Tensor small = rank.device().zeros({100}, DType::f32);
            rank.device().add(large.slice(0, 100), small);
        }
        // 92 MiB were in use at once. All blocks together would be 1,080 MiB.
        CHECK(resident_bytes() - before < std::int64_t{300} << 20);
    });
}

}  // namespace lockstep::test
