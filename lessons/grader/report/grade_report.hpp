#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lessons/grader/confine/layers.hpp"

namespace lockstep::lessons {

/// How much of a text is shown.
struct TextLimit {
    std::size_t bytes = 0;
    std::size_t lines = 0;
};

/// A text that any program may have written, as every format can hold it: UTF-8 whose
/// only control character is the line break. Tabs become spaces up to the next eighth
/// column. Bytes that are no UTF-8 become "\xff"; control characters "\x1b"; what turns
/// the direction of writing around, and what XML 1.0 has no place for, "\u{202e}". White
/// space at the end goes.
///
/// A text beyond the limit is cut, and a last line says so; the result is at most some 80
/// bytes longer than the limit. The cost depends on the limit, not on the text.
std::string clean_lines(std::string_view text, TextLimit limit);

/// Cleans a text and puts it on one line: line breaks become spaces, and "…" stands for
/// what is left out.
std::string clean_line(std::string_view text, std::size_t limit_bytes);

/// The verdict on a criterion.
enum class Mark : std::uint8_t {
    not_judged,   ///< nobody has come to it yet
    not_written,  ///< the function still throws NotWritten
    failed,
    passed
};

/// One thing that is graded: what was asked for, what was measured, and its points.
struct CriterionReport {
    std::string id{};      ///< "a1.2-bytes": letters, digits, dots and dashes
    std::string title{};   ///< "all_gather sends what it must, and no more"
    std::string lesson{};  ///< where it is taught: "gradient-accumulation, step 6"
    int points = 0;        ///< that can be had
    Mark mark = Mark::not_judged;
    std::string asked{};     ///< "672 to 672 bytes a rank"
    std::string measured{};  ///< "1344 bytes on rank 2"; empty if nothing could be
    /// Why not: a sentence, or the lines of a diagnosis. Empty if it passed.
    std::string said{};

    int earned() const { return mark == Mark::passed ? points : 0; }
};

/// Why the program could not be built: what the compiler said first.
struct BuildFailure {
    std::string file{};  ///< the student's: "ring.cpp"; empty if no file is named
    int line = 0;        ///< 0 if none is
    std::string message{};
    std::string lines{};  ///< what the compiler showed below it
};

/// The result of grading, or as much of it as there is: criteria that are not judged yet
/// have no points, so that a report written at any time is a valid one.
struct GradeReport {
    std::string slug{};   ///< "ring-all-reduce"
    std::string title{};  ///< "A ring all-reduce"
    std::string version{};
    std::vector<CriterionReport> criteria;
    std::optional<BuildFailure> build_failure;
    /// The student's next step: "write reduce_scatter in ring.cpp (a1.1) …"; empty if all
    /// is done.
    std::string first{};
    std::vector<std::string> remarks;  ///< about the machine, not the student's work
    std::vector<ConfinementLayer> confinement;
    double seconds = 0;
    std::int64_t drawn = 0;  ///< what sizes and values were drawn by
    bool finished = false;
    /// If the machine or the grader lacks something that stopped the grading, this
    /// sentence says what, and the points so far are no grade.
    std::string stopped{};

    int points() const;
    int earned() const;
};

/// The report as it may be written in any format. Its texts are clean (clean_text.hpp)
/// and bounded: a report of a hundred criteria stays below the megabyte that PrairieLearn
/// takes, whatever the student's program says. All but `said` and what the compiler
/// showed are single lines. A program that could not be built has earned nothing. The
/// seconds are finite and not negative.
GradeReport shown_report(const GradeReport& report);

}  // namespace lockstep::lessons
