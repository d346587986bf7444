// Writes every sample report in every format, as DIR/SAMPLE.FORMAT.
#include <cstdio>
#include <exception>

#include <fmt/format.h>

#include "lessons/grader/report/grade_formats.hpp"
#include "tests/grader/sample_grades.hpp"

int main(int count, char** arguments) {
    using namespace lockstep;
    if (count != 2) {
        std::fputs("usage: print_grades DIR\n", stderr);
        return 2;
    }
    try {
        const std::filesystem::path folder = arguments[1];
        for (const auto& [name, report] : test::sample_grades())
            for (const auto& [ending, format] : lessons::kGradeFormats)
                lessons::write_grade(report, format,
                                     folder / fmt::format("{}.{}", name, ending));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
