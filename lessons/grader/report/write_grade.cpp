#include "lessons/grader/report/write_grade.hpp"

#include <algorithm>
#include <system_error>

#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/grader/report/shown_report.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kFileColumns = 80;

}  // namespace

const std::vector<std::string>& grade_format_names() {
    static const std::vector<std::string> names{"text", "json", "gradescope",
                                                "prairielearn", "junit"};
    return names;
}

std::optional<GradeFormat> read_grade_format(const std::string& name) {
    const auto& names = grade_format_names();
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) return {};
    return static_cast<GradeFormat>(found - names.begin());
}

std::string grade_text_of(const GradeReport& report, GradeFormat format, int width,
                          bool colour) {
    const GradeReport shown = shown_report(report);
    switch (format) {
        case GradeFormat::text:
            return grade_as_text(shown, width, colour);
        case GradeFormat::json:
            return grade_as_json(shown);
        case GradeFormat::gradescope:
            return grade_as_gradescope(shown);
        case GradeFormat::prairielearn:
            return grade_as_prairielearn(shown);
        case GradeFormat::junit:
            return grade_as_junit(shown);
    }
    return {};
}

void write_grade(const GradeReport& report, GradeFormat format,
                 const std::filesystem::path& path) {
    const std::string text = grade_text_of(report, format, kFileColumns, false);
    std::error_code error;
    if (path.has_parent_path())
        std::filesystem::create_directories(path.parent_path(), error);
    if (error) throw std::system_error(error, path.string());
    write_text_file(path, text);
}

}  // namespace lockstep::lessons
