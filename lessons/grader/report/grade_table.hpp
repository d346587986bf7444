#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "lessons/grader/assignment.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

/// The table of a course's submissions as a .csv file, with the points by criterion: a
/// line for each finished submission, in the order of the submissions. The last column is
/// the submission's fingerprint, so that an interrupted grading can continue. If the file
/// exists, its lines about other submissions are kept, after the new lines.
class GradeTable {
  public:
    /// Reads the file if it exists. Throws UsageError if it has other columns.
    GradeTable(const Assignment& assignment, std::filesystem::path file);

    /// Keeps the file's line for a submission if it was graded and has this fingerprint;
    /// otherwise drops it. Returns whether the line is kept.
    bool keep(std::size_t place, const std::string& name, const std::string& fingerprint);

    /// Adds or replaces the line of a submission and writes the file. The report is JSON
    /// as in GradeFormat::json; null if there is none.
    void add(std::size_t place, const std::string& name, const Json& report,
             const std::string& fingerprint);
    /// Throws std::system_error.
    void write() const;

  private:
    std::string header() const;
    std::string row(const std::string& name, const Json& report,
                    const std::string& fingerprint) const;

    const Assignment& assignment_;
    std::filesystem::path file_;
    std::map<std::size_t, std::string> rows_;     ///< by place
    std::map<std::string, std::string> earlier_;  ///< old lines, by their first field
};

}  // namespace lockstep::lessons
