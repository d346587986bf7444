#include "lessons/grader/grade.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <sys/prctl.h>
#include <system_error>

#include <fmt/format.h>

#include "lessons/grader/build_program.hpp"
#include "lessons/grader/confine/fence.hpp"
#include "lessons/grader/confine/system_calls.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/grader/judging_process.hpp"
#include "src/core/require.hpp"
#include "src/os/environment.hpp"
#include "src/report/files.hpp"
#include "src/report/version.hpp"

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

/// A fresh folder in which a student's program is built and run: the student's own files,
/// and nothing else of theirs; the rest is the kit's, compiled or not. It goes with this
/// object.
class Workspace {
  public:
    /// Throws if it cannot be made.
    Workspace();
    ~Workspace();
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;

    /// Copies the files and builds the program; what the student did wrong, or nothing.
    std::optional<BuildFailure> build(const Assignment& assignment, const Kit& kit,
                                      const std::filesystem::path& student,
                                      const std::vector<std::string>& compiler);

    const std::filesystem::path& folder() const { return folder_; }
    static constexpr const char* kProgram = "program";

  private:
    std::filesystem::path folder_;
};

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

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kLargestTargets = 1 << 20;

GradeReport empty_report(const Assignment& assignment) {
    GradeReport report;
    report.slug = assignment.slug;
    report.title = assignment.title;
    report.version = kVersion;
    for (const Criterion& criterion : assignment.criteria) {
        CriterionReport& entry = report.criteria.emplace_back();
        entry.id = criterion.id;
        entry.title = criterion.title;
        entry.lesson = criterion.lesson;
        entry.points = criterion.points;
    }
    return report;
}

Targets targets_of(const Assignment& assignment, const Kit& kit) {
    const std::filesystem::path file = kit.grading(assignment.slug) / "targets.json";
    return Targets::read(read_text_file(file, kLargestTargets), file.string());
}

Judgement judgement_of(const Criterion& criterion, Judge judge) {
    try {
        criterion.judge(judge);
        return {Mark::passed, judge.asked(), judge.measured(), ""};
    } catch (const Judge::No& no) {
        return {no.mark, no.asked, no.measured, no.said};
    }
}

void enter(const Judgement& judgement, CriterionReport& entry) {
    entry.mark = judgement.mark;
    entry.asked = judgement.asked;
    entry.measured = judgement.measured;
    entry.said = judgement.said;
}

/// Returns a sentence for each thing that this machine does not keep students' programs
/// from.
std::vector<std::string> remarks_on_confinement() {
    std::vector<std::string> remarks;
    if (!SystemCallFilter::works())
        remarks.emplace_back(
            "this machine filters no system calls: the student's program was confined by "
            "limits alone");
    if (!Fence::works())
        remarks.emplace_back(
            "this machine has no Landlock: the student's program was kept from files by "
            "permissions alone");
    return remarks;
}

/// A student's program may run as the same user, and must not look into this one.
void hide_this_process() {
    ::prctl(PR_SET_DUMPABLE, 0);
}

std::uint64_t new_secret() {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
}

/// Returns what a student does first: the first criterion that did not pass, in the order
/// of the handout.
std::string first_to_do(const GradeReport& report) {
    if (report.build_failure)
        return report.build_failure->line > 0
                   ? "mend what the compiler names"
                   : "mend this: " + report.build_failure->message;
    for (const CriterionReport& entry : report.criteria) {
        if (entry.mark == Mark::passed) continue;
        if (entry.mark == Mark::not_written) return "write " + entry.said;
        return fmt::format("what {} asks: {}", entry.id, entry.title);
    }
    return "";
}

}  // namespace

GradeReport grade(const GradePlan& plan, const Kit& kit, const GradeSink& changed) {
    hide_this_process();
    const auto begun = Clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(Clock::now() - begun).count();
    };
    GradeReport report = empty_report(*plan.assignment);
    report.remarks = remarks_on_confinement();
    changed(report);

    Targets targets = targets_of(*plan.assignment, kit);
    Workspace workspace;
    report.build_failure =
        workspace.build(*plan.assignment, kit, plan.folder, plan.compiler);
    const std::uint64_t secret = new_secret();
    Examiner examiner(workspace.folder(), Workspace::kProgram);
    JudgingProcess process(
        [&](std::size_t i) {
            return judgement_of(plan.assignment->criteria[i],
                                Judge(examiner, targets, false, secret));
        },
        {begun + plan.longest});
    for (std::size_t i = 0; i < report.criteria.size() && !report.build_failure; ++i) {
        enter(process.judge(i), report.criteria[i]);
        report.seconds = seconds();
        changed(report);
    }
    report.first = first_to_do(report);
    report.seconds = seconds();
    report.finished = true;
    changed(report);
    return report;
}

Targets measure_targets(const GradePlan& plan, const Kit& kit, std::uint64_t seed) {
    hide_this_process();
    Workspace workspace;
    if (const auto failure =
            workspace.build(*plan.assignment, kit, plan.folder, plan.compiler))
        throw UsageError(
            fmt::format("{}:{}: {}", failure->file, failure->line, failure->message));
    Targets targets{plan.assignment->slug, seed, {}};
    const std::uint64_t secret = new_secret();
    Examiner examiner(workspace.folder(), Workspace::kProgram);
    for (const Criterion& criterion : plan.assignment->criteria) {
        const Judgement judgement =
            judgement_of(criterion, Judge(examiner, targets, true, secret));
        require(judgement.mark == Mark::passed, "{}: {}; asked: {}; measured: {} {}",
                criterion.id, criterion.title, judgement.asked, judgement.measured,
                judgement.said);
    }
    return targets;
}

}  // namespace lockstep::lessons
