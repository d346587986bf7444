#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "lessons/grader/assignment.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

/// The table of a course's submissions as a .csv file: a line for each that is done, in
/// their order, with points by criterion. The last column is the submission's
/// fingerprint, by which an interrupted course goes on. Lines of the file that is there
/// which belong to none of these submissions stay, below.
class GradeTable {
  public:
    /// Reads the file, if it is there. Throws UsageError if it has other columns.
    GradeTable(const Assignment& assignment, std::filesystem::path file);

    /// Takes the line that the file has for a submission, if it was graded and has this
    /// fingerprint; returns whether it has. Else the line is dropped.
    bool keep(std::size_t place, const std::string& name, const std::string& fingerprint);

    /// Writes the file with one more line, in the place of one that it has. The report is
    /// JSON as GradeFormat::json has it; null if there is none.
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
    std::map<std::string, std::string> earlier_;  ///< by the first field, as it stands
};

}  // namespace lockstep::lessons
