#include <atomic>
#include <stdexcept>
#include <vector>

#include "sim/in_parts.hpp"
#include "sim/scheduler.hpp"
#include "src/nn/flash_attention.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/gradient_accumulation.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

// Long operations are split into parts for idle threads.

namespace lockstep::test {

namespace {

using sim::in_parts;

/// Runs `tasks` offloaded jobs on `workers` workers.
void run_jobs(int tasks, int workers, FunctionRef<void(int)> job) {
    sim::Scheduler scheduler(sim::ExecutorKind::fibers, workers, std::nullopt);
    scheduler.run(
        tasks, [&](int task) { scheduler.offload([&] { job(task); }); },
        [] { return false; });
}

/// Returns the bits of one training step: the loss, and every parameter after the update.
std::vector<HostTensor> step_of(const World& world, bool flash) {
    std::vector<HostTensor> found;
    make_cluster_in(world, 1)->run([&](Rank& rank) {
        Device& device = rank.device();
        GptSizes sizes;
        sizes.vocabulary = 500;
        sizes.context = 160;
        sizes.layers = 1;
        sizes.block.hidden = 192;
        sizes.block.heads = 6;
        sizes.block.kv_heads = 2;
        GptKit kit;
        if (flash)
            kit.core = [](Device& target, const AttentionSizes& attention) {
                return std::make_unique<FlashAttention>(target, attention);
            };
        const auto gpt = make_gpt({device, DType::f32, 1, ""}, sizes, kit);
        AdamW optimizer(gpt->parameters());
        const Tensor ids = device.zeros({sizes.context, 3}, DType::i32);
        const Tensor loss =
            forward_backward(device, *gpt, cross_entropy_loss, {ids, ids});
        optimizer.step();
        found.push_back(device.download(loss));
        for (const Parameter* parameter : gpt->parameters())
            found.push_back(device.download(parameter->value));
    });
    return found;
}

}  // namespace

TEST_CASE("All parts run once, on any threads, and make up the whole") {
    const int workers = GENERATE(1, 2, 4);
    const int tasks = GENERATE(1, 3);
    const std::int64_t n = GENERATE(0, 1, 63, 64, 1000);
    const std::int64_t unit = GENERATE(1, 7, 64);
    CAPTURE(workers, tasks, n, unit);
    std::vector<std::vector<int>> taken(static_cast<std::size_t>(tasks));
    run_jobs(tasks, workers, [&](int task) {
        std::vector<int>& own = taken[static_cast<std::size_t>(task)];
        own.assign(static_cast<std::size_t>(n), 0);
        for (int round = 0; round < 20; ++round)
            in_parts(n, unit, [&](std::int64_t first, std::int64_t count) {
                if (first % unit != 0 || first + count > n) throw std::logic_error("cut");
                for (std::int64_t i = first; i < first + count; ++i)
                    ++own[static_cast<std::size_t>(i)];
            });
    });
    for (const std::vector<int>& own : taken)
        REQUIRE(own == std::vector<int>(static_cast<std::size_t>(n), 20));
}

TEST_CASE("If there is only one task, other threads run parts of it") {
    std::atomic<int> together = 0;
    std::atomic<int> most = 0;
    run_jobs(1, 2, [&](int) {
        // The second thread may start late, so there are many rounds.
        for (int round = 0; round < 10'000 && most < 2; ++round)
            in_parts(100, 1, [&](std::int64_t, std::int64_t) {
                most = std::max<int>(most, ++together);
                for (int i = 0; i < 1000 && together < 2; ++i)
                    std::this_thread::yield();
                --together;
            });
    });
    CHECK(most == 2);
}

TEST_CASE("A part's exception reaches the thread that made the parts") {
    const int workers = GENERATE(1, 2, 4);
    int caught = 0;
    run_jobs(1, workers, [&](int) {
        for (int round = 0; round < 50; ++round)
            try {
                in_parts(8, 1, [](std::int64_t first, std::int64_t count) {
                    if (first <= 5 && 5 < first + count) throw std::runtime_error("five");
                });
            } catch (const std::runtime_error&) {
                ++caught;
            }
    });
    CHECK(caught == 50);
}

TEST_CASE("A training step has the same bits on any number of workers") {
    const bool flash = GENERATE(false, true);
    const std::vector<HostTensor> alone = step_of({sim::ExecutorKind::fibers, 1}, flash);
    for (const int workers : {2, 3, 4})
        for (const auto kind : {sim::ExecutorKind::fibers, sim::ExecutorKind::threads})
            REQUIRE(step_of({kind, workers}, flash) == alone);
}

}  // namespace lockstep::test
