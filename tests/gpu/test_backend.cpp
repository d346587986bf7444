#include <optional>

#include "lessons/runner/lesson.hpp"
#include "program/explain_stall.hpp"
#include "src/comm/operation_log.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"

namespace lockstep::lessons {

using test::message_of;

// The emulator has four GPUs here.

TEST_CASE("with nccl there are as many ranks as processes", "[gpu][lessons]") {
    LessonOptions options;
    options.backend = "nccl";
    gpu::Placement placement;
    placement.size = placement.local_size = 3;
    placement.launcher = "mpirun";
    CHECK(resolved(options, 4, placement).ranks == 3);
    options.ranks = 2;
    CHECK(
        message_of<UsageError>([&] { resolved(options, 4, placement); }) ==
        "--ranks 2: mpirun started 3 processes, and with --backend nccl each is a rank");
}

TEST_CASE("gpu means nccl if there are enough GPUs, otherwise cuda", "[gpu][lessons]") {
    LessonOptions options;
    options.backend = "gpu";
    CHECK(resolved(options, 4, std::nullopt).backend == "nccl");
    CHECK(resolved(options, 4, std::nullopt).ranks == 4);
    CHECK(resolved(options, 7, std::nullopt).backend == "cuda");
    CHECK(resolved(options, 7, std::nullopt).ranks == 7);
    options.run.shares_gpu = true;
    CHECK(resolved(options, 7, std::nullopt).backend == "nccl");
    CHECK(resolved(options, 7, std::nullopt).ranks == 7);
    options.run.shares_gpu = false;
    gpu::Placement alone;
    alone.launcher = "srun";
    CHECK(resolved(options, 4, alone).backend == "cuda");
    CHECK(resolved(options, 1, alone).backend == "nccl");
    gpu::Placement one_of_two = alone;
    one_of_two.size = 2;
    CHECK(resolved(options, 7, one_of_two).backend == "nccl");
    CHECK(resolved(options, 7, one_of_two).ranks == 2);
    options.ranks = 5;
    CHECK(resolved(options, 4, std::nullopt).backend == "cuda");
    CHECK(resolved(options, 4, std::nullopt).ranks == 5);
    options.run.shares_gpu = true;
    CHECK(resolved(options, 4, std::nullopt).backend == "nccl");
    options.run.shares_gpu = false;
    options.backend = "nccl";
    options.ranks.reset();
    CHECK(resolved(options, 7, std::nullopt).ranks == 4);
    options.ranks = 5;
    CHECK(message_of<MissingError>([&] { resolved(options, 4, std::nullopt); }) ==
          "--backend nccl: 5 ranks need 5 GPUs, but this machine has 4; use --backend "
          "cuda, or --set nccl=shared to try NCCL's calls on one GPU");
}

TEST_CASE("a wrong setting is refused, also by backends that do not use it",
          "[gpu][lessons]") {
    for (const char* backend : {"sim", "cuda", "nccl", "gpu"})
        for (const char* key : {"workers", "executor", "schedule_seed", "numerics",
                                "tf32", "sync", "timeout", "nccl", "trace"}) {
            LessonOptions options;
            options.backend = backend;
            options.settings[key] = "-1";
            CHECK(message_of<UsageError>([&] {
                      understood(options, {});
                  }).starts_with(std::string("--set ") + key + "=-1: "));
        }
}

TEST_CASE("several processes do not read one stream", "[gpu][lessons]") {
    LessonOptions options;
    options.backend = "nccl";
    options.text = "/dev/null";
    CHECK(
        message_of<UsageError>([&] { resolved(options, 4, std::nullopt); }) ==
        "--text /dev/null: every process reads the file, so with --backend nccl it must "
        "be a regular file");
    CHECK(resolved(options, 1, std::nullopt).ranks == 1);
    options.text = "no such file";
    CHECK(resolved(options, 4, std::nullopt).ranks == 4);
}

TEST_CASE("cuda puts GPU devices under the simulator", "[gpu][lessons]") {
    LessonOptions options;
    CHECK_FALSE(cluster_options(options, 2, false).device_factory);
    options.backend = "cuda";
    CHECK(cluster_options(options, 2, false).device_factory);
}

TEST_CASE("under the simulator a GPU's copies to its host cost as much as virtual ones",
          "[gpu][lessons][host]") {
    LessonOptions options;
    const auto run = [&](const char* backend) {
        options.backend = backend;
        return make_cluster(options, 2, false)->run([](Rank& rank) {
            Device& device = rank.device();
            const PinnedMemory pinned(rank.host());
            const Tensor there = device.zeros({1000}, DType::f32);
            const Tensor here = rank.host().zeros({1000}, DType::f32);
            device.fill(there, 1 + rank.index());
            device.start_copy(here, there).wait();
            rank.host().scale(here, 3);
            device.start_copy(there, here).wait();
            rank.world().all_reduce(there).wait();
            rank.keep("there", there);
            rank.keep("here", here);
        });
    };
    const RunReport cuda = run("cuda");
    const RunReport sim = run("sim");
    CHECK(cuda.makespan() == sim.makespan());
    for (std::size_t rank = 0; rank < 2; ++rank) {
        CHECK(cuda.ranks[rank].kept == sim.ranks[rank].kept);
        CHECK(cuda.ranks[rank].kept.at("there").at(999) == 9);
        CHECK(cuda.ranks[rank].host.memory.peak == 4000);
    }
}

TEST_CASE("the settings of GPUs are read, and wrong ones are refused by name",
          "[gpu][lessons]") {
    LessonOptions options;
    CHECK_FALSE(understood(options, {}).run.shares_gpu);
    CHECK_FALSE(understood(options, {}).run.tf32);
    CHECK(understood(options, {}).run.timeout_seconds == 60);
    options.settings = {
        {"nccl", "shared"}, {"tf32", "1"}, {"sync", "1"}, {"timeout", "2.5"}};
    CHECK(understood(options, {}).run.shares_gpu);
    CHECK(understood(options, {}).run.tf32);
    CHECK(understood(options, {}).run.sync);
    CHECK(understood(options, {}).run.timeout_seconds == 2.5);
    options.settings = {{"timeout", "0"}};
    CHECK(message_of<UsageError>([&] {
              understood(options, {});
          }).starts_with("--set timeout=0: "));
}

namespace {

/// Returns the log of a rank that launched an all-reduce of `count` and now waits for it.
std::string waiting(std::int64_t count, SourceLine at = SourceLine::here()) {
    OperationLog log(2);
    CommOperation operation;
    operation.verb = Verb::all_reduce;
    operation.count = count;
    operation.at = at;
    const std::int64_t launch = log.launched(0, {&operation, 1});
    log.launch_returned();
    log.waited(launch, at);
    return log.bytes();
}

bool says(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a stalled run is explained from its logs", "[gpu][lessons]") {
    const std::string mistake = stall_text({waiting(7), waiting(8)}, 1, 100);
    CHECK(says(mistake, "the run is stuck: rank 1 has made no progress"));
    CHECK(says(mistake, "F02"));
    CHECK_FALSE(says(mistake, "virtual time"));

    const std::string match = stall_text({waiting(7), waiting(7)}, 0, 100);
    CHECK(says(match, "The calls of all ranks match so far"));
    CHECK(says(match, "ranks 0–1: wait at tests/gpu/test_backend.cpp"));

    const std::string silent = stall_text({waiting(7), ""}, 0, 100);
    CHECK(says(silent, "The last calls of its ranks"));
    CHECK(says(silent, "rank 1: gave no answer"));

    const std::string rubbish = stall_text({waiting(7), "not a log"}, 0, 100);
    CHECK(says(rubbish, "rank 1: gave no answer"));
}

}  // namespace lockstep::lessons
