#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/tools/schedule_page.hpp"
#include "program/ending.hpp"
#include "src/comm/mesh_shape.hpp"
#include "src/nn/gpt_kit.hpp"

namespace lockstep::lessons {

// The requests of the commands. A command line is turned into one of these once, and
// nothing after it parses text again.

/// Help, or the version.
struct TextRequest {
    std::string text;
};

struct LessonsRequest {
    std::optional<Language> language;
};

struct HandInRequest {
    std::string slug;
    std::optional<std::filesystem::path> out;
};

struct LessonRequest {
    std::string slug;
    LessonOptions options;
    bool html = false;  ///< as a page for a browser
    /// The program's words: --backend nccl starts it again, once a rank.
    std::vector<std::string> words;
};

/// The course as a web site.
struct BookRequest {
    std::filesystem::path folder;
};

/// Two records, compared.
struct CompareRequest {
    std::filesystem::path a;
    std::filesystem::path b;
    std::optional<double> bound;
    bool json = false;
};

/// A lesson on two backends, and the two records compared.
struct BackendsRequest {
    std::string slug;
    std::array<std::string, 2> backends;    ///< may be the same
    std::vector<std::string> lesson_words;  ///< options for both, "--ranks=4"
    LessonOptions lesson_options;           ///< what the words say
    std::optional<double> bound;
    std::optional<std::filesystem::path> out;  ///< the records stay there
    bool json = false;
};

/// A pipeline schedule, timed and drawn.
struct ScheduleRequest : ScheduleSettings {
    bool with_messages = false;  ///< planned, unless it is said how
    bool json = false;
    bool spans = false;
    std::optional<std::filesystem::path> svg;
    std::optional<std::filesystem::path> svg_period;
    std::optional<std::filesystem::path> csv;
    std::optional<std::filesystem::path> pytorch;  ///< in PyTorch's own words
};

/// A mesh of devices, and a model that is spread over it.
struct MeshRequest {
    MeshShape shape{{}};
    std::vector<std::vector<std::string>> planes;  ///< the axes of each
    std::optional<int> rank;
    std::optional<int> per_node;
    std::optional<std::string> cluster;
    std::optional<GptSizes> model;
    std::optional<int> zero;
    bool sequence = false;
    std::optional<std::string> schedule;
    std::optional<int> chunks;
    std::optional<std::filesystem::path> svg;
    std::optional<std::string> colour;  ///< an axis; the slowest one if it is not given
    bool json = false;
};

/// A service that answers requests. What is given takes the place of what the file says.
struct ServeRequest {
    std::vector<std::string> files;  ///< one, unless there is to be an example
    bool example = false;
    /// As it was given, and its sizes.
    std::optional<std::pair<std::string, GptSizes>> model;
    std::optional<std::vector<MeshShape::Axis>> mesh;
    std::optional<std::string> cluster;
    bool apart = false;
    std::vector<double> rates;   ///< requests a second
    std::optional<int> replica;  ///< which is drawn
    std::optional<std::filesystem::path> svg;
    bool json = false;
    bool passes = false;
};

/// The page on a kind of mistake.
struct FaultRequest {
    std::string fault;  ///< "F16"
    std::optional<Language> language;
};

/// Asks what a word of the course means; for all words, if it is empty.
struct WordRequest {
    std::string word;
};

struct AssignmentsRequest {};

/// A student's folder for an assignment.
struct NewAssignmentRequest {
    std::string slug;
    std::filesystem::path folder;
};

/// An autograder for Gradescope.
struct GradescopeRequest {
    std::string slug;
    std::filesystem::path file;
};

struct GradeRequest {
    std::string slug;
    std::vector<std::filesystem::path> submissions;
    std::optional<int> at_once;
    GradeFormat format = GradeFormat::text;
    std::optional<std::filesystem::path> out;
    bool goes_on = false;
    bool require_confinement = false;
    bool show_output = false;
    std::optional<std::int64_t> drawn;
};

struct DoctorRequest {
    bool json = false;
};

/// What the grader is for, a program of its own beside this one: no lesson needs what it
/// is built of.
using GraderRequest = std::variant<AssignmentsRequest, NewAssignmentRequest,
                                   GradescopeRequest, GradeRequest>;

using Request = std::variant<TextRequest, LessonsRequest, LessonRequest, CompareRequest,
                             BackendsRequest, ScheduleRequest, MeshRequest, ServeRequest,
                             FaultRequest, WordRequest, HandInRequest, BookRequest,
                             GraderRequest, DoctorRequest>;

/// Returns what a command line asks for. Throws UsageError with one sentence that names
/// the option and the value. Whether a lesson or a setting exists is asked later.
Request read_request(const std::vector<std::string>& words);

// Each command prints to standard output and returns an exit status. What goes wrong is
// thrown.

int run(const TextRequest& request);
int run(const LessonsRequest& request);
int run(const LessonRequest& request);
int run(const HandInRequest& request);
int run(const BookRequest& request);
int run(const CompareRequest& request);
int run(const BackendsRequest& request);
/// Returns kFailed if the schedule deadlocks.
int run(const ScheduleRequest& request);
int run(const MeshRequest& request);
int run(const ServeRequest& request);
int run(const FaultRequest& request);
int run(const WordRequest& request);
int run(const DoctorRequest& request);

/// Runs the grader in the place of this program, with the same words.
[[noreturn]] void become_grader(const std::vector<std::string>& words);

/// A program's main(): carries out the words behind the program's name, and says what
/// went wrong.
int run_main(int count, char** words,
             const std::function<int(const std::vector<std::string>& words)>& carry_out);

}  // namespace lockstep::lessons
