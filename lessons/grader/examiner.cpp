#include "lessons/grader/examiner.hpp"

#include <sys/socket.h>

#include <fmt/format.h>

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

Confinement usual_confinement() {
    Confinement confinement;
    confinement.cpu_seconds = 2;
    confinement.wall_seconds = 60;
    confinement.memory_bytes = 256 << 20;
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

RankProcess::End StudentProcess::ending() {
    using namespace std::chrono_literals;
    std::optional<Ending> ending = process_.wait(os::Clock::now() + 2s);
    if (!ending) {
        process_.kill();
        if (frames_.end() == Frames::End::gone)
            return {"your program closed the line to the grader", false};
        return {"its time ran out: is there a loop that never ends?", true};
    }
    if (ending->cause == EndedBy::outside)
        throw MissingError(
            "a rank's process was killed, but neither by the grader nor through its own "
            "fault: perhaps this machine had no memory left");
    std::string text = "your program " + ending_sentence(*ending, confinement_);
    if (ending->cause == EndedBy::itself) text += ", before the function had returned";
    const std::string printed = process_.output(1000);
    if (!printed.empty())
        text += shows_output_ ? "; it had printed:\n" + clean_lines(printed, {1000, 10})
                              : "; it had printed something";
    return {text,
            ending->cause == EndedBy::cpu_limit || ending->cause == EndedBy::wall_limit};
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

TaskResult Examiner::make(const TaskRun& run) const {
    const auto deadline = Frames::Clock::now() + longest_;
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
    return make_run(run, sim::CheckLevel::full, [&](Rank& rank) {
        const auto index = static_cast<std::size_t>(rank.index());
        return RankSession(rank, *processes[index], deadline).run(run.ranks[index]);
    });
}

}  // namespace lockstep::lessons
