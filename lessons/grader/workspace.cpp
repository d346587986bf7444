#include "lessons/grader/workspace.hpp"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/grader/confine/room.hpp"
#include "src/core/require.hpp"
#include "src/os/environment.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kLargestSource = 1 << 20;

/// Copies the student's file, or returns what is wrong with it. Links could lead
/// anywhere.
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

constexpr const char* kKind = "grade-";

/// Opens a workspace's folder and locks it. Not open if another grader has it.
os::Descriptor lock(const fs::path& folder) {
    os::Descriptor opened(
        ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (opened.open() && ::flock(opened.number(), LOCK_EX | LOCK_NB) != 0) opened.close();
    return opened;
}

/// Whoever makes a folder locks it right behind; until then it is young.
bool is_young(const fs::path& folder) {
    constexpr std::chrono::seconds kYoung{60};
    std::error_code error;
    const auto written = fs::last_write_time(folder, error);
    return error || fs::file_time_type::clock::now() - written < kYoung;
}

/// Returns whether a grader of this user may have left the folder: root's gives it to a
/// student's program for a while, so that any owner will do there.
bool is_ours(const fs::path& folder) {
    struct stat status = {};
    return ::lstat(folder.c_str(), &status) == 0 &&
           (status.st_uid == ::geteuid() || ::geteuid() == 0);
}

/// Removes the workspaces of graders that were killed.
void sweep() {
    std::error_code error;
    std::vector<fs::path> left;
    for (fs::directory_iterator each(os::temporary_place(), error), end;
         !error && each != end; each.increment(error))
        if (each->path().filename().string().starts_with(std::string("lockstep-") +
                                                         kKind))
            left.push_back(each->path());
    for (const fs::path& folder : left)
        if (is_ours(folder) && !is_young(folder) && lock(folder).open())
            fs::remove_all(folder, error);
}

/// Returns whether others than their owner can read these, or are shown them in a room.
bool is_open(const std::vector<fs::path>& parts) {
    if (::geteuid() != 0) return true;
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

Workspace::Workspace() {
    sweep();
    folder_ = fs::canonical(os::make_temporary_folder(kKind));
    lock_ = lock(folder_);
    if (!lock_.open())
        throw std::system_error(errno, std::generic_category(),
                                "cannot lock " + folder_.string());
}

Workspace::~Workspace() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

StudentProgram Workspace::program() const {
    StudentProgram program{folder_, BuildPlan{}.program};
    program.confinement.user = user_.number();
    return program;
}

BuildPlan Workspace::plan(const std::vector<std::string>& compiler) const {
    BuildPlan plan;
    plan.compiler = compiler;
    plan.folder = folder_;
    plan.user = user_.number();
    return plan;
}

std::optional<BuildFailure> Workspace::build(const Assignment& assignment, const Kit& kit,
                                             const fs::path& student,
                                             const std::vector<std::string>& compiler) {
    const std::string& slug = assignment.slug;
    const Kit used =
        is_open(kit.parts(slug)) ? kit : kit.copied_to(folder_ / "kit", slug);
    BuildPlan building = plan(compiler);
    building.flags = used.compile_flags(slug);
    building.link = used.link_flags(slug);
    building.reads = used.parts(slug);
    // The grader's own: a student's file of the same name is not looked at.
    fs::copy_file(kit.handout(slug) / "adapters.hpp", folder_ / "adapters.hpp");
    for (const std::string& name : assignment.files) {
        if (auto failure = copy_source(student, folder_, name)) return failure;
        if (name.ends_with(".cpp")) building.sources.push_back(name);
    }
    return build_program(building);
}

namespace {

MissingError cannot_be_built(const std::string& what, const std::string& compiler,
                             const BuildFailure& failure) {
    return MissingError(
        fmt::format("students' programs cannot be built here: of {}, {} says: {}", what,
                    compiler, failure.message));
}

}  // namespace

void require_can_grade(const std::vector<std::string>& compiler) {
    const Workspace workspace;
    BuildPlan plan = workspace.plan(compiler);
    plan.sources = {"empty.cpp"};
    write_text_file(plan.folder / plan.sources[0], "int main() {}\n");
    try {
        if (const auto failure = build_program(plan))
            throw cannot_be_built("an empty one", compiler.front(), *failure);
        const StudentProgram program = workspace.program();
        const Ending ending = *ConfinedProcess(confined(program)).wait();
        if (!ending.succeeded())
            throw MissingError("students' programs cannot be run here: an empty one " +
                               ending_sentence(ending, program.confinement));
    } catch (const std::system_error& error) {
        throw MissingError(
            fmt::format("students' programs cannot be run here: {}; they "
                        "are made where TMPDIR says, in {}",
                        error.what(), plan.folder.parent_path().string()));
    }
}

void require_can_build(const Assignment& assignment, const Kit& kit,
                       const std::vector<std::string>& compiler) {
    Workspace workspace;
    if (const auto failure =
            workspace.build(assignment, kit, kit.handout(assignment.slug), compiler))
        throw cannot_be_built("what is handed out", compiler.front(), *failure);
}

}  // namespace lockstep::lessons
