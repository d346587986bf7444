// Tasks that attack the grader, or look like attacks. Each rank runs them in a process
// with limits on everything that it may use.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <limits>
#include <pthread.h>
#include <string>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "lessons/grader/remote/request.hpp"
#include "src/course/not_written.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

/// The exit status of a process whose attack succeeded.
constexpr int kGotAway = 9;
constexpr int kLine = 3;
constexpr auto kReturned = static_cast<std::int64_t>(lessons::RankRequest::returned);
constexpr auto kBytesSent = static_cast<std::int64_t>(lessons::RankRequest::bytes_sent);
constexpr std::int64_t kRequests = kLast<lessons::RankRequest> + 1;

/// Ends the process with a status that says whether the attack succeeded.
[[noreturn]] void end(bool got_away) {
    std::_Exit(got_away ? kGotAway : 0);
}

[[noreturn]] void wait_for_ever() {
    for (;;)
        pause();
}

int recurse(int depth) {
    volatile char room[4096];
    room[0] = 1;
    return depth == 0 ? 0 : recurse(depth + 1) + room[0];
}

volatile std::int64_t counter = 0;

[[noreturn]] void loop_for_ever() {
    for (;;)
        counter = counter + 1;
}

void compute_a_second() {
    for (const std::clock_t begun = std::clock(); std::clock() - begun < CLOCKS_PER_SEC;)
        counter = counter + 1;
}

void allocate_for_ever() {
    for (std::vector<char*> all;;) {
        all.push_back(new char[1 << 20]);
        std::memset(all.back(), 1, 1 << 20);
    }
}

void write_words(const std::vector<std::int64_t>& words) {
    if (write(kLine, words.data(), words.size() * sizeof words[0]) < 0) end(false);
}

void write_noise() {
    for (std::int64_t word = 1;; word = word * 6364136223846793005 + 1)
        write_words({word});
}

/// Writes well-formed frames of noise.
void write_noisy_frames(const TaskInputs& in) {
    std::uint64_t state = static_cast<std::uint64_t>(in.number("seed"));
    const auto next = [&state] {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return static_cast<std::int64_t>(state >> 33);
    };
    for (;;) {
        std::vector<std::int64_t> words{0, next() % kRequests};
        const std::int64_t count = next() % 12;
        for (std::int64_t i = 0; i < count; ++i)
            words.push_back(next() % (next() % 3 == 0 ? 1 << 20 : 8));
        words[0] = static_cast<std::int64_t>((words.size() - 1) * sizeof words[0]);
        write_words(words);
    }
}

void* nothing(void* argument) {
    return argument;
}

Task task_of(void (*harm)()) {
    return [harm](Rank&, const TaskInputs&, TaskOutputs&) { harm(); };
}

/// Returns a task that does harm on rank 1; the other ranks wait there for each other.
Task on_rank_1(void (*harm)()) {
    return [harm](Rank& rank, const TaskInputs&, TaskOutputs&) {
        if (rank.index() == 1) harm();
        rank.world().barrier().wait();
    };
}

Tasks of_the_process() {
    return {
        {"loops", task_of([] { loop_for_ever(); })},
        {"sleeps", task_of([] { wait_for_ever(); })},
        {"naps", task_of([] {
             for (;;)
                 usleep(1000);
         })},
        {"naps between messages",
         [](Rank& rank, const TaskInputs&, TaskOutputs&) {
             for (;;) {
                 usleep(20'000);
                 (void)rank.world().bytes_sent();
             }
         }},
        {"stops itself", task_of([] { raise(SIGSTOP); })},
        {"computes a second", task_of([] { compute_a_second(); })},
        {"loops on rank 1", on_rank_1(loop_for_ever)},
        {"sleeps on rank 1", on_rank_1(wait_for_ever)},
        {"exits", task_of([] { std::exit(0); })},
        {"aborts", task_of([] { std::abort(); })},
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): that is the task.
        {"crashes", task_of([] { *static_cast<volatile int*>(nullptr) = 1; })},
        {"recurses", task_of([] { recurse(1); })},
        {"throws", task_of([] { throw 42; })},
        {"throws memory", task_of([] { allocate_for_ever(); })},
        {"is not written", task_of([] { throw NotWritten("a0.1: nothing"); })},
        {"prints a report", task_of([] {
             std::puts(R"({"score": 100, "tests": []})");
             std::fflush(stdout);
             std::exit(0);
         })},
        {"prints for ever", task_of([] {
             for (;;)
                 std::puts("a hundred points");
         })},
        {"forks", task_of([] {
             for (;;)
                 fork();
         })},
        {"forks once", task_of([] { end(fork() >= 0); })},
        {"starts a thread", task_of([] {
             pthread_t thread;
             end(pthread_create(&thread, nullptr, nothing, nullptr) == 0);
         })},
        {"writes a file",
         task_of([] { end(open("results.json", O_WRONLY | O_CREAT, 0644) >= 0); })},
        {"ends its parent", task_of([] { end(kill(getppid(), SIGKILL) == 0); })},
        {"kills itself",
         task_of([] { end(kill(getpid(), SIGKILL) == 0 || raise(SIGKILL) == 0); })},
        {"traces its parent",
         task_of([] { end(ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0); })},
        {"opens a socket", task_of([] { end(socket(AF_INET, SOCK_STREAM, 0) >= 0); })},
        {"starts a shell", task_of([] { end(std::system("true") == 0); })},
        {"closes the line", task_of([] {
             close(kLine);
             wait_for_ever();
         })},
    };
}

Tasks of_the_line() {
    return {
        {"writes noise", task_of([] { write_noise(); })},
        {"writes noisy frames",
         [](Rank&, const TaskInputs& in, TaskOutputs&) { write_noisy_frames(in); }},
        {"announces a long message", task_of([] {
             write_words({std::int64_t{1} << 60});
             wait_for_ever();
         })},
        {"reads no answers", task_of([] {
             // A frame of 32 bytes: "bytes_sent" of the world, at line 0 of a file "".
             for (;;)
                 write_words({32, kBytesSent, 0, 0, 0});
         })},
        {"claims an end", task_of([] {
             // A frame of 32 bytes: "returned" and three zeros.
             write_words({32, kReturned, 0, 0, 0});
             wait_for_ever();
         })},
    };
}

Tasks of_the_device() {
    return {
        {"fills for ever",
         [](Rank& rank, const TaskInputs& in, TaskOutputs&) {
             for (;;)
                 rank.device().fill(in.tensor("x"), 0);
         }},
        {"fills the device",
         [](Rank& rank, const TaskInputs&, TaskOutputs&) {
             for (std::vector<Tensor> all;;)
                 all.push_back(rank.device().zeros({1 << 16}, DType::f64));
         }},
        {"downloads", [](Rank& rank, const TaskInputs& in,
                         TaskOutputs&) { rank.device().download(in.tensor("x")); }},
        {"peeks", [](Rank& rank, const TaskInputs& in,
                     TaskOutputs&) { rank.keep("x", in.tensor("x")); }},
        {"reads device memory",
         [](Rank&, const TaskInputs& in, TaskOutputs& out) {
             out.texts["x"] = std::to_string(in.tensor("x").data<double>()[0]);
         }},
        {"names many files",
         [](Rank& rank, const TaskInputs& in, TaskOutputs&) {
             for (int i = 0;; ++i)
                 rank.device().fill(in.tensor("x"), 0,
                                    SourceLine::of(std::to_string(i), i));
         }},
        {"waits for nobody",
         [](Rank& rank, const TaskInputs& in, TaskOutputs&) {
             rank.world().recv(in.tensor("x"), 0).wait();
         }},
        {"leaves on rank 1",
         [](Rank& rank, const TaskInputs& in, TaskOutputs&) {
             if (rank.index() == 1) return;
             rank.world().all_reduce(in.tensor("x")).wait();
         }},
        {"shares a global",
         [](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
             static std::vector<Tensor> all;
             all.push_back(in.tensor("x"));
             rank.world().barrier().wait();
             out.texts["seen"] = std::to_string(all.size());
         }},
        {"asks for its host", [](Rank& rank, const TaskInputs&,
                                 TaskOutputs&) { rank.host().zeros({1}, DType::f32); }},
        {"does nothing", [](Rank&, const TaskInputs&, TaskOutputs&) {}},
    };
}

/// Attacks that need a run without numbers.
Tasks with_shapes_only() {
    return {
        {"works far out",
         [](Rank& rank, const TaskInputs&, TaskOutputs& out) {
             // The tensor has 6 GB; the range begins beyond 4 GB.
             const std::int64_t elements = std::int64_t{3} << 30;
             const Tensor flat = rank.device().empty({elements}, DType::bf16);
             const Tensor range = flat.slice(elements - 8, 8);
             rank.device().fill(range, 1);
             out.tensors["range"] = range;
         }},
        {"attends for ever",
         [](Rank& rank, const TaskInputs& in, TaskOutputs&) {
             const auto rows = std::int64_t{1} << in.number("seed");
             const Tensor x = rank.device().empty({rows, 1, 8}, DType::f32);
             const Heads heads{x, 1, 8, 0};
             rank.device().attend(rank.device().begin_attention(heads),
                                  {heads, heads, heads}, {});
         }},
    };
}

/// Numbers and counts that no program would use on purpose.
Tasks beyond_all_bounds() {
    return {
        {"copies columns from beyond",
         [](Rank& rank, const TaskInputs& in, TaskOutputs&) {
             const std::int64_t count = in.tensor("x").shape().columns();
             rank.device().copy_columns(
                 in.tensor("y"), std::numeric_limits<std::int64_t>::max() - count + 1,
                 in.tensor("x"), 0, count);
         }},
        {"has heads beyond",
         [](Rank& rank, const TaskInputs& in, TaskOutputs&) {
             const Tensor x = in.tensor("x").reshaped({6, 1, 8});
             rank.device().head_products({x, 4, std::int64_t{1} << 62, 0},
                                         {x, 4, std::int64_t{1} << 62, 0});
         }},
        {"deals no tokens",
         [](Rank& rank, const TaskInputs& in, TaskOutputs&) {
             const Tensor x = in.tensor("x").reshaped({6, 1, 8});
             const Heads heads{x, 1, 8, 0};
             AttentionOptions options;
             options.causal = true;
             options.queries = {TokenOrder::zigzag, 1, 0,
                                std::numeric_limits<std::int64_t>::max()};
             options.keys = options.queries;
             rank.device().attend(rank.device().begin_attention(heads),
                                  {heads, heads, heads}, options);
         }},
        {"begins phases",
         [](Rank& rank, const TaskInputs&, TaskOutputs&) {
             for (;;)
                 rank.device().monitor().phase_began(Phase::forward, 0,
                                                     SourceLine::here());
         }},
        {"leaves much",
         [](Rank&, const TaskInputs& in, TaskOutputs& out) {
             for (int i = 0; i < 60'000; ++i)
                 out.tensors[std::to_string(i)] = in.tensor("x");
         }},
    };
}

}  // namespace

Tasks tasks() {
    Tasks all = of_the_process();
    all.merge(of_the_line());
    all.merge(of_the_device());
    all.merge(with_shapes_only());
    all.merge(beyond_all_bounds());
    return all;
}

}  // namespace lockstep
