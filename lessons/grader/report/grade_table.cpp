#include "lessons/grader/report/grade_table.hpp"

#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/grader/report/grade_report.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

/// Returns the text as a field of the table. No spreadsheet reads the field as a formula.
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

/// Returns the first field of a line, unchanged.
std::string first_field(const std::string& line) {
    bool quoted = false;
    std::size_t end = 0;
    for (; end < line.size() && (quoted || line[end] != ','); ++end)
        if (line[end] == '"') quoted = !quoted;
    return line.substr(0, end);
}

std::string text_of(const Json& report, const char* member) {
    const Json& value = report.at(member);
    return value.is_null() ? "" : value.get<std::string>();
}

/// Returns the table's remark on a submission, apart from its points.
std::string note_of(const Json& report) {
    if (report.is_null())
        return "not graded: its grader could not start, was killed, or never ended";
    const std::string stopped = text_of(report, "stopped");
    if (!stopped.empty()) return "not graded: " + stopped;
    const Json& failure = report.at("build_failure");
    if (!failure.is_null()) return "not built: " + text_of(failure, "message");
    return text_of(report, "first");
}

}  // namespace

GradeTable::GradeTable(const Assignment& assignment, fs::path file)
    : assignment_(assignment), file_(std::move(file)) {
    if (!fs::exists(file_)) return;
    constexpr std::uint64_t kLargest = 64 << 20;
    std::istringstream text(read_text_file(file_, kLargest));
    std::string line;
    std::getline(text, line);
    require(line == header(),
            "{} does not have the columns of {} in this version of Lockstep: name a new "
            "folder",
            printable(file_.string()), assignment_.slug);
    while (std::getline(text, line))
        earlier_.emplace(first_field(line), line);
}

bool GradeTable::keep(std::size_t place, const std::string& name,
                      const std::string& fingerprint) {
    const auto found = earlier_.find(csv_field(name));
    if (found == earlier_.end()) return false;
    const std::string line = std::move(found->second);
    const std::size_t points = found->first.size() + 1;
    earlier_.erase(found);
    const bool same = line.substr(line.rfind(',') + 1) == fingerprint;
    if (!same || fingerprint.empty() || line.at(points) == ',') return false;
    rows_[place] = line;
    return true;
}

void GradeTable::add(std::size_t place, const std::string& name, const Json& report,
                     const std::string& fingerprint) {
    rows_[place] = row(name, report, fingerprint);
    write();
}

void GradeTable::write() const {
    std::string text = header() + "\n";
    for (const auto& [place, row] : rows_)
        text += row + "\n";
    for (const auto& [name, row] : earlier_)
        text += row + "\n";
    write_text_file(file_, text);
}

std::string GradeTable::header() const {
    std::string text = "submission,earned,points";
    for (const Criterion& criterion : assignment_.criteria)
        text += "," + csv_field(criterion.id);
    return text + ",seconds,note,fingerprint";
}

/// Points, seconds and the fingerprint are empty if a submission was not graded.
std::string GradeTable::row(const std::string& name, const Json& report,
                            const std::string& fingerprint) const {
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
    fields.push_back(csv_field(note_of(report)));
    fields.push_back(graded ? fingerprint : "");
    return fmt::format("{}", fmt::join(fields, ","));
}

}  // namespace lockstep::lessons
