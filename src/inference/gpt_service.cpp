#include "src/inference/gpt_service.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "src/core/require.hpp"
#include "src/inference/disaggregation.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

namespace lockstep {

namespace {

MeshShape with_all_axes(const ServiceOptions& options) {
    constexpr std::array<const char*, 3> kNames{"dp", "ep", "tp"};
    std::vector<MeshShape::Axis> all{{"side", options.apart ? 2 : 1}};
    for (const char* name : kNames)
        if (std::ranges::count(options.axes, name, &MeshShape::Axis::name) == 0)
            all.push_back({name, 1});
    for (const MeshShape::Axis& axis : options.axes) {
        require(std::ranges::count(kNames, axis.name) > 0,
                "a GPT that answers requests on a mesh: the axis '{}' is unknown; dp, ep "
                "and tp are known",
                axis.name);
        all.push_back(axis);
    }
    return MeshShape(all);
}

}  // namespace

ServicePlan::ServicePlan(const GptSizes& sizes, const ServiceOptions& options)
    : sizes_(sizes), options_(options), shape_(with_all_axes(options)) {
    require(sizes.block.experts.count > 0 || size("ep") == 1,
            "a GPT that answers requests: there are {} ranks along ep, but the GPT has "
            "no experts",
            size("ep"));
    require(!options.apart || options.rules.continuous,
            "a GPT that answers requests: prompts on their own devices (apart) need "
            "continuous batching");
    require(
        !options.apart || size("ep") == 1,
        "a GPT that answers requests: ranks along ep wait for each other before each "
        "pass, so with prompts on their own devices (apart) ep must have 1 rank, not {}",
        size("ep"));
}

namespace {

GptKit kit_on(Mesh& mesh, TensorParallel& tensor, KeyValueCache& cache,
              const GptSizes& sizes) {
    GptKit kit;
    if (mesh.size("tp") > 1) kit = copy_key_heads(tensor_parallel(kit, tensor), tensor);
    // A pass may have any number of rows, so ranks along tp cannot shard the rows.
    if (sizes.block.experts.count > 0)
        kit = expert_parallel(kit, mesh, {"ep"}, {.tp = &tensor, .drop_copies = false});
    return with_cache(kit, cache);
}

/// Returns every `replicas`-th request, from number `replica` on.
std::vector<Request> dealt(const std::vector<Request>& all, int replica, int replicas) {
    std::vector<Request> own;
    for (auto i = static_cast<std::size_t>(replica); i < all.size();
         i += static_cast<std::size_t>(replicas))
        own.push_back(all[i]);
    return own;
}

}  // namespace

GptService::GptService(Rank& rank, const ServicePlan& plan, SourceLine at)
    : device_(rank.device()),
      plan_(plan),
      mesh_(rank.world(), plan.shape().axes(), at),
      tensor_(rank.device(), mesh_["tp"]),
      cache_(rank.device(), plan.options().dtype, plan.options().cache),
      pool_(plan.options().cache.pages, plan.options().cache.page_rows,
            plan.options().reuse),
      batcher_(pool_, plan.options().rules),
      gpt_(make_gpt(
          ParameterInit{rank.device(), plan.options().dtype, plan.options().seed, ""}
              .for_inference(),
          plan.sizes(), kit_on(mesh_, tensor_, cache_, plan.sizes()))) {}

std::vector<Served> GptService::serve(const std::vector<Request>& requests) {
    const std::vector<Request> own = dealt(requests, replica(), plan_.replicas());
    const auto compute = [this](const Pass& pass, const std::vector<Wanted>& wanted) {
        return this->compute(pass, wanted);
    };
    ServiceRanks ranks;
    if (mesh_.size("tp") > 1) ranks.same = &mesh_["tp"];
    if (mesh_.size("ep") > 1) ranks.others = &mesh_["ep"];
    if (!plan_.options().apart)
        return lockstep::serve(device_, ranks, batcher_, own, compute);

    constexpr int kPrompts = 0, kTokens = 1;
    if (generates()) {
        PrefilledArrivals arrivals(cache_, mesh_["side"], kPrompts, ranks.same, own);
        return lockstep::serve(device_, arrivals, batcher_, compute);
    }
    PrefillSender sender(cache_, mesh_["side"], kTokens);
    auto served =
        lockstep::serve(device_, ranks, batcher_, first_tokens_of(own),
                        [&](const Pass& pass, const std::vector<Wanted>& wanted) {
                            auto tokens = compute(pass, wanted);
                            sender.send(pass, tokens);
                            return tokens;
                        });
    sender.finish();
    return served;
}

std::vector<std::int32_t> GptService::compute(const Pass& pass,
                                              const std::vector<Wanted>& wanted) {
    ServedPass done{device_.now(), 0, pool_.pages() - pool_.free(), {}};
    std::optional<RowByRow> scope;
    if (plan_.options().row_by_row) scope.emplace(device_);
    const Tensor logits = gpt_->infer(cache_.begin(pass));
    auto tokens =
        sample_rows(device_, mesh_["tp"], logits, plan_.sizes().vocabulary, wanted);
    done.end = device_.now();
    for (std::size_t i = 0; i < pass.requests.size(); ++i) {
        const PagedSequence& sequence = pass.tokens.sequences[i];
        done.pieces.push_back({pass.requests[i], sequence.first, sequence.count, false});
    }
    for (const Wanted& row : wanted)
        std::ranges::find(done.pieces, row.request, &ServedPass::Piece::request)->wanted =
            true;
    passes_.push_back(std::move(done));
    return tokens;
}

}  // namespace lockstep
