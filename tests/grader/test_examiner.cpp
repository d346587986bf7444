// Tests what a student's program can and cannot do. The environment variables
// HOSTILE_RANK and EVERYTHING_RANK name two programs of ranks that the build has made.

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/grader/confine/system_calls.hpp"
#include "lessons/grader/examiner.hpp"
#include "src/core/require.hpp"
#include "src/course/task.hpp"
#include "src/os/child.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

/// A program from the build. It is in a folder that any user can read.
class RankProgram {
  public:
    explicit RankProgram(const char* variable) {
        const char* const path = std::getenv(variable);
        REQUIRE(path != nullptr);
        std::filesystem::permissions(folder_.path(), std::filesystem::perms{0755});
        std::filesystem::copy_file(path, folder_.path() / "rank");
    }
    StudentProgram program(double cpu_seconds) const {
        StudentProgram program{folder_.path(), "rank"};
        program.confinement.cpu_seconds = cpu_seconds;
        return program;
    }
    /// The default limits are more than a slow and busy machine needs.
    Examiner examiner(double cpu_seconds = 100,
                      const RunLimits& limits = {1000, 1000, 1000}) const {
        return Examiner(program(cpu_seconds), {limits, 1000});
    }
    /// Kills a process that runs the program. Returns false if no such process exists.
    bool kill_one() const {
        for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
            std::ifstream words(entry.path() / "cmdline");
            std::string text;
            std::getline(words, text, '\0');
            if (text == folder_.path() / "rank")
                return ::kill(std::stoi(entry.path().filename()), SIGKILL) == 0;
        }
        return false;
    }

  private:
    test::TemporaryFolder folder_;
};

const RankProgram& hostile_program() {
    static const RankProgram program("HOSTILE_RANK");
    return program;
}

Examiner hostile_examiner() {
    return hostile_program().examiner();
}
/// For programs that compute forever; impatient_examiner() is for programs that wait.
Examiner hasty_examiner() {
    return hostile_program().examiner(1);
}
Examiner impatient_examiner() {
    return hostile_program().examiner(100, {2, 1, 1000});
}

HostTensor values(int rank, const std::string& name) {
    HostTensor made({6, 8}, DType::f64);
    const RandomStream stream(static_cast<std::uint64_t>(rank), name);
    for (std::int64_t i = 0; i < made.elements(); ++i)
        made.set(i, stream.normal(static_cast<std::uint64_t>(i)));
    return made;
}

TaskRun run_of(const std::string& task, int ranks, std::int64_t seed = 0) {
    TaskRun run{fmt::format("{} ranks, seed {}", ranks, seed), {}};
    for (int rank = 0; rank < ranks; ++rank)
        run.ranks.push_back({task,
                             {{"x", {values(rank, "x")}}, {"y", {values(rank, "y")}}},
                             {{"seed", seed + rank}}});
    return run;
}

/// Returns the error of the run of a hostile task.
std::string said_of(const std::string& task, int ranks = 2,
                    Examiner examiner = hostile_examiner()) {
    const TaskResult& result = examiner.run(run_of(task, ranks));
    INFO(task);
    REQUIRE(result.trouble);
    CHECK(result.trouble->mark == Mark::failed);
    CHECK_THAT(result.trouble->text, !ContainsSubstring("exit status 9"));
    // The grader must work as before.
    Examiner patient = hostile_examiner();
    CHECK(!patient.run(run_of("does nothing", ranks)).trouble);
    return result.trouble->text;
}

/// Runs the task in this process with the examiner's inputs.
TaskResult run_here(const TaskRun& run) {
    sim::ClusterOptions options;
    options.ranks = static_cast<int>(run.ranks.size());
    options.spec = run.spec;
    options.check = sim::CheckLevel::full;
    TaskResult result;
    result.ranks.resize(run.ranks.size());
    result.report = sim::make_cluster(options)->run([&](Rank& rank) {
        const auto index = static_cast<std::size_t>(rank.index());
        TaskInputs in;
        in.numbers = run.ranks[index].numbers;
        for (const auto& [name, given] : run.ranks[index].tensors)
            in.tensors[name] = rank.device().upload(given.values);
        TaskOutputs out;
        tasks().at(run.ranks[index].task)(rank, in, out);
        for (const auto& [name, tensor] : out.tensors)
            result.ranks[index].tensors[name] = rank.device().peek(tensor);
        result.ranks[index].values = out.values;
        result.ranks[index].texts = out.texts;
    });
    return result;
}

}  // namespace

TEST_CASE("A task has the same bits, bytes, time and memory if each rank is a process",
          "[grader]") {
    const RankProgram program("EVERYTHING_RANK");
    Examiner examiner = program.examiner();
    for (const auto& [task, function] : tasks())
        for (const int ranks : {2, 3}) {
            if (task == "shards" && ranks != 2) continue;  // 16 classes
            INFO(task << " on " << ranks);
            const TaskRun run = run_of(task, ranks);
            const TaskResult& there = examiner.run(run);
            if (there.trouble) FAIL(there.trouble->text);
            const TaskResult here = run_here(run);
            CHECK(there.report.makespan() == here.report.makespan());
            for (std::size_t rank = 0; rank < here.ranks.size(); ++rank) {
                CHECK(!here.ranks[rank].tensors.empty());
                CHECK(there.ranks[rank].tensors == here.ranks[rank].tensors);
                CHECK(there.ranks[rank].values == here.ranks[rank].values);
                CHECK(there.ranks[rank].texts == here.ranks[rank].texts);
                const RankReport& a = there.report.ranks[rank];
                const RankReport& b = here.report.ranks[rank];
                CHECK(a.memory.peak == b.memory.peak);
                CHECK(a.memory.at_peak == b.memory.at_peak);
                CHECK(a.flops == b.flops);
                CHECK(a.bytes_sent() == b.bytes_sent());
                CHECK(a.messages_sent() == b.messages_sent());
            }
        }
}

TEST_CASE("A shapes-only task has the same bytes, time and memory", "[grader]") {
    const RankProgram program("EVERYTHING_RANK");
    Examiner examiner = program.examiner();
    for (const auto& [task, function] : tasks()) {
        INFO(task);
        TaskRun run = run_of(task, 2);
        const TaskResult& numbers = examiner.run(run);
        run.name += ", shapes only";
        run.numbers = false;
        const TaskResult& shapes = examiner.run(run);
        if (shapes.trouble) FAIL(shapes.trouble->text);
        CHECK(shapes.report.makespan() == numbers.report.makespan());
        for (std::size_t rank = 0; rank < shapes.ranks.size(); ++rank) {
            const RankReport& a = shapes.report.ranks[rank];
            const RankReport& b = numbers.report.ranks[rank];
            CHECK(a.memory.at_peak == b.memory.at_peak);
            CHECK(a.flops == b.flops);
            CHECK(a.bytes_sent() == b.bytes_sent());
            for (const auto& [name, tensor] : numbers.ranks[rank].tensors)
                CHECK(shapes.ranks[rank].tensors.at(name).shape() == tensor.shape());
        }
    }
}

namespace {

/// Returns a run of a hostile task without numbers, on a device with much memory.
TaskRun run_of_shapes(const std::string& task, std::int64_t seed = 0) {
    TaskRun run = run_of(task, 1, seed);
    run.spec.memory_bytes = std::int64_t{1} << 40;
    run.numbers = false;
    return run;
}

}  // namespace

TEST_CASE("Shapes-only tasks may be as large as large models, no larger", "[grader]") {
    const RankProgram program("HOSTILE_RANK");
    Examiner examiner = program.examiner();
    const TaskResult& far = examiner.run(run_of_shapes("works far out"));
    if (far.trouble) FAIL(far.trouble->text);
    CHECK(far.report.most_held() > std::int64_t{6} << 30);
    CHECK(far.ranks[0].tensors.at("range").shape() == Shape{8});
    CHECK(!examiner.run(run_of_shapes("attends for ever", 20)).trouble);
    const TaskResult& late = examiner.run(run_of_shapes("attends for ever", 28));
    REQUIRE(late.trouble);
    CHECK_THAT(late.trouble->text, ContainsSubstring("takes longer than"));
}

TEST_CASE("A program that does not end is stopped, with the reason", "[grader]") {
    CHECK_THAT(said_of("loops", 2, hasty_examiner()),
               ContainsSubstring("1 s of processor time: is there a loop"));
    for (const char* task : {"sleeps", "naps", "naps between messages", "stops itself"})
        CHECK_THAT(said_of(task, 2, impatient_examiner()),
                   ContainsSubstring("it did nothing for 1 s"));
    CHECK_THAT(said_of("prints for ever", 2, hasty_examiner()),
               ContainsSubstring("time"));
    CHECK_THAT(said_of("forks", 2, hasty_examiner()), ContainsSubstring("time"));
    CHECK_THAT(said_of("fills for ever", 2, impatient_examiner()),
               ContainsSubstring("kept the grader busy for more than 2 s"));
    CHECK_THAT(said_of("reads no answers", 2, impatient_examiner()),
               ContainsSubstring("it did nothing for 1 s"));
    CHECK_THAT(said_of("closes the line", 2, hasty_examiner()),
               ContainsSubstring("closed the line"));
}

TEST_CASE("Only the rank that does not go on is blamed", "[grader]") {
    CHECK_THAT(said_of("sleeps on rank 1", 3, impatient_examiner()),
               StartsWith("rank 1: it did nothing"));
    CHECK_THAT(said_of("loops on rank 1", 3, hasty_examiner()), StartsWith("rank 1: "));
}

TEST_CASE("A program that computes on a busy machine has its time", "[grader]") {
    // Eight threads compete with each rank, which computes for longer than it may be
    // idle.
    std::atomic<bool> ends = false;
    std::vector<std::thread> others(8);
    for (std::thread& other : others)
        other = std::thread([&ends] {
            while (!ends) {
            }
        });
    const TaskResult result = hostile_program()
                                  .examiner(100, {1000, 0.5, 1000})
                                  .run(run_of("computes a second", 2));
    ends = true;
    for (std::thread& other : others)
        other.join();
    if (result.trouble) FAIL(result.trouble->text);
}

TEST_CASE("All runs together have limits", "[grader]") {
    Examiner sleepy(hostile_program().program(100), {{1000, 1, 1.5}, 1000});
    CHECK_THAT(sleepy.run(run_of("sleeps", 2)).trouble->text,
               ContainsSubstring("for 1 s:"));
    CHECK_THAT(sleepy.run(run_of("naps", 2)).trouble->text,
               ContainsSubstring("for 1.5 s in all runs"));

    // A judging process that dies does not take its count along.
    Examiner shared(hostile_program().program(100), {{1000, 1, 1.5}, 1000});
    const pid_t judging = ::fork();
    if (judging == 0) {
        (void)shared.run(run_of("sleeps", 2));
        ::_exit(0);
    }
    REQUIRE(os::wait_for(judging) == 0);
    CHECK_THAT(shared.run(run_of("naps", 2)).trouble->text,
               ContainsSubstring("for 1.5 s in all runs"));

    Examiner examiner(hostile_program().program(100), {{1000, 1000, 1000}, 1.5});
    CHECK(!examiner.run(run_of("computes a second", 2, 1)).trouble);
    const TaskResult& next = examiner.run(run_of("does nothing", 2));
    REQUIRE(next.trouble);
    CHECK_THAT(next.trouble->text, ContainsSubstring("1.5 s of processor time"));
}

TEST_CASE("A program that ends before its task has not done the task", "[grader]") {
    CHECK_THAT(said_of("exits"), ContainsSubstring("exit status 0, before"));
    CHECK_THAT(said_of("prints a report"), ContainsSubstring("exit status 0, before"));
    CHECK_THAT(said_of("prints a report"),
               Catch::Matchers::EndsWith("it had printed something"));
    CHECK_THAT(said_of("aborts"), ContainsSubstring("signal 6"));
    CHECK_THAT(said_of("crashes"), ContainsSubstring("signal 11"));
    CHECK_THAT(said_of("recurses"), ContainsSubstring("signal 11"));
    CHECK_THAT(said_of("reads device memory"), ContainsSubstring("signal 11"));
}

TEST_CASE("A program's output is shown on request", "[grader]") {
    StudentProgram program = hostile_program().program(100);
    program.shows_output = true;
    Examiner examiner(program);
    CHECK_THAT(examiner.run(run_of("prints a report", 1)).trouble->text,
               ContainsSubstring("it had printed:\n{\"score\": 100, \"tests\": []}"));
}

TEST_CASE("A program's exception is reported", "[grader]") {
    CHECK_THAT(said_of("throws"), ContainsSubstring("threw an exception"));
    CHECK_THAT(said_of("throws memory"), ContainsSubstring("more memory"));
    Examiner examiner = hostile_examiner();
    const TaskResult& result = examiner.run(run_of("is not written", 2));
    REQUIRE(result.trouble);
    CHECK(result.trouble->mark == Mark::not_written);
    CHECK(result.trouble->text == "a0.1: nothing");
}

TEST_CASE("A program can neither make processes nor reach others, files or the network",
          "[grader]") {
    for (const char* task :
         {"forks once", "starts a thread", "writes a file", "ends its parent",
          "traces its parent", "opens a socket", "starts a shell"})
        CHECK_THAT(said_of(task), ContainsSubstring("exit status 0, before"));
}

TEST_CASE("A rank that the machine kills is not the program's mistake", "[grader]") {
    if (!SystemCallFilter::works()) return;
    const RankProgram program("HOSTILE_RANK");
    Examiner examiner = program.examiner();
    std::thread machine([&program] {
        for (int i = 0; i < 100'000 && !program.kill_one(); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds{10});
    });
    CHECK_THROWS_AS(examiner.run(run_of("sleeps", 2)), MissingError);
    machine.join();
    CHECK(!examiner.run(run_of("does nothing", 2)).trouble);
    CHECK_THAT(said_of("kills itself"), ContainsSubstring("exit status 0, before"));
}

TEST_CASE("Raw messages on the line are not believed", "[grader]") {
    CHECK_THAT(said_of("writes noise"),
               ContainsSubstring("sent the grader an invalid message"));
    CHECK_THAT(said_of("announces a long message"),
               ContainsSubstring("message is too long"));
    CHECK_THAT(said_of("names many files"), ContainsSubstring("more files"));
    // The grader accepts a false claim that the task ended; the task has left nothing.
    Examiner examiner = hostile_examiner();
    const TaskResult& result = examiner.run(run_of("claims an end", 2));
    REQUIRE(!result.trouble);
    CHECK(result.ranks[0].tensors.empty());
}

TEST_CASE("Frames of noise end a run, never the grader", "[grader]") {
    Examiner examiner = hostile_examiner();
    for (std::int64_t seed = 0; seed < 40; ++seed)
        examiner.run(run_of("writes noisy frames", 1, 1000 * seed));
    CHECK(!examiner.run(run_of("does nothing", 1)).trouble);
}

TEST_CASE("Mistakes on devices and in messages are explained as in one process",
          "[grader]") {
    CHECK_THAT(said_of("fills the device"), ContainsSubstring("F30"));
    CHECK_THAT(said_of("downloads"), ContainsSubstring("cannot be read on the host"));
    CHECK_THAT(said_of("peeks"), ContainsSubstring("cannot be read on the host"));
    CHECK_THAT(said_of("asks for its host"), ContainsSubstring("there is no host"));
    CHECK_THAT(said_of("leaves on rank 1"), ContainsSubstring("hostile.cpp"));
    CHECK_THAT(said_of("leaves on rank 1"), ContainsSubstring("rank 1"));
    CHECK_THAT(said_of("waits for nobody"), ContainsSubstring("recv"));
}

TEST_CASE("Numbers beyond all bounds are refused before they are used", "[grader]") {
    for (const char* task : {"copies columns from beyond", "has heads beyond",
                             "deals no tokens", "begins phases", "leaves much"})
        CHECK_THAT(said_of(task),
                   ContainsSubstring("sent the grader an invalid message"));
}

TEST_CASE("Ranks share no globals", "[grader]") {
    Examiner examiner = hostile_examiner();
    const TaskResult& result = examiner.run(run_of("shares a global", 3));
    REQUIRE(!result.trouble);
    for (const RankResult& rank : result.ranks)
        CHECK(rank.texts.at("seen") == "1");
}
