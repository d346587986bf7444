#include "lessons/grader/workspace.hpp"

#include <system_error>

#include <fmt/format.h>

#include "lessons/grader/build_program.hpp"
#include "lessons/grader/examiner.hpp"
#include "src/core/require.hpp"
#include "src/os/environment.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kLargestSource = 1 << 20;

/// The student's file, or what is wrong with it. Links could lead anywhere.
std::optional<BuildFailure> copy_source(const fs::path& from, const fs::path& to,
                                        const std::string& name) {
    const auto failure = [&](const std::string& what) {
        return BuildFailure{name, 0, fmt::format("{} {}", name, what), ""};
    };
    std::error_code error;
    const fs::file_status status = fs::symlink_status(from / name, error);
    if (!fs::exists(status)) return failure("is not there");
    if (!fs::is_regular_file(status)) return failure("is not a file of its own");
    std::string text;
    try {
        text = read_text_file(from / name, kLargestSource);
    } catch (const UsageError& wrong) {
        return BuildFailure{name, 0, wrong.what(), ""};
    } catch (const std::system_error& wrong) {
        return failure("cannot be read: " + wrong.code().message());
    }
    write_text_file(to / name, text);
    return std::nullopt;
}

}  // namespace

Workspace::Workspace() : folder_(os::make_temporary_folder()) {}

Workspace::~Workspace() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

std::optional<BuildFailure> Workspace::build(const Assignment& assignment, const Kit& kit,
                                             const fs::path& student,
                                             const std::vector<std::string>& compiler) {
    // The kit may stand where the user that the compiler runs as cannot look.
    const Kit own_kit = kit.copied_to(folder_ / "kit", assignment.slug);
    BuildPlan plan;
    plan.compiler = compiler;
    plan.folder = folder_;
    plan.flags = own_kit.compile_flags(assignment.slug);
    plan.link = own_kit.link_flags(assignment.slug);
    plan.program = kProgram;
    // The grader's own: a student's file of the same name is not looked at.
    fs::copy_file(kit.handout(assignment.slug) / "adapters.hpp",
                  folder_ / "adapters.hpp");
    for (const std::string& name : assignment.files) {
        if (auto failure = copy_source(student, folder_, name)) return failure;
        if (name.ends_with(".cpp")) plan.sources.push_back(name);
    }
    return build_program(plan);
}

namespace {

void build_empty_program(const fs::path& folder,
                         const std::vector<std::string>& compiler) {
    BuildPlan plan;
    plan.compiler = compiler;
    plan.folder = folder;
    plan.sources = {"empty.cpp"};
    write_text_file(folder / plan.sources[0], "int main() {}\n");
    const std::optional<BuildFailure> failure = build_program(plan);
    if (failure)
        throw MissingError(fmt::format(
            "students' programs cannot be built here: of an empty one, {} says: {}",
            compiler.front(), failure->message));
}

void run_empty_program(const fs::path& folder) {
    ConfinedPlan plan;
    plan.words = {(folder / Workspace::kProgram).string()};
    plan.folder = folder;
    plan.confinement = StudentProcess::usual_confinement();
    const Ending ending = *ConfinedProcess(plan).wait();
    if (!ending.succeeded())
        throw MissingError("students' programs cannot be run here: an empty one " +
                           ending_sentence(ending, plan.confinement));
}

}  // namespace

void require_can_grade(const std::vector<std::string>& compiler) {
    const Workspace workspace;
    build_empty_program(workspace.folder(), compiler);
    try {
        run_empty_program(workspace.folder());
    } catch (const std::system_error& error) {
        throw MissingError(
            fmt::format("students' programs cannot be run here: {}; they "
                        "are made where TMPDIR says, in {}",
                        error.what(), workspace.folder().parent_path().string()));
    }
}

}  // namespace lockstep::lessons
