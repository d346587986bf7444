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

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/grader/confine/layers.hpp"
#include "lessons/grader/remote/frames.hpp"
#include "lessons/grader/submission.hpp"
#include "lessons/grader/workspace.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "src/os/descriptor.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

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

/// The grading of one submission, in a process of its own, which sends its report as JSON
/// when it is done.
class Grading {
  public:
    Grading(const GradePlan& plan, const Kit& kit, GradeFormat format,
            const fs::path& file) {
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

    /// poll() finds this readable when there is a report, or none will come.
    int descriptor() const { return socket_.number(); }

    /// Returns the report; null if the process ended without one, or never began.
    Json report() const {
        const std::optional<std::string> text = Frames(socket_.number()).receive();
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

    pid_t process_ = -1;
    os::Descriptor socket_;
};

/// Returns a field of a table, in which no program takes it for a formula.
std::string csv_field(const std::string& text) {
    std::string field = clean_line(text, 400);
    if (!field.empty() && std::string("=+-@").find(field[0]) != std::string::npos)
        field.insert(0, "'");
    if (field.find_first_of("\",\n\r") == std::string::npos) return field;
    std::string quoted = "\"";
    for (const char c : field)
        quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + "\"";
}

std::string text_of(const Json& report, const char* member) {
    const Json& value = report.at(member);
    return value.is_null() ? "" : value.get<std::string>();
}

/// Returns what a table says of a submission beside its points.
std::string note_of(const Json& report) {
    const std::string stopped = text_of(report, "stopped");
    if (!stopped.empty()) return "not graded: " + stopped;
    const Json& failure = report.at("build_failure");
    if (!failure.is_null()) return "not built: " + text_of(failure, "message");
    std::size_t late = 0;
    for (const Json& criterion : report.at("criteria").elements())
        late += criterion.at("mark").is("not_judged") ? 1 : 0;
    if (late > 0) return fmt::format("{} criteria not judged: its time was over", late);
    return text_of(report, "first");
}

/// The table of all submissions.
class Table {
  public:
    Table(const Assignment& assignment, fs::path file)
        : assignment_(assignment), file_(std::move(file)) {}

    void add(std::size_t place, const std::string& name, const Json& report) {
        rows_[place] = row(name, report);
        write();
    }
    void write() const {
        std::string text = "submission,earned,points";
        for (const Criterion& criterion : assignment_.criteria)
            text += "," + csv_field(criterion.id);
        text += ",seconds,note\n";
        for (const auto& [place, row] : rows_)
            text += row + "\n";
        write_text_file(file_, text);
    }

  private:
    /// Points and seconds are empty fields if a submission was not graded.
    std::string row(const std::string& name, const Json& report) const {
        const bool graded = !report.is_null() && report.at("stopped").is_null();
        std::vector<std::string> fields{csv_field(name)};
        if (graded) {
            fields.push_back(std::to_string(report.at("earned").get<int>()));
            fields.push_back(std::to_string(report.at("points").get<int>()));
            for (const Json& criterion : report.at("criteria").elements())
                fields.push_back(std::to_string(criterion.at("earned").get<int>()));
            fields.push_back(fmt::format("{:.1f}", report.at("seconds").get<double>()));
        } else {
            fields.resize(fields.size() + assignment_.criteria.size() + 3);
        }
        fields.push_back(csv_field(
            report.is_null() ? "not graded: its grader could not start, or was killed"
                             : note_of(report)));
        return fmt::format("{}", fmt::join(fields, ","));
    }

    const Assignment& assignment_;
    fs::path file_;
    std::map<std::size_t, std::string> rows_;
};

/// Returns the names by which reports are called; no two are the same.
std::vector<std::string> names_of(const std::vector<fs::path>& submissions) {
    std::map<std::string, fs::path> known;
    std::vector<std::string> names;
    names.reserve(submissions.size());
    for (const fs::path& path : submissions) {
        names.push_back(name_of_submission(path));
        const auto [before, is_new] = known.emplace(names.back(), path);
        require(is_new, "{} and {} have the same name, {}: whose report would be whose?",
                printable(before->second.string()), printable(path.string()),
                printable(names.back()));
    }
    return names;
}

void make_empty_folder(const fs::path& folder) {
    fs::create_directories(folder);
    require(fs::is_empty(folder),
            "--out {}: something is there already; a new folder is expected",
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

/// Returns the place of a grading that has something to say.
std::size_t next_done(const std::map<std::size_t, std::unique_ptr<Grading>>& running) {
    std::vector<pollfd> watched;
    watched.reserve(running.size());
    for (const auto& [place, grading] : running)
        watched.push_back({grading->descriptor(), POLLIN, 0});
    while (::poll(watched.data(), watched.size(), -1) < 0 && errno == EINTR) {
    }
    auto place = running.begin();
    for (const pollfd& each : watched) {
        if (each.revents != 0) return place->first;
        ++place;
    }
    return running.begin()->first;
}

std::unique_ptr<Grading> begin(const GradeManyPlan& plan, const Kit& kit,
                               const fs::path& submission, const std::string& name) {
    GradePlan each = plan.each;
    each.folder = submission;
    each.machine_is_checked = true;
    return std::make_unique<Grading>(each, kit, plan.format,
                                     plan.out / (name + extension_of(plan.format)));
}

}  // namespace

GradedMany grade_many(const GradeManyPlan& plan, const Kit& kit,
                      const std::function<void(std::size_t)>& done) {
    const std::vector<std::string> names = names_of(plan.submissions);
    make_empty_folder(plan.out);
    if (plan.each.requires_confinement) require_confinement();
    require_can_grade(plan.each.compiler);
    Table table(*plan.each.assignment, plan.out / "grades.csv");
    table.write();
    GradedMany result;
    std::map<std::size_t, std::unique_ptr<Grading>> running;
    std::size_t started = 0;
    const auto at_once = static_cast<std::size_t>(std::max(plan.at_once, 1));
    for (std::size_t ended = 0; ended < names.size();) {
        for (; started < names.size() && running.size() < at_once; ++started)
            running.emplace(started,
                            begin(plan, kit, plan.submissions[started], names[started]));
        const std::size_t place = next_done(running);
        const Json report = running.at(place)->report();
        running.erase(place);
        count(report, result);
        table.add(place, names[place], report);
        done(++ended);
    }
    return result;
}

}  // namespace lockstep::lessons
