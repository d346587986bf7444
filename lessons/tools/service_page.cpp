#include "lessons/tools/service_page.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/comm/mesh_shape.hpp"
#include "src/core/units.hpp"
#include "src/text/json.hpp"
#include "src/text/numbers.hpp"
#include "src/text/table.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

using Spread = ServiceReport::Spread;

std::string counted(std::int64_t count, const std::string& one) {
    return count_text(count) + " " + one + (count == 1 ? "" : "s");
}

/// Returns at least four digits: "1,234", "12.34".
std::string amount(double value) {
    constexpr double kWhole = 1000;
    return value < kWhole ? number_text(value) : count_text(std::llround(value));
}

/// Returns the model's name, or "a GPT" if the file gives sizes, which would be too long.
std::string name_of(const ServiceSettings& settings) {
    return settings.model.find('=') == std::string::npos ? printable(settings.model)
                                                         : "a GPT";
}

std::string percent(double part) {
    return fmt::format("{:.1f} %", 100 * part);
}

double tokens_a_second(const ServiceReport& report) {
    return report.seconds > 0 ? static_cast<double>(report.tokens) / report.seconds : 0;
}

bool has_limits(const ServiceLimits& limits) {
    return limits.to_first > 0 || limits.per_token > 0;
}

std::string sentence_of(const ServiceSettings& settings) {
    const ServicePlan plan(*settings.sizes, settings.options(1));
    std::string text = fmt::format(
        "{} has {} numbers, which are in {}. It is on {} of cluster {}: {} of {}{}.",
        printable(settings.model), count_text(settings.sizes->parameters()),
        lockstep::name_of(settings.dtype), MeshShape(settings.axes).text(),
        printable(settings.cluster.name), counted(settings.replicas(), "replica"),
        counted(settings.ways(), "device"), settings.replicas() > 1 ? " each" : "");
    if (settings.apart)
        text += " Half of these compute prompts, and the others generate tokens.";
    return text;
}

Table device_table(const ExaminedService& service) {
    const ServiceHolding& holding = service.holding;
    const std::int64_t rows = service.settings.page_rows;
    Table table{{"a device has", ""}, {}};
    const auto add = [&](const std::string& what, std::string amount) {
        table.rows.push_back({what, std::move(amount)});
    };
    add("weights", bytes_text(holding.weight_bytes));
    add("keys and values of a token", bytes_text(holding.page_bytes / rows));
    add(fmt::format("pages, of {} each", counted(rows, "token")),
        count_text(holding.pages));
    add("tokens that fit into these", count_text(holding.pages * rows));
    add("the cache, all pages", bytes_text(holding.cache_bytes()));
    if (holding.memory_bytes > 0) add("its memory", bytes_text(holding.memory_bytes));
    return table;
}

std::string limit_text(Picoseconds limit) {
    return limit > 0 ? time_text(limit) : "–";
}

Table time_table(const ServiceReport& report, const ServiceLimits& limits) {
    Table table{{"users wait", "half of them", "nine of ten", "99 of 100", "limit"}, {}};
    const auto add = [&](const char* what, const Spread& spread, Picoseconds limit) {
        table.rows.push_back({what, time_text(spread.p50), time_text(spread.p90),
                              time_text(spread.p99), limit_text(limit)});
    };
    add("for the first token (TTFT)", report.to_first, limits.to_first);
    add("for each next token (TPOT)", report.per_token, limits.per_token);
    return table;
}

void add_work(Table& table, const std::string& whose, const ServiceOutcome::Work& work) {
    table.rows.push_back({"passes" + whose, count_text(work.passes)});
    table.rows.push_back({"rows a pass" + whose + ", on average",
                          fmt::format("{:.1f}", work.rows_of_pass())});
}

Table outcome_table(const ExaminedService& service, const ServiceOutcome& outcome) {
    const ServiceReport& report = outcome.report;
    const ServiceSettings& settings = service.settings;
    Table table{{"all together", ""}, {}};
    const auto add = [&](const std::string& what, std::string amount) {
        table.rows.push_back({what, std::move(amount)});
    };
    add("requests", count_text(report.requests));
    add("tokens that were generated", count_text(report.tokens));
    add("seconds, from the first arrival to the last token", number_text(report.seconds));
    add("tokens a second", amount(tokens_a_second(report)));
    add("tokens a second, per device",
        amount(tokens_a_second(report) / settings.ranks()));
    if (has_limits(settings.limits)) {
        add("requests within the limits", percent(report.kept));
        add("goodput: of these, a second", amount(report.goodput));
        add("goodput of a device", amount(report.goodput / settings.ranks()));
    }
    add("preemptions", count_text(report.preemptions));
    add("tokens of prompts that were found in the cache", count_text(report.reused));
    if (settings.apart) add_work(table, " that compute prompts", outcome.prompts);
    add_work(table, settings.apart ? " that generate tokens" : "", outcome.passes);
    add("the most memory of a device", bytes_text(outcome.peak_bytes));
    if (settings.apart)
        add("keys, values and first tokens that went between devices",
            bytes_text(outcome.moved_bytes));
    return table;
}

/// The longest of the times below which a service cannot be, and what it is.
struct Bound {
    Picoseconds time = 0;
    const char* name = "";
    std::string times(const ServiceReport& report) const {
        return time == 0 ? "–" : fmt::format("{:.2f}", report.seconds / seconds(time));
    }
};

Bound bound_of(const ServiceOutcome& outcome) {
    return std::max(
        {Bound{outcome.roof.products, "products"}, Bound{outcome.roof.memory, "memory"},
         Bound{outcome.roof.links, "links"}, Bound{outcome.last_arrival, "arrivals"}},
        [](const Bound& a, const Bound& b) { return a.time < b.time; });
}

Table roof_table(const ServiceOutcome& outcome) {
    return {{"these requests need at least", ""},
            {{"for products of matrices", time_text(outcome.roof.products)},
             {fmt::format("for memory: weights {} times, keys and values",
                          count_text(outcome.fewest_passes)),
              time_text(outcome.roof.memory)},
             {"for messages between devices", time_text(outcome.roof.links)},
             {"until the last of them arrives", time_text(outcome.last_arrival)}}};
}

std::string roof_sentence(const ServiceOutcome& outcome) {
    const Bound bound = bound_of(outcome);
    return fmt::format(
        "They took {} s, {} times the longest of these, which is {}. The least times "
        "hold for the data sheet's rates and for passes with as many sequences as the "
        "pages hold.",
        number_text(outcome.report.seconds), bound.times(outcome.report), bound.name);
}

std::string rate_text(const ServiceOutcome& outcome) {
    return number_text(outcome.per_second.value_or(0));
}

Table rate_time_table(const ExaminedService& service) {
    Table table{{"requests a second", "TTFT, half", "nine of ten", "99 of 100",
                 "TPOT, half", "nine of ten", "99 of 100"},
                {}};
    for (const ServiceOutcome& outcome : service.outcomes) {
        const ServiceReport& report = outcome.report;
        std::vector<std::string> row{rate_text(outcome)};
        for (const Spread& spread : {report.to_first, report.per_token})
            for (const Picoseconds time : {spread.p50, spread.p90, spread.p99})
                row.push_back(time_text(time));
        table.rows.push_back(std::move(row));
    }
    return table;
}

Table rate_table(const ExaminedService& service) {
    Table table{{"requests a second", "within limits", "goodput", "a device",
                 "tokens a second", "preemptions", "rows a pass", "most memory"},
                {}};
    for (const ServiceOutcome& outcome : service.outcomes) {
        const ServiceReport& report = outcome.report;
        table.rows.push_back(
            {rate_text(outcome), percent(report.kept), amount(report.goodput),
             amount(report.goodput / service.settings.ranks()),
             amount(tokens_a_second(report)), count_text(report.preemptions),
             fmt::format("{:.1f}", outcome.passes.rows_of_pass()),
             bytes_text(outcome.peak_bytes)});
    }
    return table;
}

Table rate_roof_table(const ExaminedService& service) {
    Table table{{"requests a second", "took", "× its roof", "which is"}, {}};
    for (const ServiceOutcome& outcome : service.outcomes) {
        const Bound bound = bound_of(outcome);
        table.rows.push_back({rate_text(outcome),
                              number_text(outcome.report.seconds) + " s",
                              bound.times(outcome.report), bound.name});
    }
    return table;
}

std::string best_rate(const ExaminedService& service) {
    const auto best =
        std::max_element(service.outcomes.begin(), service.outcomes.end(),
                         [](const ServiceOutcome& a, const ServiceOutcome& b) {
                             return a.report.goodput < b.report.goodput;
                         });
    if (best->report.goodput == 0) return "No request was within the limits at any rate.";
    return fmt::format(
        "Goodput (requests within the limits, per second) is highest at {} requests per "
        "second.",
        rate_text(*best));
}

}  // namespace

Document service_page(const ExaminedService& service) {
    Document page;
    const auto say = [&](const std::string& sentence) {
        page.push_back({Paragraph{words_of(sentence)}});
    };
    const ServiceSettings& settings = service.settings;
    say(sentence_of(settings));
    if (settings.cluster.error) say(accuracy_text(settings.cluster));
    page.push_back({table_of(device_table(service))});
    if (service.holding.all_that_fit)
        say("The number of pages is what fits into nine tenths of a device's memory next "
            "to the weights, at most a million per device and 16 million on all "
            "devices.");
    if (service.outcomes.size() == 1) {
        const ServiceOutcome& outcome = service.outcomes.front();
        page.push_back({table_of(time_table(outcome.report, settings.limits))});
        page.push_back({table_of(outcome_table(service, outcome))});
        if (bound_of(outcome).time > 0) {
            page.push_back({table_of(roof_table(outcome))});
            say(roof_sentence(outcome));
        }
    } else {
        page.push_back({table_of(rate_time_table(service))});
        page.push_back({table_of(rate_table(service))});
        page.push_back({table_of(rate_roof_table(service))});
    }
    if (!has_limits(settings.limits))
        say("There are no limits, so all requests count as served in time.");
    else if (service.outcomes.size() > 1)
        say(best_rate(service));
    if (service.outcomes.front().report.seconds == 0)
        say(fmt::format("On cluster {} nothing takes time.",
                        printable(settings.cluster.name)));
    return page;
}

namespace {

Json json_of(const Spread& spread) {
    return {{"p50", seconds(spread.p50)},
            {"p90", seconds(spread.p90)},
            {"p99", seconds(spread.p99)}};
}

Json json_of(const ServiceOutcome::Work& work) {
    return {{"passes", work.passes},
            {"rows", work.rows},
            {"rows_per_pass", work.rows_of_pass()}};
}

Json json_of(const std::vector<ServedPass>& passes) {
    Json all = Json::array();
    for (const ServedPass& pass : passes) {
        Json pieces = Json::array();
        for (const ServedPass::Piece& piece : pass.pieces)
            pieces.push_back({{"request", piece.request},
                              {"first", piece.first},
                              {"rows", piece.rows},
                              {"token", piece.wanted}});
        all.push_back({{"start", seconds(pass.start)},
                       {"end", seconds(pass.end)},
                       {"pages", pass.pages},
                       {"pieces", std::move(pieces)}});
    }
    return all;
}

Json json_of(const ServiceOutcome::Ended& ended, std::int64_t id) {
    const Served& served = ended.served;
    return {{"id", id},
            {"replica", ended.replica},
            {"arrival", seconds(served.arrival)},
            {"prompt", ended.prompt},
            {"output", static_cast<std::int64_t>(served.answer.tokens.size())},
            {"first", seconds(served.first)},
            {"last", seconds(served.last)},
            {"preemptions", served.answer.preemptions},
            {"reused", served.answer.reused}};
}

Json json_of(const ServiceSettings& settings, const ServiceOutcome& outcome,
             bool passes) {
    const ServiceReport& report = outcome.report;
    Json answers = Json::array();
    std::int64_t id = 0;
    for (const ServiceOutcome::Ended& ended : outcome.requests)
        answers.push_back(json_of(ended, id++));
    Json json{{"per_second", outcome.per_second ? Json(*outcome.per_second) : Json()},
              {"requests", report.requests},
              {"tokens", report.tokens},
              {"seconds", report.seconds},
              {"tokens_per_second", tokens_a_second(report)},
              {"first_token", json_of(report.to_first)},
              {"token", json_of(report.per_token)},
              {"within_limits", report.kept},
              {"goodput", report.goodput},
              {"goodput_of_device", report.goodput / settings.ranks()},
              {"preemptions", report.preemptions},
              {"reused", report.reused},
              {"work", json_of(outcome.passes)},
              {"peak_bytes", outcome.peak_bytes},
              {"roof",
               {{"products", seconds(outcome.roof.products)},
                {"memory", seconds(outcome.roof.memory)},
                {"links", seconds(outcome.roof.links)},
                {"arrivals", seconds(outcome.last_arrival)}}},
              {"answers", std::move(answers)}};
    if (settings.apart) {
        json["prompt_work"] = json_of(outcome.prompts);
        json["moved_bytes"] = outcome.moved_bytes;
    }
    if (!passes) return json;
    Json replicas = Json::array();
    for (const ServiceTrace& trace : outcome.replicas) {
        Json replica{{"passes", json_of(trace.passes)}};
        if (settings.apart) replica["prompts"] = json_of(trace.prompts);
        replicas.push_back(std::move(replica));
    }
    json["replicas"] = std::move(replicas);
    return json;
}

Json json_of_limit(Picoseconds limit) {
    return limit > 0 ? Json(seconds(limit)) : Json();
}

}  // namespace

std::string service_json(const ExaminedService& service, bool passes) {
    const ServiceSettings& settings = service.settings;
    const ServiceHolding& holding = service.holding;
    const BatchRules& rules = settings.rules;
    Json axes = Json::array(), runs = Json::array();
    for (const MeshShape::Axis& axis : settings.axes)
        axes.push_back({{"name", axis.name}, {"size", axis.size}});
    for (const ServiceOutcome& outcome : service.outcomes)
        runs.push_back(json_of(settings, outcome, passes));
    const Json document{{"model", settings.model},
                        {"parameters", settings.sizes->parameters()},
                        {"mesh", std::move(axes)},
                        {"apart", settings.apart},
                        {"devices", settings.ranks()},
                        {"replicas", settings.replicas()},
                        {"cluster", settings.cluster.name},
                        {"dtype", lockstep::name_of(settings.dtype)},
                        {"numbers", settings.numbers},
                        {"batch",
                         {{"sequences", rules.most_sequences},
                          {"rows", rules.most_rows},
                          {"pieces", rules.pieces},
                          {"continuous", rules.continuous}}},
                        {"limits",
                         {{"first_token", json_of_limit(settings.limits.to_first)},
                          {"token", json_of_limit(settings.limits.per_token)}}},
                        {"device",
                         {{"memory_bytes", holding.memory_bytes},
                          {"weight_bytes", holding.weight_bytes},
                          {"token_bytes", holding.page_bytes / settings.page_rows},
                          {"pages", holding.pages},
                          {"page_rows", settings.page_rows},
                          {"cache_bytes", holding.cache_bytes()},
                          {"reuse", settings.reuse}}},
                        {"runs", std::move(runs)}};
    return document.dump() + "\n";
}

Chart service_chart_of(const ExaminedService& service, int replica) {
    ServiceTrace trace =
        service.outcomes.front().replicas[static_cast<std::size_t>(replica)];
    const ServiceSettings& settings = service.settings;
    trace.title =
        fmt::format("{} on {}", name_of(settings), printable(settings.cluster.name));
    if (settings.replicas() > 1)
        trace.title += fmt::format(", replica {} of {}", replica, settings.replicas());
    return service_chart(std::move(trace));
}

}  // namespace lockstep::lessons
