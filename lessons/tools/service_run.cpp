#include "lessons/tools/service_run.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/device/ledger.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

sim::ClusterOptions cluster_of(const ServiceSettings& settings) {
    sim::ClusterOptions options;
    options.ranks = settings.ranks();
    options.spec = settings.cluster;
    options.numbers = settings.numbers;
    options.check = sim::CheckLevel::cheap;
    return options;
}

/// Runs a program on the devices of the service. If the library refuses the program, or a
/// device is full, the error names the service's file.
RunReport run_on(const ServiceSettings& settings, const Program& program) {
    try {
        return sim::make_cluster(cluster_of(settings))->run(program);
    } catch (const OutOfMemoryError& error) {
        throw UsageError(
            fmt::format("{}: {}; fewer cache.pages are expected, or fewer "
                        "batch.rows",
                        settings.file, error.diagnosis().sentence));
    } catch (const UsageError& error) {
        throw UsageError(settings.file + ": " + error.what());
    }
}

/// Returns the number of pages that fit, together with the weights, into nine tenths of a
/// device's memory.
std::int64_t pages_that_fit(const ServiceSettings& settings,
                            const ServiceHolding& holding) {
    constexpr std::int64_t kMostOnAll = std::int64_t{1} << 24;
    require(holding.memory_bytes > 0,
            "{}: devices of cluster {} have unlimited memory, so set cache.pages",
            settings.file, printable(settings.cluster.name));
    const std::int64_t room = holding.memory_bytes / 10 * 9 - holding.weight_bytes;
    require(room >= holding.page_bytes, [&] {
        return fmt::format(
            "{}: weights take {} per device and a page {}, but nine tenths of its memory "
            "are only {}; use more devices along tp or a smaller model",
            settings.file, bytes_text(holding.weight_bytes),
            bytes_text(holding.page_bytes), bytes_text(holding.memory_bytes / 10 * 9));
    });
    return std::min({room / holding.page_bytes, kMostPages,
                     std::max<std::int64_t>(kMostOnAll / settings.ranks(), 1)});
}

}  // namespace

ServiceHolding holding_of(const ServiceSettings& settings) {
    // One replica is enough: other replicas and devices for prompts hold the same.
    ServiceSettings one = settings;
    one.axes = {{"ep", settings.size("ep")}, {"tp", settings.size("tp")}};
    one.apart = false;
    one.numbers = false;
    one.cluster.memory_bytes = 0;
    const ServicePlan plan(*one.sizes, one.options(1));
    const RunReport report =
        run_on(one, [&](Rank& rank) { const GptService service(rank, plan); });
    ServiceHolding holding;
    holding.memory_bytes = settings.cluster.memory_bytes;
    holding.ready = report.makespan();
    for (const RankReport& rank : report.ranks) {
        const auto held = [&](MemoryCategory category) {
            return rank.memory.peak_of(category);
        };
        holding.weight_bytes =
            std::max(holding.weight_bytes, held(MemoryCategory::parameters));
        holding.page_bytes = std::max(holding.page_bytes, held(MemoryCategory::cache));
    }
    holding.all_that_fit = !settings.pages;
    holding.pages = settings.pages ? *settings.pages : pages_that_fit(settings, holding);
    require(holding.memory_bytes == 0 ||
                holding.cache_bytes() + holding.weight_bytes <= holding.memory_bytes,
            [&] {
                return fmt::format(
                    "{}: cache.pages is {}: these pages take {} and the weights {}, but "
                    "a device has only {}",
                    settings.file, holding.pages, bytes_text(holding.cache_bytes()),
                    bytes_text(holding.weight_bytes), bytes_text(holding.memory_bytes));
            });
    return holding;
}

namespace {

/// The results of each replica, from its first device. If prompts have devices of their
/// own, also the results of the replica's first device for prompts.
struct Left {
    std::vector<std::vector<Served>> served;
    std::vector<std::vector<Served>> prefilled;  ///< by devices that only compute prompts
    std::vector<std::vector<ServedPass>> prompts, passes;
};

RunReport run_all(const ServiceSettings& settings, const ServicePlan& plan,
                  const std::vector<Request>& requests, Left& left) {
    const MeshShape& shape = plan.shape();
    return run_on(settings, [&](Rank& rank) {
        GptService service(rank, plan);
        std::vector<Served> done = service.serve(requests);
        if (shape.coordinate(rank.index(), "tp") != 0) return;
        const auto replica = static_cast<std::size_t>(service.replica());
        (service.generates() ? left.served : left.prefilled)[replica] = std::move(done);
        (service.generates() ? left.passes : left.prompts)[replica] = service.passes();
    });
}

/// Subtracts `ready` from all times, so that the weights are ready at time 0.
void from_time(Picoseconds ready, std::vector<Request>& requests, Left& left) {
    for (Request& request : requests)
        request.arrival -= ready;
    for (std::vector<Served>& of_replica : left.served)
        for (Served& request : of_replica)
            for (Picoseconds* time : {&request.arrival, &request.first, &request.last})
                *time -= ready;
    for (auto* replicas : {&left.prompts, &left.passes})
        for (std::vector<ServedPass>& passes : *replicas)
            for (ServedPass& pass : passes)
                for (Picoseconds* time : {&pass.start, &pass.end})
                    *time -= ready;
}

ServiceOutcome::Work work_of(const std::vector<std::vector<ServedPass>>& replicas) {
    ServiceOutcome::Work work;
    for (const std::vector<ServedPass>& passes : replicas)
        for (const ServedPass& pass : passes) {
            ++work.passes;
            for (const ServedPass::Piece& piece : pass.pieces)
                work.rows += piece.rows;
        }
    return work;
}

std::int64_t moved_bytes(const RunReport& report) {
    std::int64_t bytes = 0;
    for (const RankReport& rank : report.ranks)
        for (const Traffic& traffic : rank.traffic)
            if (traffic.group == "side") bytes += traffic.bytes_sent;
    return bytes;
}

/// Completes the outcome's roof, whose products and links are known.
void add_memory_roof(const ServiceSettings& settings, const ServiceHolding& holding,
                     ServiceOutcome& outcome) {
    struct Reads {
        std::int64_t rows = 0;     ///< of keys and values
        std::int64_t longest = 0;  ///< answer
    };
    std::map<std::int64_t, Reads> replicas;
    for (const ServiceOutcome::Ended& ended : outcome.requests) {
        const auto tokens = static_cast<std::int64_t>(ended.served.answer.tokens.size());
        Reads& reads = replicas[ended.replica];
        reads.rows += tokens * ended.prompt + tokens * (tokens - 1) / 2;
        reads.longest = std::max(reads.longest, tokens);
    }
    const auto used = static_cast<double>(settings.sizes->active_parameters()) /
                      static_cast<double>(settings.sizes->parameters());
    const double weights = static_cast<double>(holding.weight_bytes) * used;
    const std::int64_t rows_that_fit = holding.pages * settings.page_rows;
    for (const auto& [replica, reads] : replicas) {
        const std::int64_t passes =
            std::max(reads.longest, (reads.rows + rows_that_fit - 1) / rows_that_fit);
        const double bytes = static_cast<double>(passes) * weights +
                             static_cast<double>(reads.rows) *
                                 static_cast<double>(holding.page_bytes) /
                                 static_cast<double>(settings.page_rows);
        if (settings.cluster.memory_bytes_per_second == 0) continue;
        const Picoseconds time =
            countable_picoseconds(bytes / settings.cluster.memory_bytes_per_second);
        if (time < outcome.roof.memory) continue;
        outcome.roof.memory = time;
        outcome.fewest_passes = passes;
    }
}

}  // namespace

ServiceOutcome served(const ServiceSettings& settings, const ServiceHolding& holding,
                      std::optional<double> per_second) {
    std::vector<Request> requests = requests_of(settings, per_second);
    for (Request& request : requests)
        request.arrival += holding.ready;
    const ServicePlan plan(*settings.sizes, settings.options(holding.pages));
    const auto replicas = static_cast<std::size_t>(plan.replicas());
    Left left;
    left.served.resize(replicas);
    left.prefilled.resize(replicas);
    left.prompts.resize(replicas);
    left.passes.resize(replicas);
    const RunReport report = run_all(settings, plan, requests, left);
    from_time(holding.ready, requests, left);

    ServiceOutcome outcome;
    if (settings.mix) outcome.per_second = per_second.value_or(settings.mix->per_second);
    outcome.prompts = work_of(left.prompts);
    outcome.passes = work_of(left.passes);
    outcome.peak_bytes = report.most_held();
    outcome.moved_bytes = moved_bytes(report);
    std::vector<Served> all;
    all.reserve(requests.size());
    outcome.requests.resize(requests.size());
    // Requests go to the replicas in turn.
    const std::vector<ServiceTrace::Asked> asked = asked_of(requests);
    for (std::size_t replica = 0; replica < replicas; ++replica) {
        ServiceTrace trace;
        trace.replica = static_cast<int>(replica);
        trace.pages = holding.pages;
        for (std::size_t i = replica; i < asked.size(); i += replicas) {
            trace.requests.push_back(asked[i]);
            outcome.requests[static_cast<std::size_t>(asked[i].id)] = {
                asked[i].prompt, static_cast<std::int64_t>(replica), {}};
        }
        trace.passes = std::move(left.passes[replica]);
        trace.prompts = std::move(left.prompts[replica]);
        outcome.replicas.push_back(std::move(trace));
        std::map<std::int64_t, Answer> prefilled;
        for (Served& request : left.prefilled[replica])
            prefilled[request.answer.id] = std::move(request.answer);
        for (Served& request : left.served[replica]) {
            const Answer& prompt = prefilled[request.answer.id];
            request.answer.reused += prompt.reused;
            request.answer.preemptions += prompt.preemptions;
            all.push_back(request);
            outcome.requests[static_cast<std::size_t>(request.answer.id)].served =
                std::move(request);
        }
    }
    outcome.report = report_of(all, settings.limits);
    outcome.roof.products = report.roof.products;
    outcome.roof.links = report.roof.links;
    add_memory_roof(settings, holding, outcome);
    const auto [first, last] = std::ranges::minmax(
        requests, {}, [](const Request& request) { return request.arrival; });
    outcome.last_arrival = last.arrival - first.arrival;
    return outcome;
}

}  // namespace lockstep::lessons
