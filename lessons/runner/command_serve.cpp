#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "lessons/tools/model_on_mesh.hpp"
#include "lessons/tools/service_page.hpp"
#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::size_t kMostRates = 32;

/// Reads "1,2.5,4": rates without repetitions.
std::vector<double> read_rates(const std::string& option, const std::string& value) {
    std::vector<double> rates;
    std::set<double> seen;
    for (const std::string& word : split_at_commas(value)) {
        const std::optional<double> rate = parse_number(word);
        require(rate && *rate > 0 && *rate <= 1e6,
                "{} {}: '{}' is no rate; numbers above 0 and up to 1000000 are expected, "
                "with commas between",
                option, printable(value), printable(word));
        require(seen.insert(*rate).second, "{} {}: {} is there twice", option,
                printable(value), printable(word));
        rates.push_back(*rate);
    }
    require(rates.size() <= kMostRates, "{}: there are {} rates; {} are expected at most",
            option, rates.size(), kMostRates);
    return rates;
}

void declare_instead(Command& command, ServeRequest& request) {
    command.option("--model", "NAME|SIZES",
                   "this model instead: " + either(model_names()) +
                       ", or sizes KEY=VALUE with commas between, as `lockstep mesh` "
                       "takes them",
                   [&request](const std::string& option, const std::string& value) {
                       request.model = {value, read_model(option, value)};
                   });
    command.suggest(model_names());
    command.option("--mesh", "SIZES", "on this mesh instead, as in dp=2,tp=4",
                   [&request](const std::string& option, const std::string& value) {
                       request.mesh = read_service_mesh(option + " " + value, value);
                   });
    command.option(
        "--cluster", "NAME|FILE",
        "of this cluster instead: " + either(cluster_preset_names()) + ", or a JSON file",
        text_into(request.cluster));
    command.suggest(cluster_preset_names());
    command.flag(
        "--apart",
        "the same number of extra devices compute the prompts, whatever the file says",
        request.apart);
    command.option("--rate", "R[,R…]",
                   "requests of the mix per second; several rates give one line each",
                   [&request](const std::string& option, const std::string& value) {
                       request.rates = read_rates(option, value);
                   });
}

/// --example takes no file and no other option.
void require_sound(const ServeRequest& request) {
    require(request.files.size() <= 1, "serve: '{}' is one argument too many",
            request.files.size() > 1 ? printable(request.files[1]) : "");
    if (request.example) {
        require(request.files.empty() && !request.svg && !request.json,
                "--example prints an example file and takes no other argument");
        return;
    }
    require(!request.files.empty(),
            "FILE is missing: a service as JSON; --example prints one");
    require(!request.files[0].empty(), "FILE: a path is expected");
    require(request.json || !request.passes, "--passes needs --json");
    require(!request.svg || request.rates.size() <= 1,
            "--svg draws one run; one rate is expected");
}

}  // namespace

void declare_serve(CommandLine& line) {
    Command& command = line.add(
        "serve",
        "Simulates a service in which a GPT answers requests as they come. Shows how "
        "long users wait, how many requests are served within limits, and what fits into "
        "memory. A file names the model, mesh, cluster and requests.");
    auto& request = command.asks_for<ServeRequest>();
    command.rest("FILE", "a service, as JSON; --example prints one", false,
                 [&request](const std::string&, const std::string& value) {
                     request.files.push_back(value);
                 });
    command.flag("--example", "print an example file", request.example);
    declare_instead(command, request);
    command.option("--replica", "R",
                   "draw the requests of this replica; default 0, the first",
                   whole_into(request.replica, 0, 1023));
    command.option("--svg", "OUT", "also draw it to this file", path_into(request.svg));
    command.flag("--json", kJsonMeaning, request.json);
    command.flag("--passes",
                 "with --json: also what each pass computes (long for large services)",
                 request.passes);
    command.finally([&request] { require_sound(request); });
}

namespace {

/// Returns the file's settings, overridden by the command line's.
ServiceSettings settings_of(const ServeRequest& request) {
    ServiceSettings settings = load_service(request.files[0]);
    if (request.model) {
        settings.model = request.model->first;
        settings.sizes = request.model->second;
    }
    if (request.mesh) settings.axes = *request.mesh;
    if (request.apart) settings.apart = true;
    if (request.cluster) {
        try {
            settings.cluster = load_cluster(*request.cluster);
            settings.cluster_file = *request.cluster;
        } catch (const UsageError& error) {
            throw UsageError(std::string("--cluster: ") + error.what());
        }
    }
    require(
        request.rates.empty() || settings.mix,
        "--rate: {} lists requests with fixed arrivals; --rate needs a mix of requests",
        settings.file);
    require_possible(settings, std::max<std::size_t>(request.rates.size(), 1));
    require(request.replica.value_or(0) < settings.replicas(),
            "--replica {}: the replicas are 0 to {}", request.replica.value_or(0),
            settings.replicas() - 1);
    return settings;
}

/// Refuses to overwrite a file that was read.
void require_other_file(const ServeRequest& request, const ServiceSettings& settings) {
    if (!request.svg) return;
    require_not_read("--svg", *request.svg, request.files[0], "the service");
    require_not_read("--svg", *request.svg, settings.cluster_file, "the cluster");
    naming("--svg", *request.svg, [](const auto& path) { require_writable_file(path); });
}

ExaminedService examined_service(const ServeRequest& request) {
    ExaminedService service{settings_of(request), {}, {}};
    require_other_file(request, service.settings);
    service.holding = holding_of(service.settings);
    if (request.rates.empty()) {
        service.outcomes.push_back(served(service.settings, service.holding));
        return service;
    }
    const auto progress =
        show_progress("serving", static_cast<std::int64_t>(request.rates.size()));
    service.outcomes.reserve(request.rates.size());
    for (const double rate : request.rates) {
        service.outcomes.push_back(served(service.settings, service.holding, rate));
        progress->advance(std::ssize(service.outcomes));
    }
    return service;
}

}  // namespace

int run(const ServeRequest& request) {
    if (request.example) {
        print(example_service());
        return kSuccess;
    }
    const ExaminedService service = examined_service(request);
    const int replica = request.replica.value_or(0);
    if (request.svg)
        naming("--svg", *request.svg, [&](const auto& path) {
            write_text_file(path, chart_svg(service_chart_of(service, replica)));
        });
    if (request.json) {
        print(service_json(service, request.passes));
        return kSuccess;
    }
    constexpr std::size_t kMostInText = 24;
    const auto& drawn =
        service.outcomes.front().replicas[static_cast<std::size_t>(replica)];
    if (service.outcomes.size() == 1 && !drawn.requests.empty() &&
        drawn.requests.size() <= kMostInText)
        print(chart_text(
                  service_chart_of(service, replica),
                  {window_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO), "--svg"}) +
              "\n");
    print_found(service_page(service), request.svg);
    return kSuccess;
}

}  // namespace lockstep::lessons
