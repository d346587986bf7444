#include "lessons/grader/grade_many.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lessons/grader/confine/layers.hpp"
#include "lessons/grader/remote/frames.hpp"
#include "lessons/grader/report/grade_table.hpp"
#include "lessons/grader/submission.hpp"
#include "lessons/grader/workspace.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "src/os/deadline.hpp"
#include "src/os/descriptor.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

constexpr const char* kTable = "grades.csv";

const char* extension_of(GradeFormat format) {
    switch (format) {
        case GradeFormat::text:
            return ".txt";
        case GradeFormat::junit:
            return ".xml";
        case GradeFormat::json:
        case GradeFormat::gradescope:
        case GradeFormat::prairielearn:
            break;
    }
    return ".json";
}

std::string name_of(GradeFormat format) {
    return std::ranges::find(kGradeFormats, format,
                             &std::pair<std::string, GradeFormat>::second)
        ->first;
}

/// The grading of one submission in its own process, which sends its report as JSON when
/// it is done.
class Grading {
  public:
    Grading(const GradePlan& plan, const Kit& kit, GradeFormat format,
            const fs::path& file)
        : deadline_(os::Clock::now() + 2 * plan.longest) {
        os::SocketPair line = os::make_socket_pair(SOCK_STREAM);
        const pid_t parent = ::getpid();
        process_ = ::fork();
        if (process_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(0);
            line.ours.close();
            run(plan, kit, format, file, line.theirs.number());
        }
        socket_ = std::move(line.ours);
    }
    ~Grading() {
        if (process_ < 0) return;
        ::kill(process_, SIGKILL);
        os::wait_for(process_);
    }
    Grading(const Grading&) = delete;
    Grading& operator=(const Grading&) = delete;

    /// poll() finds this readable once there is a report or the process has ended.
    int descriptor() const { return socket_.number(); }

    /// After this time there will be no report.
    os::Clock::time_point deadline() const { return deadline_; }

    /// Returns the report. It is null if the process did not begin, ended without a
    /// report, or had no report at the deadline.
    Json report() const {
        const std::optional<std::string> text =
            Frames(socket_.number()).receive(deadline_);
        return text ? Json::parse(*text) : Json();
    }

  private:
    [[noreturn]] static void run(const GradePlan& plan, const Kit& kit,
                                 GradeFormat format, const fs::path& file,
                                 int descriptor) noexcept {
        GradeReport last;
        try {
            grade(plan, kit, [&](const GradeReport& report) {
                last = report;
                write_grade(report, format, file);
            });
        } catch (const std::exception& error) {
            last.stopped = error.what();
        }
        const bool sent =
            Frames(descriptor).send(grade_text_of(last, GradeFormat::json, 80, false));
        ::_exit(sent ? 0 : 1);
    }

    /// A grading and its builds never need more time than this. After this time the next
    /// grading can start, whatever the machine does.
    os::Clock::time_point deadline_;
    pid_t process_ = -1;
    os::Descriptor socket_;
};

/// Returns the names of the reports; no two are the same.
std::vector<std::string> names_of(const std::vector<fs::path>& submissions) {
    std::map<std::string, fs::path> known;
    std::vector<std::string> names;
    names.reserve(submissions.size());
    for (const fs::path& path : submissions) {
        names.push_back(name_of_submission(path));
        const auto [before, is_new] = known.emplace(names.back(), path);
        require(
            is_new,
            "{} and {} have the same name, {}: their reports would overwrite each other",
            printable(before->second.string()), printable(path.string()),
            printable(names.back()));
    }
    return names;
}

/// Makes the folder for the reports, unless it exists and the command continues there.
void make_folder(const fs::path& folder, bool goes_on) {
    fs::create_directories(folder);
    const bool begun = goes_on && fs::exists(folder / kTable);
    require(begun || fs::is_empty(folder),
            "--out {}: the folder is not empty; name a new folder, or use --continue "
            "with a folder in which grading was interrupted",
            printable(folder.string()));
}

void count(const Json& report, GradedMany& result) {
    if (report.is_null() || !report.at("stopped").is_null()) {
        ++result.stopped;
        return;
    }
    ++result.graded;
    if (report.at("earned").get<int>() == report.at("points").get<int>())
        ++result.with_all_points;
}

/// Returns the number of a grading that has sent a report, has ended, or is out of time.
std::size_t next_done(const std::map<std::size_t, std::unique_ptr<Grading>>& running) {
    std::vector<pollfd> watched;
    watched.reserve(running.size());
    auto oldest = running.begin();  // the earliest deadline
    for (const auto& [place, grading] : running)
        watched.push_back({grading->descriptor(), POLLIN, 0});
    while (::poll(watched.data(), watched.size(),
                  os::milliseconds_until(oldest->second->deadline())) < 0 &&
           errno == EINTR) {
    }
    auto place = running.begin();
    for (const pollfd& each : watched) {
        if (each.revents != 0) return place->first;
        ++place;
    }
    return oldest->first;
}

fs::path report_file(const GradeManyPlan& plan, const std::string& name) {
    return plan.out / (name + extension_of(plan.format));
}

/// A submission to grade.
struct Entry {
    std::size_t place = 0;  ///< its number among all submissions
    fs::path submission;
    std::string name;
    std::string fingerprint;
};

/// Returns the submissions to grade. The others already have a report and a line.
std::vector<Entry> entries_to_grade(const GradeManyPlan& plan, GradeTable& table) {
    const std::vector<std::string> names = names_of(plan.submissions);
    std::vector<Entry> entries;
    for (std::size_t place = 0; place < names.size(); ++place) {
        const fs::path& submission = plan.submissions[place];
        std::string fingerprint = fingerprint_of(submission, plan.each.assignment->files);
        if (!fingerprint.empty()) fingerprint += "-" + name_of(plan.format);
        const bool kept = fs::exists(report_file(plan, names[place])) &&
                          table.keep(place, names[place], fingerprint);
        if (!kept) entries.push_back({place, submission, names[place], fingerprint});
    }
    return entries;
}

std::unique_ptr<Grading> begin(const GradeManyPlan& plan, const Kit& kit,
                               const Entry& entry) {
    GradePlan each = plan.each;
    each.folder = entry.submission;
    each.machine_is_checked = true;
    return std::make_unique<Grading>(each, kit, plan.format,
                                     report_file(plan, entry.name));
}

}  // namespace

GradedMany grade_many(const GradeManyPlan& plan, const Kit& kit,
                      const std::function<void(std::size_t)>& done) {
    names_of(plan.submissions);
    make_folder(plan.out, plan.goes_on);
    if (plan.each.requires_confinement) require_confinement();
    require_can_grade(plan.each.compiler);
    GradeTable table(*plan.each.assignment, plan.out / kTable);
    const std::vector<Entry> entries = entries_to_grade(plan, table);
    table.write();
    GradedMany result;
    result.kept = plan.submissions.size() - entries.size();
    std::map<std::size_t, std::unique_ptr<Grading>> running;
    std::size_t started = 0;
    const auto at_once = static_cast<std::size_t>(std::max(plan.at_once, 1));
    for (std::size_t ended = 0; ended < entries.size();) {
        for (; started < entries.size() && running.size() < at_once; ++started)
            running.emplace(started, begin(plan, kit, entries[started]));
        const std::size_t number = next_done(running);
        const Json report = running.at(number)->report();
        running.erase(number);
        count(report, result);
        const Entry& entry = entries[number];
        table.add(entry.place, entry.name, report, entry.fingerprint);
        done(result.kept + ++ended);
    }
    return result;
}

}  // namespace lockstep::lessons
