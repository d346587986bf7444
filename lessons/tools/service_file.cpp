#include "lessons/tools/service_file.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/tools/model_on_mesh.hpp"
#include "src/comm/mesh_shape.hpp"
#include "src/core/philox.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"
#include "src/text/names.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kMostServiceRanks = 1024;
constexpr std::int64_t kMostRequests = 100'000;
constexpr std::int64_t kMostTokens = 1'000'000;  // of a prompt or an output
constexpr double kMostSeconds = 1e6;

/// Reads a service's JSON; each error names the file and the key.
class ServiceReader {
  public:
    explicit ServiceReader(ServiceSettings& settings) : settings_(settings) {}

    void read(const Json& json) {
        object(
            json, "",
            {{"model",
              [&](const Json& value, const std::string& key) {
                  settings_.model = text(value, key);
                  settings_.sizes = read_model(said(key), settings_.model);
              }},
             {"mesh",
              [&](const Json& value, const std::string& key) {
                  settings_.axes = read_service_mesh(said(key), text(value, key));
              }},
             {"apart", flag_into(settings_.apart)},
             {"numbers", flag_into(settings_.numbers)},
             {"cluster", [&](const Json& value,
                             const std::string& key) { cluster(text(value, key), key); }},
             {"dtype",
              [&](const Json& value, const std::string& key) {
                  settings_.dtype = dtype(text(value, key), key);
              }},
             {"cache",
              [&](const Json& value, const std::string& key) { cache(value, key); }},
             {"batch",
              [&](const Json& value, const std::string& key) { batch(value, key); }},
             {"limits",
              [&](const Json& value, const std::string& key) { limits(value, key); }},
             {"requests", [&](const Json& value, const std::string& key) {
                  value.is_array() ? list(value, key) : mix(value, key);
              }}});
        if (settings_.count() == 0)
            fail("requests",
                 "is missing; a list of requests is expected, or a mix of them");
    }

  private:
    using Read = std::function<void(const Json& value, const std::string& key)>;
    using Members = std::vector<std::pair<std::string, Read>>;

    static constexpr std::int64_t kMostSequences = 4096;
    static constexpr std::int64_t kMostRows = std::int64_t{1} << 20;

    void cache(const Json& json, const std::string& key) {
        object(json, key,
               {{"pages",
                 [&](const Json& value, const std::string& place) {
                     settings_.pages = integer(value, place, 1, kMostPages);
                 }},
                {"page_rows", whole_into(settings_.page_rows, 1, 4096)},
                {"reuse", flag_into(settings_.reuse)}});
    }

    void batch(const Json& json, const std::string& key) {
        BatchRules& rules = settings_.rules;
        object(json, key,
               {{"sequences", whole_into(rules.most_sequences, 1, kMostSequences)},
                {"rows", whole_into(rules.most_rows, 1, kMostRows)},
                {"pieces", flag_into(rules.pieces)},
                {"continuous", flag_into(rules.continuous)}});
    }

    void limits(const Json& json, const std::string& key) {
        const auto time_into = [&](Picoseconds& field) {
            return [this, &field](const Json& value, const std::string& place) {
                const double seconds = number(value, place);
                if (!(seconds > 0 && seconds <= kMostSeconds))
                    fail(place, "is not a number of seconds above 0 and up to 1000000");
                field = std::max<Picoseconds>(picoseconds(seconds), 1);
            };
        };
        object(json, key,
               {{"first_token", time_into(settings_.limits.to_first)},
                {"token", time_into(settings_.limits.per_token)}});
    }

    void mix(const Json& json, const std::string& key) {
        if (!json.is_object())
            fail(key, "is neither a list of requests nor a mix of them, a JSON object");
        RequestMix& mix = settings_.mix.emplace();
        const auto range_into = [&](std::int64_t& least, std::int64_t& most) {
            return [this, &least, &most](const Json& value, const std::string& place) {
                range(value, place, least, most);
            };
        };
        object(json, key,
               {{"count", whole_into(mix.count, 1, kMostRequests)},
                {"per_second",
                 [&](const Json& value, const std::string& place) {
                     mix.per_second = number(value, place);
                     if (!(mix.per_second >= 0 && mix.per_second <= 1e6))
                         fail(place, "is not a number from 0 (all at once) to 1000000");
                 }},
                {"prompt", range_into(mix.least_prompt, mix.most_prompt)},
                {"output", range_into(mix.least_output, mix.most_output)},
                {"shared", whole_into(settings_.shared, 0, kMostTokens)},
                {"seed", [&](const Json& value, const std::string& place) {
                     mix.seed = static_cast<std::uint64_t>(integer(
                         value, place, 0, std::numeric_limits<std::int64_t>::max()));
                 }}});
        for (const auto& name : {"count", "prompt", "output"})
            if (!json.contains(name)) fail(place_of(key, name), "is missing");
        if (settings_.shared > mix.least_prompt)
            fail(place_of(key, "shared"),
                 fmt::format("is {}, but the shortest prompts have {}", settings_.shared,
                             counted(mix.least_prompt)));
    }

    /// Reads a number, or a minimum and a maximum.
    void range(const Json& value, const std::string& key, std::int64_t& least,
               std::int64_t& most) {
        if (!value.is_array()) {
            least = most = tokens(value, key);
            return;
        }
        if (value.size() != 2) fail(key, "must have two numbers, the least and the most");
        least = tokens(value.elements()[0], key + "[0]");
        most = tokens(value.elements()[1], key + "[1]");
        if (least > most)
            fail(key, fmt::format("is from {} to {}; the lesser number is expected first",
                                  least, most));
    }

    void list(const Json& json, const std::string& key) {
        if (json.size() == 0) fail(key, "is empty; a request is expected at least");
        if (static_cast<std::int64_t>(json.size()) > kMostRequests)
            fail(key, fmt::format("has {} requests; {} are expected at most",
                                  count_text(static_cast<std::int64_t>(json.size())),
                                  count_text(kMostRequests)));
        settings_.list.reserve(json.size());
        for (const Json& element : json.elements()) {
            const std::string place = fmt::format("{}[{}]", key, settings_.list.size());
            ServiceSettings::Asked asked;
            object(element, place,
                   {{"arrival",
                     [&](const Json& value, const std::string& inside) {
                         asked.arrival = number(value, inside);
                         if (!(asked.arrival >= 0 && asked.arrival <= kMostSeconds))
                             fail(inside, "is not a number of seconds from 0 to 1000000");
                     }},
                    {"prompt", whole_into(asked.prompt, 1, kMostTokens)},
                    {"output", whole_into(asked.output, 1, kMostTokens)}});
            for (const auto& name : {"prompt", "output"})
                if (!element.contains(name)) fail(place_of(place, name), "is missing");
            settings_.list.push_back(asked);
        }
    }

    void cluster(const std::string& name, const std::string& key) {
        const std::vector<std::string> presets = cluster_preset_names();
        const bool is_preset = std::ranges::find(presets, name) != presets.end();
        const std::filesystem::path cluster_file =
            std::filesystem::path(settings_.file).parent_path() / name;
        if (!is_preset) settings_.cluster_file = cluster_file;
        try {
            settings_.cluster = load_cluster(is_preset ? name : cluster_file.string());
        } catch (const UsageError& error) {
            throw UsageError(said(key) + ": " + error.what());
        }
    }

    DType dtype(const std::string& name, const std::string& key) {
        if (name == "bf16") return DType::bf16;
        if (name != "f32")
            fail(key, fmt::format("is '{}'; bf16 or f32 is expected", printable(name)));
        return DType::f32;
    }

    /// Reads an object's members; each one must be known.
    void object(const Json& json, const std::string& key, const Members& known) {
        if (!json.is_object())
            fail(key.empty() ? "the file" : key, "is not a JSON object");
        std::vector<std::string> names;
        names.reserve(known.size());
        for (const auto& [name, read] : known)
            names.push_back(name);
        for (const auto& [name, value] : json.members()) {
            const auto found = std::ranges::find(names, name);
            if (found == names.end()) {
                const std::string meant = did_you_mean(name, names);
                fail(place_of(key, printable(name)),
                     "is not known" +
                         (meant.empty() ? fmt::format("; {} are", fmt::join(names, ", "))
                                        : meant));
            }
            known[static_cast<std::size_t>(found - names.begin())].second(
                value, place_of(key, name));
        }
    }

    static std::string place_of(const std::string& key, const std::string& name) {
        return key.empty() ? name : key + "." + name;
    }

    Read flag_into(bool& field) {
        return [this, &field](const Json& value, const std::string& key) {
            if (!value.visit([](const auto& content) {
                    return std::is_same_v<std::decay_t<decltype(content)>, bool>;
                }))
                fail(key, "is neither true nor false");
            field = value.get<bool>();
        };
    }

    Read whole_into(std::int64_t& field, std::int64_t least, std::int64_t most) {
        return [this, &field, least, most](const Json& value, const std::string& key) {
            field = integer(value, key, least, most);
        };
    }

    std::int64_t tokens(const Json& value, const std::string& key) {
        return integer(value, key, 1, kMostTokens);
    }

    std::int64_t integer(const Json& value, const std::string& key, std::int64_t least,
                         std::int64_t most) {
        if (!value.is_integer() || value.get<double>() < static_cast<double>(least) ||
            value.get<double>() > static_cast<double>(most) ||
            value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
            fail(key, fmt::format("is not a whole number from {} to {}", least, most));
        return value.get<std::int64_t>();
    }

    double number(const Json& value, const std::string& key) {
        if (!value.is_number()) fail(key, "is not a number");
        return value.get<double>();
    }

    std::string text(const Json& value, const std::string& key) {
        if (!value.is_string()) fail(key, "is not a string");
        return value.get<std::string>();
    }

    static std::string counted(std::int64_t tokens) {
        return fmt::format("{} token{}", count_text(tokens), tokens == 1 ? "" : "s");
    }

    std::string said(const std::string& key) const { return settings_.file + ": " + key; }

    [[noreturn]] void fail(const std::string& key, const std::string& what) const {
        throw UsageError(said(key) + " " + what);
    }

    ServiceSettings& settings_;
};

Json parsed(const std::string& text, const std::string& name) {
    try {
        return Json::parse(text);
    } catch (const JsonError& error) {
        require(error.byte > 0, "{} contains a number that is too large", name);
        const auto end = text.begin() + static_cast<std::ptrdiff_t>(
                                            std::min(error.byte - 1, text.size()));
        throw UsageError(fmt::format("{}, line {}: this is not JSON", name,
                                     1 + std::count(text.begin(), end, '\n')));
    }
}

}  // namespace

ServiceSettings read_service(const std::string& text, const std::string& name) {
    ServiceSettings settings;
    settings.file = name;
    settings.axes = {{"dp", 1}};
    settings.cluster = load_cluster("h100");
    ServiceReader(settings).read(parsed(text, name));
    return settings;
}

ServiceSettings load_service(const std::filesystem::path& file) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
    return read_service(read_text_file(file, kMostBytes), file.string());
}

std::vector<MeshShape::Axis> read_service_mesh(const std::string& what,
                                               const std::string& text) {
    try {
        const MeshShape shape = read_mesh_shape(text);
        for (const MeshShape::Axis& axis : shape.axes())
            require(axis.name == "dp" || axis.name == "tp" || axis.name == "ep",
                    "'{}' is no axis of a service; use dp and ep (to divide requests) "
                    "and tp (to divide heads and columns)",
                    axis.name);
        require(shape.ranks() <= kMostServiceRanks,
                "{} has {} devices; {} are expected at most", shape.text(), shape.ranks(),
                kMostServiceRanks);
        return shape.axes();
    } catch (const UsageError& error) {
        throw UsageError(what + ": " + error.what());
    }
}

int ServiceSettings::size(const std::string& axis) const {
    const auto found = std::ranges::find(axes, axis, &MeshShape::Axis::name);
    return found == axes.end() ? 1 : found->size;
}

ServiceOptions ServiceSettings::options(std::int64_t with_pages) const {
    ServiceOptions options;
    options.axes = axes;
    options.apart = apart;
    options.cache = {with_pages, page_rows};
    options.rules = rules;
    options.reuse = reuse;
    options.dtype = dtype;
    options.seed = 1;
    return options;
}

namespace {

/// Upper limits of what the requests ask for.
struct Amounts {
    std::int64_t prompts = 0;  ///< tokens of all prompts
    std::int64_t outputs = 0;
    std::int64_t longest = 0;  ///< most tokens that one request sends through the model
};

Amounts amounts_of(const ServiceSettings& settings) {
    Amounts amounts;
    const auto add = [&](std::int64_t count, std::int64_t prompt, std::int64_t output) {
        amounts.prompts += count * prompt;
        amounts.outputs += count * output;
        amounts.longest = std::max(amounts.longest, prompt + output - 1);
    };
    if (settings.mix)
        add(settings.mix->count, settings.mix->most_prompt, settings.mix->most_output);
    for (const ServiceSettings::Asked& asked : settings.list)
        add(1, asked.prompt, asked.output);
    return amounts;
}

/// Limits the time and memory of a run: each device computes each pass layer by layer,
/// and records each layer.
void require_time(const ServiceSettings& settings, const Amounts& amounts,
                  std::size_t runs) {
    constexpr double kMostLayers = 2e8;
    constexpr double kLeastLayers = 6;  // a pass with fewer layers takes the same memory
    constexpr double kMostPromptTokens = 1e8;
    const BlockSizes& block = settings.sizes->block;
    const auto experts =
        static_cast<double>(block.experts.count) / settings.size("ep") / 8;
    const double layers = std::max(
        kLeastLayers, static_cast<double>(settings.sizes->layers) * (1 + experts));
    const std::int64_t pieces =
        amounts.outputs + settings.count() + amounts.prompts / settings.rules.most_rows;
    const double all = static_cast<double>(pieces) * settings.ways() * layers *
                       static_cast<double>(runs);
    require(all <= kMostLayers, [&] {
        return fmt::format(
            "{}: {} requests with up to {} tokens to generate, through {} layers on {} "
            "devices each{}, take too long; fewer are expected",
            settings.file, count_text(settings.count()), count_text(amounts.outputs),
            settings.sizes->layers, settings.ways(),
            runs == 1 ? "" : fmt::format(", at {} rates", runs));
    });
    require(static_cast<double>(amounts.prompts) * settings.ways() <= kMostPromptTokens,
            "{}: prompts have up to {} tokens, and each of {} devices keeps them all; "
            "together they can keep at most {}",
            settings.file, count_text(amounts.prompts), settings.ways(),
            count_text(static_cast<std::int64_t>(kMostPromptTokens)));
}

/// With numbers, this machine computes everything and holds it in memory.
void require_numbers(const ServiceSettings& settings, const Amounts& amounts) {
    const GptSizes& sizes = *settings.sizes;
    if (!settings.numbers) {
        require(settings.size("ep") == 1,
                "{}: ranks along ep tell each other by numbers when they have work, so "
                "\"numbers\": true and a small model are needed",
                settings.file);
        return;
    }
    constexpr double kMostParameters = 1e8;
    constexpr double kMostProducts = 1e12;
    const auto parameters = static_cast<double>(sizes.parameters());
    require(parameters * settings.ranks() <= kMostParameters,
            "{}: with numbers the model's {} parameters on {} devices do not fit this "
            "machine; a smaller model is expected, or \"numbers\": false",
            settings.file, count_text(sizes.parameters()), settings.ranks());
    require(parameters * static_cast<double>(amounts.prompts + amounts.outputs) <=
                kMostProducts,
            "{}: with numbers {} parameters for up to {} tokens take too long; fewer are "
            "expected, or \"numbers\": false",
            settings.file, count_text(sizes.parameters()),
            count_text(amounts.prompts + amounts.outputs));
    require(settings.pages.has_value(),
            "{}: with numbers the cache is this machine's memory; cache.pages is "
            "expected",
            settings.file);
    constexpr double kMostCacheBytes = 1e9;
    const double bytes =
        static_cast<double>(cache_bytes_of_token(sizes, settings.dtype)) *
        static_cast<double>(settings.pages.value_or(0) * settings.page_rows) *
        settings.replicas() * (settings.apart ? 2 : 1);
    require(bytes <= kMostCacheBytes,
            "{}: with numbers, the caches of cache.pages take {} of this machine's "
            "memory; at most {} are possible",
            settings.file, bytes_text(static_cast<std::int64_t>(bytes)),
            bytes_text(static_cast<std::int64_t>(kMostCacheBytes)));
}

}  // namespace

void require_possible(const ServiceSettings& settings, std::size_t runs) {
    require(settings.sizes.has_value(), [&] {
        return fmt::format(
            "{}: model is missing; {} is expected, or sizes KEY=VALUE with commas "
            "between",
            settings.file, either(model_names()));
    });
    require(settings.ranks() <= kMostServiceRanks,
            "{}: there are {} devices, with those that compute prompts; {} are expected "
            "at most",
            settings.file, settings.ranks(), kMostServiceRanks);
    const Amounts amounts = amounts_of(settings);
    const GptSizes& sizes = *settings.sizes;
    require(!sizes.learns_positions() || amounts.longest <= sizes.context,
            "{}: a request has up to {} tokens, but the model has learnt {} positions, "
            "its context",
            settings.file, amounts.longest, sizes.context);
    try {
        const ServicePlan plan(sizes, settings.options(1));
    } catch (const UsageError& error) {
        throw UsageError(settings.file + ": " + error.what());
    }
    require_numbers(settings, amounts);
    require_time(settings, amounts, runs);
}

std::vector<Request> requests_of(const ServiceSettings& settings,
                                 std::optional<double> per_second) {
    const std::int64_t vocabulary = settings.sizes->vocabulary;
    const std::uint64_t seed = settings.mix ? settings.mix->seed : 0;
    std::vector<Request> requests;
    if (settings.mix) {
        RequestMix mix = *settings.mix;
        mix.per_second = per_second.value_or(mix.per_second);
        mix.vocabulary = vocabulary;
        try {
            requests = make_requests(mix);
        } catch (const UsageError& error) {
            throw UsageError(settings.file + ": " + error.what());
        }
    }
    const auto token = [&](const RandomStream& stream, std::uint64_t number) {
        return static_cast<std::int32_t>(stream.uniform(number) *
                                         static_cast<double>(vocabulary));
    };
    const RandomStream own(seed, "prompt tokens"), shared(seed, "shared tokens");
    std::uint64_t drawn = 0;
    requests.reserve(static_cast<std::size_t>(settings.count()));
    for (const ServiceSettings::Asked& asked : settings.list) {
        Request request{
            std::ssize(requests), picoseconds(asked.arrival), {}, asked.output, {}};
        request.prompt.resize(static_cast<std::size_t>(asked.prompt));
        for (std::int32_t& each : request.prompt)
            each = token(own, drawn++);
        requests.push_back(std::move(request));
    }
    std::stable_sort(
        requests.begin(), requests.end(),
        [](const Request& a, const Request& b) { return a.arrival < b.arrival; });
    for (Request& request : requests)
        for (std::int64_t i = 0; i < settings.shared; ++i)
            request.prompt[static_cast<std::size_t>(i)] =
                token(shared, static_cast<std::uint64_t>(i));
    return requests;
}

std::string_view example_service() {
    return R"({
  "model": "llama2-13b",
  "mesh": "dp=2,tp=2",
  "apart": false,
  "cluster": "h100",
  "dtype": "bf16",
  "cache": {"page_rows": 16, "reuse": true},
  "batch": {"sequences": 64, "rows": 512, "pieces": true, "continuous": true},
  "limits": {"first_token": 0.1, "token": 0.02},
  "requests": {"count": 20, "per_second": 40, "prompt": [64, 512], "output": [4, 16],
               "shared": 32, "seed": 1}
}
)";
}

}  // namespace lockstep::lessons
