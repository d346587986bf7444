#include "tests/parallel/gpt_training.hpp"

#include "src/comm/mesh.hpp"
#include "src/nn/losses.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep::test {

std::vector<MicroBatch> batches_of(Device& device, const Lessons& lessons, int step,
                                   const Share& share, int micro_batches) {
    const HostTensor ids =
        ids_below({lessons.length + 1, lessons.batch}, lessons.sizes.vocabulary,
                  "tokens" + std::to_string(step));
    const std::int64_t terms = lessons.batch * share.tokens.ranks;
    std::vector<MicroBatch> batches;
    for (int i = 0; i < micro_batches; ++i) {
        const Chunk part = chunk(share.sequences.count, micro_batches, i);
        const HostTensor own = shard_of(
            ids,
            column_part(ids.shape(), share.sequences.begin + part.begin, part.count));
        const auto upload = [&](std::int64_t first) {
            return device.upload(
                dealt_rows(own.rows(first, lessons.length), share.tokens));
        };
        batches.push_back({upload(0), upload(1),
                           static_cast<double>(part.count) / static_cast<double>(terms)});
    }
    return batches;
}

namespace {

/// If several ranks compute the same loss, `has_loss` is true on only one of them.
void train(Rank& rank, Module& model, const Lessons& lessons, const Share& share,
           const Loss& loss_of = cross_entropy_loss, bool has_loss = true) {
    Device& device = rank.device();
    AllReduceSync sync(model.parameters());
    const auto optimizer =
        lessons.adamw ? make_optimizer<AdamW>(model.parameters(),
                                              AdamWOptions{.learning_rate = 1e-3})
                      : make_optimizer<Sgd>(model.parameters(), kMomentumSgd);
    lockstep::train(rank, model.parameters(), lessons.steps, [&](int step) {
        const auto batches =
            batches_of(device, lessons, step, share, lessons.micro_batches);
        const Tensor loss = train_step(device, model, loss_of, batches, sync, *optimizer);
        rank.keep_value("own loss", device.peek(loss).at(0));
        return has_loss ? loss : Tensor();
    });
}

ParameterInit init_of(Rank& rank, const Lessons& lessons) {
    return {rank.device(), lessons.dtype, 5, ""};
}

}  // namespace

Outcome train_alone(const Lessons& lessons) {
    return outcome_of(*classroom(1, lessons.numbers), [&](Rank& rank) {
        const auto model = make_gpt(init_of(rank, lessons), lessons.sizes);
        train(rank, *model, lessons, {{0, lessons.batch}});
    });
}

Outcome train_shared(int ranks, Regions kind, const Lessons& lessons) {
    Outcome outcome = outcome_of(*classroom(ranks, lessons.numbers), [&](Rank& rank) {
        const auto tp = regions(kind)(rank.device(), rank.world());
        const GptKit kit = tensor_parallel({}, *tp);
        const auto model = make_gpt(init_of(rank, lessons), lessons.sizes, kit);
        train(rank, *model, lessons, {{0, lessons.batch}}, kit.loss(lessons.sizes),
              rank.index() == 0);
    });
    const auto& ranks_left = outcome.report.ranks;
    for (const RankReport& rank : ranks_left)
        if (lessons.numbers)
            REQUIRE(rank.series.at("own loss") ==
                    ranks_left.front().series.at("own loss"));
    return outcome;
}

Dealing dealt_to(int cp, ContextMethod method, TokenOrder order) {
    return {1, cp, [=](Communicator& group) {
                return context_parallel({}, group, method, order);
            }};
}

Outcome train_dealt(const Dealing& dealing, const Lessons& lessons) {
    const auto program = [&](Rank& rank) {
        const Mesh mesh(rank.world(), {{"dp", dealing.dp}, {"cp", dealing.cp}});
        const GptKit kit = dealing.kit(mesh["cp"]);
        const auto model = make_gpt(init_of(rank, lessons), lessons.sizes, kit);
        declare_replicas_of(rank.world(), *model);
        // Without placements a gradient does not count as partial, so it is not summed.
        if (Parameter* forgotten = find_parameter(*model, dealing.forgotten))
            forgotten->placements.clear();
        train(rank, *model, lessons,
              {chunk(lessons.batch, dealing.dp, mesh.coordinate("dp")), kit.tokens});
    };
    return outcome_of(*classroom(dealing.dp * dealing.cp, true, dealing.check), program,
                      dealing.forgotten.empty() ? Mistakes::thrown : Mistakes::kept);
}

}  // namespace lockstep::test
