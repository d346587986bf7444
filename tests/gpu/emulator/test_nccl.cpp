// Tests NCCL on the emulator, between processes that each test forks.

#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <thread>
#include <unistd.h>

#include <nccl.h>

#include "tests/catch.hpp"
#include "tests/gpu/emulator/gpu_test.hpp"

using namespace emulated::test;

namespace {

void works(ncclResult_t result, int line = __builtin_LINE()) {
    expect(result == ncclSuccess, ncclGetErrorString(result), line);
}

using emulated::test::works;

/// Returns an id for processes that are forked later.
ncclUniqueId new_id() {
    ncclUniqueId id{};
    std::random_device random;
    std::snprintf(id.internal, sizeof id.internal, "test %u %u", random(), random());
    return id;
}

enum class Mode { blocking, in_background };

ncclConfig_t config_of(Mode mode) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = mode == Mode::blocking;
    return config;
}

/// Waits until the last call has ended, and returns its result.
ncclResult_t settle(ncclComm_t comm, int line = __builtin_LINE()) {
    for (int i = 0; i < 20000; ++i) {
        ncclResult_t state = ncclSuccess;
        works(ncclCommGetAsyncError(comm, &state), line);
        if (state != ncclInProgress) return state;
        std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    return ncclInProgress;
}

struct World {
    World(const ncclUniqueId& id, int rank_, int size_, Mode mode = Mode::in_background)
        : rank(rank_), size(size_) {
        emulated::test::works(cudaSetDevice(rank));
        ncclConfig_t config = config_of(mode);
        const ncclResult_t result =
            ncclCommInitRankConfig(&comm, size, id, rank, &config);
        expect(result == (mode == Mode::blocking ? ncclSuccess : ncclInProgress), "init");
        works(settle(comm));
        stream = new_stream();
    }

    /// Starts an operation and waits until it is in the stream.
    void start(ncclResult_t result, int line = __builtin_LINE()) {
        if (result == ncclInProgress) result = settle(comm);
        works(result, line);
    }
    void wait() const { works(cudaStreamSynchronize(stream)); }
    void end() {
        start(ncclCommFinalize(comm));
        works(ncclCommDestroy(comm));
    }

    int rank, size;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
};

using Floats = std::vector<float>;

/// Returns {first, first + 1, ...}.
Floats count_from(float first, std::size_t n) {
    Floats values(n);
    for (std::size_t i = 0; i < n; ++i)
        values[i] = first + static_cast<float>(i);
    return values;
}

void check_all_reduce(World& world, std::size_t count) {
    const int n = world.size;
    float* const x = on_device(count_from(static_cast<float>(world.rank), count));
    world.start(ncclAllReduce(x, x, count, ncclFloat, ncclSum, world.comm, world.stream));
    world.wait();
    const Floats got = on_host(x, count);
    const int of_ranks = n * (n - 1) / 2;
    for (std::size_t i = 0; i < count; ++i)
        expect(got[i] == static_cast<float>(n * static_cast<int>(i) + of_ranks), "a sum");
}

void check_integers(World& world) {
    const int n = world.size;
    const struct {
        ncclRedOp_t reduction;
        std::int64_t result;
    } cases[] = {{ncclMax, n}, {ncclMin, 1}, {ncclAvg, (n + 1) / 2}};
    for (const auto& [reduction, result] : cases) {
        auto* const x = on_device(std::vector<std::int64_t>(3, world.rank + 1));
        auto* const y = on_device(std::vector<std::int64_t>(3));
        world.start(
            ncclAllReduce(x, y, 3, ncclInt64, reduction, world.comm, world.stream));
        world.wait();
        expect(on_host(y, 3)[2] == result, "an integer");
    }
}

void check_blocks(World& world) {
    const auto n = static_cast<std::size_t>(world.size);
    const auto r = static_cast<std::size_t>(world.rank);
    float* const all = on_device(Floats(2 * n, -1));
    float* const mine = on_device(count_from(static_cast<float>(10 * r), 2));
    world.start(ncclAllGather(mine, all, 2, ncclFloat, world.comm, world.stream));
    world.wait();
    Floats wanted;
    for (std::size_t rank = 0; rank < n; ++rank)
        for (const float x : count_from(static_cast<float>(10 * rank), 2))
            wanted.push_back(x);
    expect(on_host(all, 2 * n) == wanted, "all-gather");

    world.start(ncclReduceScatter(all, all + 2 * r, 2, ncclFloat, ncclSum, world.comm,
                                  world.stream));
    world.wait();
    expect(on_host(all + 2 * r, 2)[1] == static_cast<float>(n) * wanted[2 * r + 1],
           "reduce-scatter in place");

    float* const from = on_device(count_from(static_cast<float>(100 * r), n));
    float* const to = on_device(Floats(n));
    world.start(ncclAlltoAll(from, to, 1, ncclFloat, world.comm, world.stream));
    world.wait();
    for (std::size_t rank = 0; rank < n; ++rank)
        expect(on_host(to, n)[rank] == static_cast<float>(100 * rank + r), "all-to-all");
}

void check_roots(World& world) {
    const auto n = static_cast<std::size_t>(world.size);
    const int root = world.size - 1;
    const bool is_root = world.rank == root;
    float* const x = on_device(Floats(1, static_cast<float>(world.rank + 1)));
    float* const y = on_device(Floats(1));
    float* const blocks = on_device(is_root ? count_from(5, n) : Floats(n));
    world.start(ncclBroadcast(x, y, 1, ncclFloat, root, world.comm, world.stream));
    world.wait();
    expect(on_host(y, 1)[0] == static_cast<float>(n), "broadcast");
    world.start(ncclReduce(x, is_root ? y : nullptr, 1, ncclFloat, ncclProd, root,
                           world.comm, world.stream));
    world.wait();
    const float factorials[] = {1, 1, 2, 6, 24};
    if (is_root) expect(on_host(y, 1)[0] == factorials[n], "reduce");
    world.start(ncclScatter(blocks, y, 1, ncclFloat, root, world.comm, world.stream));
    world.wait();
    expect(on_host(y, 1)[0] == static_cast<float>(5 + world.rank), "scatter");
    world.start(ncclGather(x, blocks, 1, ncclFloat, root, world.comm, world.stream));
    world.wait();
    if (is_root) expect(on_host(blocks, n) == count_from(1, n), "gather");
}

/// A ring in one group. Messages are much larger than a socket's buffer.
void check_ring(World& world) {
    const std::size_t count = 300000;
    const int right = (world.rank + 1) % world.size;
    const int left = (world.rank + world.size - 1) % world.size;
    float* const from = on_device(Floats(count, static_cast<float>(world.rank)));
    float* const to = on_device(Floats(count));
    float* const sum = on_device(Floats(1, 1));
    works(ncclGroupStart());
    works(ncclSend(from, count, ncclFloat, right, world.comm, world.stream));
    if (world.rank == 0)
        works(ncclAllReduce(sum, sum, 1, ncclFloat, ncclSum, world.comm, world.stream));
    works(ncclRecv(to, count, ncclFloat, left, world.comm, world.stream));
    if (world.rank != 0)
        works(ncclAllReduce(sum, sum, 1, ncclFloat, ncclSum, world.comm, world.stream));
    world.start(ncclGroupEnd());
    world.wait();
    expect(on_host(to, count) == Floats(count, static_cast<float>(left)), "ring");
    expect(on_host(sum, 1)[0] == static_cast<float>(world.size), "sum beside");
}

}  // namespace

TEST_CASE("collectives give the right results, blocking or not", "[emulator][nccl]") {
    for (const Mode mode : {Mode::blocking, Mode::in_background})
        for (const int size : {1, 2, 3, 4}) {
            const ncclUniqueId id = new_id();
            REQUIRE(trouble(in_processes(size, [&](int rank) {
                        World world(id, rank, size, mode);
                        check_all_reduce(world, 1);
                        check_all_reduce(world, 100003);
                        check_integers(world);
                        check_blocks(world);
                        check_roots(world);
                        check_ring(world);
                        world.end();
                    })) == "");
        }
}

TEST_CASE("until a call in progress ends, it has no effect and other calls are refused",
          "[emulator][nccl]") {
    REQUIRE(alone([](int) {
                World world(new_id(), 0, 1);
                float* const x = on_device(Floats(1, 1));
                const auto reduce = [&] {
                    return ncclAllReduce(x, x, 1, ncclFloat, ncclSum, world.comm,
                                         world.stream);
                };
                bool refused = false;
                for (int i = 0; i < 1000 && !refused; ++i) {
                    expect(reduce() == ncclInProgress, "begun");
                    refused = reduce() == ncclInvalidArgument;
                    works(settle(world.comm));
                }
                expect(refused, "a call too early");
            }) == "");
}

TEST_CASE("a split orders ranks by key, and leaves out ranks without a color",
          "[emulator][nccl]") {
    const ncclUniqueId id = new_id();
    REQUIRE(trouble(in_processes(4, [&](int rank) {
                World world(id, rank, 4);
                ncclComm_t part = nullptr;
                world.start(ncclCommSplit(world.comm, rank == 3 ? NCCL_SPLIT_NOCOLOR : 7,
                                          -rank, &part, nullptr));
                expect((part == nullptr) == (rank == 3), "a part");
                if (rank != 3) {
                    works(settle(part));
                    int place = -1, count = 0;
                    works(ncclCommUserRank(part, &place));
                    works(ncclCommCount(part, &count));
                    expect(place == 2 - rank && count == 3, "place in the part");
                    float* const x = on_device(Floats(1, static_cast<float>(rank)));
                    world.start(
                        ncclAllReduce(x, x, 1, ncclFloat, ncclSum, part, world.stream));
                    works(settle(part));
                    world.wait();
                    expect(on_host(x, 1)[0] == 3, "the part's sum");
                    world.start(ncclCommFinalize(part));
                    works(settle(part));
                    works(ncclCommDestroy(part));
                }
                check_all_reduce(world, 10);
                world.end();
            })) == "");
}

TEST_CASE("an abort ends an operation that hangs", "[emulator][nccl]") {
    const ncclUniqueId id = new_id();
    REQUIRE(trouble(in_processes(3, [&](int rank) {
                World world(id, rank, 3);
                if (rank == 2) {  // only stays alive
                    std::this_thread::sleep_for(std::chrono::milliseconds(300));
                    works(ncclCommAbort(world.comm));
                    return;
                }
                float* const x = on_device(Floats(1));
                world.start(
                    ncclAllReduce(x, x, 1, ncclFloat, ncclSum, world.comm, world.stream));
                world.start(
                    ncclAllReduce(x, x, 1, ncclFloat, ncclSum, world.comm, world.stream));
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                expect(cudaStreamQuery(world.stream) == cudaErrorNotReady, "it hangs");
                works(ncclCommAbort(world.comm));
                world.wait();
                ncclResult_t state = ncclSuccess;
                expect(ncclCommGetAsyncError(world.comm, &state) == ncclInvalidArgument,
                       "the handle is gone");
            })) == "");
}

TEST_CASE("a lost peer is an error, and the stream is blocked until the abort",
          "[emulator][nccl]") {
    const ncclUniqueId id = new_id();
    const std::vector<Ended> ended = in_processes(3, [&](int rank) {
        World world(id, rank, 3);
        if (rank == 1) kill(getpid(), SIGKILL);
        float* const x = on_device(Floats(1));
        expect(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, world.comm, world.stream) ==
                   ncclInProgress,
               "begun");
        ncclResult_t state = ncclSuccess;
        for (int i = 0; i < 5000 && state != ncclRemoteError; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            works(ncclCommGetAsyncError(world.comm, &state));
        }
        expect(state == ncclRemoteError, "a remote error");
        expect(cudaStreamQuery(world.stream) == cudaErrorNotReady, "it stands");
        works(ncclCommAbort(world.comm));
        world.wait();
    });
    REQUIRE(ended[1].status == -SIGKILL);
    REQUIRE(trouble({ended[0], ended[2]}) == "");
}

TEST_CASE("if a rank's GPU faults, the others wait until they abort",
          "[emulator][nccl]") {
    setenv("EMULATED_FAULT_AT_LAUNCH", "2", 1);
    const ncclUniqueId id = new_id();
    const std::string problem = trouble(in_processes(2, [&](int rank) {
        World world(id, rank, 2);
        float* const x = on_device(Floats(4, 1));
        const auto reduce = [&] {
            return ncclAllReduce(x, x, 4, ncclFloat, ncclSum, world.comm, world.stream);
        };
        world.start(reduce());
        world.wait();
        world.start(reduce());
        if (rank == 0) {
            expect(cudaStreamSynchronize(world.stream) == cudaErrorIllegalAddress, "it");
            expect(reduce() == ncclInProgress, "begun");
            expect(settle(world.comm) == ncclUnhandledCudaError, "and refused");
            expect(std::strstr(ncclGetLastError(nullptr), "illegal memory") != nullptr,
                   "by CUDA");
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        } else {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            expect(cudaStreamQuery(world.stream) == cudaErrorNotReady, "it waits");
        }
        works(ncclCommAbort(world.comm));
    }));
    unsetenv("EMULATED_FAULT_AT_LAUNCH");
    REQUIRE(problem == "");
}

TEST_CASE("an abort ends a meeting in which a rank is missing", "[emulator][nccl]") {
    const ncclUniqueId id = new_id();
    REQUIRE(trouble(in_processes(2, [&](int rank) {
                ncclConfig_t config = config_of(Mode::in_background);
                ncclComm_t comm = nullptr;
                expect(
                    ncclCommInitRankConfig(&comm, 3, id, rank, &config) == ncclInProgress,
                    "begun");
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                ncclResult_t state = ncclSuccess;
                works(ncclCommGetAsyncError(comm, &state));
                expect(state != ncclSuccess, "still waiting, or left by the other");
                works(ncclCommAbort(comm));
            })) == "");
}

TEST_CASE("two ranks on one GPU are refused, unless they say they are on two hosts",
          "[emulator][nccl]") {
    for (const bool hosts : {false, true}) {
        const ncclUniqueId id = new_id();
        REQUIRE(trouble(in_processes(2, [&](int rank) {
                    if (hosts) setenv("NCCL_HOSTID", rank == 0 ? "a" : "b", 1);
                    ncclComm_t comm = nullptr;
                    const ncclResult_t result = ncclCommInitRank(&comm, 2, id, rank);
                    expect(result == (hosts ? ncclSuccess : ncclInvalidUsage), "verdict");
                    expect(hosts || std::strstr(ncclGetLastError(nullptr),
                                                "Duplicate GPU") != nullptr,
                           "reason");
                })) == "");
    }
}

TEST_CASE("wrong arguments are refused, wrong buffers end the process",
          "[emulator][nccl]") {
    const auto reduce = [](std::size_t count, ncclRedOp_t reduction, int root) {
        World world(new_id(), 0, 1, Mode::blocking);
        float* const x = on_device(Floats(4));
        return ncclReduce(x, x, count, ncclFloat, reduction, root, world.comm,
                          world.stream);
    };
    REQUIRE(alone([&](int) {
                works(reduce(4, ncclSum, 0));
                expect(reduce(4, ncclSum, 1) == ncclInvalidArgument, "root");
                expect(reduce(4, ncclNumOps, 0) == ncclInvalidArgument, "reduction");
                expect(ncclGroupEnd() == ncclInvalidUsage, "no group");
            }) == "");
    const std::vector<Ended> ended =
        in_processes(1, [&](int) { works(reduce(5, ncclSum, 0)); });
    REQUIRE(ended[0].status == -SIGABRT);
    REQUIRE(ended[0].errors.find("takes 20 bytes, but 16 are left") != std::string::npos);
}
