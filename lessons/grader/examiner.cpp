#include "lessons/grader/examiner.hpp"

#include <cerrno>
#include <exception>
#include <new>
#include <sys/mman.h>
#include <sys/socket.h>
#include <system_error>

#include <fmt/format.h>

#include "lessons/grader/confine/pace.hpp"
#include "lessons/grader/report/grade_report.hpp"
#include "src/os/deadline.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

ConfinedPlan confined(const StudentProgram& program, int given) {
    ConfinedPlan plan;
    plan.words = {(program.folder / program.program).string()};
    plan.folder = program.folder;
    plan.confinement = program.confinement;
    plan.given = given;
    return plan;
}

namespace {

/// A program that neither computes nor is idle for so long waits for the machine.
constexpr double kLongestSeconds = 3600;
constexpr std::int64_t kMostMemory = 256 << 20;

}  // namespace

ExamLimits usual_limits() {
    ExamLimits limits;
    for (double* const seconds : {&limits.run.grader_seconds, &limits.rank_seconds})
        *seconds = pace().limit(*seconds, kMostMemory);
    return limits;
}

SharedUsedSeconds shared_used_seconds() {
    void* const memory = ::mmap(nullptr, sizeof(UsedSeconds), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        throw std::system_error(errno, std::generic_category(), "cannot share memory");
    return {new (memory) UsedSeconds,
            [](UsedSeconds* used) { ::munmap(used, sizeof *used); }};
}

Confinement usual_confinement() {
    Confinement confinement;
    confinement.memory_bytes = kMostMemory;
    confinement.cpu_seconds = pace().limit(2, confinement.memory_bytes);
    confinement.wall_seconds = kLongestSeconds;
    confinement.file_bytes = 64 << 10;
    return confinement;
}

StudentProcess::StudentProcess(const StudentProgram& program)
    : StudentProcess(program, os::make_socket_pair(SOCK_STREAM)) {}

StudentProcess::StudentProcess(const StudentProgram& program, os::SocketPair line)
    : confinement_(program.confinement),
      shows_output_(program.shows_output),
      line_(std::move(line.ours)),
      frames_(line_.number()),
      process_(confined(program, line.theirs.number())) {}

std::optional<double> StudentProcess::busy_seconds() {
    const std::optional<Activity> activity = process_.activity();
    if (!activity) return std::nullopt;
    const double busy = activity->processor_seconds + activity->queue_seconds;
    // The system counts a wait for a processor when the wait ends.
    const bool waits = !activity->sleeps && busy == busy_seen_;
    busy_seen_ = busy;
    return waits ? std::nullopt : std::optional(busy);
}

double StudentProcess::finish() {
    process_.kill();
    const std::optional<Ending> ending = process_.wait(os::after(os::Clock::now(), 4));
    return ending ? ending->cpu_seconds : 0;
}

RankProcess::End StudentProcess::ending() {
    // The program has closed the line. On a busy machine, its end may take a while.
    constexpr int kMostIdle = 20;
    std::optional<Ending> ending;
    for (int idle = 0; !ending && idle < kMostIdle;) {
        ending = process_.wait(os::Clock::now() + kGlance);
        const std::optional<Activity> activity = process_.activity();
        if (activity && activity->sleeps) ++idle;
    }
    if (!ending) {
        process_.kill();
        return {"your program closed the line to the grader", false};
    }
    if (ending->cause == EndedBy::outside)
        throw MissingError(
            "a rank's process was killed, but neither by the grader nor through its own "
            "fault: perhaps this machine had no memory left");
    if (ending->cause == EndedBy::wall_limit)
        throw MissingError(
            "this machine was too busy: a rank's process had work, but no processor");
    std::string text = "your program " + ending_sentence(*ending, confinement_);
    if (ending->cause == EndedBy::itself) text += ", before the function had returned";
    const std::string printed = process_.output(1000);
    if (!printed.empty())
        text += shows_output_ ? "; it had printed:\n" + clean_lines(printed, {1000, 10})
                              : "; it had printed something";
    if (ending->cause != EndedBy::cpu_limit) return {text, false};
    return {text + ": is there a loop that never ends?", true};
}

const TaskResult& Examiner::run(const TaskRun& run) {
    const std::string& task = run.ranks.at(0).task;
    return made_.get(run, [&] {
        TaskResult result;
        const auto late = late_.find(task);
        if (late != late_.end()) {
            result.trouble = Trouble{Mark::failed, late->second, true};
            return result;
        }
        if (used_->computing > limits_.rank_seconds) {
            result.trouble = Trouble{
                Mark::failed,
                fmt::format("the runs before have used {:g} s of processor time, more "
                            "than all runs together may use",
                            limits_.rank_seconds),
                true};
            return result;
        }
        result = make(run);
        if (result.trouble && result.trouble->out_of_time)
            late_.emplace(
                task, fmt::format("with {} already, {}", run.name, result.trouble->text));
        return result;
    });
}

std::string Examiner::file(const std::string& name) const {
    constexpr std::uint64_t kLargest = 1 << 20;
    return read_text_file(program_.folder / name, kLargest);
}

TaskResult Examiner::make(const TaskRun& run) {
    const double begun = processor_seconds();
    std::vector<std::unique_ptr<StudentProcess>> processes;
    try {
        for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
            processes.push_back(std::make_unique<StudentProcess>(program_));
    } catch (const CannotRun& error) {
        TaskResult result;
        result.trouble = {Mark::failed,
                          "your program was built, but the system cannot run it: " +
                              error.code().message(),
                          false};
        return result;
    }
    std::exception_ptr machines_trouble;
    TaskResult result = make_run(run, sim::CheckLevel::full, [&](Rank& rank) {
        const auto index = static_cast<std::size_t>(rank.index());
        // After the machine's trouble, the other ranks need not run to their ends.
        if (machines_trouble) std::rethrow_exception(machines_trouble);
        try {
            RankSession session(rank, *processes[index], limits_.run, begun, used_->idle);
            return session.run(run.ranks[index]);
        } catch (const MissingError&) {
            machines_trouble = std::current_exception();
            throw;
        }
    });
    for (const auto& process : processes)
        used_->computing += process->finish();
    return result;
}

}  // namespace lockstep::lessons
