#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lessons/grader/confine/layers.hpp"

namespace lockstep::lessons {

/// How much of a text is shown at most.
struct TextLimit {
    std::size_t bytes = 0;
    std::size_t lines = 0;
};

/// Cleans a text of any program so that every format can contain it: UTF-8 whose only
/// control character is the line break. Tabs become spaces up to the next eighth column.
/// Bytes that are not UTF-8 become "\xff", control characters "\x1b". Characters that
/// change the direction of writing or are not allowed in XML 1.0 become "\u{202e}". White
/// space at the end is removed.
///
/// A text beyond the limit is cut, and a last line says so. The result is at most about
/// 80 bytes longer than the limit. The time depends on the limit, not on the text.
std::string clean_lines(std::string_view text, TextLimit limit);

/// Cleans a text and puts it on one line: line breaks become spaces, and "…" replaces
/// what is cut.
std::string clean_line(std::string_view text, std::size_t limit_bytes);

/// The verdict on a criterion.
enum class Mark : std::uint8_t {
    not_judged,   ///< not reached yet
    not_written,  ///< the function still throws NotWritten
    failed,
    passed
};

/// One thing that is graded: what was asked for, what was measured, and its points.
struct CriterionReport {
    std::string id{};      ///< "a1.2-bytes": letters, digits, dots and dashes
    std::string title{};   ///< "all_gather sends what it must, and no more"
    std::string lesson{};  ///< where it is taught: "gradient-accumulation, step 6"
    int points = 0;        ///< the maximum
    Mark mark = Mark::not_judged;
    std::string asked{};     ///< "672 to 672 bytes a rank"
    std::string measured{};  ///< "1344 bytes on rank 2"; may be empty
    /// Why the criterion failed: a sentence, or a diagnosis in lines. Empty if it passed.
    std::string said{};

    int earned() const { return mark == Mark::passed ? points : 0; }
};

/// Why the program could not be built: the compiler's first error.
struct BuildFailure {
    std::string file{};  ///< the student's file: "ring.cpp"; empty if none is named
    int line = 0;        ///< 0 if no line is named
    std::string message{};
    std::string lines{};  ///< the lines that the compiler showed below
};

/// The result of grading so far. Criteria that are not judged yet have no points, so a
/// report is valid at any time.
struct GradeReport {
    std::string slug{};   ///< "ring-all-reduce"
    std::string title{};  ///< "A ring all-reduce"
    std::string version{};
    std::vector<CriterionReport> criteria;
    std::optional<BuildFailure> build_failure;
    /// The student's next step: "write reduce_scatter in ring.cpp (a1.1) …"; empty if
    /// nothing is left to do.
    std::string first{};
    std::vector<std::string> remarks;  ///< about the machine, not the student's work
    std::vector<ConfinementLayer> confinement;
    double seconds = 0;
    std::int64_t drawn = 0;  ///< the seed for sizes and values
    bool finished = false;
    /// If the grading stopped because the machine or the grader lacked something, a
    /// sentence that names what was lacking. The points so far are then no grade.
    std::string stopped{};

    int points() const;
    int earned() const;
};

/// Returns the report in a form that any format can contain. Its texts are clean
/// (clean_lines()) and bounded: a report of a hundred criteria stays below PrairieLearn's
/// limit of one megabyte, whatever the student's program prints. All texts except `said`
/// and the compiler's lines are single lines. A program that could not be built has
/// earned nothing. The seconds are finite and not negative.
GradeReport shown_report(const GradeReport& report);

}  // namespace lockstep::lessons
