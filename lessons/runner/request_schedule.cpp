#include "lessons/runner/request_schedule.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/runner/arguments.hpp"
#include "lessons/runner/help_text.hpp"
#include "lessons/runner/lesson_options.hpp"
#include "lessons/runner/request_text.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

bool ScheduleRequest::is_file() const {
    return name.find('/') != name.npos || name.ends_with(".json") ||
           name.ends_with(".csv");
}

namespace {

std::optional<int> size_of(const Arguments& arguments, const std::string& option,
                           int most) {
    const std::optional<std::string> text = arguments.value(option);
    if (!text) return std::nullopt;
    return whole_number(option, *text, 1, most);
}

/// "1,2.5,1" in billionths: exact to nine decimals, since a double keeps 15 digits.
ScheduleRequest::Times times_of(const Arguments& arguments, const std::string& option,
                                ScheduleRequest::Times standard) {
    constexpr double kMost = 1'000'000;
    const std::optional<std::string> text = arguments.value(option);
    if (!text) return standard;
    ScheduleRequest::Times times;
    std::string_view rest = *text;
    while (true) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        const std::string_view piece = trimmed(rest.substr(0, comma));
        const std::optional<double> time = parse_number(piece);
        require(time && *time >= 0 && *time <= kMost,
                "{} {}: '{}' is not a number from 0 to {:.0f}; one for "
                "all stages, or one a stage with commas between, is "
                "expected",
                option, printable(*text), printable(piece), kMost);
        const double billionths = *time * ScheduleRequest::kUnit;
        const double whole = std::round(billionths);
        // What a double cannot hold to the last digit is no fault.
        constexpr double kRounding = 1e-6;
        require(std::abs(billionths - whole) <= kRounding * std::max(1.0, whole),
                "{} {}: times count in billionths, so that {} would be rounded; choose a "
                "smaller unit",
                option, printable(*text), printable(piece));
        times.push_back(std::llround(whole));
        if (comma == rest.size()) return times;
        rest.remove_prefix(comma + 1);
    }
}

double memory_of(const Arguments& arguments, const std::string& option) {
    constexpr double kMost = 1e15;
    const std::optional<std::string> text = arguments.value(option);
    if (!text) return 1;
    const std::optional<double> memory = parse_typed_number(*text);
    require(memory && *memory >= 0 && *memory <= kMost,
            "{} {}: a number from 0 to {} is expected", option, printable(*text),
            number_text(kMost));
    return *memory;
}

void require_known(const ScheduleRequest& request) {
    if (request.is_file()) return;
    const std::vector<std::string>& names = schedule_names();
    require(std::ranges::find(names, request.name) != names.end(), [&] {
        std::string hint = did_you_mean(request.name, names);
        if (hint.empty())
            hint = fmt::format(
                "; there are {}, and files whose names end in .json or "
                ".csv",
                fmt::join(names, ", "));
        return fmt::format("there is no schedule '{}'{}", printable(request.name), hint);
    });
    for (const auto& [option, size] :
         {std::pair{"--stages", request.stages},
          std::pair{"--micro-batches", request.micro_batches}})
        require(size.has_value(), "{} is missing: {} can have any number of them", option,
                request.name);
}

}  // namespace

Request schedule_request(const std::vector<std::string>& words) {
    const Arguments arguments = take_apart(schedule_command_text(), words);
    if (arguments.help)
        return TextRequest{help_text(schedule_command_text(), help_columns())};
    ScheduleRequest request;
    request.name = arguments.positionals.front();
    request.stages = size_of(arguments, "--stages", kMostStages);
    request.micro_batches = size_of(arguments, "--micro-batches", kMostMicroBatches);
    request.chunks = size_of(arguments, "--chunks", kMostChunks);
    require_known(request);
    request.forward = times_of(arguments, "--forward", request.forward);
    request.backward_input =
        times_of(arguments, "--backward-input", request.backward_input);
    request.backward_weight =
        times_of(arguments, "--backward-weight", request.backward_weight);
    request.comm = times_of(arguments, "--comm", request.comm);
    request.messages = arguments.has("--messages");
    request.kept = {memory_of(arguments, "--memory-activation"),
                    memory_of(arguments, "--memory-weight")};
    request.json = arguments.has("--json");
    request.svg = path_of(arguments, "--svg");
    return request;
}

}  // namespace lockstep::lessons
