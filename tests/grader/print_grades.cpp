// Writes every sample report in every format: DIR/SAMPLE.FORMAT.
#include <cstdio>
#include <exception>

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
            for (const std::string& format : lessons::grade_format_names())
                lessons::write_grade(report, *lessons::read_grade_format(format),
                                     folder / (name + "." + format));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
