#include "lessons/runner/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& value,
                         const std::string& expected) {
    throw UsageError(
        fmt::format("--set {}={}: {} is expected", key, printable(value), expected));
}

const std::string* find_setting(const LessonOptions& options, const std::string& key) {
    const auto found = options.settings.find(key);
    return found == options.settings.end() ? nullptr : &found->second;
}

}  // namespace

std::int64_t LessonOptions::integer(const std::string& key, std::int64_t otherwise,
                                    std::int64_t least, std::int64_t most) const {
    const std::string* given = find_setting(*this, key);
    if (!given) return otherwise;
    std::int64_t value = 0;
    const char* end = given->data() + given->size();
    const auto [stopped, error] = std::from_chars(given->data(), end, value);
    if (error != std::errc{} || stopped != end || value < least || value > most)
        refuse(key, *given, fmt::format("a whole number from {} to {}", least, most));
    return value;
}

double LessonOptions::number(const std::string& key, double otherwise, double least,
                             double most) const {
    const std::string* given = find_setting(*this, key);
    if (!given) return otherwise;
    const std::optional<double> value = parse_number(*given);
    if (!value || !(*value >= least && *value <= most))
        refuse(key, *given, fmt::format("a number from {} to {}", least, most));
    return *value;
}

std::string LessonOptions::word(const std::string& key, const std::string& otherwise,
                                const std::vector<std::string>& allowed) const {
    const std::string* given = find_setting(*this, key);
    if (!given) return otherwise;
    for (const std::string& word : allowed)
        if (*given == word) return word;
    refuse(key, *given, either(allowed));
}

const std::vector<Setting>& common_settings() {
    static const std::vector<Setting> settings{
        {"workers", "threads that long operations run on, 0 to 256; 0 is one a core",
         "0"},
        {"executor", "what runs the virtual devices: fibers or threads", "fibers"},
        {"schedule_seed", "a seed that permutes the order in which devices are run", ""},
        {"numerics", "on or off; off computes shapes only: same time, bytes and memory",
         "on"},
        {"tf32", "1 lets --backend cuda and nccl multiply f32 matrices in TF32 (0)", ""},
        {"timeout", "seconds without progress after which --backend nccl gives up (60)",
         ""},
        {"nccl", "shared lets the ranks of --backend nccl share one GPU: slow, a trial",
         ""},
        {"trace", "hta leaves one more trace a rank, for PyTorch's HTA", ""},
    };
    return settings;
}

void require_understood(const LessonOptions& options, const LessonEntry& lesson) {
    std::vector<std::string> keys;
    for (const auto* settings : {&common_settings(), &lesson.settings})
        for (const Setting& setting : *settings)
            keys.push_back(setting.key);
    for (const auto& [key, value] : options.settings) {
        const bool known = std::find(keys.begin(), keys.end(), key) != keys.end();
        require(known, "--set {}={}: no such setting; there are {}", printable(key),
                printable(value), fmt::join(keys, ", "));
    }
    const auto require_taken = [&](const char* option, bool given, bool taken) {
        require(taken || !given, "{}: the lesson {} takes none", option, lesson.slug);
    };
    require_taken("--text", options.text.has_value(), lesson.takes_text);
    require_taken("--data", options.data.has_value(), lesson.takes_data);
}

}  // namespace lockstep::lessons
