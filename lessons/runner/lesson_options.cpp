#include "lessons/runner/lesson_options.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

std::string one_of(const std::string& option, const std::string& text,
                   const std::vector<std::string>& allowed) {
    require(std::find(allowed.begin(), allowed.end(), text) != allowed.end(),
            "{} {}: {} is expected", option, printable(text), either(allowed));
    return text;
}

std::map<std::string, std::string> settings_of(const Arguments& arguments) {
    std::map<std::string, std::string> settings;
    for (const std::string& text : arguments.values("--set")) {
        const std::size_t sign = text.find('=');
        require(sign != std::string::npos && sign > 0, "--set {}: KEY=VALUE is expected",
                printable(text));
        const bool fresh =
            settings.emplace(text.substr(0, sign), text.substr(sign + 1)).second;
        require(fresh, "--set {}: this setting is given twice", printable(text));
    }
    return settings;
}

}  // namespace

std::optional<std::filesystem::path> path_of(const Arguments& arguments,
                                             const std::string& option) {
    const std::optional<std::string> value = arguments.value(option);
    if (!value) return std::nullopt;
    require(!value->empty(), [&] { return option + ": a path is expected"; });
    return *value;
}

LessonOptions lesson_options(const Arguments& arguments) {
    LessonOptions options;
    constexpr int kMost = std::numeric_limits<int>::max();
    if (const auto step = arguments.value("--step"))
        options.step = whole_number("--step", *step, 1, kMost);
    if (const auto ranks = arguments.value("--ranks"))
        options.ranks =
            whole_number("--ranks", *ranks, 1, sim::ClusterOptions::kMaxRanks);
    if (const auto seed = arguments.value("--seed"))
        options.seed = whole_number("--seed", *seed, std::uint64_t{0},
                                    std::numeric_limits<std::uint64_t>::max());
    if (const auto dtype = arguments.value("--dtype"))
        options.dtype =
            one_of("--dtype", *dtype, {"f32", "f64"}) == "f64" ? DType::f64 : DType::f32;
    if (const auto backend = arguments.value("--backend"))
        options.backend = one_of("--backend", *backend, {"sim", "cuda", "nccl", "gpu"});
    options.cluster = arguments.value("--cluster").value_or(options.cluster);
    if (const auto check = arguments.value("--check"))
        options.check = one_of("--check", *check, {"cheap", "full"}) == "full"
                            ? sim::CheckLevel::full
                            : sim::CheckLevel::cheap;
    options.text = path_of(arguments, "--text");
    options.data = path_of(arguments, "--data");
    options.out = path_of(arguments, "--out");
    options.settings = settings_of(arguments);
    options.json = arguments.has("--json");
    return options;
}

}  // namespace lockstep::lessons
