#include "lessons/grader/student_process.hpp"

#include <sys/socket.h>

#include <fmt/format.h>

#include "lessons/grader/report/clean_text.hpp"
#include "src/os/deadline.hpp"

namespace lockstep::lessons {

namespace {

ConfinedPlan plan_of(const std::filesystem::path& folder, const std::string& program,
                     const Confinement& confinement, int given) {
    ConfinedPlan plan;
    plan.words = {(folder / program).string()};
    plan.folder = folder;
    plan.confinement = confinement;
    plan.given = given;
    return plan;
}

}  // namespace

Confinement StudentProcess::usual_confinement() {
    Confinement confinement;
    confinement.cpu_seconds = 2;
    confinement.wall_seconds = 60;
    confinement.memory_bytes = 256 << 20;
    confinement.file_bytes = 64 << 10;
    return confinement;
}

StudentProcess::StudentProcess(const std::filesystem::path& folder,
                               const std::string& program, const Confinement& confinement)
    : StudentProcess(folder, program, confinement, os::make_socket_pair(SOCK_STREAM)) {}

StudentProcess::StudentProcess(const std::filesystem::path& folder,
                               const std::string& program, const Confinement& confinement,
                               os::SocketPair line)
    : confinement_(confinement),
      line_(std::move(line.ours)),
      frames_(line_.number()),
      process_(plan_of(folder, program, confinement, line.theirs.number())) {}

RankProcess::End StudentProcess::ending() {
    using namespace std::chrono_literals;
    std::optional<Ending> ending = process_.wait(os::Clock::now() + 2s);
    if (!ending) {
        process_.kill();
        if (frames_.end() == Frames::End::gone)
            return {"your program closed the line to the grader", false};
        return {"its time was over: is there a loop that never ends?", true};
    }
    std::string text = "your program " + ending_sentence(*ending, confinement_);
    if (ending->by == EndedBy::itself) text += ", before the function had returned";
    const std::string printed = process_.output(1000);
    if (!printed.empty())
        text += "; it had printed:\n" + clean_lines(printed, {1000, 10});
    return {text, ending->by == EndedBy::cpu_limit || ending->by == EndedBy::wall_limit};
}

}  // namespace lockstep::lessons
