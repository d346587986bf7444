#include "lessons/grader/workspace.hpp"

#include <system_error>

#include <fmt/format.h>

#include "lessons/grader/confine/room.hpp"
#include "lessons/grader/confine/view.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kLargestSource = 1 << 20;

/// Returns whether a confined program can read these folders.
bool is_open(const std::vector<fs::path>& parts) {
    for (const fs::path& part : parts)
        if (is_below(fs::canonical(part), installed_lockstep())) return false;
    if (!ClaimedUser::works()) return true;
    const auto others = [](const fs::path& path, fs::perms wanted) {
        std::error_code error;
        return (fs::status(path, error).permissions() & wanted) == wanted;
    };
    constexpr fs::perms kEnter = fs::perms::others_exec;
    constexpr fs::perms kRead = fs::perms::others_read;
    for (const fs::path& part : parts) {
        if (!others(part, kRead)) return false;
        if (Room::works()) continue;
        for (fs::path above = part.parent_path(); above != above.root_path();
             above = above.parent_path())
            if (!others(above, kEnter)) return false;
    }
    return true;
}

}  // namespace

StudentProgram Workspace::program() const {
    StudentProgram program{folder(), BuildPlan{}.program};
    program.confinement.user = user_.number();
    return program;
}

BuildPlan Workspace::plan(const std::vector<std::string>& compiler) const {
    BuildPlan plan;
    plan.compiler = compiler;
    plan.folder = folder();
    plan.user = user_.number();
    return plan;
}

std::optional<BuildFailure> Workspace::build(const Assignment& assignment, const Kit& kit,
                                             const SourceFolder& student,
                                             const std::vector<std::string>& compiler) {
    const std::string& slug = assignment.slug;
    const Kit used =
        is_open(kit.parts(slug)) ? kit : kit.copied_to(folder() / "kit", slug);
    BuildPlan building = plan(compiler);
    building.flags = used.compile_flags(slug);
    building.link = used.link_flags(slug);
    building.reads = used.parts(slug);
    // Use the grader's own file, even if the student has one of the same name.
    fs::copy_file(kit.handout(slug) / "adapters.hpp", folder() / "adapters.hpp");
    for (const std::string& name : assignment.files) {
        const SourceFolder::File file = student.read(name, kLargestSource);
        if (!file.bytes) return BuildFailure{name, 0, file.problem, ""};
        write_text_file(folder() / name, *file.bytes);
        if (name.ends_with(".cpp")) building.sources.push_back(name);
    }
    return build_program(building);
}

namespace {

MissingError cannot_be_built(const std::string& what, const std::string& compiler,
                             const BuildFailure& failure) {
    return MissingError(fmt::format(
        "students' programs cannot be built here: while building {}, {} reports: {}",
        what, compiler, failure.message));
}

}  // namespace

void require_can_grade(const std::vector<std::string>& compiler) {
    const Workspace workspace;
    BuildPlan plan = workspace.plan(compiler);
    plan.sources = {"empty.cpp"};
    write_text_file(plan.folder / plan.sources[0], "int main() {}\n");
    try {
        if (const auto failure = build_program(plan))
            throw cannot_be_built("an empty program", compiler.front(), *failure);
        const StudentProgram program = workspace.program();
        const Ending ending = *ConfinedProcess(confined(program)).wait();
        if (!ending.succeeded())
            throw MissingError(
                "students' programs cannot be run here: an empty program " +
                ending_sentence(ending, program.confinement));
    } catch (const std::system_error& error) {
        throw MissingError(
            fmt::format("students' programs cannot be run here: {}; they are built in {} "
                        "(set TMPDIR to change that)",
                        error.what(), plan.folder.parent_path().string()));
    }
}

void require_can_build(const Assignment& assignment, const Kit& kit,
                       const std::vector<std::string>& compiler) {
    Workspace workspace;
    const SourceFolder handout(kit.handout(assignment.slug));
    if (const auto failure = workspace.build(assignment, kit, handout, compiler))
        throw cannot_be_built("what is handed out", compiler.front(), *failure);
}

}  // namespace lockstep::lessons
