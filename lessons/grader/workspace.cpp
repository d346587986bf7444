#include "lessons/grader/workspace.hpp"

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>

#include "lessons/grader/build_program.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kLargestSource = 1 << 20;

/// The student's file, or what is wrong with it. Links could lead anywhere.
std::optional<BuildFailure> copy_source(const fs::path& from, const fs::path& to,
                                        const std::string& name) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(from / name, error);
    if (!fs::exists(status))
        return BuildFailure{name, 0, fmt::format("{} is not there", name), ""};
    if (!fs::is_regular_file(status))
        return BuildFailure{name, 0, fmt::format("{} is not a file of its own", name),
                            ""};
    try {
        write_text_file(to / name, read_text_file(from / name, kLargestSource));
    } catch (const UsageError& wrong) {
        return BuildFailure{name, 0, wrong.what(), ""};
    }
    return std::nullopt;
}

}  // namespace

Workspace::Workspace() {
    std::string name = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
        throw std::system_error(errno, std::generic_category(), name);
    folder_ = name;
}

Workspace::~Workspace() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

std::optional<BuildFailure> Workspace::build(const Assignment& assignment, const Kit& kit,
                                             const fs::path& student,
                                             const std::vector<std::string>& compiler) {
    // The kit may stand where the user that the compiler runs as cannot look.
    const Kit own_kit = kit.copied_to(folder_ / "kit");
    BuildPlan plan;
    plan.compiler = compiler;
    plan.folder = folder_;
    plan.flags = own_kit.compile_flags();
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

}  // namespace lockstep::lessons
