#include <algorithm>
#include <map>
#include <set>

#include "src/inference/gpt_service.hpp"
#include "src/inference/request_mix.hpp"
#include "src/nn/published_sizes.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

std::vector<Request> some_requests(double per_second) {
    return make_requests({20, per_second, 1, 30, 1, 12, 29, 5});
}

struct RanService {
    std::map<std::int64_t, std::vector<std::int32_t>> tokens;  ///< by request
    std::vector<std::vector<ServedPass>> passes;               ///< by rank
    std::vector<bool> generates;
    RunReport report;
};

RanService run(const ServicePlan& plan, double per_second) {
    const auto requests = some_requests(per_second);
    RanService ran;
    const auto ranks = static_cast<std::size_t>(plan.shape().ranks());
    ran.passes.resize(ranks);
    std::vector<int> generates(ranks);
    std::vector<std::vector<Served>> served(ranks);
    sim::ClusterOptions options;
    options.ranks = plan.shape().ranks();
    options.spec = load_cluster("classroom");
    ran.report = sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        const auto place = static_cast<std::size_t>(rank.index());
        GptService service(rank, plan);
        auto done = service.serve(requests);
        if (service.speaks()) served[place] = std::move(done);
        generates[place] = service.generates();
        ran.passes[place] = service.passes();
    });
    ran.generates.assign(generates.begin(), generates.end());
    for (const auto& of_rank : served)
        for (const Served& request : of_rank) {
            CAPTURE(request.answer.id);
            REQUIRE(ran.tokens.emplace(request.answer.id, request.answer.tokens).second);
        }
    return ran;
}

}  // namespace

TEST_CASE("A service gives the same answers on every mesh", "[inference][sim]") {
    GptSizes sizes = small_sizes(true, 4);
    const bool experts = GENERATE(false, true);
    if (experts) {
        sizes.block.experts.count = 4;
        sizes.block.experts.inner = 24;
        sizes.block.experts.gate.chosen = 2;
    }
    ServiceOptions options;
    options.cache = {40, 4};
    options.rules.most_rows = 24;
    options.dtype = DType::f64;
    options.seed = 7;
    const auto expected = run(ServicePlan(sizes, options), 0).tokens;
    REQUIRE(expected.size() == 20);
    const double per_second = GENERATE(0, 4000);
    using Axes = std::vector<MeshShape::Axis>;
    for (const auto& [axes, apart, needs_experts] :
         std::vector<std::tuple<Axes, bool, bool>>{
             {{{"dp", 2}, {"tp", 2}}, false, false},
             {{{"tp", 8}}, false, false},
             {{{"tp", 2}, {"dp", 3}}, false, false},
             {{{"dp", 2}, {"tp", 2}}, true, false},
             {{{"dp", 3}}, true, false},
             {{{"ep", 4}}, false, true},
             {{{"dp", 2}, {"ep", 2}}, false, true},
             {{{"ep", 2}, {"tp", 2}}, false, true},
         }) {
        if (needs_experts && !experts) continue;
        options.axes = axes;
        options.apart = apart;
        const ServicePlan plan(sizes, options);
        CAPTURE(experts, per_second, plan.shape().text());
        CHECK(run(plan, per_second).tokens == expected);
    }
}

TEST_CASE("A service's passes compute each row once", "[inference][sim]") {
    const bool apart = GENERATE(false, true);
    const ServicePlan plan(small_sizes(true, 4), {.axes = {{"dp", 2}},
                                                  .apart = apart,
                                                  .cache = {100, 4},
                                                  .rules = {.most_rows = 16},
                                                  .reuse = false,
                                                  .dtype = DType::f64});
    const RanService ran = run(plan, 3000);
    std::map<std::int64_t, std::int64_t> rows, wanted;
    for (const auto& of_rank : ran.passes) {
        Picoseconds before = 0;
        for (const ServedPass& pass : of_rank) {
            CHECK(before <= pass.start);
            CHECK(pass.start < pass.end);
            CHECK(pass.pages <= 100);
            before = pass.end;
            std::int64_t of_pass = 0;
            for (const ServedPass::Piece& piece : pass.pieces) {
                rows[piece.request] += piece.rows;
                wanted[piece.request] += piece.wanted;
                of_pass += piece.rows;
            }
            CHECK(of_pass <= 16);
        }
    }
    for (const Request& request : some_requests(3000)) {
        CAPTURE(request.id);
        const auto prompt = static_cast<std::int64_t>(request.prompt.size());
        CHECK(rows[request.id] == prompt + request.output - 1);
        CHECK(wanted[request.id] == request.output);
    }
}

TEST_CASE("A service has weights and a cache, and no gradients", "[inference][sim]") {
    GptSizes sizes = small_sizes(true, 4);
    sizes.block.experts.count = GENERATE(0, 4);
    sizes.block.experts.inner = 24;
    ServiceOptions options;
    options.cache = {10, 4};
    options.dtype = DType::f64;
    const RanService ran = run(ServicePlan(sizes, options), 0);
    const MemoryReport& memory = ran.report.ranks.front().memory;
    CHECK(memory.peak_of(MemoryCategory::gradients) == 0);
    CHECK(memory.peak_of(MemoryCategory::parameters) == 8 * sizes.parameters());
    CHECK(memory.peak_of(MemoryCategory::cache) ==
          std::int64_t{10} * 4 * cache_bytes_of_token(sizes, DType::f64));
}

TEST_CASE("Impossible plans for a service are refused", "[inference]") {
    const auto said = [](const GptSizes& sizes, const ServiceOptions& options) {
        return refusal([&] { ServicePlan(sizes, options); });
    };
    CHECK_THAT(said(small_sizes(true), {.axes = {{"pp", 2}}}),
               says("the axis 'pp' is unknown"));
    CHECK_THAT(said(small_sizes(true), {.axes = {{"ep", 2}}}),
               says("2 ranks along ep, but the GPT has no experts"));
    CHECK_THAT(said(small_sizes(true),
                    {.axes = {}, .apart = true, .rules = {.continuous = false}}),
               says("prompts on their own devices (apart) need continuous batching"));
    CHECK_THAT(
        said(deepseek_v3(64), {.axes = {{"ep", 2}}, .apart = true}),
        says("with prompts on their own devices (apart) ep must have 1 rank, not 2"));
}

}  // namespace lockstep::test
