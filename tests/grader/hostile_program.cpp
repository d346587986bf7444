#include "tests/grader/hostile_program.hpp"

#include <fstream>
#include <stdexcept>
#include <unistd.h>

#include "lessons/grader/build_program.hpp"
#include "tests/grader/hostile_source.hpp"

namespace lockstep::test {

HostileProgram::HostileProgram() {
    folder_.file("hostile.cpp", kHostileSource);
    const auto failure = lessons::build_program(
        {.folder = folder_.path(), .sources = {"hostile.cpp"}, .flags = {"-O1"}});
    if (failure)
        throw std::runtime_error("hostile.cpp:" + std::to_string(failure->line) + ": " +
                                 failure->message);
}

lessons::ConfinedPlan HostileProgram::plan(
    const std::string& what, const lessons::Confinement& confinement) const {
    return {.words = {"./program", what, folder().string(), std::to_string(::getpid())},
            .folder = folder(),
            .confinement = confinement};
}

Outcome HostileProgram::run(const std::string& what,
                            const lessons::Confinement& confinement) const {
    lessons::ConfinedProcess process(plan(what, confinement));
    const lessons::Ending ending = *process.wait();
    return {ending, process.output(), lessons::ending_sentence(ending, confinement)};
}

std::vector<std::string> HostileProgram::left_over() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        std::ifstream words(entry.path() / "cmdline");
        // If a process ends while its command line is read, getline() finds the end of
        // the file.
        std::string text;
        std::getline(words, text);
        if (text.starts_with("./program") &&
            text.find(folder().string()) != std::string::npos)
            found.push_back(entry.path().filename().string());
    }
    return found;
}

const HostileProgram& hostile_program() {
    static const HostileProgram program;
    return program;
}

lessons::Confinement patient() {
    return {.cpu_seconds = 100, .wall_seconds = 1000, .memory_bytes = 256 << 20};
}

lessons::Confinement tight() {
    lessons::Confinement confinement = patient();
    confinement.cpu_seconds = 1;
    return confinement;
}

}  // namespace lockstep::test
