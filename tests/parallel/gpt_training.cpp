#include "tests/parallel/gpt_training.hpp"

#include "src/comm/chunks.hpp"
#include "src/comm/mesh.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep::test {

namespace {

/// What a rank trains on: these sequences of each step's batch, and its tokens of them.
struct Share {
    Chunk sequences;
    TokenDeal tokens{};
    double weight = 1;
    Loss loss = cross_entropy_loss;
    bool has_loss = true;  ///< else another rank has the same
};

/// A step's tokens, and each one's successor.
MicroBatch batch_of(Device& device, const Lessons& lessons, int step,
                    const Share& share) {
    const HostTensor ids =
        ids_below({lessons.length + 1, lessons.batch}, lessons.sizes.vocabulary,
                  "tokens" + std::to_string(step));
    const HostTensor own = shard_of(
        ids, column_part(ids.shape(), share.sequences.begin, share.sequences.count));
    const auto upload = [&](std::int64_t first) {
        return device.upload(dealt_rows(own.rows(first, lessons.length), share.tokens));
    };
    return {upload(0), upload(1), share.weight};
}

std::unique_ptr<Optimizer> make_optimizer(Module& model, bool adamw) {
    if (adamw)
        return std::make_unique<AdamW>(model.parameters(),
                                       AdamWOptions{.learning_rate = 1e-3});
    return std::make_unique<Sgd>(model.parameters(), SgdOptions{0.1, 0.9, 0});
}

void train(Rank& rank, Module& model, const Lessons& lessons, const Share& share) {
    Device& device = rank.device();
    AllReduceSync sync(model.parameters());
    const auto optimizer = make_optimizer(model, lessons.adamw);
    lockstep::train(rank, model.parameters(), lessons.steps, [&](int step) {
        const MicroBatch batch = batch_of(device, lessons, step, share);
        const Tensor loss =
            train_step(device, model, share.loss, {&batch, 1}, sync, *optimizer);
        rank.keep_value("own loss", device.peek(loss).at(0));
        return share.has_loss ? loss : Tensor();
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
        train(rank, *model, lessons,
              {{0, lessons.batch}, {}, 1, kit.loss(lessons.sizes), rank.index() == 0});
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
        // One whose gradient the ranks do not know to be partial is not added up.
        if (Parameter* forgotten = find_parameter(*model, dealing.forgotten))
            forgotten->placements.clear();
        const Chunk own = chunk(lessons.batch, dealing.dp, mesh.coordinate("dp"));
        train(rank, *model, lessons,
              {own, kit.tokens,
               static_cast<double>(own.count) /
                   static_cast<double>(lessons.batch * kit.tokens.ranks)});
    };
    return outcome_of(*classroom(dealing.dp * dealing.cp, true, dealing.check), program,
                      dealing.forgotten.empty() ? Mistakes::thrown : Mistakes::kept);
}

}  // namespace lockstep::test
