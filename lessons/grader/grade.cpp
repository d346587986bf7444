#include "lessons/grader/grade.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <sys/prctl.h>

#include <fmt/format.h>

#include "lessons/grader/confine/pace.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/grader/judging_process.hpp"
#include "lessons/grader/submission.hpp"
#include "lessons/grader/workspace.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/report/version.hpp"

namespace lockstep::lessons {

namespace {

using Clock = std::chrono::steady_clock;

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

std::int64_t new_draw() {
    std::random_device device;
    return static_cast<std::int64_t>((std::uint64_t{device()} << 32 | device()) >> 1);
}

void enter(const Judgement& judgement, CriterionReport& entry) {
    entry.mark = judgement.mark;
    entry.asked = judgement.asked;
    entry.measured = judgement.measured;
    entry.said = judgement.said;
}

/// Returns a sentence for each missing protection of this machine that matters to readers
/// of the report.
std::vector<std::string> remarks_on(const std::vector<ConfinementLayer>& layers) {
    const auto is_on = [&](const std::string& name) {
        const auto layer = std::ranges::find(layers, name, &ConfinementLayer::name);
        return layer != layers.end() && layer->is_on;
    };
    std::vector<std::string> remarks;
    if (!is_on("seccomp"))
        remarks.emplace_back(
            "this machine filters no system calls: only limits confined the student's "
            "program");
    if (!is_on("landlock") && !is_on("namespaces"))
        remarks.emplace_back(
            "this machine has neither Landlock nor namespaces for this user: only file "
            "permissions kept the student's program from other files");
    return remarks;
}

/// A student's program may run as the same user, and must not look into this process.
void hide_this_process() {
    ::prctl(PR_SET_DUMPABLE, 0);
}

/// Returns what the student should do first: the first criterion that did not pass, in
/// the order of the handout.
std::string first_to_do(const GradeReport& report) {
    if (report.build_failure)
        return report.build_failure->line > 0
                   ? "fix what the compiler reports"
                   : "fix this: " + report.build_failure->message;
    for (const CriterionReport& entry : report.criteria) {
        if (entry.mark == Mark::passed) continue;
        if (entry.mark == Mark::not_written) return "write " + entry.said;
        return fmt::format("meet criterion {}: {}", entry.id, entry.title);
    }
    return "";
}

/// Processor time of the judging process. The references of all assignments need less
/// than a tenth.
constexpr double kOneSeconds = 100;  ///< for a criterion
constexpr double kAllSeconds = 400;  ///< for all criteria

void judge_all(const GradePlan& plan, const Kit& kit, const GradeSink& changed,
               GradeReport& report) {
    const auto begun = Clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(Clock::now() - begun).count();
    };
    Answers answers(plan.assignment->solutions());
    const GradingSide own{kit.grading(plan.assignment->slug),
                          static_cast<std::uint64_t>(report.drawn), &answers};
    if (!plan.machine_is_checked) require_can_grade(plan.compiler);
    Workspace workspace;
    const Submission submission(plan.folder, plan.assignment->files, kit,
                                workspace.folder() / "unpacked");
    report.build_failure = submission.failure();
    if (!report.build_failure) {
        report.build_failure =
            workspace.build(*plan.assignment, kit, submission.folder(), plan.compiler);
        if (report.build_failure) require_can_build(*plan.assignment, kit, plan.compiler);
    }
    StudentProgram program = workspace.program();
    program.shows_output = plan.shows_output;
    Examiner examiner(program);
    JudgingProcess process(
        [&](std::size_t i) {
            return judgement_of(*plan.assignment, i, Judge(examiner, own));
        },
        {begun + plan.longest, pace().limit(kOneSeconds, 0),
         pace().limit(kAllSeconds, 0)});
    for (std::size_t i = 0; i < report.criteria.size() && !report.build_failure; ++i) {
        enter(process.judge(i), report.criteria[i]);
        report.seconds = seconds();
        changed(report);
    }
    report.first = first_to_do(report);
    report.seconds = seconds();
    report.finished = true;
}

}  // namespace

GradeReport grade(const GradePlan& plan, const Kit& kit, const GradeSink& changed) {
    hide_this_process();
    if (plan.requires_confinement) require_confinement();
    GradeReport report = empty_report(*plan.assignment);
    report.drawn = plan.drawn ? *plan.drawn : new_draw();
    report.confinement = confinement_layers();
    report.remarks = remarks_on(report.confinement);
    changed(report);
    try {
        judge_all(plan, kit, changed, report);
    } catch (const std::exception& lacking) {
        report.stopped = lacking.what();
        changed(report);
        throw;
    }
    changed(report);
    return report;
}

}  // namespace lockstep::lessons
