// Processes are killed while they write checkpoints. Then the last or the next checkpoint
// exists and is whole.

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/cluster.hpp"
#include "src/nn/linear.hpp"
#include "src/parallel/checkpoint.hpp"
#include "src/parallel/checkpoint_index.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/zero_1.hpp"
#include "tests/catch.hpp"
#include "tests/dice.hpp"
#include "tests/temporary_folder.hpp"

namespace {

/// The process is killed after this many calls that change the disk; 0 means never.
int calls_left = 0;
bool is_counting = false;

/// Returns whether the process must be killed during this call.
bool is_last_call() {
    return is_counting && calls_left > 0 && --calls_left == 0;
}

[[noreturn]] void die() {
    raise(SIGKILL);
    _exit(1);
}

}  // namespace

// The functions below replace the C library's functions in this program.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the C library's names
// are reserved.

extern "C" ssize_t write(int descriptor, const void* from, size_t bytes) {
    if (is_last_call()) {
        syscall(SYS_write, descriptor, from, bytes / 2);
        die();
    }
    return syscall(SYS_write, descriptor, from, bytes);
}

extern "C" int fsync(int descriptor) {
    if (is_last_call()) die();
    return static_cast<int>(syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) {
    if (is_last_call()) die();
    return static_cast<int>(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

extern "C" int unlink(const char* path) noexcept {
    if (is_last_call()) die();
    return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

extern "C" int mkdir(const char* path, mode_t mode) {
    if (is_last_call()) die();
    return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

namespace lockstep::test {

namespace {

constexpr int kSteps = 5;

/// Continues from the last checkpoint, if there is one. Each step adds 1 to each weight
/// and saves a checkpoint.
void train(const std::filesystem::path& folder, int ranks = 2) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.workers = 1;
    sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        Linear model({device, DType::f64, 1, "layer"}, 3, 5);
        for (const Parameter* parameter : model.parameters())
            device.fill(parameter->value, 0);
        declare_replicas_of(rank.world(), model);
        Zero1 sync(device, rank.world(), model.parameters());
        AdamW optimizer(sync.shards());
        std::int64_t step = 0;
        if (const auto last = latest_checkpoint(folder))
            step = load_checkpoint(device, rank.world(), *last, {sync, &optimizer});
        while (step < kSteps) {
            for (const Parameter* shard : sync.shards()) {
                const Tensor one = device.empty(shard->shape(), DType::f64);
                device.fill(one, 1);
                device.add(shard->value, one);
            }
            save_checkpoint(device, rank.world(), folder, ++step, {sync, &optimizer});
        }
    });
}

/// Returns the step of the last checkpoint. All its weights must equal the step.
int saved_step(const std::filesystem::path& folder) {
    const auto last = latest_checkpoint(folder);
    if (!last) return 0;
    CheckpointReader reader(*last);
    const auto step = static_cast<int>(reader.index().step);
    for (const auto& [name, tensor] : read_checkpoint(*last))
        for (std::int64_t i = 0; i < tensor.elements(); ++i)
            REQUIRE(tensor.at(i) == step);
    return step;
}

/// Starts a process that trains until it is killed in call number `moment`. It ends with
/// exit status 1 if its training throws.
pid_t start(const std::filesystem::path& folder, int moment, int ranks = 2) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child != 0) return child;
    calls_left = moment;
    is_counting = true;
    try {
        train(folder, ranks);
    } catch (const std::exception&) {
        _exit(1);
    }
    _exit(0);
}

enum class Ended : std::uint8_t { well, refused, killed };

Ended end_of(pid_t child) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status) == 0 ? Ended::well : Ended::refused;
    REQUIRE(WTERMSIG(status) == SIGKILL);
    return Ended::killed;
}

/// Trains in a process that is killed in call number `moment`. Returns false if the
/// process ended before that call.
bool is_killed(const std::filesystem::path& folder, int moment) {
    const Ended ended = end_of(start(folder, moment));
    REQUIRE(ended != Ended::refused);
    return ended == Ended::killed;
}

std::size_t files_in(const std::filesystem::path& folder) {
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        files += entry.is_regular_file() ? 1 : 0;
    return files;
}

}  // namespace

TEST_CASE(
    "A training may be killed at any time: the last checkpoint is whole and can be "
    "loaded",
    "[parallel][checkpoint]") {
    int moment = 0, step_before = 0;
    std::vector<int> seen(kSteps + 1);
    while (true) {
        CAPTURE(++moment);
        const TemporaryFolder folder;
        if (!is_killed(folder.path(), moment)) break;
        const int step = saved_step(folder.path());
        CHECK((step == step_before || step == step_before + 1));
        step_before = step;
        ++seen[static_cast<std::size_t>(step)];
        // Kills a second process during its writes, then lets a third run to the end.
        if (is_killed(folder.path(), 1 + moment % 20))
            CHECK(saved_step(folder.path()) >= step);
        CHECK(!is_killed(folder.path(), 0));
        CHECK(saved_step(folder.path()) == kSteps);
        CHECK(files_in(folder.path()) ==
              std::size_t{3} * kSteps);  // nothing else is left
    }
    CHECK(moment > 100);
    for (const int times : seen)
        CHECK(times > 0);
}

TEST_CASE(
    "Several trainings in one folder may be killed at any time: what can be loaded is "
    "whole",
    "[parallel][checkpoint]") {
    std::array<int, 3> seen{};
    Dice dice(57);
    for (int moment = 0; moment < 200; ++moment) {
        const int ranks = 1 + moment % 4;
        CAPTURE(moment, ranks);
        const TemporaryFolder folder;
        std::vector<pid_t> children(1 + static_cast<std::size_t>(moment) % 3);
        for (pid_t& child : children)
            child = start(folder.path(), 1 + dice.below(150), ranks);
        for (const pid_t child : children)
            ++seen[static_cast<std::size_t>(end_of(child))];
        const int step = saved_step(folder.path());
        CHECK(end_of(start(folder.path(), 0, ranks)) == Ended::well);
        CHECK(saved_step(folder.path()) == kSteps);
        CHECK(step <= kSteps);
    }
    for (const int times : seen)
        CHECK(times > 0);
}

}  // namespace lockstep::test
