#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// Help, or the version.
struct TextRequest {
    std::string text;
};

struct LessonsRequest {};

struct LessonRequest {
    std::string slug;
    LessonOptions options;
};

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

struct DoctorRequest {
    bool json = false;
};

using Request = std::variant<TextRequest, LessonsRequest, LessonRequest, CompareRequest,
                             BackendsRequest, DoctorRequest>;

/// What a command line asks for. Throws UsageError with one sentence that names the
/// option and the value. Whether a lesson or a setting exists is asked later.
Request read_request(const std::vector<std::string>& arguments);

}  // namespace lockstep::lessons
